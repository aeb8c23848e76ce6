"""What is done to a picture before it is encoded: nothing, a flip, or an augmentation."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.inference.encoder import Squares

Change = Callable[[Squares, NDArray[np.int64]], Squares]


@dataclass(frozen=True)
class View:
    """A named change of squares (n, 3, size, size), given with their frame numbers (n,)."""

    name: str  # part of a store's key: another change needs another name
    change: Change


def _same(squares: Squares, frames: NDArray[np.int64]) -> Squares:
    return squares


def _mirrored(squares: Squares, frames: NDArray[np.int64]) -> Squares:
    return np.ascontiguousarray(squares[..., ::-1])


PLAIN = View("plain", _same)
FLIPPED = View("flipped", _mirrored)

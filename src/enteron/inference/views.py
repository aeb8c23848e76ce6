"""Views: what an encoder is shown of a frame besides the frame itself, and sets of them.

The scores of a set's views are averaged (decision 19). A capsule has no up and no left, so all
eight mirrored and turned copies of a square picture, the group D4, show what could have been
recorded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from enteron.inference.encoder import ImageBatch

ViewFunction = Callable[[ImageBatch, NDArray[np.int64]], ImageBatch]
"""Takes images (n, 3, size, size) and their frame numbers (n,)."""


@dataclass(frozen=True)
class View:
    """A named transformation of images."""

    name: str  # part of a store's key: another transformation needs another name
    change: ViewFunction


def _symmetry(*, transpose: bool = False, down: int = 1, across: int = 1) -> ViewFunction:
    """Exchange rows and columns, then read them forwards (1) or backwards (-1)."""

    def change(images: ImageBatch, frames: NDArray[np.int64]) -> ImageBatch:
        turned = images.swapaxes(-1, -2) if transpose else images
        return np.ascontiguousarray(turned[..., ::down, ::across])

    return change


PLAIN = View("plain", lambda images, frames: images)
FLIPPED = View("flipped", _symmetry(across=-1))
_FLIPPED_VERTICALLY = View("flipped-vertically", _symmetry(down=-1))
_TURNED_180 = View("turned-180", _symmetry(down=-1, across=-1))
_TURNED_90 = View("turned-90", _symmetry(transpose=True, down=-1))  # anticlockwise
_TURNED_270 = View("turned-270", _symmetry(transpose=True, across=-1))
_TRANSPOSED = View("transposed", _symmetry(transpose=True))
_TRANSVERSED = View("transversed", _symmetry(transpose=True, down=-1, across=-1))

ViewSet = Literal["none", "flip", "flips", "d4"]

_FLIPS = (PLAIN, FLIPPED, _FLIPPED_VERTICALLY, _TURNED_180)
VIEW_SETS: dict[ViewSet, tuple[View, ...]] = {
    "none": (PLAIN,),
    "flip": (PLAIN, FLIPPED),
    "flips": _FLIPS,
    "d4": (*_FLIPS, _TURNED_90, _TURNED_270, _TRANSPOSED, _TRANSVERSED),
}
"""Each set begins with the one before it."""

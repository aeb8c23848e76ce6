"""What encodes: one interface for torch and for every faster runtime."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.model.preprocessing import Preprocessing

Squares = NDArray[np.uint8]  # (n, 3, size, size) RGB, as `Preprocessing.square` makes them
Features = NDArray[np.float32]  # (n, 512)


class Encoder(Protocol):
    """A backbone ready to run. Normalisation is part of it, so that pictures travel as bytes."""

    @property
    def runtime(self) -> str:
        """Which runtime and precision: `torch`, `onnx`, `onnx-int8`; part of a store's key."""
        ...

    @property
    def batch(self) -> int:
        """Images a call that it runs well with. Embeddings may depend on it in the last bit."""
        ...

    @property
    def backbone_hash(self) -> str:
        """Of the weights that were loaded, before any quantisation."""
        ...

    @property
    def preprocessing(self) -> Preprocessing:
        """What it expects of pictures."""
        ...

    def encode(self, squares: Squares) -> Features:
        """Squares (n, 3, size, size) uint8 to embeddings (n, 512); any n, also below `batch`."""
        ...


def whole_squares(squares: Squares, preprocessing: Preprocessing) -> Squares:
    """uint8 squares (n, 3, size, size) in plain memory order, whatever view they came as.

    Flipped views and channels-last memory would reach other kernels, with other last bits.
    """
    size = preprocessing.size
    if squares.dtype != np.uint8 or squares.ndim != 4 or squares.shape[1:] != (3, size, size):
        raise ModelError(
            f"the encoder got an array of shape {squares.shape} and type {squares.dtype}",
            f"give uint8 squares (n, 3, {size}, {size}) as `Preprocessing.square` makes them",
        )
    return np.ascontiguousarray(squares)

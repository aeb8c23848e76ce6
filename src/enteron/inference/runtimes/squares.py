"""The pictures that every runtime takes, checked before any of them is run."""

import numpy as np

from enteron.errors import ModelError
from enteron.inference.encoder import Squares
from enteron.model.preprocessing import Preprocessing


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

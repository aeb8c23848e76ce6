"""Resizing of pictures with antialiasing: Pillow's algorithm for 8 bits, and its very bytes.

torch's resize of bytes imitates Pillow's and rounds some halves the other way. Here every byte is
Pillow's, so that images depend neither on torch nor on the processor. It is as fast as torch's;
Pillow itself is several times as slow (`enteron bench resampling`).
"""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from enteron.kernels import compiled

Interpolation = Literal["bicubic", "bilinear"]

RESAMPLING = 2
"""Version of the bytes: raised when they change. 1 was torch's resize; stored embeddings of it are
refused (`Preprocessing.images_hash`)."""

_SUPPORT: dict[Interpolation, float] = {"bicubic": 2.0, "bilinear": 1.0}  # pixels each side
_BITS = 22  # of weights after the binary point: with 8 of a pixel, 2 are left for sums


def resize(
    picture: NDArray[np.uint8], height: int, width: int, interpolation: Interpolation
) -> NDArray[np.uint8]:
    """A picture (h, w, 3) to (height, width, 3): along x first, and rounded after each axis."""
    import cv2

    combine = compiled(_weighted_sums)
    rows, columns = picture.shape[:2]
    if columns != width:
        # Turned on its side, so that the pixels of a weight lie next to each other in memory.
        turned = np.ascontiguousarray(cv2.transpose(picture)).reshape(columns, -1)
        resized = np.empty((width, turned.shape[1]), np.uint8)
        combine(turned, *_weights(columns, width, interpolation), resized)
        picture = np.asarray(cv2.transpose(resized.reshape(width, rows, 3)), np.uint8)
    if rows != height:
        lines = np.ascontiguousarray(picture).reshape(rows, -1)
        resized = np.empty((height, lines.shape[1]), np.uint8)
        combine(lines, *_weights(rows, height, interpolation), resized)
        picture = resized.reshape(height, width, 3)
    return picture


@lru_cache(maxsize=64)
def _weights(
    length: int, size: int, interpolation: Interpolation
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """For each of `size` outputs: its first input, their number, and their weights times 2^22."""
    scale = length / size
    stretch = max(scale, 1.0)  # a smaller picture: the filter covers more pixels
    support = _SUPPORT[interpolation] * stretch
    first, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    weights = np.zeros((size, 2 * math.ceil(support) + 1), np.int32)
    for index in range(size):
        centre = (index + 0.5) * scale
        low = max(int(centre - support + 0.5), 0)
        high = min(int(centre + support + 0.5), length)
        distances = (np.arange(low, high) - centre + 0.5) * (1.0 / stretch)
        values = _filter(np.abs(distances), interpolation)
        values /= sum(values.tolist())  # in order, as Pillow adds: pairs would round otherwise
        first[index], count[index] = low, high - low
        halves = np.where(values < 0, -0.5, 0.5)
        weights[index, : high - low] = np.trunc(halves + values * 2**_BITS).astype(np.int32)
    return first, count, weights


def _filter(x: NDArray[np.float64], interpolation: Interpolation) -> NDArray[np.float64]:
    """Weights at distances x >= 0; bicubic is Keys' kernel with a = -0.5."""
    if interpolation == "bilinear":
        return np.where(x < 1, 1 - x, 0.0)
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _weighted_sums(
    rows: NDArray[np.uint8],
    first: NDArray[np.int64],
    count: NDArray[np.int64],
    weights: NDArray[np.int32],
    result: NDArray[np.uint8],
) -> None:
    """Each row of the result (n, width): a weighted sum of neighbouring rows (m, width)."""
    width = rows.shape[1]
    sums = np.empty(width, np.int32)
    for index in range(result.shape[0]):
        sums[:] = np.int32(1 << 21)  # a half, to round
        for tap in range(count[index]):
            weight = weights[index, tap]
            row = rows[first[index] + tap]
            for column in range(width):
                sums[column] += weight * np.int32(row[column])
        line = result[index]
        for column in range(width):
            level = sums[column] >> np.int32(22)
            line[column] = np.uint8(min(max(level, np.int32(0)), np.int32(255)))

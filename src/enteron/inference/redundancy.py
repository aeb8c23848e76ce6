"""Frames that show what an earlier frame showed: a capsule stands still for minutes.

A frame is compared with the last frame that was encoded, never with its neighbour, so that slow
drift cannot add up. The distance is the largest mean difference over a grid of patches: a lesion
that comes into view changes few pixels of a frame, but many of its patch.
"""

import numpy as np
from numpy.typing import NDArray

from enteron.inference.encoder import Squares

BLOCK = 8  # pixels of a square that become one value; noise of single pixels averages out
PATCH = 4  # values along each side of a patch: 32 pixels

LIMIT = 2.0
"""Grey levels. A compromise: 1 is safer and saves half as much (`enteron bench redundancy`)."""

Thumbnail = NDArray[np.float32]  # (3, size / 8, size / 8)


def thumbnail(square: Squares) -> Thumbnail:
    """A square (3, size, size) as means over blocks of 8 x 8 pixels."""
    import cv2

    side = square.shape[1] // BLOCK
    planes = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in square]
    return np.stack(planes).astype(np.float32)


def distance(one: Thumbnail, other: Thumbnail) -> float:
    """Largest mean absolute difference over patches of 32 x 32 pixels, in grey levels (0 to 255).

    Patches overlap by half, so that nothing hides between two of them.
    """
    import cv2

    difference = np.abs(one - other).mean(axis=0)
    means = cv2.blur(difference, (PATCH, PATCH), borderType=cv2.BORDER_REPLICATE)
    half = PATCH // 2
    return float(means[half::half, half::half].max())


class Twins:
    """Says of each frame in turn whether it is redundant, and to which row."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._row = 0
        self._seen: Thumbnail | None = None

    def twin(self, row: int, square: Squares) -> int:
        """The row whose embedding this frame may take: an earlier one, or its own."""
        small = thumbnail(square)
        if self._seen is None or distance(small, self._seen) > self._limit:
            self._row, self._seen = row, small
        return self._row

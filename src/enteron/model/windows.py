"""Clips out of a study: for every frame the rows of it and of its neighbours before it."""

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError


def window_rows(count: int, step: int = 1, frames: int = 3) -> NDArray[np.int64]:
    """Rows (count, frames) of every frame's clip in a study of `count` stored frames.

    The clip of row t is (t - 2 step, t - step, t), clamped at the study's first frame (decision 1).
    `array[window_rows(...)]` makes clips of pictures as well as windows of embeddings.
    """
    if count < 0 or step < 1 or frames < 1:
        raise EnteronError(
            f"there are no clips of {frames} frames, {step} apart, in {count} frames",
            "give a step and a number of frames of at least 1",
        )
    back = np.arange(frames - 1, -1, -1, dtype=np.int64) * step
    return np.maximum(np.arange(count, dtype=np.int64)[:, None] - back, 0)

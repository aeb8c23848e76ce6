"""Means over time: what lies around each frame, at several distances, before and after it.

Time is counted in original frames, not in rows. The mean of the past at scale tau weights a frame
at a distance d by exp(-d / tau), and that of the future in the same way; both include the frame
itself. So a study that is stored at every frame and the same study stored at every fifth have
nearly the same means, and gaps and unreadable frames need no rule of their own.

A weighted sum follows from that of the row before: `sum[i] = x[i] + exp(-distance / tau) sum[i-1]`.
One pass forward and one backward give all means, however long the study is.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096
"""Rows whose means are computed at a time: a whole study's would not fit into memory."""


class TimeMeans:
    """Means of the rows (n, channels) of a study, block by block.

    The sums at the borders of blocks are kept from one pass in each direction, so that the means of
    a block are exactly those of the whole study, whatever lies beyond it.
    """

    def __init__(
        self,
        rows: NDArray[np.float32],
        positions: NDArray[np.float64],
        scales: Sequence[float],
        block: int = BLOCK,
    ) -> None:
        """`positions` (n,): where each row lies in time, ascending, in original frames."""
        self.rows = np.ascontiguousarray(rows, np.float32)
        self.scales = np.asarray(scales, np.float64)
        self.block = block
        self._steps = np.diff(np.asarray(positions, np.float64))
        starts = range(0, len(self.rows), block)
        self._past = self._border_sums(list(starts), reverse=False)
        self._future = self._border_sums(list(starts), reverse=True)

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._past)

    def means(self, block: int) -> NDArray[np.float32]:
        """(rows of the block, 2 * scales, channels): of the past at each scale, then the future."""
        start = block * self.block
        rows, before, after = self._slices(start)
        count = self.scales.size
        means = np.empty((len(rows), 2 * count, rows.shape[1]), np.float32)
        past, future = self._past[block].copy(), self._future[block].copy()
        _kernel()(rows, before, self.scales, past, means[:, :count])
        _kernel()(rows[::-1], after[::-1], self.scales, future, means[::-1, count:])
        return means

    def _slices(
        self, start: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
        """Rows of a block, and the distance of each to the row before it and after it."""
        stop = min(start + self.block, len(self.rows))
        steps = np.concatenate(([np.inf], self._steps[max(start - 1, 0) : stop], [np.inf]))
        steps = steps[0 if start == 0 else 1 :]  # at the ends of the study there is no other row
        count = stop - start
        return self.rows[start:stop], steps[:count], steps[1 : count + 1]

    def _border_sums(self, starts: list[int], *, reverse: bool) -> list[NDArray[np.float64]]:
        """For every block the sums (scales, channels + 1) up to it; the last are of the weights."""
        state = np.zeros((self.scales.size, self.rows.shape[1] + 1))
        states: list[NDArray[np.float64]] = []
        for start in reversed(starts) if reverse else starts:
            states.append(state.copy())
            rows, before, after = self._slices(start)
            if reverse:
                _sum_kernel()(rows[::-1], after[::-1], self.scales, state)
            else:
                _sum_kernel()(rows, before, self.scales, state)
        return states[::-1] if reverse else states


def time_means(
    rows: NDArray[np.float32], positions: NDArray[np.float64], scales: Sequence[float]
) -> NDArray[np.float32]:
    """All means (n, 2 * scales, channels) at once, for short studies."""
    means = TimeMeans(rows, positions, scales, max(len(rows), 1))
    return means.means(0)


def mean_gradient(
    gradient: NDArray[np.float32], positions: NDArray[np.float64], scales: Sequence[float]
) -> NDArray[np.float32]:
    """The gradient (n, channels) of rows, from that of their `time_means`."""
    count = len(scales)
    steps = np.concatenate(([np.inf], np.diff(positions), [np.inf]))
    taus = np.asarray(scales, np.float64)
    result = np.zeros((gradient.shape[0], gradient.shape[2]), np.float32)
    before, after = steps[:-1], steps[1:]
    _gradient_kernel()(np.ascontiguousarray(gradient[:, :count]), before, taus, result)
    _gradient_kernel()(
        np.ascontiguousarray(gradient[::-1, count:]), after[::-1].copy(), taus, result[::-1]
    )
    return result


@cache
def _kernel() -> Any:
    return _compiled(_running_means)


@cache
def _sum_kernel() -> Any:
    return _compiled(_running_sums)


@cache
def _gradient_kernel() -> Any:
    return _compiled(_running_gradient)


def _compiled(function: Any) -> Any:
    """The kernel, compiled on first use and kept on the disk where a folder for it can be found."""
    from numba import njit

    try:
        return njit(function, cache=True, nogil=True)
    except RuntimeError:  # neither the package nor the home folder can be written
        return njit(function, nogil=True)


def _running_means(
    rows: NDArray[np.float32],
    steps: NDArray[np.float64],
    scales: NDArray[np.float64],
    state: NDArray[np.float64],
    means: NDArray[np.float32],
) -> None:
    """Means (n, scales, channels) along rows; `state` (scales, channels + 1) is taken up."""
    channels = rows.shape[1]
    for index in range(rows.shape[0]):
        for scale in range(scales.size):
            decay = np.exp(-steps[index] / scales[scale])
            sums = state[scale]
            weight = decay * sums[channels] + 1.0
            sums[channels] = weight
            share = 1.0 / weight
            for channel in range(channels):
                total = decay * sums[channel] + rows[index, channel]
                sums[channel] = total
                means[index, scale, channel] = total * share


def _running_sums(
    rows: NDArray[np.float32],
    steps: NDArray[np.float64],
    scales: NDArray[np.float64],
    state: NDArray[np.float64],
) -> None:
    """The state after all rows, without the means."""
    channels = rows.shape[1]
    for index in range(rows.shape[0]):
        for scale in range(scales.size):
            decay = np.exp(-steps[index] / scales[scale])
            sums = state[scale]
            sums[channels] = decay * sums[channels] + 1.0
            for channel in range(channels):
                sums[channel] = decay * sums[channel] + rows[index, channel]


def _running_gradient(
    gradient: NDArray[np.float32],
    steps: NDArray[np.float64],
    scales: NDArray[np.float64],
    result: NDArray[np.float32],
) -> None:
    """Add the gradient of rows (n, channels), given that of their running means.

    A row counts in its own mean and, decayed, in all later ones: the sum runs backwards.
    """
    count, channels = result.shape
    weights = np.empty(count)
    sums = np.empty(channels)
    for scale in range(scales.size):
        weight = 0.0
        for index in range(count):
            weight = np.exp(-steps[index] / scales[scale]) * weight + 1.0
            weights[index] = weight
        sums[:] = 0.0
        for index in range(count - 1, -1, -1):
            share = 1.0 / weights[index]
            decay = np.exp(-steps[index + 1] / scales[scale]) if index + 1 < count else 0.0
            for channel in range(channels):
                total = decay * sums[channel] + gradient[index, scale, channel] * share
                sums[channel] = total
                result[index, channel] += total

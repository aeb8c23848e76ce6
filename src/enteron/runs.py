"""Runs of rows: where a column is true, or above two thresholds."""

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]
"""(n, 2) array of [start, stop) in rows, ascending."""


def runs_of(column: NDArray[np.bool_]) -> Runs:
    """Find every run of true rows."""
    padded = np.zeros(column.size + 2, dtype=np.int8)
    padded[1:-1] = column
    steps = np.diff(padded)
    return np.column_stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)])


def hysteresis(p: NDArray[np.floating], high: float, low: float) -> Runs:
    """Seeds where p >= high, extended to both sides while p >= low (paper stage 3, decision 27)."""
    # In the precision of p: a threshold of 0.55 must be reached by a float32 score of 0.55.
    high, low = np.asarray([high, low], dtype=p.dtype)
    # Only rows at or above the lower threshold are visited: they are few.
    above = np.flatnonzero(p >= low)
    if not above.size:
        return np.empty((0, 2), dtype=np.int64)
    first = np.concatenate(([0], np.flatnonzero(np.diff(above) > 1) + 1))
    last = np.append(first[1:], above.size) - 1
    seeded = np.maximum.reduceat(p[above], first) >= high
    return np.stack([above[first[seeded]], above[last[seeded]] + 1], axis=1)


def means(values: NDArray[np.floating], spans: Runs) -> NDArray[np.float64]:
    """Mean of the values over each span."""
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    return (total[spans[:, 1]] - total[spans[:, 0]]) / (spans[:, 1] - spans[:, 0])


def scaled_rows(rows: float, row_scale: float) -> int:
    """A number of full-length rows in rows of a study with fewer; at least 1, unless it is 0."""
    return max(1, round(rows / row_scale)) if rows else 0


def scaled_window(rows: int, row_scale: float) -> int:
    """The same for a window, which has a middle: an odd number of rows."""
    scaled = scaled_rows(rows, row_scale)
    return scaled if scaled % 2 else max(1, scaled - 1)

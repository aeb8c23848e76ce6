"""Runs with two thresholds, and means over runs."""

import numpy as np
from numpy.typing import NDArray

from enteron.runs import Runs


def hysteresis(p: NDArray[np.floating], high: float, low: float) -> Runs:
    """Seeds where p >= high, extended to both sides while p >= low (paper stage 3, decision 27)."""
    # In the precision of p: a threshold of 0.55 must be reached by a float32 score of 0.55.
    high, low = np.asarray([high, low], dtype=p.dtype)
    # Only rows at or above the lower threshold are looked at: there are few of them.
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

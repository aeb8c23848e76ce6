"""Runs: the stretches in which a column of rows is on."""

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]
"""(n, 2) array of [start, stop) in rows, ascending."""


def runs_of(column: NDArray[np.bool_]) -> Runs:
    """Every run of true rows."""
    padded = np.zeros(column.size + 2, dtype=np.int8)
    padded[1:-1] = column
    steps = np.diff(padded)
    return np.column_stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)])

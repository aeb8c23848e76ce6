"""The paper's Biological State Machine: regions in transit order, forward only."""

import numpy as np
from numpy.typing import NDArray

from enteron.runs import runs_of

Stay = tuple[int, int, int]
"""(column of the region, start, stop) in rows."""


def run_state_machine(
    p: NDArray[np.floating], tau: int = 200, *, strict: bool = False, backdate: bool = False
) -> list[Stay]:
    """Stays of the state (paper stage 2) for (rows, 5) smoothed probabilities.

    The state begins at the mouth. The most likely state at or after it is sought at every row; a
    run of `tau` rows that point forward commits to what the last of them points to. At most four
    commits are possible, so whole runs are looked at instead of rows.
    """
    stays: list[Stay] = []
    state, start, seen = 0, 0, 0  # rows before `seen` were used up by earlier commits
    while state < p.shape[1] - 1:
        # argmax takes the first of equal values, so a tie never leaves the present state.
        candidate = state + p[seen:, state:].argmax(axis=1)
        found = _first_run(candidate, state, tau, strict)
        if found is None:
            break
        commit = seen + found + tau - 1
        begin = seen + found if backdate else commit
        if begin > start:
            stays.append((state, start, begin))
        state, start, seen = int(candidate[found + tau - 1]), begin, commit + 1
    stays.append((state, start, p.shape[0]))
    return stays


def _first_run(candidate: NDArray[np.int64], state: int, tau: int, strict: bool) -> int | None:
    """First row of the first run of `tau` rows that point forward; None when there is none."""
    forward = candidate > state
    if strict:  # a change of candidate begins a new run (decision 23)
        options = [runs_of(candidate == column) for column in range(state + 1, 5)]
        spans = np.concatenate(options)
    else:
        spans = runs_of(forward)
    long_enough = spans[spans[:, 1] - spans[:, 0] >= tau, 0]
    return int(long_enough.min()) if long_enough.size else None

"""How sure the semi-Markov transit is: the posterior of its borders.

Paths of borders weigh exp(objective), so the posterior is that of the model with evidence
tempered by kappa. It is summed on a grid: cells of a fixed width, every row of the study's
beginning and every row around the borders that were found. Within a cell evidence is summed row by
row and only the durations are taken as constant; on a grid of every row it is exact.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from enteron.decode.semi_markov import Floats, Ints, Problem, lengths_between


@dataclass(frozen=True)
class Posterior:
    """Marginals of the borders."""

    grid: Ints  # (points,) first row of each cell; the last is the end of the study
    borders: Floats  # (6, points): probability that a border lies in the cell

    def onset(self, k: int, row: int, margin: int) -> float:
        """Probability that region k begins within `margin` rows of `row`."""
        near = np.abs(self.grid - row) <= margin
        return float(min(1.0, self.borders[k, near].sum()))

    def stay(self, k: int, start: int, stop: int) -> float:
        """Mean probability of region k over the rows [start, stop)."""
        begun = np.cumsum(self.borders[k]) - np.cumsum(self.borders[k + 1])
        edges = np.append(self.grid, self.grid[-1] + 1)
        inside = np.clip(edges[1:], start, stop) - np.clip(edges[:-1], start, stop)
        return float(np.clip((inside * begun).sum() / (stop - start), 0.0, 1.0))


def posterior_grid(rows: int, borders: Ints, cells: int, dense: int, near: int) -> Ints:
    """Where to sum: finely where borders are likely."""
    width = max(1, -(-rows // cells))
    points = [np.arange(0, rows, width), np.arange(min(dense, rows) + 1), np.array([rows])]
    points += [np.arange(max(0, b - near), min(rows, b + near) + 1) for b in borders.tolist()]
    return np.unique(np.concatenate(points))


def border_posterior(problem: Problem, grid: Ints) -> Posterior:
    """Forward and backward sums over all ordered borders on the grid.

    Missing regions are stepped over: a change goes from a region k to any later one, and its cell
    weighs what the evidence of those two says row by row.
    """
    regions, last = problem.regions, grid.size - 1
    missing = np.concatenate(([0.0], np.cumsum(problem.durations[:, 0])))
    lengths = lengths_between(grid)
    lengths[lengths == 0] = -1  # a region that is there has at least one row
    stays = [problem.stays(k, grid, lengths) for k in range(regions)]
    change = {
        (k, to): _log_widths(problem, k, to, grid) + missing[to] - missing[k + 1]
        for k, to in combinations(range(regions), 2)
    }
    nothing = np.full(grid.size, -np.inf)
    begun = [nothing.copy() for _ in range(regions)]  # log weight of all ways to begin k there
    ended = [nothing] * regions  # and of all ways to end it there
    for k in range(regions):
        begun[k][0] = missing[k]
        ended[k] = _log_sum(stays[k], begun[k])
        for to in range(k + 1, regions):
            step = (ended[k] + change[k, to])[:last]
            begun[to][:last] = np.logaddexp(begun[to][:last], step)
    to_come = [nothing] * regions  # log weight of all that may follow a beginning of k
    for k in reversed(range(regions)):
        after = nothing.copy()
        after[last] = missing[regions] - missing[k + 1]
        for to in range(k + 1, regions):
            after[:last] = np.logaddexp(after[:last], (change[k, to] + to_come[to])[:last])
        to_come[k] = _log_sum(stays[k].T, after)
    total = np.logaddexp.reduce([missing[k] + to_come[k][0] for k in range(regions)])
    borders = np.zeros((regions + 1, grid.size))
    for k in range(regions):
        borders[: k + 1, 0] += np.exp(missing[k] + to_come[k][0] - total)  # k is the first
        ending = ended[k][last] + missing[regions] - missing[k + 1]
        borders[k + 1 :, last] += np.exp(ending - total)  # k is the last
        for to in range(k + 1, regions):
            here = np.exp((ended[k] + change[k, to] + to_come[to])[:last] - total)
            borders[k + 1 : to + 1, :last] += here
    return Posterior(grid, borders)


def _log_widths(problem: Problem, k: int, to: int, grid: Ints) -> Floats:
    """Log of the weight of each cell for a change from k to `to`, relative to its first row."""
    gain = problem.total[k] - problem.total[to]
    return np.logaddexp.reduceat(gain, grid) - gain[grid]


def _log_sum(steps: Floats, before: Floats) -> Floats:
    """Log of the sum over `from` of exp(steps + before), safe for large and for no values."""
    known = np.flatnonzero(np.isfinite(before))
    if not known.size:
        return np.full(steps.shape[1], -np.inf)
    options = steps[known] + before[known, None]
    top = options.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    np.subtract(options, safe, out=options)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(options).sum(axis=0))

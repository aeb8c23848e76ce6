"""How sure the semi-Markov transit is: the posterior of its borders.

Paths of borders weigh exp(objective), so the posterior is that of the model with evidence
tempered by kappa. It is summed on a grid: cells of a fixed width, every row of the study's
beginning and every row around the borders that were found. Within a cell evidence is summed row by
row and only the durations are taken as constant; on a grid of every row it is exact.
"""

from dataclasses import dataclass

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
    """Forward and backward sums over all ordered borders on the grid."""
    lengths = lengths_between(grid)
    moved = lengths > 0
    regions, points = problem.regions, grid.size
    forward = np.full((regions + 1, points), -np.inf)
    backward = np.full((regions + 1, points), -np.inf)
    forward[0, 0] = 0.0
    backward[regions, -1] = 0.0
    widths = [_log_widths(problem, k, grid) for k in range(regions - 1)]
    widths.append(np.zeros(points))  # the last border is the end of the study: one place only
    steps = [_steps(problem, k, grid, lengths, moved, width) for k, width in enumerate(widths)]
    for k in range(regions):
        forward[k + 1] = _log_sum(steps[k], forward[k])
    for k in reversed(range(regions)):
        backward[k] = _log_sum(steps[k].T, backward[k + 1])
    log_total = forward[regions, -1]
    return Posterior(grid, np.exp(forward + backward - log_total))


def _steps(
    problem: Problem, k: int, grid: Ints, lengths: Ints, moved: np.ndarray, width: Floats
) -> Floats:
    """(from, to) log weight of region k; a border that moved may lie anywhere in its new cell."""
    steps = problem.stays(k, grid, lengths)
    steps += np.where(moved, width[None, :], 0.0)
    return steps


def _log_widths(problem: Problem, k: int, grid: Ints) -> Floats:
    """Log of the weight of a cell for the border of k and k + 1, relative to its first row."""
    gain = problem.total[k] - problem.total[k + 1]
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

"""Transit as a semi-Markov model: the best ordered change points given evidence and durations.

Maximises over 0 = b_0 <= b_1 <= ... <= b_5 = rows the sum over regions k of

    kappa * sum of l_k(t) over b_k <= t < b_(k+1)  +  log D_k(b_(k+1) - b_k)

Short backward steps of the capsule, and wrong rows, are noise that the sum outweighs.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SHRINK = 16  # each refinement divides the width of the cells by this


@dataclass(frozen=True)
class Problem:
    """Weighted evidence summed along time, and the durations."""

    total: Floats  # (5, rows + 1): kappa times the evidence of the rows before each border
    durations: Floats  # (5, rows + 2), as `log_durations` gives it

    @property
    def regions(self) -> int:
        return self.total.shape[0]

    @property
    def rows(self) -> int:
        return self.total.shape[1] - 1

    def objective(self, borders: Ints) -> float:
        """What is maximised, for borders b_0 to b_5."""
        k = np.arange(self.regions)
        gained = self.total[k, borders[1:]] - self.total[k, borders[:-1]]
        return float((gained + self.durations[k, np.diff(borders)]).sum())

    def stays(self, k: int, grid: Ints, lengths: Ints) -> Floats:
        """(from, to): the value of region k between any two points of the grid."""
        total = self.total[k, grid]
        value = self.durations[k][lengths]
        value += total[None, :]
        value -= total[:, None]
        return value


def make_problem(evidence: NDArray[np.floating], durations: Floats, kappa: float) -> Problem:
    """The problem for (rows, 5) evidence."""
    total = np.zeros((evidence.shape[1], evidence.shape[0] + 1))
    np.cumsum(evidence.T, axis=1, dtype=np.float64, out=total[:, 1:])
    return Problem(kappa * total, durations)


def lengths_between(grid: Ints) -> Ints:
    """(from, to) rows between points of the grid; -1 where `to` lies before `from`."""
    lengths = grid[None, :] - grid[:, None]
    np.maximum(lengths, -1, out=lengths)
    return lengths


def solve(problem: Problem, cells: int, dense: int) -> Ints:
    """The best borders: on a coarse grid, then on finer ones around what that found.

    Beside the cells' edges the grid has, for every pair of regions, the row of each cell at which
    evidence alone would change from one to the other, so that a coarse cell hides nothing but
    the change of a duration's probability within it. With as many cells as rows it is exact.
    """
    width = max(1, -(-problem.rows // cells))
    borders = best_on(problem, coarse_grid(problem, width, dense))
    while width > 1:
        finer = max(1, width // SHRINK)
        borders = best_on(problem, _fine_grid(problem, borders, width, finer))
        width = finer
    return borders


def best_on(problem: Problem, grid: Ints) -> Ints:
    """The best borders among the points of a grid that begins with 0 and ends with `rows`."""
    lengths = lengths_between(grid)
    last = problem.regions - 1
    value = _row(problem, 0, grid)  # the first region begins at 0
    came_from: list[Ints] = []
    for k in range(1, last):
        options = problem.stays(k, grid, lengths)
        options += value[:, None]
        best = options.argmax(axis=0)
        came_from.append(best)
        value = options[best, np.arange(grid.size)]
    options = value + _column(problem, last, grid)  # the last one ends with the study
    at = int(options.argmax())
    borders = [problem.rows, int(grid[at])]
    for best in reversed(came_from):
        at = int(best[at])
        borders.append(int(grid[at]))
    borders.append(0)
    return np.array(borders[::-1], dtype=np.int64)


def _row(problem: Problem, k: int, grid: Ints) -> Floats:
    """Value of region k from row 0 to each point."""
    return problem.durations[k][grid] + problem.total[k, grid]


def _column(problem: Problem, k: int, grid: Ints) -> Floats:
    """Value of region k from each point to the end."""
    rest = problem.total[k, -1] - problem.total[k, grid]
    return problem.durations[k][problem.rows - grid] + rest


def coarse_grid(problem: Problem, width: int, dense: int) -> Ints:
    """Cells of `width` rows with their best changes, and every row up to `dense`."""
    rows = problem.rows
    edges = [np.arange(0, rows, width), np.arange(min(dense, rows) + 1), np.array([rows])]
    if width > 1:
        edges.append(_best_changes(problem, 0, rows + 1, width))
    return np.unique(np.concatenate(edges))


def _fine_grid(problem: Problem, borders: Ints, width: int, finer: int) -> Ints:
    points = [borders]
    for border in np.unique(borders[1:-1]).tolist():
        start, stop = max(0, border - width), min(problem.rows, border + width) + 1
        points.append(np.arange(start, stop, finer))
        if finer > 1:
            points.append(_best_changes(problem, start, stop, finer))
    return np.unique(np.concatenate(points))


def _best_changes(problem: Problem, start: int, stop: int, width: int) -> Ints:
    """For each cell of [start, stop) and each pair of regions, where evidence alone changes."""
    cells = -(-(stop - start) // width)
    found = []
    for earlier, later in combinations(range(problem.regions), 2):
        gain = np.full(cells * width, -np.inf)
        gain[: stop - start] = problem.total[earlier, start:stop] - problem.total[later, start:stop]
        within = gain.reshape(cells, width).argmax(axis=1)
        found.append(start + np.arange(cells) * width + within)
    return np.concatenate(found)

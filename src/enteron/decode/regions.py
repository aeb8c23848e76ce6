"""Regions of a study, by the state machine or by the semi-Markov model."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from enteron.decode.evidence import evidence
from enteron.decode.options import SemiMarkovOptions, StateMachineOptions
from enteron.labels import REGIONS
from enteron.priors import Priors
from enteron.runs import means, runs_of


def log_durations(rows: int, stride: float, priors: Priors) -> NDArray[np.float64]:
    """(5, rows + 2): log D_k(length) for 0 to `rows` rows, and -inf at the end.

    D_k(0) = 1 - pi_k, the region is missing; D_k(n) = pi_k times the log-normal density of
    n * stride original frames times stride, the probability of a row's worth of frames. The last
    entry is what a length of -1 finds: an end before its beginning.
    """
    frames = np.arange(1, rows + 1, dtype=np.float64) * stride
    logs = np.log(frames)
    table = np.full((len(REGIONS), rows + 2), -np.inf)
    for k, region in enumerate(REGIONS):
        presence = priors.presence.labels[region].used.smoothed
        fitted = priors.regions.durations[region].fitted
        table[k, 0] = math.log1p(-presence)
        z = (logs - fitted.log_mean) / fitted.log_sd
        constant = math.log(presence * stride / (fitted.log_sd * math.sqrt(2 * math.pi)))
        table[k, 1:-1] = constant - z * z / 2 - logs
    return table


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


DEFAULT_KAPPA = 0.3


@dataclass(frozen=True)
class RegionStay:
    """Rows [start, stop) in one region."""

    region: int  # position in REGIONS
    start: int
    stop: int
    score: float  # paper: mean probability; semi-Markov: posterior probability
    onset: float | None = None  # posterior probability of the border where it begins
    end: float | None = None  # and of the one where it ends


def state_machine_transit(
    p: NDArray[np.float32], options: StateMachineOptions, mouth_threshold: float | None
) -> list[RegionStay]:
    """Stays from (rows, 5) smoothed probabilities, as the paper's stage 2 finds them.

    The mouth is where the machine starts, not what it found: it is left out unless its mean
    probability reaches its threshold (decision 25).
    """
    found = run_state_machine(p, options.tau, strict=options.strict, backdate=options.backdate)
    stays = [
        RegionStay(region, start, stop, float(means(p[:, region], np.array([[start, stop]]))[0]))
        for region, start, stop in found
    ]
    return [
        stay
        for stay in stays
        if stay.region != 0 or (mouth_threshold is not None and stay.score >= mouth_threshold)
    ]


def semi_markov_transit(
    p: NDArray[np.float32],
    rates: NDArray[np.float64],
    stride: float,
    options: SemiMarkovOptions,
    kappa: float,
    priors: Priors,
) -> list[RegionStay]:
    """Stays from (rows, 5) probabilities with their base rates.

    `stride` is the number of original frames per row.
    """
    rows = p.shape[0]
    known = evidence(p, rates, options.clip)
    problem = make_problem(known, log_durations(rows, stride, priors), kappa)
    borders = solve(problem, options.cells, options.dense)
    grid = posterior_grid(rows, borders, options.cells, options.dense, 2 * options.margin)
    posterior = border_posterior(problem, grid)
    stays: list[RegionStay] = []
    for k, (start, stop) in enumerate(
        zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
    ):
        if stop > start:
            onset = posterior.onset(k, start, options.margin) if start else None
            end = posterior.onset(k + 1, stop, options.margin) if stop < rows else None
            stays.append(RegionStay(k, start, stop, posterior.stay(k, start, stop), onset, end))
    return stays

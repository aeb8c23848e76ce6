"""Regions of a study, by the paper's state machine or by a semi-Markov model.

Both give ordered runs of rows, one for each region that was found. The semi-Markov model chooses
borders 0 = b_0 <= ... <= b_5 = rows that maximise

    sum over regions k of  kappa * sum of l_k(t) over [b_k, b_(k+1))  +  log D_k(b_(k+1) - b_k)

with the evidence l_k and the duration's distribution D_k; a region of no rows is missing.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from enteron.decoding.events import DecodedRun
from enteron.decoding.evidence import evidence
from enteron.decoding.options import SemiMarkovOptions, StateMachineOptions
from enteron.labels import REGIONS
from enteron.priors import Priors
from enteron.runs import means, runs_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RegionInterval(NamedTuple):
    """Rows [start, stop) in one region."""

    region: int  # position in REGIONS
    start: int
    stop: int


# The state machine (paper stage 2)


def state_machine_regions(
    p: NDArray[np.float32], options: StateMachineOptions, mouth_threshold: float | None
) -> list[DecodedRun]:
    """Regions from (rows, 5) smoothed probabilities, scored by their mean probability.

    The mouth is the machine's start, not a result: it is left out unless its mean probability
    reaches its threshold (decision 25).
    """
    intervals = run_state_machine(p, options.tau, strict=options.strict, backdate=options.backdate)
    runs = [
        DecodedRun(
            REGIONS[region],
            start,
            stop,
            float(means(p[:, region], np.array([[start, stop]]))[0]),
        )
        for region, start, stop in intervals
    ]
    return [
        run
        for run in runs
        if run.label != REGIONS[0] or (mouth_threshold is not None and run.score >= mouth_threshold)
    ]


def run_state_machine(
    p: NDArray[np.floating], tau: int = 200, *, strict: bool = False, backdate: bool = False
) -> list[RegionInterval]:
    """The states for (rows, 5) smoothed probabilities.

    The first state is the mouth. At every row the candidate is the most likely state at or after
    the present one; a run of `tau` rows whose candidate lies forward commits to the candidate of
    its last row. At most four commits are possible, so runs are examined instead of rows.
    """
    intervals: list[RegionInterval] = []
    state, start, first = 0, 0, 0  # rows before `first` were used up by earlier commits
    while state < p.shape[1] - 1:
        # argmax takes the first of equal values, so a tie never leaves the present state.
        candidate = state + p[first:, state:].argmax(axis=1)
        offset = _first_forward_run(candidate, state, tau, strict)
        if offset is None:
            break
        commit = first + offset + tau - 1
        border = first + offset if backdate else commit
        if border > start:
            intervals.append(RegionInterval(state, start, border))
        state, start, first = int(candidate[offset + tau - 1]), border, commit + 1
    intervals.append(RegionInterval(state, start, p.shape[0]))
    return intervals


def _first_forward_run(candidate: Ints, state: int, tau: int, strict: bool) -> int | None:
    """First row of the first run of `tau` rows that point forward; None when there is none."""
    if strict:  # a change of candidate starts a new run (decision 23)
        spans = np.concatenate([runs_of(candidate == region) for region in range(state + 1, 5)])
    else:
        spans = runs_of(candidate > state)
    starts = spans[spans[:, 1] - spans[:, 0] >= tau, 0]
    return int(starts.min()) if starts.size else None


# The semi-Markov model


def semi_markov_regions(
    p: NDArray[np.float32],
    rates: NDArray[np.float64],
    row_frames: float,
    options: SemiMarkovOptions,
    kappa: float,
    priors: Priors,
) -> list[DecodedRun]:
    """Regions from (rows, 5) probabilities and (5,) base rates, scored by their posterior.

    `row_frames` is the number of original frames per row.
    """
    rows = p.shape[0]
    problem = make_problem(
        evidence(p, rates, options.clip), log_durations(rows, row_frames, priors), kappa
    )
    borders = best_borders(problem, options.cells, options.dense)
    grid = posterior_grid(rows, borders, options.cells, options.dense, 2 * options.margin)
    posterior = border_posterior(problem, grid)
    runs: list[DecodedRun] = []
    for k, (start, stop) in enumerate(
        zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
    ):
        if stop > start:
            onset = posterior.border_near(k, start, options.margin) if start else None
            end = posterior.border_near(k + 1, stop, options.margin) if stop < rows else None
            score = posterior.region_mean(k, start, stop)
            runs.append(DecodedRun(REGIONS[k], start, stop, score, onset, end))
    return runs


def log_durations(rows: int, row_frames: float, priors: Priors) -> Floats:
    """(5, rows + 2): log D_k(length) for 0 to `rows` rows, and -inf at the end.

    D_k(0) = 1 - pi_k, the region is missing; D_k(n) = pi_k times the log-normal density of
    n * row_frames original frames times row_frames, the probability of a row's worth of frames.
    The last entry is the value of the length -1, an end before its start.
    """
    frames = np.arange(1, rows + 1, dtype=np.float64) * row_frames
    logs = np.log(frames)
    table = np.full((len(REGIONS), rows + 2), -np.inf)
    for k, region in enumerate(REGIONS):
        presence = priors.presence.labels[region].used.smoothed
        fitted = priors.regions.durations[region].fitted
        table[k, 0] = math.log1p(-presence)
        z = (logs - fitted.log_mean) / fitted.spread
        constant = math.log(presence * row_frames / (fitted.spread * math.sqrt(2 * math.pi)))
        table[k, 1:-1] = constant - z * z / 2 - logs
    return table


@dataclass(frozen=True)
class BorderProblem:
    """Weighted evidence summed along time, and the durations."""

    total: Floats  # (5, rows + 1): kappa times the evidence of the rows before each border
    durations: Floats  # (5, rows + 2), as `log_durations` gives it

    @property
    def regions(self) -> int:
        return self.total.shape[0]

    @property
    def rows(self) -> int:
        return self.total.shape[1] - 1

    def region_values(self, k: int, grid: Ints, lengths: Ints) -> Floats:
        """(from, to): the value of region k between any two points of the grid."""
        total = self.total[k, grid]
        value = self.durations[k][lengths]
        value += total[None, :]
        value -= total[:, None]
        return value


def make_problem(evidence: NDArray[np.floating], durations: Floats, kappa: float) -> BorderProblem:
    """The problem for (rows, 5) evidence."""
    total = np.zeros((evidence.shape[1], evidence.shape[0] + 1))
    np.cumsum(evidence.T, axis=1, dtype=np.float64, out=total[:, 1:])
    return BorderProblem(kappa * total, durations)


SHRINK = 16  # each refinement divides the width of the cells by this


def best_borders(problem: BorderProblem, cells: int, dense: int) -> Ints:
    """(6,) the best borders: on a coarse grid, then on finer ones around that solution.

    Besides the cells' edges the grid has, for every pair of regions, the row of each cell at which
    evidence alone would change from one to the other. What a coarse cell misses is therefore only
    the change of a duration's probability within it. With as many cells as rows it is exact.
    """
    width = max(1, -(-problem.rows // cells))
    borders = best_borders_on(problem, _coarse_grid(problem, width, dense))
    while width > 1:
        finer = max(1, width // SHRINK)
        borders = best_borders_on(problem, _fine_grid(problem, borders, width, finer))
        width = finer
    return borders


def best_borders_on(problem: BorderProblem, grid: Ints) -> Ints:
    """(6,) the best borders among the points of a grid that starts with 0 and ends with `rows`."""
    lengths = _lengths_between(grid)
    last = problem.regions - 1
    # The first region starts at row 0.
    value = problem.durations[0][grid] + problem.total[0, grid]
    origins: list[Ints] = []
    for k in range(1, last):
        values = problem.region_values(k, grid, lengths)
        values += value[:, None]
        best = values.argmax(axis=0)
        origins.append(best)
        value = values[best, np.arange(grid.size)]
    # The last region ends with the study.
    rest = problem.total[last, -1] - problem.total[last, grid]
    values = value + (problem.durations[last][problem.rows - grid] + rest)
    point = int(values.argmax())
    borders = [problem.rows, int(grid[point])]
    for best in reversed(origins):
        point = int(best[point])
        borders.append(int(grid[point]))
    borders.append(0)
    return np.array(borders[::-1], dtype=np.int64)


def _lengths_between(grid: Ints) -> Ints:
    """(from, to) rows between points of the grid; -1 where `to` lies before `from`."""
    lengths = grid[None, :] - grid[:, None]
    np.maximum(lengths, -1, out=lengths)
    return lengths


def _coarse_grid(problem: BorderProblem, width: int, dense: int) -> Ints:
    """Cells of `width` rows with their best changes, and every row up to `dense`."""
    rows = problem.rows
    points = [np.arange(0, rows, width), np.arange(min(dense, rows) + 1), np.array([rows])]
    if width > 1:
        points.append(_best_changes(problem, 0, rows + 1, width))
    return np.unique(np.concatenate(points))


def _fine_grid(problem: BorderProblem, borders: Ints, width: int, finer: int) -> Ints:
    """Cells of `finer` rows within `width` rows of each border."""
    points = [borders]
    for border in np.unique(borders[1:-1]).tolist():
        start, stop = max(0, border - width), min(problem.rows, border + width) + 1
        points.append(np.arange(start, stop, finer))
        if finer > 1:
            points.append(_best_changes(problem, start, stop, finer))
    return np.unique(np.concatenate(points))


def _best_changes(problem: BorderProblem, start: int, stop: int, width: int) -> Ints:
    """For each cell of [start, stop) and each pair of regions, the row of the best change."""
    cells = -(-(stop - start) // width)
    changes: list[Ints] = []
    for earlier, later in combinations(range(problem.regions), 2):
        gain = np.full(cells * width, -np.inf)
        gain[: stop - start] = problem.total[earlier, start:stop] - problem.total[later, start:stop]
        within = gain.reshape(cells, width).argmax(axis=1)
        changes.append(start + np.arange(cells) * width + within)
    return np.concatenate(changes)


@dataclass(frozen=True)
class BorderPosterior:
    """Marginal distributions of the borders."""

    grid: Ints  # (points,) first row of each cell; the last is the end of the study
    borders: Floats  # (6, points): probability that a border lies in the cell

    def border_near(self, border: int, row: int, margin: int) -> float:
        """Probability that a border lies within `margin` rows of `row`."""
        near = np.abs(self.grid - row) <= margin
        return float(min(1.0, self.borders[border, near].sum()))

    def region_mean(self, k: int, start: int, stop: int) -> float:
        """Mean probability of region k over the rows [start, stop)."""
        inside = np.cumsum(self.borders[k]) - np.cumsum(self.borders[k + 1])
        edges = np.append(self.grid, self.grid[-1] + 1)
        rows = np.clip(edges[1:], start, stop) - np.clip(edges[:-1], start, stop)
        return float(np.clip((rows * inside).sum() / (stop - start), 0.0, 1.0))


def posterior_grid(rows: int, borders: Ints, cells: int, dense: int, near: int) -> Ints:
    """The grid of the sums: every row at the start of the study and near the best borders."""
    width = max(1, -(-rows // cells))
    points = [np.arange(0, rows, width), np.arange(min(dense, rows) + 1), np.array([rows])]
    points += [np.arange(max(0, b - near), min(rows, b + near) + 1) for b in borders.tolist()]
    return np.unique(np.concatenate(points))


def border_posterior(problem: BorderProblem, grid: Ints) -> BorderPosterior:
    """Forward and backward sums over all ordered borders on the grid.

    Missing regions are skipped: a change goes from a region k to any later one, and its cell has
    the weight that the evidence of these two gives row by row.
    """
    regions, last = problem.regions, grid.size - 1
    missing = np.concatenate(([0.0], np.cumsum(problem.durations[:, 0])))
    lengths = _lengths_between(grid)
    lengths[lengths == 0] = -1  # a region that is present has at least one row
    values = [problem.region_values(k, grid, lengths) for k in range(regions)]
    change = {
        (k, to): _log_cell_weights(problem, k, to, grid) + missing[to] - missing[k + 1]
        for k, to in combinations(range(regions), 2)
    }
    impossible = np.full(grid.size, -np.inf)
    started = [impossible.copy() for _ in range(regions)]  # log weight of all ways to start k there
    ended = [impossible] * regions  # and of all ways to end it there
    for k in range(regions):
        started[k][0] = missing[k]
        ended[k] = _log_sum(values[k], started[k])
        for to in range(k + 1, regions):
            step = (ended[k] + change[k, to])[:last]
            started[to][:last] = np.logaddexp(started[to][:last], step)
    to_come = [impossible] * regions  # log weight of everything that may follow a start of k
    for k in reversed(range(regions)):
        after = impossible.copy()
        after[last] = missing[regions] - missing[k + 1]
        for to in range(k + 1, regions):
            after[:last] = np.logaddexp(after[:last], (change[k, to] + to_come[to])[:last])
        to_come[k] = _log_sum(values[k].T, after)
    total = np.logaddexp.reduce([missing[k] + to_come[k][0] for k in range(regions)])
    borders = np.zeros((regions + 1, grid.size))
    for k in range(regions):
        borders[: k + 1, 0] += np.exp(missing[k] + to_come[k][0] - total)  # k is the first
        ending = ended[k][last] + missing[regions] - missing[k + 1]
        borders[k + 1 :, last] += np.exp(ending - total)  # k is the last
        for to in range(k + 1, regions):
            here = np.exp((ended[k] + change[k, to] + to_come[to])[:last] - total)
            borders[k + 1 : to + 1, :last] += here
    return BorderPosterior(grid, borders)


def _log_cell_weights(problem: BorderProblem, k: int, to: int, grid: Ints) -> Floats:
    """Log of the weight of each cell for a change from k to `to`, relative to its first row."""
    gain = problem.total[k] - problem.total[to]
    return np.logaddexp.reduceat(gain, grid) - gain[grid]


def _log_sum(steps: Floats, before: Floats) -> Floats:
    """Log of the sum over `from` of exp(steps + before), for (from, to) steps; -inf is allowed."""
    possible = np.flatnonzero(np.isfinite(before))
    if not possible.size:
        return np.full(steps.shape[1], -np.inf)
    terms = steps[possible] + before[possible, None]
    top = terms.max(axis=0)
    finite_top = np.where(np.isfinite(top), top, 0.0)
    np.subtract(terms, finite_top, out=terms)
    with np.errstate(divide="ignore"):
        return finite_top + np.log(np.exp(terms).sum(axis=0))

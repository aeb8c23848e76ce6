"""PSDS, the polyphonic sound detection score: an independent view on the detection of lesions.

Bilen et al., "A framework for the robust evaluation of sound event detection" (ICASSP 2020), over
all thresholds as in Ebbers et al., "Threshold-independent evaluation of sound event detection
scores" (ICASSP 2022). The numbers agree with `sed_scores_eval` (`tests/golden/make_psds.py`).

At a threshold the detections of a finding are the runs of scores at or above it. As it falls, runs
appear, grow and merge. Each distinct run lives between two thresholds; there are at most as many of
them as frames, and all counts are sums over runs. A detection is

- relevant when at least `dtc` of it lies in lesions of its finding, otherwise a false positive;
- a cross-trigger of another finding when it is false and at least `cttc` of it lies in lesions of
  that one.

A lesion is a true positive when relevant detections cover at least `gtc` of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS
from enteron.metrics.lesions import Lesions, Recording, ShownEvents
from enteron.options import Options
from enteron.types import Scores

_DECIMALS = 6  # of a frame: a share that is met exactly is met
_STRIDE = 1 << 40  # frames between two studies that lie on one axis


class PsdsOptions(Options):
    """The criteria; by default those of DCASE's first scenario."""

    dtc: float = Field(default=0.7, gt=0, le=1)  # detection tolerance criterion
    gtc: float = Field(default=0.7, gt=0, le=1)  # ground truth intersection criterion
    cttc: float | None = Field(default=None, gt=0, le=1)  # cross-trigger tolerance criterion
    alpha_ct: float = Field(default=0.0, ge=0)  # weight of cross-triggers in the false rate
    alpha_st: float = Field(default=1.0, ge=0)  # weight of the spread over findings
    max_efpr: float = Field(default=100.0, gt=0)  # effective false positives per hour (or study)

    @model_validator(mode="after")
    def _both_or_none(self) -> "PsdsOptions":
        if (self.cttc is None) != (self.alpha_ct == 0):
            raise ValueError("give cttc and alpha_ct both, or neither")
        return self


@dataclass(frozen=True)
class ScoreSteps:
    """Scores of one finding in one study as steps: a value over each [start, stop).

    Steps ascend and are disjoint. Where one stops and the next starts later, nothing is scored: no
    detection reaches across. The same holds for a value of -inf.
    """

    study: int  # position in the studies
    finding: int  # position in FINDINGS
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    value: NDArray[np.float64]


def score_steps(scores: Sequence[Scores]) -> list[ScoreSteps]:
    """The frame scores of every finding; a step is a row."""
    return [
        ScoreSteps(
            study,
            finding,
            study_scores.axis.frames,
            study_scores.axis.ends(),
            study_scores.column(label).astype(np.float64),
        )
        for study, study_scores in enumerate(scores)
        for finding, label in enumerate(FINDINGS)
    ]


def event_steps(events: ShownEvents) -> list[ScoreSteps]:
    """Events as steps: each stretch has the highest confidence of the events over it."""
    group = events.study * len(FINDINGS) + events.finding
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return [
        ScoreSteps(
            int(events.study[rows[0]]),
            int(events.finding[rows[0]]),
            *_painted(events.start[rows], events.stop[rows], events.confidence[rows]),
        )
        for rows in np.split(order, first[1:])
        if rows.size
    ]


def _painted(
    start: NDArray[np.int64], stop: NDArray[np.int64], value: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Stretches between all starts and stops with the highest value over each; -inf where none."""
    edges = np.unique(np.concatenate([start, stop]))
    low, high = np.searchsorted(edges, start), np.searchsorted(edges, stop)
    # A range is the union of two ranges whose length is a power of two; a level per power, and at
    # the end each level hands its values to the two halves one level down.
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    highest = np.full((int(level.max()) + 1, edges.size), -np.inf)
    np.maximum.at(highest, (level, low), value)
    np.maximum.at(highest, (level, high - (1 << level)), value)
    for upper in range(len(highest) - 1, 0, -1):
        half = 1 << (upper - 1)
        np.maximum(highest[upper - 1], highest[upper], out=highest[upper - 1])
        np.maximum(
            highest[upper - 1, half:],
            highest[upper, : edges.size - half],
            out=highest[upper - 1, half:],
        )
    return edges[:-1], edges[1:], highest[0, :-1]


@dataclass(frozen=True)
class _Runs:
    """Detections of one finding over all studies and thresholds, each alive in (death, birth]."""

    study: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    birth: NDArray[np.float64]
    death: NDArray[np.float64]


def _runs(steps: Sequence[ScoreSteps]) -> _Runs:
    """Every distinct run of steps at or above some threshold; `steps` are not empty."""
    values: list[NDArray[np.float64]] = []
    starts: list[NDArray[np.int64]] = []
    stops: list[NDArray[np.int64]] = []
    studies: list[NDArray[np.int64]] = []
    for part in steps:
        # A step of -inf in every place where nothing is scored, and before the first.
        apart = np.flatnonzero(part.start[1:] > part.stop[:-1]) + 1
        gaps = np.concatenate([[0], apart])
        values.append(np.insert(part.value, gaps, -np.inf))
        starts.append(np.insert(part.start, gaps, 0))
        stops.append(np.insert(part.stop, gaps, 0))
        studies.append(np.full(values[-1].size, part.study))
    value = np.concatenate([*values, [-np.inf]])
    before = _previous(value, strictly=False)
    after = value.size - 1 - _previous(value[::-1], strictly=True)[::-1]
    # Of equal steps in one run the first speaks for it; the others stop at an equal one.
    real = np.flatnonzero((value > -np.inf) & (value[before] < value))
    before, after = before[real], after[real]
    return _Runs(
        np.concatenate(studies)[real],
        np.concatenate(starts)[before + 1],
        np.concatenate(stops)[after - 1],
        value[real],
        np.maximum(value[before], value[after]),
    )


def _previous(value: NDArray[np.float64], *, strictly: bool) -> NDArray[np.int64]:
    """For each element the nearest one before it that is smaller (or equal, unless `strictly`).

    Elements without one get the first, which must be -inf.
    """
    size = value.size
    # lowest[k][i]: the minimum over the 2**k elements before i; NaN where there are not so many,
    # which compares false, so that no search leaves the array.
    lowest = [np.append(np.nan, value[:-1])]
    while (1 << len(lowest)) < size:
        half = 1 << (len(lowest) - 1)
        shifted = np.concatenate([np.full(half, np.nan), lowest[-1][:-half]])
        lowest.append(np.minimum(lowest[-1], shifted))
    # Step back by 1, 2, 4, ... while all elements stepped over are larger, then halve the steps.
    # Most elements have a smaller neighbour, so few take many steps.
    position = np.arange(size)
    blocked = np.zeros(size, dtype=np.int64)  # the level at which a smaller one was in the way
    active = position.copy()

    def step_back(elements: NDArray[np.int64], level: int) -> NDArray[np.bool_]:
        minimum, limit = lowest[level][position[elements]], value[elements]
        free = minimum >= limit if strictly else minimum > limit
        position[elements[free]] -= 1 << level
        return free

    for level in range(len(lowest)):
        free = step_back(active, level)
        blocked[active[~free]] = level
        active = active[free]
    blocked[active] = len(lowest)
    for level in range(len(lowest) - 1, -1, -1):
        step_back(np.flatnonzero(blocked > level), level)
    return np.maximum(position - 1, 0)


@dataclass(frozen=True)
class PsdRoc:
    """True positive rate against effective false positive rate: a staircase from left to right."""

    efpr: NDArray[np.float64]  # (points,) strictly rising, at most max_efpr
    tpr: NDArray[np.float64]

    def area(self, max_efpr: float) -> float:
        """Area up to `max_efpr`, as a share of the largest possible one."""
        widths = np.diff(np.append(self.efpr, max_efpr))
        return float((self.tpr * widths).sum() / max_efpr)


@dataclass(frozen=True)
class Psds:
    """The score, and its curve over all findings and per finding."""

    value: float
    roc: PsdRoc
    findings: dict[str, float]
    finding_rocs: dict[str, PsdRoc]


def psds(
    lesions: Lesions,
    steps: Sequence[ScoreSteps],
    recordings: Sequence[Recording],
    options: PsdsOptions | None = None,
    findings: Sequence[str] | None = None,
    per: Literal["hour", "study"] = "hour",
) -> Psds:
    """PSDS of scores (`score_steps`) or of events with confidences (`event_steps`).

    `findings` are the classes of the mean and of cross-triggers; by default those with a lesion.
    False positives count per hour of real recording time, or per study (`per="study"`) where time
    is unknown.
    """
    options = PsdsOptions() if options is None else options
    if findings is None:
        findings = [FINDINGS[column] for column in np.unique(lesions.finding).tolist()]
    if not findings:
        raise EnteronError("no study has a lesion", "PSDS needs at least one finding in the truth")
    exposures = _exposures(recordings, per)
    frame_time = exposures / np.array([max(recording.frames, 1) for recording in recordings])
    columns = [COLUMN[finding] - COLUMN[FINDINGS[0]] for finding in findings]
    truths = {column: _truth(lesions, column) for column in columns}
    durations = {
        column: float((t.length * frame_time[t.study]).sum()) for column, t in truths.items()
    }
    exposure = float(exposures.sum())
    per_unit = 3600.0 if per == "hour" else 1.0
    rocs: dict[str, PsdRoc] = {}
    for finding, column in zip(findings, columns, strict=True):
        scored = [part for part in steps if part.finding == column]
        if scored:
            tpr, rate = _rates(_runs(scored), column, truths, durations, exposure, options)
            rocs[finding] = _staircase(rate * per_unit, tpr, options.max_efpr)
        else:
            rocs[finding] = PsdRoc(np.zeros(1), np.zeros(1))
    overall = _overall(list(rocs.values()), options)
    areas = {finding: roc.area(options.max_efpr) for finding, roc in rocs.items()}
    return Psds(overall.area(options.max_efpr), overall, areas, rocs)


def _exposures(
    recordings: Sequence[Recording], per: Literal["hour", "study"]
) -> NDArray[np.float64]:
    """(studies,) what false positives are divided by: seconds of each study, or 1."""
    if per == "study":
        return np.ones(len(recordings))
    seconds: list[float] = []
    for recording in recordings:
        if recording.seconds is None:
            raise EnteronError(
                f"the recording time of study {recording.study} is unknown",
                "count false positives per study",
            )
        seconds.append(recording.seconds)
    return np.array(seconds)


@dataclass(frozen=True)
class _Truth:
    """Lesions of one finding on a single axis, one study behind the other."""

    study: NDArray[np.int64]
    start: NDArray[np.int64]  # on the axis
    stop: NDArray[np.int64]

    @property
    def length(self) -> NDArray[np.int64]:
        return self.stop - self.start

    def frames_within(self, start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lesion frames in each [start, stop)."""
        covered = np.append(0, np.cumsum(self.length))
        last_stop = np.append(0, self.stop)

        def before(position: NDArray[np.int64]) -> NDArray[np.int64]:
            started = np.searchsorted(self.start, position, side="right")
            beyond = np.maximum(last_stop[started] - position, 0)  # of the lesion it lies in
            return covered[started] - beyond

        return before(stop) - before(start)


def _truth(lesions: Lesions, column: int) -> _Truth:
    chosen = lesions.finding == column
    study = lesions.study[chosen]
    offset = study * _STRIDE
    return _Truth(study, offset + lesions.start[chosen], offset + lesions.stop[chosen])


@dataclass(frozen=True)
class _Lives:
    """When runs live, in positions on the axis of thresholds."""

    thresholds: NDArray[np.float64]  # rising
    born: NDArray[np.int64]  # (runs,)
    died: NDArray[np.int64]

    def alive(self, weight: NDArray[np.generic]) -> NDArray[np.float64]:
        """The summed weight of living runs at each threshold."""
        change = np.bincount(self.born, weight, self.thresholds.size)
        change -= np.bincount(self.died, weight, self.thresholds.size)
        return change[::-1].cumsum()[::-1]


def _rates(
    runs: _Runs,
    column: int,
    truths: dict[int, _Truth],
    durations: dict[int, float],
    exposure: float,
    options: PsdsOptions,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """True positive rate and effective false positives per exposure, at every threshold.

    They change where a run is born or dies.
    """
    truth = truths[column]
    start, stop = runs.study * _STRIDE + runs.start, runs.study * _STRIDE + runs.stop
    ends = np.concatenate([runs.birth, runs.death])
    thresholds, position = np.unique(ends, return_inverse=True)
    lives = _Lives(thresholds, position[: start.size], position[start.size :])
    length = stop - start
    inside = truth.frames_within(start, stop)
    relevant = inside >= np.round(options.dtc * length, _DECIMALS)
    efpr = lives.alive(~relevant) / exposure
    others = [other for other in truths if other != column]
    if options.cttc is not None and others:
        needed = np.round(options.cttc * length, _DECIMALS)
        for other in others:
            elsewhere = truths[other].frames_within(start, stop)
            triggers = lives.alive(~relevant & (elsewhere >= needed))
            efpr += options.alpha_ct / len(others) * triggers / max(durations[other], 1e-12)
    found = _found_whole(truth, start, stop, relevant, lives)
    found += _found_in_part(truth, start, stop, relevant, lives, options.gtc)
    tpr = found / max(truth.start.size, 1)
    # Above the highest threshold nothing is detected. At -inf all runs are dead: no threshold.
    real = thresholds > -np.inf
    return np.append(tpr[real], 0.0), np.append(efpr[real], 0.0)


def _found_whole(
    truth: _Truth,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    relevant: NDArray[np.bool_],
    lives: _Lives,
) -> NDArray[np.float64]:
    """Lesions that lie completely in a relevant run, at each threshold. No other run shows them."""
    first = np.searchsorted(truth.start, start, side="left")
    last = np.searchsorted(truth.stop, stop, side="right")
    return lives.alive(np.where(relevant, np.maximum(last - first, 0), 0))


def _found_in_part(
    truth: _Truth,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    relevant: NDArray[np.bool_],
    lives: _Lives,
    gtc: float,
) -> NDArray[np.float64]:
    """Lesions that runs cover in part, but enough of them, at each threshold.

    A run covers in part at most two lesions: the one that it starts in and the one that it stops
    in. So there are at most two pairs per run.
    """
    size = lives.thresholds.size
    if not truth.start.size:
        return np.zeros(size)
    left = np.searchsorted(truth.start, start, side="left") - 1  # starts before the run does
    in_left = relevant & (left >= 0) & (truth.stop[left] > start)
    right = np.searchsorted(truth.start, stop, side="left") - 1
    in_right = relevant & (right >= 0) & (truth.stop[right] > stop)
    in_right &= ~(in_left & (left == right))  # within one lesion: counted once
    lesion = np.concatenate([left[in_left], right[in_right]])
    frames = np.concatenate(
        [
            (np.minimum(stop, truth.stop[left]) - start)[in_left],
            (stop - np.maximum(start, truth.start[right]))[in_right],
        ]
    )
    born = np.concatenate([lives.born[in_left], lives.born[in_right]])
    died = np.concatenate([lives.died[in_left], lives.died[in_right]])
    if not lesion.size:
        return np.zeros(size)
    # Per lesion, from high thresholds to low, the frames that relevant runs cover. Every run dies,
    # so the running sum is back at 0 when the next lesion begins.
    lesion, threshold = np.tile(lesion, 2), np.concatenate([born, died])
    change = np.concatenate([frames, -frames])
    order = np.lexsort((-threshold, lesion))
    lesion, threshold = lesion[order], threshold[order]
    covered = np.cumsum(change[order])
    last = np.append((np.diff(lesion) != 0) | (np.diff(threshold) != 0), [True])
    lesion, threshold, covered = lesion[last], threshold[last], covered[last]
    enough = covered >= np.round(gtc * truth.length[lesion], _DECIMALS)
    turned = np.diff(enough.astype(np.int64), prepend=0)
    return np.bincount(threshold, turned, size)[::-1].cumsum()[::-1]


def _staircase(efpr: NDArray[np.float64], tpr: NDArray[np.float64], max_efpr: float) -> PsdRoc:
    """The best true positive rate up to each effective false positive rate."""
    order = np.lexsort((tpr, efpr))
    efpr, best = efpr[order], np.maximum.accumulate(tpr[order])
    last = np.append(np.diff(efpr) > 0, [True]) & (efpr <= max_efpr)
    efpr, best = efpr[last], best[last]
    higher = np.append([True], np.diff(best) > 0)
    return PsdRoc(efpr[higher], best[higher])


def _overall(rocs: Sequence[PsdRoc], options: PsdsOptions) -> PsdRoc:
    """Mean over findings minus `alpha_st` standard deviations, at least 0."""
    efpr = np.unique(np.concatenate([roc.efpr for roc in rocs]))
    rates = np.zeros((len(rocs), efpr.size))
    for row, roc in zip(rates, rocs, strict=True):
        step = np.searchsorted(roc.efpr, efpr, side="right")
        row[:] = np.append(0.0, roc.tpr)[step]
    spread = rates.mean(axis=0) - options.alpha_st * rates.std(axis=0)
    return PsdRoc(efpr, np.maximum(spread, 0.0))

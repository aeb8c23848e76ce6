"""Events of one finding at every threshold beside the true ones, and the choices made from them.

Columns are rows of the study at hand; lengths are given in rows of a full-length study and scaled
by each column's `row_scale`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from enteron.runs import Runs, hysteresis, runs_of, scaled_rows

THRESHOLDS: Final = expit(np.arange(-7, 4.01, 0.25)).astype(np.float32)
"""Upper thresholds that are tried, evenly spaced in log-odds: calibrated findings are rare."""

FALSE_STRETCH: Final = 1200
"""Original frames (ten minutes at two a second) outside the truth that cost as much as one false
alarm. An event that overlaps the truth is no false alarm by the count. Without a price on its
length, one event over the whole study would find everything at no cost, and the first version of
this fit chose exactly that."""

SLOPE_DEVIATION: Final = 1.0  # of the prior on the slope, which is 0 without evidence


@dataclass(frozen=True)
class FindingColumn:
    """One finding in one study: smoothed and gated scores, and the truth."""

    p: NDArray[np.float32]
    truth: NDArray[np.bool_]
    row_frames: float  # original frames per row
    row_scale: float = 1.0  # rows of a full-length study that a row stands for
    alarm_weight: float = 1.0  # false alarms of the recording that one in these rows stands for

    def spans(self, threshold: float, low: float, shortest: int) -> Runs:
        """Events at a threshold, of at least `shortest` full-length rows."""
        spans = hysteresis(self.p, threshold, low * threshold)
        return spans[spans[:, 1] - spans[:, 0] >= scaled_rows(shortest, self.row_scale)]


@dataclass(frozen=True)
class EventCurve:
    """Counts of events at each of THRESHOLDS, over one study or several."""

    truths: int  # true events
    found: NDArray[np.float64]  # true events that some event overlaps
    right: NDArray[np.float64]  # events that overlap a true one
    alarms: NDArray[np.float64]  # events that overlap none, and the cost of false stretches

    @property
    def precision(self) -> NDArray[np.float64]:
        return self.right / np.maximum(self.right + self.alarms, 1)

    @property
    def f1(self) -> NDArray[np.float64]:
        recall = self.found / max(self.truths, 1)
        return 2 * self.precision * recall / np.maximum(self.precision + recall, 1e-12)


def event_curve(column: FindingColumn, low: float, shortest: int) -> EventCurve:
    """Counts in one study."""
    counts = np.zeros((3, THRESHOLDS.size))
    true_spans = runs_of(column.truth)
    before = true_rows_before(column.truth)
    highest = column.p.max()
    for position, threshold in enumerate(THRESHOLDS):
        if threshold > highest:
            break
        spans = column.spans(threshold, low, shortest)
        right, alarms = match_spans(spans, before, column.row_frames)
        alarms *= column.alarm_weight
        counts[:, position] = (count_overlapped(true_spans, spans), right.sum(), alarms)
    return EventCurve(len(true_spans), *counts)


def sum_curves(curves: Sequence[EventCurve]) -> EventCurve:
    """Counts over several studies."""
    if not curves:
        return EventCurve(0, *np.zeros((3, THRESHOLDS.size)))
    return EventCurve(
        sum(c.truths for c in curves),
        np.sum([c.found for c in curves], axis=0),
        np.sum([c.right for c in curves], axis=0),
        np.sum([c.alarms for c in curves], axis=0),
    )


def match_spans(
    spans: Runs, before: NDArray[np.int64], row_frames: float
) -> tuple[NDArray[np.bool_], float]:
    """Which spans overlap the truth, and what all of them cost in false alarms.

    `before` is `true_rows_before` of the truth.
    """
    true_rows = before[spans[:, 1]] - before[spans[:, 0]]
    right = true_rows > 0
    false_rows = spans[:, 1] - spans[:, 0] - true_rows
    return right, float(np.maximum(~right, false_rows * row_frames / FALSE_STRETCH).sum())


def true_rows_before(truth: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(rows + 1,): true rows before each row, and in all."""
    return np.concatenate(([0], np.cumsum(truth)))


def count_overlapped(true_spans: Runs, spans: Runs) -> int:
    """How many true events any of the spans overlaps; both ascending and disjoint."""
    started = np.searchsorted(spans[:, 0], true_spans[:, 1], side="left")
    ended = np.searchsorted(spans[:, 1], true_spans[:, 0], side="right")
    return int((started > ended).sum())


def peaks_and_matches(
    columns: Sequence[FindingColumn], threshold: float, low: float, shortest: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Peak of every event at one threshold, whether it overlaps a true one, and its column."""
    peaks: list[NDArray[np.float64]] = []
    matches: list[NDArray[np.bool_]] = []
    for column in columns:
        spans = column.spans(threshold, low, shortest)
        peaks.append(np.array([column.p[a:b].max() for a, b in spans], dtype=np.float64))
        before = true_rows_before(column.truth)
        matches.append(before[spans[:, 1]] > before[spans[:, 0]])
    position = np.repeat(np.arange(len(columns)), [found.size for found in peaks])
    return np.concatenate(peaks), np.concatenate(matches), position


# The budget of false alarms


class Choice(NamedTuple):
    """How one finding is decoded within a budget."""

    window: int  # full-length rows of smoothing
    threshold: float  # the upper one


class _GridChoice(NamedTuple):
    window: int
    position: int  # in THRESHOLDS


CurvesByWindow = Mapping[int, EventCurve]


def within_budget(curves: Mapping[str, CurvesByWindow], alarms: float) -> dict[str, Choice | None]:
    """For each label the window and threshold (None: leave it out) that together find the most.

    A price per false alarm is sought such that the labels, each maximising lesions found minus
    price times alarms, stay within `alarms` in total.
    """
    low, high = 1e-6, 1e6  # lesions per alarm: at the higher price no label affords an alarm
    chosen = _best_choices(curves, high)
    for _ in range(60):
        price = float(np.sqrt(low * high))
        trial = _best_choices(curves, price)
        if _total_alarms(curves, trial) <= alarms:
            high, chosen = price, trial
        else:
            low = price
    return {
        label: None if choice is None else Choice(choice.window, float(THRESHOLDS[choice.position]))
        for label, choice in chosen.items()
    }


def _best_choices(
    curves: Mapping[str, CurvesByWindow], price: float
) -> dict[str, _GridChoice | None]:
    chosen: dict[str, _GridChoice | None] = {}
    for label, windows in curves.items():
        best, best_gain = None, 0.0
        for window, curve in windows.items():
            gain = curve.found - price * curve.alarms
            position = gain.size - 1 - int(gain[::-1].argmax())  # of equal ones the highest
            if gain[position] > best_gain:
                best, best_gain = _GridChoice(window, position), float(gain[position])
        chosen[label] = best
    return chosen


def _total_alarms(
    curves: Mapping[str, CurvesByWindow], chosen: Mapping[str, _GridChoice | None]
) -> float:
    return sum(
        float(curves[label][choice.window].alarms[choice.position])
        for label, choice in chosen.items()
        if choice is not None
    )


# From a score to a probability


def fit_logistic(
    x: NDArray[np.floating],
    y: NDArray[np.bool_],
    weights: NDArray[np.floating] | None = None,
    *,
    false_weight: float = 1.0,
) -> tuple[float, float]:
    """Intercept and slope of log-odds(y) = intercept + slope * x; `weights` of observations.

    Half an observation of each outcome is added at the mean of x (Jeffreys), so that a label seen
    in every study is not certain; the slope has a Gaussian prior around 0 and is not negative.
    `false_weight` is the weight of an observation that is not true: where one stands for many, none
    at all is weaker proof.
    """
    mean = float(np.mean(x)) if x.size else 0.0
    centred = np.concatenate([np.asarray(x, dtype=np.float64) - mean, [0.0, 0.0]])
    outcome = np.concatenate([np.asarray(y, dtype=np.float64), [0.0, 1.0]])
    weight = np.concatenate(
        [np.ones(len(x)) if weights is None else weights, [0.5 * false_weight, 0.5]]
    )
    design = np.column_stack([np.ones(centred.size), centred])
    ridge = np.diag([0.0, 1 / SLOPE_DEVIATION**2])
    beta = np.zeros(2)
    for _ in range(100):
        p = expit(design @ beta)
        gradient = design.T @ (weight * (outcome - p)) - ridge @ beta
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design + ridge
        step = np.clip(np.linalg.solve(hessian + 1e-9 * np.eye(2), gradient), -2, 2)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    if beta[1] < 0:  # a higher score never makes an event less likely
        share = float((weight * outcome).sum() / weight.sum())
        return float(np.log(share / (1 - share))), 0.0
    return float(beta[0] - beta[1] * mean), float(beta[1])

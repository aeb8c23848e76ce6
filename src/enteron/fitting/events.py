"""Events of one label at every threshold, beside the true ones: what fitting chooses from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from enteron.decode.options import scaled_rows
from enteron.runs import Runs, hysteresis, runs_of

GRID: Final = expit(np.arange(-7, 4.01, 0.25)).astype(np.float32)
"""Upper thresholds that are tried, even in log-odds: calibrated findings are rare."""

FALSE_STRETCH: Final = 1200
"""Original frames (ten minutes at two a second) outside the truth that cost as much as a false
alarm. An event that touches the truth is no false alarm by the count; without a price on its
length, one event over the whole study would find everything at no cost, and the first version of
this fit chose exactly that."""


@dataclass(frozen=True)
class Column:
    """One label of one study: smoothed and gated scores, and the truth."""

    p: NDArray[np.float32]
    truth: NDArray[np.bool_]
    step: float  # original frames per row
    shortening: float = 1.0  # rows of a full-length study that a row stands for


@dataclass(frozen=True)
class Curve:
    """Counts at each threshold of GRID, over studies."""

    truths: int  # true events
    found: NDArray[np.float64]  # true events that some event touches
    right: NDArray[np.float64]  # events that touch a true one
    alarms: NDArray[np.float64]  # events that do not, and false stretches of all of them

    @property
    def precision(self) -> NDArray[np.float64]:
        return self.right / np.maximum(self.right + self.alarms, 1)

    @property
    def f1(self) -> NDArray[np.float64]:
        recall = self.found / max(self.truths, 1)
        return 2 * self.precision * recall / np.maximum(self.precision + recall, 1e-12)


def curve(column: Column, low: float, shortest: int) -> Curve:
    """Count in one study; events of fewer than `shortest` full-length rows are none."""
    shortest = scaled_rows(shortest, column.shortening)
    counts = np.zeros((3, GRID.size))
    real = runs_of(column.truth)
    shown = before(column.truth)
    highest = column.p.max()
    for place, threshold in enumerate(GRID):
        if threshold > highest:
            break
        spans = long_enough(hysteresis(column.p, threshold, low * threshold), shortest)
        right, alarms = judged(spans, shown, column.step)
        counts[:, place] = (touched(real, spans), right.sum(), alarms)
    return Curve(len(real), *counts)


def judged(spans: Runs, shown: NDArray[np.int64], step: float) -> tuple[NDArray[np.bool_], float]:
    """Which spans touch the truth, and what all of them cost in false alarms.

    `shown` counts the true rows before each row; `step` is in original frames per row.
    """
    true_rows = shown[spans[:, 1]] - shown[spans[:, 0]]
    right = true_rows > 0
    false_rows = spans[:, 1] - spans[:, 0] - true_rows
    return right, float(np.maximum(~right, false_rows * step / FALSE_STRETCH).sum())


def summed(curves: Sequence[Curve]) -> Curve:
    """Counts over several studies."""
    return Curve(
        sum(c.truths for c in curves),
        np.sum([c.found for c in curves], axis=0),
        np.sum([c.right for c in curves], axis=0),
        np.sum([c.alarms for c in curves], axis=0),
    )


def samples(
    columns: Sequence[Column], threshold: float, low: float, shortest: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Peak of every event at one threshold, and whether it touches a true one."""
    peaks: list[NDArray[np.float64]] = []
    rights: list[NDArray[np.bool_]] = []
    for column in columns:
        least = scaled_rows(shortest, column.shortening)
        spans = long_enough(hysteresis(column.p, threshold, low * threshold), least)
        peaks.append(np.array([column.p[a:b].max() for a, b in spans], dtype=np.float64))
        shown = before(column.truth)
        rights.append(shown[spans[:, 1]] > shown[spans[:, 0]])
    return np.concatenate(peaks), np.concatenate(rights)


def long_enough(spans: Runs, shortest: int) -> Runs:
    """Spans of at least so many rows."""
    return spans[spans[:, 1] - spans[:, 0] >= shortest]


def touched(real: Runs, spans: Runs) -> int:
    """How many true events any of the spans overlaps; both ascending and disjoint."""
    started = np.searchsorted(spans[:, 0], real[:, 1], side="left")
    ended = np.searchsorted(spans[:, 1], real[:, 0], side="right")
    return int((started > ended).sum())


def before(truth: NDArray[np.bool_]) -> NDArray[np.int64]:
    """True rows before each row, and in all."""
    return np.concatenate(([0], np.cumsum(truth)))


Choice = tuple[int, float]
"""Rows of the smoothing window, and the upper threshold."""

_Place = tuple[int, int]  # window, and position in GRID


def within_budget(
    curves: Mapping[str, Mapping[int, Curve]], alarms: float
) -> dict[str, Choice | None]:
    """For each label the window and threshold (None: leave it out) that together find the most.

    `curves` has each label's curve for every window. A price per false alarm is sought such that
    labels, each choosing for itself by lesions found minus price times alarms, stay within
    `alarms` in all.
    """
    low, high = 1e-6, 1e6  # lesions per alarm: at the higher price nobody affords an alarm
    chosen = _choices(curves, high)
    for _ in range(60):
        price = float(np.sqrt(low * high))
        trial = _choices(curves, price)
        if _alarms(curves, trial) <= alarms:
            high, chosen = price, trial
        else:
            low = price
    return {
        label: None if place is None else (place[0], float(GRID[place[1]]))
        for label, place in chosen.items()
    }


def _choices(curves: Mapping[str, Mapping[int, Curve]], price: float) -> dict[str, _Place | None]:
    chosen: dict[str, _Place | None] = {}
    for label, windows in curves.items():
        best, most = None, 0.0
        for window, curve in windows.items():
            gain = curve.found - price * curve.alarms
            place = gain.size - 1 - int(gain[::-1].argmax())  # the higher one of equals
            if gain[place] > most:
                best, most = (window, place), float(gain[place])
        chosen[label] = best
    return chosen


def _alarms(
    curves: Mapping[str, Mapping[int, Curve]], chosen: Mapping[str, _Place | None]
) -> float:
    return sum(
        float(curves[label][place[0]].alarms[place[1]])
        for label, place in chosen.items()
        if place is not None
    )


SLOPE_DEVIATION = 1.0  # of the prior on the slope, which is 0 without evidence


def fit_logistic(
    x: NDArray[np.floating], y: NDArray[np.bool_], *, slope_deviation: float = SLOPE_DEVIATION
) -> tuple[float, float]:
    """Intercept and slope of log-odds(y) = intercept + slope * x.

    Half an observation of each outcome is added at the mean of x (Jeffreys), so that a label seen
    in every study is not certain; the slope has a Gaussian prior around 0 and is not negative.
    """
    mean = float(np.mean(x)) if x.size else 0.0
    centred = np.concatenate([np.asarray(x, dtype=np.float64) - mean, [0.0, 0.0]])
    outcome = np.concatenate([np.asarray(y, dtype=np.float64), [0.0, 1.0]])
    weight = np.concatenate([np.ones(len(x)), [0.5, 0.5]])
    design = np.column_stack([np.ones(centred.size), centred])
    ridge = np.diag([0.0, 1 / slope_deviation**2])
    beta = np.zeros(2)
    for _ in range(100):
        p = expit(design @ beta)
        gradient = design.T @ (weight * (outcome - p)) - ridge @ beta
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design + ridge
        step = np.clip(np.linalg.solve(hessian + 1e-9 * np.eye(2), gradient), -2, 2)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    if beta[1] < 0:  # a higher score never makes a thing less likely
        share = float((weight * outcome).sum() / weight.sum())
        return float(np.log(share / (1 - share))), 0.0
    return float(beta[0] - beta[1] * mean), float(beta[1])

"""Events of one label at every threshold, beside the true ones: what fitting chooses from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from enteron.decode.runs import hysteresis
from enteron.decode.scaling import scaled_rows
from enteron.runs import Runs, runs_of

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

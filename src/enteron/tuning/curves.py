"""Events of one label at every threshold, beside the true ones: what fitting chooses from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from enteron.decode.runs import Rows, hysteresis, runs

GRID: Final = expit(np.arange(-7, 4.01, 0.25)).astype(np.float32)
"""Upper thresholds that are tried, even in log-odds: calibrated findings are rare."""

SHOWN: Final = 0.3
"""An event is right when the truth covers this share of it, and finds one true event at most. With
any overlap one event over the whole colon would be right and find its two hundred stretches of
blood: the first version chose exactly that."""


@dataclass(frozen=True)
class Column:
    """One label of one study: smoothed and gated scores, and the truth."""

    p: NDArray[np.float32]
    truth: NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Counts at each threshold of GRID, over studies."""

    truths: int  # true events
    found: NDArray[np.int64]
    predicted: NDArray[np.int64]
    right: NDArray[np.int64]

    @property
    def false(self) -> NDArray[np.int64]:
        return self.predicted - self.right

    @property
    def precision(self) -> NDArray[np.float64]:
        return self.right / np.maximum(self.predicted, 1)

    @property
    def f1(self) -> NDArray[np.float64]:
        recall = self.found / max(self.truths, 1)
        return 2 * self.precision * recall / np.maximum(self.precision + recall, 1e-12)


def curve(column: Column, low: float, shortest: int) -> Curve:
    """Count in one study; events of fewer than `shortest` rows are none."""
    counts = np.zeros((3, GRID.size), dtype=np.int64)
    real = runs(column.truth)
    shown = np.concatenate(([0], np.cumsum(column.truth)))
    highest = column.p.max()
    for place, threshold in enumerate(GRID):
        if threshold > highest:
            break
        spans = long_enough(hysteresis(column.p, threshold, low * threshold), shortest)
        right = covered(spans, shown)
        counts[:, place] = (found_by(spans[right], real), len(spans), right.sum())
    return Curve(len(real), *counts)


def summed(curves: Sequence[Curve]) -> Curve:
    """Counts over several studies."""
    return Curve(
        sum(c.truths for c in curves),
        np.sum([c.found for c in curves], axis=0),
        np.sum([c.predicted for c in curves], axis=0),
        np.sum([c.right for c in curves], axis=0),
    )


def samples(
    columns: Sequence[Column], threshold: float, low: float, shortest: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Peak of every event at one threshold, and whether it is right."""
    peaks: list[NDArray[np.float64]] = []
    rights: list[NDArray[np.bool_]] = []
    for column in columns:
        spans = long_enough(hysteresis(column.p, threshold, low * threshold), shortest)
        peaks.append(np.array([column.p[a:b].max() for a, b in spans], dtype=np.float64))
        shown = np.concatenate(([0], np.cumsum(column.truth)))
        rights.append(covered(spans, shown))
    return np.concatenate(peaks), np.concatenate(rights)


def long_enough(spans: Rows, shortest: int) -> Rows:
    """Spans of at least so many rows."""
    return spans[spans[:, 1] - spans[:, 0] >= shortest]


def covered(spans: Rows, shown: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which spans the truth covers by at least SHOWN; `shown` counts true rows before each."""
    inside = shown[spans[:, 1]] - shown[spans[:, 0]]
    return inside >= np.maximum(SHOWN * (spans[:, 1] - spans[:, 0]), 1)


def found_by(spans: Rows, real: Rows) -> int:
    """True events that any of the spans overlaps; both ascending and disjoint."""
    started = np.searchsorted(spans[:, 0], real[:, 1], side="left")
    ended = np.searchsorted(spans[:, 1], real[:, 0], side="right")
    return int((started > ended).sum())

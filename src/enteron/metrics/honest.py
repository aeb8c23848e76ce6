"""What the official score hides: lesions found and missed, false alarms, region borders."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.official import Spans, match_in_file_order, overlapping

IS_FINDING = np.array([label in FINDINGS for label in LABELS])


@dataclass(frozen=True)
class Detection:
    """Counts per study and label, (studies, 17): whole events, merged per label on both sides."""

    truths: NDArray[np.int64]
    found: NDArray[np.int64]  # true events that were found
    predicted: NDArray[np.int64]
    right: NDArray[np.int64]  # predicted events that found something

    @property
    def false_alarms(self) -> NDArray[np.int64]:
        return self.predicted - self.right


def detect_by_overlap(truth: Spans, predicted: Spans, studies: int) -> Detection:
    """An event is found when anything predicted for its label touches it, however briefly.

    Both sides must be merged per label (`merge_touching`).
    """
    return _detection(
        truth, predicted, studies, _touched(truth, predicted), _touched(predicted, truth)
    )


def detect_by_tiou(
    truth: Spans, predicted: Spans, studies: int, threshold: float = 0.5
) -> Detection:
    """An event is found when a prediction of its own matches it to a tIoU of `threshold`."""
    matched = match_in_file_order(overlapping(truth, predicted, threshold), threshold)
    found, right = np.zeros(len(truth), dtype=bool), np.zeros(len(predicted), dtype=bool)
    found[list(matched.values())] = True
    right[list(matched)] = True
    return _detection(truth, predicted, studies, found, right)


def _detection(
    truth: Spans,
    predicted: Spans,
    studies: int,
    found: NDArray[np.bool_],
    right: NDArray[np.bool_],
) -> Detection:
    def count(groups: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(groups, minlength=studies * len(LABELS)).reshape(studies, len(LABELS))

    return Detection(
        count(truth.group),
        count(truth.group[found]),
        count(predicted.group),
        count(predicted.group[right]),
    )


def _touched(spans: Spans, others: Spans) -> NDArray[np.bool_]:
    """Which spans overlap any of the others of their group; the others are disjoint."""
    if not len(others) or not len(spans):
        return np.zeros(len(spans), dtype=bool)
    # Groups one behind the other on a single axis. Disjoint spans have their starts and stops in
    # the same order, so those that end before a span and those that start before its end are two
    # counts, and they differ exactly when something lies in between.
    stride = int(max(spans.stop.max(), others.stop.max())) + 1
    starts = np.sort(others.group * stride + others.start)
    stops = np.sort(others.group * stride + others.stop)
    ended = np.searchsorted(stops, spans.group * stride + spans.start, side="right")
    started = np.searchsorted(starts, spans.group * stride + spans.stop, side="left")
    return started > ended


@dataclass(frozen=True)
class Borders:
    """Where regions begin, (studies, 5) in transit order, in the unit of the events."""

    true: NDArray[np.float64]  # first frame of the region; NaN where the study has none
    predicted: NDArray[np.float64]

    @property
    def error(self) -> NDArray[np.float64]:
        """Predicted minus true onset, NaN unless both have the region.

        The very first region of a study begins with the recording and says nothing: left out.
        """
        first = np.zeros(self.true.shape, dtype=bool)
        has_any = ~np.isnan(self.true).all(axis=1)
        filled = np.where(np.isnan(self.true), np.inf, self.true)
        first[has_any, filled.argmin(axis=1)[has_any]] = True
        return np.where(first, np.nan, self.predicted - self.true)

    @property
    def missed(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.true) & np.isnan(self.predicted)

    @property
    def invented(self) -> NDArray[np.bool_]:
        return np.isnan(self.true) & ~np.isnan(self.predicted)


def region_borders(truth: Spans, predicted: Spans, studies: int) -> Borders:
    """The onset of every region in truth and prediction."""
    return Borders(_onsets(truth, studies), _onsets(predicted, studies))


def _onsets(spans: Spans, studies: int) -> NDArray[np.float64]:
    onsets = np.full(studies * len(LABELS), np.inf)
    np.minimum.at(onsets, spans.group, spans.start.astype(np.float64))
    columns = [COLUMN[region] for region in REGIONS]
    onsets = onsets.reshape(studies, len(LABELS))[:, columns]
    return np.where(np.isinf(onsets), np.nan, onsets)

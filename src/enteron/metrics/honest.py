"""What the official score does not show: events detected, false alarms and region onsets.

All functions take `Spans` of both sides and return counts per study and label, from which
`evaluation` computes recall, precision and false alarms per hour.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.official import Spans, match_in_file_order, overlapping_pairs

IS_FINDING = np.array([label in FINDINGS for label in LABELS])
"""(17,) mask of the findings' columns."""


# ---- Events detected and false alarms


@dataclass(frozen=True)
class Detection:
    """Counts of events, each (studies, 17). Events are merged per label on both sides."""

    true_events: NDArray[np.int64]
    detected: NDArray[np.int64]  # true events that a prediction matches
    predicted: NDArray[np.int64]
    correct: NDArray[np.int64]  # predicted events that match a true one

    @property
    def false_alarms(self) -> NDArray[np.int64]:
        return self.predicted - self.correct


def detect_by_overlap(truth: Spans, predicted: Spans, studies: int) -> Detection:
    """Count a true event as detected when any prediction of its label overlaps it at all.

    Both sides must be merged per label (`merge_touching`).
    """
    return _count(
        truth, predicted, studies, _overlaps_any(truth, predicted), _overlaps_any(predicted, truth)
    )


def detect_by_tiou(
    truth: Spans, predicted: Spans, studies: int, threshold: float = 0.5
) -> Detection:
    """Count a true event as detected when it is matched one to one with a tIoU >= `threshold`."""
    matches = match_in_file_order(overlapping_pairs(truth, predicted, threshold), threshold)
    detected = np.zeros(len(truth), dtype=bool)
    correct = np.zeros(len(predicted), dtype=bool)
    detected[list(matches.values())] = True
    correct[list(matches)] = True
    return _count(truth, predicted, studies, detected, correct)


def _count(
    truth: Spans,
    predicted: Spans,
    studies: int,
    detected: NDArray[np.bool_],
    correct: NDArray[np.bool_],
) -> Detection:
    def per_group(groups: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(groups, minlength=studies * len(LABELS)).reshape(studies, len(LABELS))

    return Detection(
        true_events=per_group(truth.group),
        detected=per_group(truth.group[detected]),
        predicted=per_group(predicted.group),
        correct=per_group(predicted.group[correct]),
    )


def _overlaps_any(spans: Spans, others: Spans) -> NDArray[np.bool_]:
    """For each span whether any of `others` in its group overlaps it; `others` are disjoint."""
    if not len(others) or not len(spans):
        return np.zeros(len(spans), dtype=bool)
    # Lay the groups one behind the other on a single axis. Disjoint spans have their starts and
    # stops in the same order. So count the others that end before a span starts, and those that
    # start before it ends: the counts differ exactly when one of the others overlaps the span.
    stride = int(max(spans.stop.max(), others.stop.max())) + 1
    starts = np.sort(others.group * stride + others.start)
    stops = np.sort(others.group * stride + others.stop)
    ended = np.searchsorted(stops, spans.group * stride + spans.start, side="right")
    started = np.searchsorted(starts, spans.group * stride + spans.stop, side="left")
    return started > ended


# ---- Region onsets


@dataclass(frozen=True)
class Borders:
    """First frame of each region, (studies, 5) in transit order, in the unit of the events."""

    true: NDArray[np.float64]  # NaN where the study does not have the region
    predicted: NDArray[np.float64]

    @property
    def error(self) -> NDArray[np.float64]:
        """Predicted minus true onset, NaN unless both sides have the region.

        The first region of a study starts with the recording, so its onset is left out.
        """
        is_first = np.zeros(self.true.shape, dtype=bool)
        has_region = ~np.isnan(self.true).all(axis=1)
        onsets = np.where(np.isnan(self.true), np.inf, self.true)
        is_first[has_region, onsets.argmin(axis=1)[has_region]] = True
        return np.where(is_first, np.nan, self.predicted - self.true)

    @property
    def missed(self) -> NDArray[np.bool_]:
        """Regions that only the truth has."""
        return ~np.isnan(self.true) & np.isnan(self.predicted)

    @property
    def invented(self) -> NDArray[np.bool_]:
        """Regions that only the prediction has."""
        return np.isnan(self.true) & ~np.isnan(self.predicted)


def region_borders(truth: Spans, predicted: Spans, studies: int) -> Borders:
    """Compute the onset of every region in truth and prediction."""
    return Borders(_onsets(truth, studies), _onsets(predicted, studies))


def _onsets(spans: Spans, studies: int) -> NDArray[np.float64]:
    onsets = np.full(studies * len(LABELS), np.inf)
    np.minimum.at(onsets, spans.group, spans.start.astype(np.float64))
    region_columns = [COLUMN[region] for region in REGIONS]
    onsets = onsets.reshape(studies, len(LABELS))[:, region_columns]
    return np.where(np.isinf(onsets), np.nan, onsets)

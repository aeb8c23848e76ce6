"""How confident the model is in its events and regions, and which events are in doubt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from enteron.decoding.events import DecodedEvent
from enteron.folders.reading import RunRecord, event_rows
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.types import Scores

BINS: Final = 10
MARGIN: Final = 0.1  # a peak this little above its threshold could as well lie below it
MOST_LISTED: Final = 12


@dataclass(frozen=True)
class Bin:
    """Events whose confidence lies in [low, high)."""

    low: float
    high: float
    count: int
    height: float  # relative to the fullest bin


@dataclass(frozen=True)
class DoubtfulEvent:
    """An event that could as well be missing."""

    number: int
    label: str
    score: float
    start: int
    peak: float | None = None  # highest frame probability, if it lies close to the threshold
    threshold: float | None = None  # the frame probability from which events are reported


@dataclass(frozen=True)
class RegionShares:
    """Shares of the frames by the probability of their most probable region."""

    high: float  # at least 0.9
    medium: float  # 0.5 to 0.9
    low: float  # below 0.5


@dataclass(frozen=True)
class ConfidencePanel:
    """Distribution of confidence, and the doubtful events."""

    bins: tuple[Bin, ...]
    events: int  # landmarks and findings with a confidence
    median: float | None
    doubtful: tuple[DoubtfulEvent, ...]  # the first MOST_LISTED, the least confident first
    doubtful_count: int
    with_thresholds: bool  # events close to their threshold are among the doubtful ones
    regions: RegionShares
    calibrated: bool | None
    training_note: str | None  # where the calibration was fitted on studies that trained the model


def confidence_panel(
    events: Sequence[DecodedEvent], scores: Scores, run: RunRecord
) -> ConfidencePanel:
    """Confidence of landmarks and findings, and of the region frame by frame.

    `scores` are those that the decoder compared with its thresholds: calibrated, if they were.
    """
    scored = [
        (number, event, event.score)
        for number, event in enumerate(events)
        if event.label not in REGIONS and event.score is not None
    ]
    values = np.array([score for _, _, score in scored])
    thresholds = {
        label: threshold
        for label, threshold in run.thresholds.items()
        if label in FINDINGS and threshold is not None
    }
    if run.event_context is not None:  # thresholds only say what is looked at, confidences decide
        thresholds = {}
    doubtful = sorted(
        (
            doubt
            for number, event, score in scored
            if (doubt := _doubt(number, event, score, scores, thresholds)) is not None
        ),
        key=lambda doubt: doubt.score,
    )
    return ConfidencePanel(
        bins=_histogram(values),
        events=len(scored),
        median=float(np.median(values)) if scored else None,
        doubtful=tuple(doubtful[:MOST_LISTED]),
        doubtful_count=len(doubtful),
        with_thresholds=bool(thresholds),
        regions=_region_shares(scores),
        calibrated=run.is_calibrated,
        training_note=run.training_note,
    )


def _doubt(
    number: int,
    event: DecodedEvent,
    score: float,
    scores: Scores,
    thresholds: Mapping[str, float],
) -> DoubtfulEvent | None:
    """Whether an event is in doubt: of low confidence, or hardly above its threshold.

    A threshold applies to the probability of frames, not to the event's confidence, so it is
    compared with the highest probability in the event. The decoder smooths probabilities first,
    which lowers peaks: an event that is listed here is close to its threshold, but not every
    event that is close is listed.
    """
    threshold = thresholds.get(event.label)
    if threshold is not None:
        rows = event_rows(event, scores)
        peak = float(scores.column(event.label)[rows.start : rows.stop].max())
        if peak < threshold + MARGIN:
            return DoubtfulEvent(number, event.label, score, event.start, peak, threshold)
    if score < 0.5:
        return DoubtfulEvent(number, event.label, score, event.start)
    return None


def _histogram(values: np.ndarray) -> tuple[Bin, ...]:
    counts = np.histogram(np.clip(values, 0, 1), bins=BINS, range=(0, 1))[0].tolist()
    most = max(1, *counts)
    return tuple(
        Bin(index / BINS, (index + 1) / BINS, count, count / most)
        for index, count in enumerate(counts)
    )


def _region_shares(scores: Scores) -> RegionShares:
    highest = scores.values[:, [COLUMN[region] for region in REGIONS]].max(axis=1)
    high, low = float((highest >= 0.9).mean()), float((highest < 0.5).mean())
    return RegionShares(high, max(0.0, 1 - high - low), low)

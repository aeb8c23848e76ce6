"""Sureness: how confident the model is in what it reports, and how far that can be believed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enteron.decode.events import DecodedEvent
from enteron.folders.reading import RunRecord
from enteron.labels import COLUMN, REGIONS
from enteron.types import Scores

BINS = 10
NEAR = 0.1  # an event this little above its threshold could as well be missing
MOST_LISTED = 12


@dataclass(frozen=True)
class Bin:
    """Events whose confidence lies in [low, high)."""

    low: float
    high: float
    count: int
    height: float  # relative to the fullest bin


@dataclass(frozen=True)
class Doubtful:
    """An event that could as well be missing."""

    number: int
    label: str
    score: float
    start: int
    threshold: float | None


@dataclass(frozen=True)
class RegionCertainty:
    """Shares of the frames by the probability of their likeliest region."""

    sure: float  # at least 0.9
    likely: float  # 0.5 to 0.9
    unsure: float  # below 0.5


@dataclass(frozen=True)
class SurenessPanel:
    """Distribution of confidence, and the doubtful events."""

    bins: tuple[Bin, ...]
    events: int  # landmarks and findings with a confidence
    median: float | None
    doubtful: tuple[Doubtful, ...]
    doubtful_count: int
    by_threshold: bool  # doubtful means near the threshold, else below one half
    regions: RegionCertainty
    calibrated: bool | None


def sureness_panel(events: Sequence[DecodedEvent], scores: Scores, run: RunRecord) -> SurenessPanel:
    """Confidence of landmarks and findings; certainty about the region, frame by frame."""
    judged = [
        (number, event, event.score)
        for number, event in enumerate(events)
        if event.label not in REGIONS and event.score is not None
    ]
    values = np.array([score for _, _, score in judged])
    counts = np.histogram(np.clip(values, 0, 1), bins=BINS, range=(0, 1))[0]
    most = max(1, int(counts.max(initial=0)))
    bins = tuple(
        Bin(place / BINS, (place + 1) / BINS, int(count), int(count) / most)
        for place, count in enumerate(counts)
    )
    known = {label: t for label, t in run.thresholds.items() if t is not None}
    doubtful = sorted(_doubtful(judged, known), key=lambda d: d.score)
    best = scores.values[:, [COLUMN[region] for region in REGIONS]].max(axis=1)
    sure, unsure = float((best >= 0.9).mean()), float((best < 0.5).mean())
    return SurenessPanel(
        bins=bins,
        events=len(judged),
        median=float(np.median(values)) if judged else None,
        doubtful=tuple(doubtful[:MOST_LISTED]),
        doubtful_count=len(doubtful),
        by_threshold=bool(known),
        regions=RegionCertainty(sure, max(0.0, 1 - sure - unsure), unsure),
        calibrated=run.is_calibrated,
    )


def _doubtful(
    judged: Sequence[tuple[int, DecodedEvent, float]], thresholds: dict[str, float]
) -> list[Doubtful]:
    found: list[Doubtful] = []
    for number, event, score in judged:
        limit = thresholds.get(event.label)
        if limit is not None:
            if score < limit + NEAR:
                found.append(Doubtful(number, event.label, score, event.start, limit))
        elif score < 0.5:
            found.append(Doubtful(number, event.label, score, event.start, None))
    return found

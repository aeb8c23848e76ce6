"""Lesions found against false events: FROC curves, operating points, detection per study.

A FROC curve (free-response receiver operating characteristic) shows the share of lesions found
against the false events of a study, for all thresholds of confidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.labels import FINDINGS
from enteron.metrics.intervals import Estimate, StudyIntervals, mean_of, proportion, ratio_of
from enteron.metrics.lesions import LesionCounts, LesionDetection, ReadingSpeed, of_finding

BLEEDING: Final = ("active bleeding", "blood", "hematin")
"""The findings behind the question "is there any bleeding in this study"."""

FALSE_EVENT_RATES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""False events per study at which FROC curves are summarised."""


@dataclass(frozen=True)
class Froc:
    """Lesion recall against false events, for thresholds from high to low."""

    thresholds: NDArray[np.float64]  # (points,) falling; the first is inf: nothing is shown
    recall: NDArray[np.float64]  # share of all lesions, rising; NaN when there is no lesion
    false_per_study: NDArray[np.float64]  # rising
    false_per_hour: NDArray[np.float64] | None  # over studies of known time; None: no such study
    lesions: int

    def point_within(self, false_per_study: float) -> int:
        """The last point with at most so many false events per study."""
        return int(np.searchsorted(self.false_per_study, false_per_study, side="right")) - 1

    def recall_at(self, false_per_study: float) -> float:
        """The highest recall with at most so many false events per study."""
        return float(self.recall[self.point_within(false_per_study)])


def froc(detection: LesionDetection, finding: str | None = None) -> Froc:
    """The FROC curve over all findings or of one, with one point per distinct confidence."""
    lesion_chosen = of_finding(detection.lesions.finding, finding)
    event_chosen = of_finding(detection.events.finding, finding)
    confidence = detection.events.confidence[event_chosen]
    thresholds = np.append(np.inf, np.unique(confidence)[::-1])
    detected_at = detection.detected_at[lesion_chosen]
    found = _at_least(detected_at, thresholds)
    is_false = event_chosen & ~detection.is_true
    false = _at_least(detection.events.confidence[is_false], thresholds)
    hours = detection.hours
    timed = ~np.isnan(hours)
    false_per_hour = None
    if timed.any():
        is_false &= timed[detection.events.study]
        false_timed = _at_least(detection.events.confidence[is_false], thresholds)
        false_per_hour = false_timed / hours[timed].sum()
    recall = found / detected_at.size if detected_at.size else np.full(thresholds.size, np.nan)
    studies = len(detection.lesions.studies)
    return Froc(thresholds, recall, false / studies, false_per_hour, detected_at.size)


def _at_least(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each threshold, how many values reach it."""
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


@dataclass(frozen=True)
class LesionFigures:
    """Lesions and events over all studies at one threshold."""

    lesions: int
    found: int
    events: int
    false_events: int
    recall: Estimate
    precision: Estimate
    false_per_study: Estimate
    false_per_hour: Estimate | None  # None: no study has a real recording time


@dataclass(frozen=True)
class StudyFigures:
    """The same for one study, with what it takes to read what is shown."""

    study: str
    lesions: int
    found: int
    events: int
    false_events: int
    flagged_share: float  # share of the recording under a shown event
    still_seconds: float  # to look at one picture per event
    clip_seconds: float  # to watch every flagged original frame as video
    hours: float | None  # real recording time

    @property
    def recall(self) -> float | None:
        return self.found / self.lesions if self.lesions else None


@dataclass(frozen=True)
class OperatingPoint:
    """Everything about one threshold of confidence."""

    threshold: float
    overall: LesionFigures
    findings: dict[str, LesionFigures]
    studies: tuple[StudyFigures, ...]
    flagged_share: Estimate  # mean over studies, as are the next two
    still_seconds: Estimate
    clip_seconds: Estimate


def operating_point(
    detection: LesionDetection,
    threshold: float,
    intervals: StudyIntervals | None = None,
    speed: ReadingSpeed | None = None,
) -> OperatingPoint:
    """Figures at one threshold: over all findings, per finding, per study."""
    speed = ReadingSpeed() if speed is None else speed
    counts = detection.counts(threshold)
    hours = detection.hours
    flagged = detection.flagged_frames(threshold)
    frames = np.array([recording.frames for recording in detection.recordings])
    original = np.array([recording.original_frames for recording in detection.recordings])
    share = np.minimum(flagged / np.maximum(frames, 1), 1.0)
    stills = counts.events.sum(axis=1) * speed.seconds_per_still
    clips = flagged * original / speed.frames_per_second
    return OperatingPoint(
        threshold,
        _figures(counts, FINDINGS, hours, intervals),
        {finding: _figures(counts, (finding,), hours, intervals) for finding in FINDINGS},
        tuple(
            StudyFigures(
                study,
                int(counts.lesions[row].sum()),
                int(counts.found[row].sum()),
                int(counts.events[row].sum()),
                int(counts.false_events[row].sum()),
                float(share[row]),
                float(stills[row]),
                float(clips[row]),
                None if np.isnan(hours[row]) else float(hours[row]),
            )
            for row, study in enumerate(detection.lesions.studies)
        ),
        mean_of(share, intervals),
        mean_of(stills, intervals),
        mean_of(clips, intervals),
    )


def _figures(
    counts: LesionCounts,
    findings: Sequence[str],
    hours: NDArray[np.float64],
    intervals: StudyIntervals | None,
) -> LesionFigures:
    columns = [FINDINGS.index(finding) for finding in findings]
    lesions, found, events, false = (
        table[:, columns].sum(axis=1)
        for table in (counts.lesions, counts.found, counts.events, counts.false_events)
    )
    timed = ~np.isnan(hours)
    per_hour = None
    if timed.any():
        known_hours = np.where(timed, hours, 0.0)
        per_hour = ratio_of(np.where(timed, false, 0), known_hours, intervals)
    return LesionFigures(
        int(lesions.sum()),
        int(found.sum()),
        int(events.sum()),
        int(false.sum()),
        ratio_of(found, lesions, intervals),
        ratio_of(events - false, events, intervals),
        mean_of(false.astype(np.float64), intervals),
        per_hour,
    )


@dataclass(frozen=True)
class FrocPoint:
    """The best operating point within so many false events per study."""

    allowed: float  # false events per study
    threshold: float  # inf: even the most confident event is too many
    figures: LesionFigures


def froc_points(
    detection: LesionDetection,
    rates: Sequence[float] = FALSE_EVENT_RATES,
    intervals: StudyIntervals | None = None,
    finding: str | None = None,
) -> tuple[FrocPoint, ...]:
    """Points of a FROC curve with intervals.

    The threshold is chosen on all studies and held in the resamples, as it is held in use.
    """
    curve = froc(detection, finding)
    findings = FINDINGS if finding is None else (finding,)
    points: list[FrocPoint] = []
    for rate in rates:
        threshold = float(curve.thresholds[curve.point_within(rate)])
        counts = detection.counts(threshold)
        figures = _figures(counts, findings, detection.hours, intervals)
        points.append(FrocPoint(rate, threshold, figures))
    return tuple(points)


@dataclass(frozen=True)
class StudyDetection:
    """Whether studies that have a finding are told from those that do not: counts of studies."""

    name: str  # a finding, or a group of them
    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int
    level: float = 0.95

    @property
    def sensitivity(self) -> Estimate:
        return proportion(
            self.true_positives, self.true_positives + self.false_negatives, self.level
        )

    @property
    def specificity(self) -> Estimate:
        return proportion(
            self.true_negatives, self.true_negatives + self.false_positives, self.level
        )


def detect_studies(
    detection: LesionDetection,
    threshold: float,
    groups: Mapping[str, Sequence[str]] | None = None,
    level: float = 0.95,
) -> tuple[StudyDetection, ...]:
    """For each finding: do studies with a lesion have an event of it, wherever it lies?

    `groups` adds questions about several findings at once, by default "bleeding" and "any finding".
    Intervals are Wilson's: studies are independent, events within one are not.
    """
    if groups is None:
        groups = {"bleeding": BLEEDING, "any finding": FINDINGS}
    has_lesion = detection.lesions.counts() > 0
    has_event = detection.events.counts(detection.events.confidence >= threshold) > 0
    questions = {finding: (finding,) for finding in FINDINGS} | dict(groups)
    answers: list[StudyDetection] = []
    for name, findings in questions.items():
        columns = [FINDINGS.index(finding) for finding in findings]
        true, positive = has_lesion[:, columns].any(axis=1), has_event[:, columns].any(axis=1)
        answers.append(
            StudyDetection(
                name,
                int((true & positive).sum()),
                int((true & ~positive).sum()),
                int((~true & positive).sum()),
                int((~true & ~positive).sum()),
                level,
            )
        )
    return tuple(answers)

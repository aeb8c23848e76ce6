"""Lesions counted as physicians count them: found, missed, at what cost in pictures and time.

A lesion is a run of one finding, with short gaps joined. It is found when a *shown frame* lies in
it: the representative of an event, or a frame of a ranked list. Overlap does not count, because
recall by overlap can be bought with long events.

Everything about a threshold follows from two arrays (`LesionDetection`): the highest confidence
among the events that show a lesion, and whether an event shows one. FROC curves, operating points
and the loss curves of `enteron.fitting.guarantee` are counts of these.

Rates per hour use real recording times only. Where no study has them there is no rate per hour.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.special import ndtri

from enteron.errors import EnteronError, UnitError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.metrics.official import Spans, flatten, merge_touching
from enteron.options import Options
from enteron.types import STORED_EVERY, Annotation, Event, Scores, Unit

Interval = tuple[float, float]

BLEEDING: Final = ("active bleeding", "blood", "hematin")
"""The findings behind the question "is there any bleeding in this study"."""

TOP_FRAMES: Final = (10, 30, 100, 300)
"""Lengths of ranked lists that are reported; commercial readers show a "top 100"."""

FALSE_EVENT_RATES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""False events per study at which FROC curves are summarised."""

_FIRST_FINDING: Final = len(LABELS) - len(FINDINGS)  # findings are the last columns


class LesionOptions(Options):
    """What one lesion is, and what finds it."""

    gap_seconds: float = Field(default=10.0, ge=0)
    """Runs of a finding at most this far apart are one lesion, where recording times are known.

    The small intestine contracts 8 to 12 times a minute, so a contraction hides a lesion for 5 to
    8 s. Ten seconds join what one contraction parts."""

    gap_frames: int = Field(default=20, ge=0)
    """The same in original frames, where times are unknown: ten seconds at two frames a second, the
    slowest common rate. On the 60 studies of `galar/events-60.json` (four rows) it makes 6,261
    lesions of 8,572 runs."""

    any_finding: bool = False
    """Whether an event of any finding finds a lesion whose frame it shows. By default a lesion is
    found only by an event of its own finding."""


class ReadingSpeed(Options):
    """How fast a physician looks at what is shown."""

    frames_per_second: float = Field(default=10.0, gt=0)
    """Video. The ESGE technical review of small-bowel capsule endoscopy (Rondonotti et al.,
    Endoscopy 2018) recommends at most 10 frames a second in single view; McAlindon et al. (Annals
    of Translational Medicine 2016) put the maximum at 15."""

    seconds_per_still: float = Field(default=1.5, gt=0)
    """Single pictures. Our assumption, between 1 and 2 s: we know of no measurement for ranked
    stills. Readers are slower where a picture shows something."""


@dataclass(frozen=True)
class Recording:
    """How long one study is."""

    study: str
    unit: Unit
    frames: int  # in the unit of the study's events
    seconds: float | None = None  # real recording time; None: unknown
    original_frames: float = 1.0  # original frames that one counted frame stands for

    def __post_init__(self) -> None:
        if self.frames < 0 or (self.seconds is not None and not self.seconds > 0):
            raise EnteronError(
                f"study {self.study} cannot have {self.frames} frames in {self.seconds} seconds",
                "give 0 frames or more, and seconds above 0 or none",
            )

    @classmethod
    def from_scores(cls, scores: Scores) -> "Recording":
        """From the first row to the end of the last, gaps included: events span them too.

        The times of a shortened study are not real, so they are unknown here.
        """
        axis, times = scores.axis, scores.times
        seconds = None
        if times is not None and scores.frames_per_row is None and len(axis) > 1:
            # The last frame lasts as long as frames usually do.
            seconds = float(times[-1] - times[0] + np.median(np.diff(times))) or None
        if scores.frames_per_row is not None:
            original = scores.frames_per_row / axis.step
        else:
            original = 1.0 if axis.unit is Unit.FRAME else float(STORED_EVERY)
        frames = int(axis.ends()[-1] - axis.frames[0])
        return cls(scores.study, axis.unit, frames, seconds, original)

    @classmethod
    def from_annotation(cls, annotation: Annotation) -> "Recording":
        """From the first start to the last stop of what is annotated; times are unknown."""
        start, stop = annotation.extent
        original = 1.0 if annotation.unit is Unit.FRAME else float(STORED_EVERY)
        return cls(annotation.study, annotation.unit, stop - start, None, original)

    def gap(self, options: LesionOptions) -> int:
        """The longest gap within a lesion, in counted frames."""
        if self.seconds is not None:
            return int(options.gap_seconds * self.frames / self.seconds)
        return int(options.gap_frames / self.original_frames)


@dataclass(frozen=True)
class Lesions:
    """The lesions of several studies, by study, finding and start; disjoint within a finding."""

    studies: tuple[str, ...]
    unit: Unit
    study: NDArray[np.int64]  # (lesions,) position in `studies`
    finding: NDArray[np.int64]  # (lesions,) position in FINDINGS
    start: NDArray[np.int64]  # [start, stop) as everywhere
    stop: NDArray[np.int64]

    def __len__(self) -> int:
        return self.study.size

    def counts(self, chosen: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """(studies, 9) lesions, all or the chosen ones."""
        return _table(self.study, self.finding, len(self.studies), chosen)


def lesions_of(
    truth: Sequence[Annotation],
    recordings: Sequence[Recording] | None = None,
    options: LesionOptions | None = None,
) -> Lesions:
    """The lesions of annotated studies; gaps are joined as `options` say.

    `recordings` (in the order of `truth`) turn the gap into frames; without them the extent of each
    annotation is used, and times are unknown.
    """
    options = LesionOptions() if options is None else options
    if recordings is None:
        recordings = [Recording.from_annotation(annotation) for annotation in truth]
    studies = _names(truth)
    unit = _common_unit(truth)
    _require_same_studies(studies, _names(recordings), "the recordings")
    for annotation, recording in zip(truth, recordings, strict=True):
        annotation.require_unit(recording.unit)
    spans = flatten(annotation.segments for annotation in truth)
    spans = spans.where(spans.column >= _FIRST_FINDING)
    gap = np.array([recording.gap(options) for recording in recordings], dtype=np.int64)
    # A stop moved by the gap touches whatever starts within it.
    longer = Spans(spans.group, spans.start, spans.stop + gap[spans.study])
    joined = merge_touching(longer)
    order = np.lexsort((joined.start, joined.group))
    study = joined.study[order]
    return Lesions(
        studies,
        unit,
        study,
        joined.column[order] - _FIRST_FINDING,
        joined.start[order],
        joined.stop[order] - gap[study],
    )


@dataclass(frozen=True)
class ShownEvents:
    """Predicted findings of several studies, each with the frame that represents it on the page."""

    studies: tuple[str, ...]
    unit: Unit
    study: NDArray[np.int64]  # (events,) position in `studies`
    finding: NDArray[np.int64]  # (events,) position in FINDINGS
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    frame: NDArray[np.int64]  # the representative, in [start, stop)
    confidence: NDArray[np.float64]

    def __post_init__(self) -> None:
        outside = np.flatnonzero((self.frame < self.start) | (self.frame >= self.stop))
        if outside.size:
            first = int(outside[0])
            raise EnteronError(
                f"study {self.studies[self.study[first]]}: frame {self.frame[first]} represents an "
                f"event over [{self.start[first]}, {self.stop[first]}) and lies outside it",
                "give a frame of the event, in the same unit: index or frame?",
            )

    def __len__(self) -> int:
        return self.study.size

    def counts(self, chosen: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """(studies, 9) events, all or the chosen ones."""
        return _table(self.study, self.finding, len(self.studies), chosen)

    @classmethod
    def from_events(
        cls,
        events: Mapping[str, Sequence[Event]],
        unit: Unit,
        representatives: Mapping[str, Sequence[int]] | None = None,
    ) -> "ShownEvents":
        """Findings among the events of each study; regions and landmarks are left out.

        `representatives` has one frame per event, in the order of the events; without it the middle
        frame represents an event. An event without a score has confidence 1.
        """
        rows: list[tuple[int, int, int, int, int]] = []
        confidence: list[float] = []
        for position, (study, study_events) in enumerate(events.items()):
            if representatives is None:
                frames = [(event.start + event.stop - 1) // 2 for event in study_events]
            else:
                frames = list(representatives[study])
            if len(frames) != len(study_events):
                raise EnteronError(
                    f"study {study} has {len(study_events)} events and {len(frames)} "
                    "representative frames",
                    "give one frame per event",
                )
            for event, frame in zip(study_events, frames, strict=True):
                finding = COLUMN[event.label] - _FIRST_FINDING
                if finding >= 0:
                    rows.append((position, finding, event.start, event.stop, int(frame)))
                    confidence.append(1.0 if event.score is None else event.score)
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        study_position, finding, start, stop, frame = np.ascontiguousarray(table.T)
        return cls(
            tuple(events),
            unit,
            study_position,
            finding,
            start,
            stop,
            frame,
            np.array(confidence, dtype=np.float64),
        )

    @classmethod
    def from_annotations(cls, prediction: Sequence[Annotation]) -> "ShownEvents":
        """Events of an official file, touching ones joined, each with its middle frame.

        The format has no confidence, so all have confidence 1: there is one operating point.
        """
        spans = merge_touching(flatten(annotation.segments for annotation in prediction))
        spans = spans.where(spans.column >= _FIRST_FINDING)
        return cls(
            _names(prediction),
            _common_unit(prediction),
            spans.study,
            spans.column - _FIRST_FINDING,
            spans.start,
            spans.stop,
            (spans.start + spans.stop - 1) // 2,
            np.ones(len(spans)),
        )


@dataclass(frozen=True)
class LesionCounts:
    """Counts per study and finding, (studies, 9), at one threshold."""

    lesions: NDArray[np.int64]
    found: NDArray[np.int64]
    events: NDArray[np.int64]
    false_events: NDArray[np.int64]


@dataclass(frozen=True)
class LesionDetection:
    """Which events show which lesions, at every threshold of confidence."""

    lesions: Lesions
    events: ShownEvents
    recordings: tuple[Recording, ...]
    detected_at: NDArray[np.float64]
    """(lesions,) the highest confidence of an event that shows the lesion; -inf: none does. The
    lesion is found at every threshold up to this one."""
    is_true: NDArray[np.bool_]
    """(events,) whether the event shows a lesion. Two events in one lesion are both true."""

    @property
    def hours(self) -> NDArray[np.float64]:
        """(studies,) real recording time; NaN where it is unknown."""
        seconds = [np.nan if r.seconds is None else r.seconds for r in self.recordings]
        return np.array(seconds, dtype=np.float64) / 3600

    def counts(self, threshold: float) -> LesionCounts:
        """What is found and shown when events of at least this confidence are shown."""
        shown = self.events.confidence >= threshold
        return LesionCounts(
            self.lesions.counts(),
            self.lesions.counts(self.detected_at >= threshold),
            self.events.counts(shown),
            self.events.counts(shown & ~self.is_true),
        )

    def flagged_frames(self, threshold: float) -> NDArray[np.int64]:
        """(studies,) frames under at least one event that is shown at this threshold."""
        shown = self.events.confidence >= threshold
        study, start, stop = self.events.study[shown], self.events.start[shown], self.events.stop
        merged = merge_touching(Spans(study, start, stop[shown]))
        flagged = np.zeros(len(self.lesions.studies), dtype=np.int64)
        np.add.at(flagged, merged.group, merged.stop - merged.start)
        for recording, frames in zip(self.recordings, flagged.tolist(), strict=True):
            # Events may reach a little beyond what is annotated, but not by half of it.
            if frames > 1.5 * recording.frames:
                raise EnteronError(
                    f"study {recording.study} has {recording.frames} frames and events over "
                    f"{frames} of them",
                    "index or frame? give events and recording in the same unit",
                )
        return flagged

    def missed_share(self, thresholds: ArrayLike) -> NDArray[np.float64]:
        """(studies, thresholds) share of lesions not found; NaN for studies without lesions."""
        limits = np.asarray(thresholds, dtype=np.float64)
        shares = np.full((len(self.lesions.studies), limits.size), np.nan)
        by_study = np.split(
            self.detected_at,
            np.searchsorted(self.lesions.study, np.arange(1, len(self.lesions.studies))),
        )
        for study, detected_at in enumerate(by_study):
            if detected_at.size:
                missed = np.searchsorted(np.sort(detected_at), limits, side="left")
                shares[study] = missed / detected_at.size
        return shares

    def shown_events(self, thresholds: ArrayLike) -> NDArray[np.int64]:
        """(studies, thresholds) events with at least that confidence."""
        limits = np.asarray(thresholds, dtype=np.float64)
        order = np.argsort(self.events.study, kind="stable")
        edges = np.searchsorted(self.events.study[order], np.arange(1, len(self.lesions.studies)))
        by_study = np.split(self.events.confidence[order], edges)
        return np.stack(
            [c.size - np.searchsorted(np.sort(c), limits, side="left") for c in by_study]
        )


def detect_lesions(
    lesions: Lesions,
    events: ShownEvents,
    recordings: Sequence[Recording],
    options: LesionOptions | None = None,
) -> LesionDetection:
    """Match shown events with lesions; all three list the same studies in the same order."""
    options = LesionOptions() if options is None else options
    _require_same_studies(lesions.studies, events.studies, "the events")
    _require_same_studies(lesions.studies, _names(recordings), "the recordings")
    for unit in (events.unit, *(recording.unit for recording in recordings)):
        if unit is not lesions.unit:
            raise UnitError(
                f"the lesions count in '{lesions.unit}', something beside them in '{unit}'",
                "index or frame? bring both to the same unit",
            )
    if options.any_finding:
        lesion_group, event_group = lesions.study, events.study
    else:
        lesion_group = lesions.study * len(FINDINGS) + lesions.finding
        event_group = events.study * len(FINDINGS) + events.finding
    return LesionDetection(
        lesions,
        events,
        tuple(recordings),
        _best_inside(
            lesion_group, lesions.start, lesions.stop, event_group, events.frame, events.confidence
        ),
        _is_inside(event_group, events.frame, lesion_group, lesions.start, lesions.stop),
    )


def _best_inside(
    group: NDArray[np.int64],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    point_group: NDArray[np.int64],
    point: NDArray[np.int64],
    value: NDArray[np.float64],
) -> NDArray[np.float64]:
    """For each interval the highest value of the points of its group inside it; -inf: no point."""
    if not group.size:
        return np.empty(0)
    # Groups one behind the other on a single axis, so that one search serves them all.
    stride = int(max(stop.max(), point.max(initial=0))) + 1
    position = point_group * stride + point
    order = np.argsort(position, kind="stable")
    low = np.searchsorted(position[order], group * stride + start)
    high = np.searchsorted(position[order], group * stride + stop)
    padded = np.append(value[order], -np.inf)
    # Every other piece of `reduceat` is a range [low, high); an empty range gives nonsense.
    best = np.maximum.reduceat(padded, np.column_stack([low, high]).ravel())[::2]
    return np.where(high > low, best, -np.inf)


def _is_inside(
    point_group: NDArray[np.int64],
    point: NDArray[np.int64],
    group: NDArray[np.int64],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether each point lies in an interval of its group; intervals may overlap."""
    stride = int(max(stop.max(initial=0), point.max(initial=0))) + 1
    position = point_group * stride + point
    started = np.searchsorted(np.sort(group * stride + start), position, side="right")
    stopped = np.searchsorted(np.sort(group * stride + stop), position, side="right")
    return started > stopped


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
    lesion_chosen = _chosen(detection.lesions.finding, finding)
    event_chosen = _chosen(detection.events.finding, finding)
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


def _chosen(findings: NDArray[np.int64], finding: str | None) -> NDArray[np.bool_]:
    if finding is None:
        return np.ones(findings.size, dtype=bool)
    return findings == FINDINGS.index(finding)


def _at_least(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each threshold, how many values reach it."""
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


class StudyIntervals(Protocol):
    """Intervals over studies: `enteron.metrics.evaluation.StudyBootstrap`, or one like it.

    Its resamples are the same for every figure, so that differences between figures are paired.
    """

    def mean(self, values: NDArray[np.floating]) -> Interval | None: ...

    def ratio(
        self, numerator: NDArray[np.generic], denominator: NDArray[np.generic]
    ) -> Interval | None: ...


@dataclass(frozen=True)
class Estimate:
    """A figure and its interval over studies. None: undefined, or no spread."""

    value: float | None
    interval: Interval | None = None


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
        _mean(share, intervals),
        _mean(stills, intervals),
        _mean(clips, intervals),
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
        per_hour = _ratio(np.where(timed, false, 0), known_hours, intervals)
    return LesionFigures(
        int(lesions.sum()),
        int(found.sum()),
        int(events.sum()),
        int(false.sum()),
        _ratio(found, lesions, intervals),
        _ratio(events - false, events, intervals),
        _mean(false.astype(np.float64), intervals),
        per_hour,
    )


def _ratio(
    above: NDArray[np.generic], below: NDArray[np.generic], intervals: StudyIntervals | None
) -> Estimate:
    total = float(below.sum(dtype=np.float64))
    if total == 0:
        return Estimate(None)
    value = float(above.sum(dtype=np.float64)) / total
    return Estimate(value, None if intervals is None else intervals.ratio(above, below))


def _mean(values: NDArray[np.float64], intervals: StudyIntervals | None) -> Estimate:
    if np.isnan(values).all():
        return Estimate(None)
    interval = None if intervals is None else intervals.mean(values)
    return Estimate(float(np.nanmean(values)), interval)


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
        return _proportion(
            self.true_positives, self.true_positives + self.false_negatives, self.level
        )

    @property
    def specificity(self) -> Estimate:
        return _proportion(
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


def _proportion(successes: int, trials: int, level: float) -> Estimate:
    if trials == 0:
        return Estimate(None)
    return Estimate(successes / trials, wilson_interval(successes, trials, level))


def wilson_interval(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    z = float(ndtri((1 + level) / 2))
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, float((centre - half) / scale)), min(1.0, float((centre + half) / scale))


def rank_frames(scores: Scores) -> NDArray[np.int64]:
    """Frame numbers, the most suspicious first: by the highest probability of any finding.

    Equal ones come in recording order.
    """
    suspicion = scores.values[:, _FIRST_FINDING:].max(axis=1)
    return scores.axis.frames[np.argsort(-suspicion, kind="stable")]


def fold_near_duplicates(
    ranked: ArrayLike,
    distance: int = 0,
    source: ArrayLike | None = None,
    most: int | None = None,
) -> NDArray[np.int64]:
    """A ranked list of frames without those that repeat one further up.

    A frame is left out when a kept frame lies at most `distance` frames away, or (`source`: one
    number per ranked frame) when a kept frame has the same source, as the frames of a stall that
    look alike have. `most` ends the list early.
    """
    frames = np.asarray(ranked, dtype=np.int64)
    # Without sources every frame is a source of its own.
    sources = np.arange(frames.size) if source is None else np.asarray(source)
    if sources.shape != frames.shape:
        raise EnteronError(
            f"{frames.size} ranked frames have {sources.size} sources",
            "give one source per frame",
        )
    ranks: list[int] = []
    by_number: list[int] = []  # the kept frames, ascending
    seen: set[object] = set()  # their sources
    for rank, (frame, origin) in enumerate(zip(frames.tolist(), sources.tolist(), strict=True)):
        if len(ranks) == most:
            break
        place = bisect(by_number, frame)
        near_before = place > 0 and frame - by_number[place - 1] <= distance
        near_after = place < len(by_number) and by_number[place] - frame <= distance
        if not (near_before or near_after or origin in seen):
            by_number.insert(place, frame)
            seen.add(origin)
            ranks.append(rank)
    return frames[ranks]


@dataclass(frozen=True)
class TopRecall:
    """Lesions that the first N frames of each study's ranked list show."""

    lesions: Lesions
    first_rank: NDArray[np.int64]  # (lesions,) frames up to the first one in the lesion; 0: none
    lengths: tuple[int, ...]  # of each study's list

    def found(self, frames: int) -> NDArray[np.bool_]:
        """(lesions,) whether one of the first `frames` frames lies in it."""
        return (self.first_rank > 0) & (self.first_rank <= frames)

    def recall(
        self, frames: int, intervals: StudyIntervals | None = None, finding: str | None = None
    ) -> Estimate:
        """Share of lesions found, over all findings or of one."""
        chosen = _chosen(self.lesions.finding, finding)
        lesions = self.lesions.counts(chosen).sum(axis=1)
        found = self.lesions.counts(chosen & self.found(frames)).sum(axis=1)
        return _ratio(found, lesions, intervals)

    def study_recall(self, frames: int) -> NDArray[np.float64]:
        """(studies,) share of each study's lesions; NaN where it has none."""
        lesions = self.lesions.counts().sum(axis=1)
        found = self.lesions.counts(self.found(frames)).sum(axis=1)
        return np.where(lesions > 0, found / np.maximum(lesions, 1), np.nan)

    def reading_seconds(
        self, frames: int, speed: ReadingSpeed | None = None
    ) -> NDArray[np.float64]:
        """(studies,) to look at the first `frames` frames as stills."""
        speed = ReadingSpeed() if speed is None else speed
        return np.minimum(self.lengths, frames) * speed.seconds_per_still


def top_recall(lesions: Lesions, ranked: Mapping[str, ArrayLike]) -> TopRecall:
    """Look for lesions in ranked lists of frames, most suspicious first, one list per study.

    A frame shows every lesion that it lies in, whatever the finding. Fold near-duplicates first
    (`fold_near_duplicates`), or one stall of the capsule fills the list.
    """
    _require_same_studies(lesions.studies, tuple(ranked), "the ranked lists")
    lists = [np.asarray(frames, dtype=np.int64) for frames in ranked.values()]
    study = np.repeat(np.arange(len(lists)), [frames.size for frames in lists])
    rank = np.concatenate([np.arange(1.0, frames.size + 1) for frames in lists])
    frames = np.concatenate(lists)
    best = _best_inside(lesions.study, lesions.start, lesions.stop, study, frames, -rank)
    first_rank = np.where(np.isinf(best), 0, -best).astype(np.int64)
    return TopRecall(lesions, first_rank, tuple(frames.size for frames in lists))


def _table(
    study: NDArray[np.int64],
    finding: NDArray[np.int64],
    studies: int,
    chosen: NDArray[np.bool_] | None,
) -> NDArray[np.int64]:
    """(studies, 9) counts."""
    group = study * len(FINDINGS) + finding
    group = group if chosen is None else group[chosen]
    return np.bincount(group, minlength=studies * len(FINDINGS)).reshape(studies, len(FINDINGS))


def _names(items: Sequence[Annotation] | Sequence[Recording]) -> tuple[str, ...]:
    return tuple(item.study for item in items)


def _common_unit(annotations: Sequence[Annotation]) -> Unit:
    if not annotations:
        raise EnteronError("there are no studies to count lesions in", "give at least one")
    for annotation in annotations:
        annotation.require_unit(annotations[0].unit)
    return annotations[0].unit


def _require_same_studies(expected: Sequence[str], names: Sequence[str], what: str) -> None:
    if tuple(expected) != tuple(names):
        raise EnteronError(
            f"the truth has the studies {_short(expected)}, {what} have {_short(names)}",
            "list the same studies in the same order",
        )


def _short(names: Sequence[str]) -> str:
    first = ", ".join(names[:3])
    return f"{first}, ... ({len(names)} in all)" if len(names) > 3 else first or "(none)"

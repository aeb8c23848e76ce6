"""Lesions counted as physicians count them: found, missed, at what cost in pictures and time.

A lesion is a run of one finding, with short gaps joined. It is found when a *shown frame* lies in
it: the representative of an event, or a frame of a ranked list. Overlap does not count, because
recall by overlap can be bought with long events.

Everything about a threshold follows from two arrays (`LesionDetection`): the highest confidence
among the events that show a lesion, and whether an event shows one. `froc.py` counts them.

Rates per hour use real recording times only. Where no study has them there is no rate per hour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from enteron.errors import EnteronError, UnitError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.metrics.official import Spans, flatten, merge_touching
from enteron.options import Options
from enteron.types import STORED_EVERY, Annotation, Event, Scores, Unit

Interval = tuple[float, float]

_FIRST_FINDING: Final = len(LABELS) - len(FINDINGS)  # findings are the last columns


class LesionOptions(Options):
    """What one lesion is, and what finds it."""

    gap_seconds: float = Field(default=10.0, ge=0)
    """Runs of a finding at most this far apart are one lesion, where recording times are known.

    Commonly cited rates of contraction of the small intestine are 8 to 12 a minute, which we take
    as given: one contraction hides a lesion for 5 to 8 s, and ten seconds join what it parts."""

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
    """Video. Ten frames a second in single view is a commonly cited upper limit (usually with the
    ESGE technical review of small-bowel capsule endoscopy of 2018, which we could not check);
    McAlindon et al. (Annals of Translational Medicine 2016) put the maximum at 15."""

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
    require_same_studies(studies, _names(recordings), "the recordings")
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
    require_same_studies(lesions.studies, events.studies, "the events")
    require_same_studies(lesions.studies, _names(recordings), "the recordings")
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
        best_inside(
            lesion_group, lesions.start, lesions.stop, event_group, events.frame, events.confidence
        ),
        _is_inside(event_group, events.frame, lesion_group, lesions.start, lesions.stop),
    )


def best_inside(
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


def of_finding(findings: NDArray[np.int64], finding: str | None) -> NDArray[np.bool_]:
    """Which entries are of this finding; all where it is None."""
    if finding is None:
        return np.ones(findings.size, dtype=bool)
    return findings == FINDINGS.index(finding)


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


def require_same_studies(expected: Sequence[str], names: Sequence[str], what: str) -> None:
    """Refuse other studies, or the same in another order."""
    if tuple(expected) != tuple(names):
        raise EnteronError(
            f"the truth has the studies {_short(expected)}, {what} have {_short(names)}",
            "list the same studies in the same order",
        )


def _short(names: Sequence[str]) -> str:
    first = ", ".join(names[:3])
    return f"{first}, ... ({len(names)} in all)" if len(names) > 3 else first or "(none)"

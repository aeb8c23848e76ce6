"""Predictions compared with the truth lesion by lesion: what `enteron evaluate` says of lesions.

A prediction is a list of events, each with the frame that represents it, and where a reading gives
one, a ranked list of suspicious frames. `evaluate_lesions` matches them with the lesions of the
truth, `summarise_lesions` turns the result into a dictionary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from enteron.labels import FINDINGS
from enteron.metrics.froc import (
    FALSE_EVENT_RATES,
    Froc,
    FrocPoint,
    LesionFigures,
    OperatingPoint,
    StudyDetection,
    detect_studies,
    froc,
    froc_points,
    operating_point,
)
from enteron.metrics.intervals import Estimate, StudyIntervals
from enteron.metrics.lesions import (
    LesionDetection,
    LesionOptions,
    ReadingSpeed,
    Recording,
    ShownEvents,
    detect_lesions,
    lesions_of,
)
from enteron.metrics.psds import PsdsOptions, event_steps, psds
from enteron.metrics.top_frames import TOP_FRAMES, TopRecall, top_recall
from enteron.types import Annotation, Event

PSDS: Final = PsdsOptions(dtc=0.1, gtc=0.1)
"""Lenient criteria: annotators agree on lesions more than on their borders."""

EVERYTHING: Final = 0.0
"""The threshold of confidence at which all events are shown."""


@dataclass(frozen=True)
class ShownStudy:
    """What a reader is shown of one study."""

    annotation: Annotation  # as an official file holds it
    events: tuple[Event, ...] | None = None  # with confidences; None: only the annotation is known
    representatives: tuple[int, ...] | None = None  # one frame per event; None: the middle ones
    recording: Recording | None = None  # None: as long as the truth, of unknown time
    ranked: NDArray[np.int64] | None = None  # suspicious frames, if listed
    promised: int | None = None  # pictures of the list that a promised recall needs

    @property
    def study(self) -> str:
        return self.annotation.study


@dataclass(frozen=True)
class LesionEvaluation:
    """Lesions found and missed, at what cost."""

    options: LesionOptions
    speed: ReadingSpeed
    detection: LesionDetection
    shown: OperatingPoint  # when every event is shown
    studies: tuple[StudyDetection, ...]
    curve: Froc | None  # None where events have no confidence
    curves: dict[str, Froc] = field(default_factory=dict)  # by finding with lesions or events
    points: tuple[FrocPoint, ...] = ()
    top: TopRecall | None = None  # None where no frames were ranked
    top_recall: dict[int, Estimate] = field(default_factory=dict)
    promised: NDArray[np.int64] | None = None  # (studies,) pictures that a promise needs
    psds: float | None = None

    @property
    def promised_recall(self) -> NDArray[np.float64] | None:
        """(studies,) share of lesions found in the pictures of the promise; NaN: no lesions."""
        if self.top is None or self.promised is None:
            return None
        per_study = self.promised[self.top.lesions.study]
        found = self.top.lesions.counts(
            (self.top.first_rank > 0) & (self.top.first_rank <= per_study)
        )
        total = self.top.lesions.counts().sum(axis=1)
        return np.where(total > 0, found.sum(axis=1) / np.maximum(total, 1), np.nan)


def evaluate_lesions(
    truth: Sequence[Annotation],
    predictions: Sequence[ShownStudy],
    intervals: StudyIntervals | None = None,
    options: LesionOptions | None = None,
    speed: ReadingSpeed | None = None,
    rates: Mapping[str, float] | None = None,
) -> LesionEvaluation:
    """Match what is shown of each study with its lesions; both list the same studies in order.

    `rates` are frames per second of studies whose recordings are known by their annotation only.
    """
    options = LesionOptions() if options is None else options
    speed = ReadingSpeed() if speed is None else speed
    recordings = [
        _recording(true, shown.annotation, (rates or {}).get(true.study))
        if shown.recording is None
        else shown.recording
        for true, shown in zip(truth, predictions, strict=True)
    ]
    lesions = lesions_of(truth, recordings, options)
    events = _shown_events(predictions)
    detection = detect_lesions(lesions, events, recordings, options)
    has_confidence = all(shown.events is not None for shown in predictions)
    top: TopRecall | None = None
    ranked: dict[str, ArrayLike] = {s.study: s.ranked for s in predictions if s.ranked is not None}
    if len(ranked) == len(predictions):
        top = top_recall(lesions, ranked)
    promised = [shown.promised for shown in predictions if shown.promised is not None]
    present = (lesions.counts() + events.counts()).sum(axis=0) > 0
    findings = [finding for finding, has in zip(FINDINGS, present, strict=True) if has]
    return LesionEvaluation(
        options,
        speed,
        detection,
        operating_point(detection, EVERYTHING, intervals, speed),
        detect_studies(detection, EVERYTHING),
        froc(detection) if has_confidence else None,
        {finding: froc(detection, finding) for finding in findings} if has_confidence else {},
        froc_points(detection, FALSE_EVENT_RATES, intervals) if has_confidence else (),
        top,
        {} if top is None else {count: top.recall(count, intervals) for count in TOP_FRAMES},
        np.array(promised) if len(promised) == len(predictions) else None,
        psds(lesions, event_steps(events), recordings, PSDS, per="study").value
        if len(lesions)
        else None,
    )


def _recording(truth: Annotation, prediction: Annotation, rate: float | None) -> Recording:
    """A recording that is known only by its annotation: as long as either side says."""
    (start, stop), (first, last) = truth.extent, prediction.extent
    recording = Recording.from_annotation(truth)
    if prediction.segments:
        frames = max(stop, last) - (min(start, first) if truth.segments else first)
        recording = replace(recording, frames=frames)
    if rate is None or not recording.frames:
        return recording
    return replace(recording, seconds=recording.frames / rate)


def _shown_events(predictions: Sequence[ShownStudy]) -> ShownEvents:
    """Events of readings with their representatives, or those of official files."""
    if any(shown.events is None for shown in predictions):
        return ShownEvents.from_annotations([shown.annotation for shown in predictions])
    events: Mapping[str, Sequence[Event]] = {s.study: s.events or () for s in predictions}
    representatives = {
        s.study: s.representatives
        if s.representatives is not None
        else tuple((event.start + event.stop - 1) // 2 for event in s.events or ())
        for s in predictions
    }
    return ShownEvents.from_events(events, predictions[0].annotation.unit, representatives)


# ---- The dictionary under "lesions" of `enteron evaluate --json`

Figures = dict[str, Any]


def summarise_lesions(evaluation: LesionEvaluation) -> Figures:
    """Collect every figure by name; those that are not defined are None."""
    e = evaluation
    return {
        "gap_seconds": e.options.gap_seconds,
        "gap_frames": e.options.gap_frames,
        "frames_per_second": e.speed.frames_per_second,
        "seconds_per_still": e.speed.seconds_per_still,
        **_figures(e.shown.overall),
        "flagged_share": _estimate(e.shown.flagged_share),
        "still_seconds": _estimate(e.shown.still_seconds),
        "clip_seconds": _estimate(e.shown.clip_seconds),
        "findings": {name: _figures(figures) for name, figures in e.shown.findings.items()},
        "froc": None if e.curve is None else _curve(e.curve),
        "froc_points": [
            {"allowed": point.allowed, "threshold": _finite(point.threshold)}
            | _figures(point.figures)
            for point in e.points
        ],
        "top": {str(count): _estimate(value) for count, value in e.top_recall.items()},
        "promised": _promised(e),
        "psds": e.psds,
        "detection": {
            d.name: {
                "studies_with": d.true_positives + d.false_negatives,
                "studies_without": d.true_negatives + d.false_positives,
                "sensitivity": _estimate(d.sensitivity),
                "specificity": _estimate(d.specificity),
            }
            for d in e.studies
        },
        "studies": {study.study: _study(e, row) for row, study in enumerate(e.shown.studies)},
    }


def _figures(figures: LesionFigures) -> Figures:
    return {
        "lesions": figures.lesions,
        "found": figures.found,
        "events": figures.events,
        "false_events": figures.false_events,
        "recall": _estimate(figures.recall),
        "precision": _estimate(figures.precision),
        "false_per_study": _estimate(figures.false_per_study),
        "false_per_hour": None
        if figures.false_per_hour is None
        else _estimate(figures.false_per_hour),
    }


def _estimate(estimate: Estimate) -> Figures:
    return {"value": estimate.value, "interval": estimate.interval}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


MOST_POINTS: Final = 400
"""Points of a curve that are written; more cannot be told apart in a drawing."""


def curve_points(curve: Froc) -> list[int]:
    """At most MOST_POINTS positions along a curve, evenly spread, both ends included."""
    count = curve.thresholds.size
    return np.unique(
        np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)
    ).tolist()


def _curve(curve: Froc) -> Figures:
    kept = curve_points(curve)
    per_hour = curve.false_per_hour
    return {
        "threshold": [_finite(value) for value in curve.thresholds[kept]],
        "recall": [_finite(value) for value in curve.recall[kept]],
        "false_per_study": curve.false_per_study[kept].tolist(),
        "false_per_hour": None if per_hour is None else per_hour[kept].tolist(),
    }


def _promised(e: LesionEvaluation) -> Figures | None:
    recall = e.promised_recall
    if recall is None or e.promised is None:
        return None
    defined = not np.isnan(recall).all()
    return {
        "pictures_per_study": float(e.promised.mean()),
        "mean_recall": float(np.nanmean(recall)) if defined else None,
    }


def _study(e: LesionEvaluation, row: int) -> Figures:
    study = e.shown.studies[row]
    figures: Figures = {
        "lesions": study.lesions,
        "found": study.found,
        "recall": study.recall,
        "events": study.events,
        "false_events": study.false_events,
        "flagged_share": study.flagged_share,
        "still_seconds": study.still_seconds,
        "clip_seconds": study.clip_seconds,
        "hours": study.hours,
    }
    if e.top is not None:
        figures["top"] = {
            str(count): _finite(float(e.top.study_recall(count)[row])) for count in TOP_FRAMES
        }
    return figures

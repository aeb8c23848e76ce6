"""What a reading shows a person: its events with their pictures, and its suspicious frames."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from enteron.folders.predictions import Predictions
from enteron.folders.reading import EVENTS, SCORES, event_rows, load_reading, read_events_file
from enteron.folders.suspicious import read_suspicious
from enteron.metrics.lesion_evaluation import ShownStudy
from enteron.metrics.lesions import Recording
from enteron.types import Annotation, Event, Scores


def shown_studies(
    predictions: Predictions, studies: Sequence[str], rate: float | None = None
) -> list[ShownStudy]:
    """What is shown of each study, in this order: from its reading, or from the official file.

    `rate` (frames per second) replaces the times of readings.
    """
    annotations = {annotation.study: annotation for annotation in predictions.annotations}
    return [
        shown_study(annotations[study], predictions.folders.get(study), rate) for study in studies
    ]


def shown_study(
    annotation: Annotation, folder: Path | None = None, rate: float | None = None
) -> ShownStudy:
    """One study: the annotation of an official file, or all that its reading folder holds."""
    if folder is None:
        return ShownStudy(annotation)
    listed = read_suspicious(folder, annotation.study)
    shown = ShownStudy(
        annotation,
        ranked=None if listed is None else np.array([f.frame for f in listed.frames], np.int64),
        promised=None if listed is None or listed.promise is None else listed.promise.pictures,
    )
    if not (folder / SCORES).is_file():
        return replace(shown, events=read_events_file(folder / EVENTS).events)
    reading = load_reading(folder)
    recording = Recording.from_scores(reading.scores)
    run = reading.run
    stated = None if run.rate_assumed or run.scaling is not None else run.rate
    if rate is not None or (recording.seconds is None and stated is not None):
        seconds = recording.frames / (rate or stated or 1.0)
        recording = replace(recording, seconds=seconds)
    return replace(
        shown,
        events=reading.events,
        representatives=representative_frames(reading.events, reading.scores),
        recording=recording,
    )


def representative_frames(events: Sequence[Event], scores: Scores) -> tuple[int, ...]:
    """The frame that the page shows of each event: that of the highest score of its label."""
    rows = [scores.best_row(event.label, event_rows(event, scores)) for event in events]
    return tuple(scores.axis.frames[rows].tolist())

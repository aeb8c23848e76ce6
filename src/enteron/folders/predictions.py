"""Predicted events from an official JSON, a reading, a folder of readings, or an `events.json`.

Official files are read without the decoder's packages, which take longer to import than most files
take to score.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from enteron.datasets.submission import (
    is_reading_events,
    parse_event_json,
    parse_events,
    read_event_text,
    read_events,
)
from enteron.errors import SubmissionError, UnitError
from enteron.folders.identity import require_described
from enteron.types import Annotation, Unit

if TYPE_CHECKING:
    from enteron.folders.reading import RunRecord

# As `enteron.folders.reading` names them; importing it here would import the decoder.
_SUBMISSION, _EVENTS, _RUN = "submission.json", "events.json", "run.json"


@dataclass(frozen=True)
class Predictions:
    """Predicted events of one or more studies."""

    annotations: list[Annotation]

    rates: dict[str, float] = field(default_factory=dict)
    """Frames per second by study, where its reading states them."""

    official_files: tuple[Path, ...] = ()
    """The official files that hold the events; none when they are from an `events.json`."""

    folders: dict[str, Path] = field(default_factory=dict)
    """The reading folder of each study that is from one."""


def read_predictions(path: Path, unit: Unit) -> Predictions:
    """Read predicted events from any file or folder that holds them.

    An official file does not say what it counts, so its numbers are taken to be in `unit`. Readings
    state their unit, and are refused when it is another one.
    """
    if not path.is_dir():
        return _read_file(path, unit)
    if _is_reading(path):
        return _read_reading(path, unit)
    readings = [folder for folder in sorted(path.iterdir()) if _is_reading(folder)]
    joint_file = path / _SUBMISSION
    if not readings and not joint_file.is_file():
        raise SubmissionError(
            f"the folder '{path.name}' holds no reading",
            "give an official JSON, the folder of a reading, a folder of readings, or a reading's "
            f"{_EVENTS}",
        )
    predictions = _join([_read_reading(folder, unit) for folder in readings])
    if not joint_file.is_file():
        return predictions
    annotations = read_events(joint_file, unit)
    if readings:
        _require_same_events(annotations, predictions.annotations, path)
    return Predictions(annotations, predictions.rates, (joint_file,), predictions.folders)


def holds_readings(path: Path) -> bool:
    """Whether a folder is a reading, or holds readings or their joint official file."""
    return (
        _is_reading(path)
        or (path / _SUBMISSION).is_file()
        or any(_is_reading(folder) for folder in path.iterdir() if folder.is_dir())
    )


def _is_reading(folder: Path) -> bool:
    return (folder / _EVENTS).is_file() or (folder / _RUN).is_file()


def _read_file(path: Path, unit: Unit) -> Predictions:
    text = read_event_text(path)
    content = parse_event_json(text, path.name)
    if not isinstance(content, dict) or "videos" in content or not is_reading_events(content):
        return Predictions(parse_events(text, unit, path.name), official_files=(path,))
    from enteron.decoding.events import to_annotation
    from enteron.folders.reading import read_events_file

    stored = read_events_file(path)
    _require_unit(stored.unit, unit, stored.study)
    # As in submission.json, where some presets cut events at every change of the label set.
    options = _run_record(path.parent, stored.study).options
    annotation = to_annotation(stored.study, stored.unit, stored.events, options)
    return Predictions(
        [annotation],
        _rates(path.parent, [annotation]),
        folders={annotation.study: path.parent},
    )


def _read_reading(folder: Path, unit: Unit) -> Predictions:
    file = folder / _SUBMISSION
    if not file.is_file():
        raise SubmissionError(
            f"the reading '{folder.name}' has no {_SUBMISSION}",
            "it is not finished: run `enteron read` again",
        )
    from enteron.folders.reading import RunRecord

    run = RunRecord.load(folder)
    if run is not None and run.identity is not None:
        run.require_finished(folder)
        require_described(folder, run.files, (_SUBMISSION, _EVENTS))
    if (folder / _EVENTS).is_file():
        from enteron.folders.reading import read_events_file

        stored = read_events_file(folder / _EVENTS)
        _require_unit(stored.unit, unit, stored.study)
    annotations = read_events(file, unit)
    folders = {a.study: folder for a in annotations if (folder / _EVENTS).is_file()}
    return Predictions(annotations, _rates(folder, annotations), (file,), folders)


def _join(readings: list[Predictions]) -> Predictions:
    """Several readings as one prediction; two of the same study are refused."""
    folder_of: dict[str, str] = {}
    for reading in readings:
        folder = reading.official_files[0].parent.name
        for annotation in reading.annotations:
            other = folder_of.setdefault(annotation.study, folder)
            if other != folder:
                raise SubmissionError(
                    f"'{other}' and '{folder}' are both readings of study {annotation.study}",
                    "give one of them, or keep only one of them in the folder",
                )
    return Predictions(
        [annotation for reading in readings for annotation in reading.annotations],
        {study: rate for reading in readings for study, rate in reading.rates.items()},
        tuple(file for reading in readings for file in reading.official_files),
        {study: folder for reading in readings for study, folder in reading.folders.items()},
    )


def _require_same_events(joint: list[Annotation], readings: list[Annotation], root: Path) -> None:
    """`enteron read ROOT` writes a joint file; it must not differ from the readings beside it."""
    in_file = {annotation.study: annotation for annotation in joint}
    in_readings = {annotation.study: annotation for annotation in readings}
    for study in (*in_file, *in_readings):
        if in_file.get(study) != in_readings.get(study):
            raise SubmissionError(
                f"{_SUBMISSION} in '{root.name}' and the readings beside it differ in study "
                f"{study}",
                f"give the path of {_SUBMISSION} itself, or delete it to use the readings",
            )


def _require_unit(stated: Unit, unit: Unit, study: str) -> None:
    if stated is not unit:
        raise UnitError(
            f"the reading of study {study} counts in '{stated}' where '{unit}' is needed",
            "index or frame? bring truth and prediction to the same unit",
        )


def _rates(folder: Path, annotations: list[Annotation]) -> dict[str, float]:
    """Frames per second that `run.json` states; rows of a label file have another rate.

    The frames of a shortened study do not follow each other in real time.
    """
    rates: dict[str, float] = {}
    for annotation in annotations:
        run = _run_record(folder, annotation.study)
        is_real = run.rate is not None and not run.rate_assumed and run.scaling is None
        if annotation.unit is Unit.FRAME and is_real and run.rate is not None:
            rates[annotation.study] = run.rate
    return rates


def _run_record(folder: Path, study: str) -> "RunRecord":
    """The record of a study's run; an empty one if run.json is missing or of another study."""
    from enteron.folders.reading import RunRecord

    run = RunRecord.load(folder)
    return run if run is not None and run.study == study else RunRecord()

"""The files of a reading that decoding makes: events for programs, for tables, for the score."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from enteron.calibration.calibration import FrameCalibration
from enteron.datasets.submission import write_submission
from enteron.decode.events import DecodedEvent, to_annotation
from enteron.errors import EnteronError, LabelError, nearest
from enteron.files import write_text
from enteron.folders.scores import read_scores
from enteron.labels import REGIONS
from enteron.types import FrameAxis, Gap, Scores, Unit, gaps_of

FIELDS = ("label", "start", "stop", "score", "region", "onset", "end", "times")


def write_reading(
    folder: Path, scores: Scores, unit: Unit, events: Sequence[DecodedEvent], *, cut: bool
) -> None:
    """Write `events.json`, `events.csv` and `submission.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(event, scores) for event in events]
    content = {"study": scores.study, "unit": str(unit), "events": rows}
    write_text(folder / "events.json", _lines(content))
    write_text(folder / "events.csv", _csv(rows))
    # The official file counts frames. Scores that only know rows are written as they are, and
    # the command says so.
    annotation = to_annotation(scores.study, scores.unit, events, cut=cut)
    write_submission(folder / "submission.json", [annotation])


def write_run(folder: Path, run: dict[str, Any]) -> None:
    """Write `run.json`: what was done, with what."""
    write_text(folder / "run.json", json.dumps(run, indent=1, sort_keys=True) + "\n")


def read_run(folder: Path) -> dict[str, Any] | None:
    """`run.json` of a folder, or nothing where there is none."""
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EnteronError(
            f"run.json in '{folder.name}' cannot be read", "delete it, or give another folder"
        ) from error
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True)
class EventsFile:
    """What `events.json` holds."""

    study: str
    unit: Unit
    events: tuple[DecodedEvent, ...]  # in file order


def read_events_file(path: Path) -> EventsFile:
    """Read `events.json`; whatever is wrong in it is told with the event's number."""
    remedy = "decode the scores again"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EnteronError(f"{path.name} cannot be read ({error})", remedy) from error
    try:
        study, unit, rows = str(content["study"]), Unit(content["unit"]), list(content["events"])
    except (KeyError, TypeError, ValueError) as error:
        raise EnteronError(f"{path.name} has no study, unit and events", remedy) from error
    events = []
    for number, row in enumerate(rows, 1):
        try:
            score, onset, end = (
                None if row.get(name) is None else float(row[name])
                for name in ("score", "onset", "end")
            )
            start, stop = int(row["start"]), int(row["stop"])
            if row.get("region") not in (None, *REGIONS):
                raise LabelError(f"'{row['region']}' is not a region", nearest("", REGIONS))
            event = DecodedEvent(start, stop, row["label"], score, row.get("region"), onset, end)
        except EnteronError as error:
            problem = f"{path.name}, event {number}: {error.problem}"
            raise type(error)(problem, error.remedy) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnteronError(f"event {number} of {path.name} is damaged", remedy) from error
        events.append(event)
    return EventsFile(study, unit, tuple(events))


def _row(event: DecodedEvent, scores: Scores) -> dict[str, Any]:
    values = (
        event.label,
        event.start,
        event.stop,
        *(None if v is None else round(v, 4) for v in (event.score,)),
        event.region,
        *(None if v is None else round(v, 4) for v in (event.onset, event.end)),
        _times(event, scores),
    )
    return dict(zip(FIELDS, values, strict=True))


def _times(event: DecodedEvent, scores: Scores) -> list[float] | None:
    """Seconds at which an event starts, and at which its last row stops holding."""
    if scores.times is None or scores.end_times is None:
        return None
    rows = rows_of(event, scores)
    start, end = scores.times[rows.start], scores.end_times[rows.stop - 1]
    return [round(float(start), 3), round(float(end), 3)]


def _lines(content: dict[str, Any]) -> str:
    """JSON with an event per line."""
    events = ",\n".join(json.dumps(row) for row in content["events"])
    head = {name: value for name, value in content.items() if name != "events"}
    listed = f"[\n{events}\n]" if events else "[]"
    return json.dumps(head)[:-1] + f', "events": {listed}}}\n'


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    names = [*FIELDS[:-1], "start_time", "stop_time"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        times = row["times"] or ("", "")
        cells = {name: "" if row[name] is None else row[name] for name in FIELDS[:-1]}
        writer.writerow({**cells, "start_time": times[0], "stop_time": times[1]})
    return text.getvalue()


class _Facts(BaseModel):
    """Facts of a run: what is not known here is left alone, so that `run.json` can grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Unreadable(_Facts):
    """Frames that could not be decoded."""

    count: int = 0
    frames: tuple[int, ...] = ()
    reasons: dict[str, int] = Field(default_factory=dict)


class Redundant(_Facts):
    """Frames that were not encoded since they hardly differ from the one before."""

    count: int = 0
    share: float | None = None


class ModelFacts(_Facts):
    """The model that scored the frames."""

    backbone: str | None = None
    hash: str | None = None
    trained_on: dict[str, Any] = Field(default_factory=dict)
    results: dict[str, Any] = Field(default_factory=dict)
    calibrated: bool | None = None
    split: str | None = None

    @field_validator("trained_on", "results", mode="before")
    @classmethod
    def _nothing(cls, value: Any) -> Any:
        return {} if value is None else value


class RuntimeFacts(_Facts):
    """What ran the model."""

    name: str | None = None
    why: str | None = None
    tta: bool | None = None


class RunFacts(_Facts):
    """Everything that the page tells about a run."""

    command: str | None = None
    study: str | None = None
    rows: int | None = None  # frames of the study
    scored: int | None = None  # of these, rows of scores.parquet: without the unreadable ones
    stride: int | None = None
    rate: float | None = Field(default=None, gt=0)
    rate_note: str | None = None
    unreadable: Unreadable | None = None
    redundant: Redundant | None = None
    model: ModelFacts | None = None
    runtime: RuntimeFacts | None = None
    preset: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    frame_calibration: FrameCalibration | None = None
    thresholds: dict[str, float | None] = Field(default_factory=dict)
    scaling: str | None = None
    notes: tuple[str, ...] = ()
    calibrated: bool | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)

    @field_validator("model", mode="before")
    @classmethod
    def _hash_alone(cls, value: Any) -> Any:
        # `enteron decode` knows no more of a model than the hash of its calibration.
        return {"hash": value} if isinstance(value, str) else value

    @field_validator("notes", mode="before")
    @classmethod
    def _no_notes(cls, value: Any) -> Any:
        return () if value is None else value

    @field_validator("options", "thresholds", "versions", "timings", mode="before")
    @classmethod
    def _nothing(cls, value: Any) -> Any:
        return {} if value is None else value

    @classmethod
    def from_json(cls, table: Any) -> "RunFacts":
        """The facts of a parsed `run.json`; a field of the wrong kind is named."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise EnteronError(
                f"run.json is damaged at '{where}' ({first['msg'].lower()})",
                "run `enteron read` again, or take the field out of the file",
            ) from error

    @property
    def is_calibrated(self) -> bool | None:
        """Whether scores were calibrated; None when the run does not say."""
        if self.model is not None and self.model.calibrated is not None:
            return self.model.calibrated
        return self.calibrated

    @property
    def unnamed(self) -> int:
        """Unreadable frames whose numbers are not listed."""
        if self.unreadable is None:
            return 0
        return max(0, self.unreadable.count - len(self.unreadable.frames))

    @property
    def rate_assumed(self) -> bool:
        return "assum" in (self.rate_note or "").lower()


SCORES = "scores.parquet"
MIXED = "the files of two readings were mixed: read one of the studies into a new folder"
REMEDY = "run `enteron read` again, which writes all files of a reading"


@dataclass(frozen=True)
class StoredReading:
    """What `enteron read` left in a folder, as far as the page needs it."""

    folder: Path
    unit: Unit
    scores: Scores
    events: tuple[DecodedEvent, ...]  # in file order; their place is their number on the page
    run: RunFacts

    @property
    def study(self) -> str:
        return self.scores.study

    @cached_property
    def stored_axis(self) -> FrameAxis:
        """All frames of the study, unreadable ones included as far as they are named."""
        bad = () if self.run.unreadable is None else self.run.unreadable.frames
        return FrameAxis(np.union1d(self.scores.axis.frames, np.array(bad, np.int64)))

    @cached_property
    def gaps(self) -> list[Gap]:
        """Stretches of frame numbers that the study does not contain."""
        bad = () if self.run.unreadable is None else self.run.unreadable.frames
        return gaps_of(self.scores.axis, bad, self.run.unnamed)


def load_reading(folder: Path, scores_file: Path | None = None) -> StoredReading:
    """The reading of a folder; files that are missing, damaged or of two studies are refused.

    Scores lie in the folder unless a file is named: `enteron decode` leaves them where they were.
    """
    if not folder.is_dir():
        raise EnteronError(f"'{folder.name}' is not a folder", "give the folder of a reading")
    if not (folder / "events.json").is_file():
        raise EnteronError(f"'{folder.name}' is not a reading: it has no events.json", REMEDY)
    if scores_file is None:
        scores_file = folder / SCORES
        if not scores_file.is_file():
            raise EnteronError(
                f"'{folder.name}' has no {SCORES}", "name the file that was decoded with --scores"
            )
    stored = read_events_file(folder / "events.json")
    run = _run(folder / "run.json")
    scores = _scores(scores_file, stored, run)
    _agree(stored.study, stored.events, scores, run)
    return StoredReading(folder, stored.unit, scores, stored.events, run)


def _scores(path: Path, stored: EventsFile, run: RunFacts) -> Scores:
    """Scores counted as the events are: rows become frames if they did so while decoding."""
    stride = run.stride if stored.unit is Unit.FRAME else None
    read = read_scores(path, None, stride)
    # A file that does not say whose scores it holds goes by its own name.
    if read.study not in (stored.study, path.stem):
        raise EnteronError(
            f"{path.name} holds scores of study {read.study}, events.json events of study "
            f"{stored.study}",
            MIXED,
        )
    if read.unit is not stored.unit:
        raise EnteronError(
            f"{path.name} counts in '{read.unit}', events.json in '{stored.unit}'", MIXED
        )
    times = read.times
    if times is not None and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise EnteronError(
            f"the times in {path.name} have holes or go back", "correct the column or leave it out"
        )
    return replace(read, study=stored.study)


def _run(path: Path) -> RunFacts:
    """`run.json`, or nothing known about the run."""
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return RunFacts()
    except (OSError, ValueError) as error:
        raise EnteronError(f"run.json cannot be read ({error})", REMEDY) from error
    return RunFacts.from_json(table)


def _agree(study: str, events: Sequence[DecodedEvent], scores: Scores, run: RunFacts) -> None:
    """Events, scores and run are of one study, or it is an error."""
    if run.study is not None and run.study != study:
        raise EnteronError(f"events.json is of study {study}, run.json of study {run.study}", MIXED)
    rows = len(scores.axis)
    expected = run.rows if run.scored is None else run.scored
    if expected is not None and expected != rows:
        raise EnteronError(
            f"the scores have {rows} rows where run.json of study {study} has {expected}", MIXED
        )
    first, last = int(scores.axis.frames[0]), int(scores.axis.ends()[-1])
    for event in events:
        if event.start < first or event.stop > last:
            raise EnteronError(
                f"the event '{event.label}' at {event.start} to {event.stop} lies outside the "
                f"scores, which go from {first} to {last}",
                MIXED,
            )


def rows_of(event: DecodedEvent, scores: Scores) -> range:
    """The rows that an event covers: at least one."""
    start, stop = np.searchsorted(scores.axis.frames, (event.start, event.stop))
    row = min(int(start), len(scores.axis) - 1)
    return range(row, max(int(stop), row + 1))

"""The reading folder: the names, the schema, the reading and the writing of its files.

run.json           what was read, with what, and how far it got     RunRecord
embeddings.npy     the encoder's output, frame by frame             enteron.inference.store
scores.parquet     the model's raw scores                           enteron.folders.scores
events.json, .csv  decoded events, for programs and for tables      write_events
suspicious.json    the frames to look at first                      enteron.folders.suspicious
submission.json    the same events as the official file             enteron.datasets.submission
pictures/          pictures of events                               enteron.report.pictures
report.html        the page                                         enteron.report
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from enteron.appearance import Likeness
from enteron.calibration import FrameCalibration
from enteron.context import EventContext
from enteron.datasets.submission import MAX_FRAME, write_submission
from enteron.decoding import DecodedEvent, DecodeOptions
from enteron.decoding.events import to_annotation
from enteron.errors import EnteronError, LabelError, nearest, quantity, shorten, shown
from enteron.files import RECORD_LIMIT, json_text, make_folder, read_json, write_json, write_text
from enteron.folders.identity import (
    MIXED,
    ReadingIdentity,
    file_hashes,
    require_described,
    require_same,
    scores_hash,
)
from enteron.folders.scores import SCORES, read_score_metadata, read_scores
from enteron.ids import require_study_id
from enteron.inference.store import open_embeddings
from enteron.inference.views import ViewSet
from enteron.labels import LABELS, REGIONS
from enteron.profile import Profile
from enteron.study.content import StudyContent, read_content, sampled_hash
from enteron.study.study import Study
from enteron.types import Annotation, Event, FrameAxis, Gap, Scores, TrainingSource, Unit, gaps_of

if TYPE_CHECKING:
    import polars as pl

RUN = "run.json"
EMBEDDINGS = "embeddings.npy"
EVENTS = "events.json"
EVENTS_TABLE = "events.csv"
SUBMISSION = "submission.json"
REPORT = "report.html"
LABEL_STUDIO = ("label-studio.json", "label-studio.xml")

READ_AGAIN = "run `enteron read` again, which writes all files of a reading"
FINISH = "run `enteron read` again to finish it"

# ---- run.json


class _Facts(BaseModel):
    """A part of run.json. Fields of later versions are ignored, so that the file can grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Unreadable(_Facts):
    """Frames that could not be decoded."""

    count: int = 0
    frames: tuple[int, ...] = ()  # the first ones by number; all of them are counted
    reasons: dict[str, int] = Field(default_factory=dict)


class MissingEnd(_Facts):
    """The end of the recording, where the study's file is cut off."""

    frames: int | None = None
    seconds: float | None = None
    sentence: str = ""


class Redundant(_Facts):
    """Frames that were not encoded since they hardly differ from an earlier one."""

    count: int = 0
    share: float | None = None
    limit: float | None = None  # grey levels
    probed: int = 0  # redundant frames that were encoded all the same, to measure the effect
    mean_difference: float | None = None  # of their scores
    largest_difference: float | None = None


class CoarseFacts(_Facts):
    """A reading that looked at some frames only, and at others where it mattered."""

    encoded: int = 0  # frames that were looked at
    skipped: int = 0  # frames that were not: they have the scores of the nearest that was
    share: float | None = None  # of the readable frames that were looked at
    longest: int = 0  # frames in a row that were not looked at, at most
    stride: int | None = None
    limit: float | None = None  # risk of a gap from which on it was looked into
    missed: float | None = None
    """Expected number of gaps that hold something which neither frame beside them shows."""
    studies: int | None = None  # from which that was estimated

    @property
    def sentence(self) -> str:
        """What was not looked at and what that may have missed; it ends without a full stop."""
        text = (
            f"{self.skipped:,} of {self.encoded + self.skipped:,} frames were not looked at (at "
            f"most {self.longest} in a row) and have the scores of the nearest frame that was"
        )
        if self.missed is not None:
            others = quantity(self.studies or 0, "other study", "other studies")
            text += (
                f"; between them something is expected in {self.missed:.1f} places that no frame "
                f"looked at shows (estimated on {others})"
            )
        return text


class PlanFacts(_Facts):
    """How a reading was planned to end within a time."""

    minutes: float
    runtime: str
    views: ViewSet
    stride: int  # 1: every frame is encoded
    share: float  # of the frames that are expected to be encoded
    seconds: float  # that the reading is expected to take
    kept: float | None = None  # share of lesions that such readings found of those of a full one
    sentence: str  # what was said before the start


class ModelFacts(_Facts):
    """The model that scored the frames."""

    name: str | None = None
    default: bool = False  # whether it was taken because no model was named
    sources: tuple[TrainingSource, ...] = ()  # the datasets that trained it
    backbone: str | None = None
    hash: str | None = None  # first 16 digits of the hash of its weights, or of its calibration
    trained_on: dict[str, JsonValue] = Field(default_factory=dict)
    results: dict[str, float] = Field(default_factory=dict)
    unproven: dict[str, str] = Field(default_factory=dict)  # findings not reported, and why
    calibrated: bool | None = None
    calibrated_on_training: int = 0  # studies of the calibration that had trained the model
    split: str | None = None

    @property
    def sentence(self) -> str:
        """Which model it is and what it has seen, in one line, without a full stop."""
        name = self.name or self.backbone or "unknown"
        default = " (no model was named)" if self.default else ""
        return f"{name}{default}, {trained_on_sentence(self.sources)}"


def trained_on_sentence(sources: Sequence[TrainingSource]) -> str:
    """What trained a model, and whether those are drawings; it ends without a full stop."""
    if not sources:
        return "which does not say what it was trained on"
    parts = [
        f"{source.title} ({source.kind}, {quantity(source.studies, 'study', 'studies')})"
        for source in sources
    ]
    seen = {source.kind for source in sources}
    only_drawn = ": it has never seen a real frame" if seen == {"drawings"} else ""
    return f"trained on {' and '.join(parts)}{only_drawn}"


class CombinedMember(_Facts):
    """A reading whose scores are part of a mean; hashes name it, no folder does."""

    weight: float = Field(gt=0, le=1)  # its share of the mean
    scores: str  # hash of its scores
    model: str | None = None  # SHA-256 of the weights that made them
    calibration: str | None = None  # SHA-256 of the calibration.json that was applied to them
    backbone: str | None = None


class CombinationFacts(_Facts):
    """How the scores of a combination were made."""

    mean: Literal["probability", "log-odds"]
    averaged: Literal["calibrated", "raw"]
    members: tuple[CombinedMember, ...] = Field(min_length=2)


class RuntimeFacts(_Facts):
    """What ran the encoder."""

    name: str | None = None
    why: str | None = None
    views: ViewSet | None = None  # mirrored and turned copies that were averaged
    neighbour_step: int | None = None  # stored frames between those of a clip, if not the model's

    @model_validator(mode="before")
    @classmethod
    def _from_earlier_versions(cls, values: Any) -> Any:
        """Readings of version 0.1 say `tta`: with the mirror image, or without."""
        if isinstance(values, dict) and isinstance(values.get("tta"), bool):
            views = "flip" if values["tta"] else "none"
            return {"views": views} | {k: v for k, v in values.items() if k != "tta"}
        return values


State = Literal["started", "embedded", "scored", "decoded", "illustrated", "finished"]
"""The last stage whose files are complete."""


class RunRecord(_Facts):
    """`run.json`: written at the end of every stage, by `read` and by `decode` alike.

    It holds no path of this machine and nothing of a patient but the study's id.
    """

    study: str | None = None
    state: State | None = None
    identity: ReadingIdentity | None = None
    files: dict[str, str] = Field(default_factory=dict)  # SHA-256 of the files of this run
    command: str | None = None
    unit: Unit = Unit.FRAME
    rows: int | None = None  # frames of the study
    scored: int | None = None  # rows of scores.parquet: frames that could be read
    stride: int | None = None
    gaps: int | None = None
    rate: float | None = Field(default=None, ge=1e-9, le=1e9)  # frames per second
    rate_note: str | None = None
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # what lies beside the frames: counts and reasons, no names
    missing: MissingEnd | None = None
    unreadable: Unreadable | None = None
    redundant: Redundant | None = None
    coarse: CoarseFacts | None = None  # None: every frame was looked at
    plan: PlanFacts | None = None  # of `--minutes`
    model: ModelFacts | None = None
    likeness: Likeness | None = None  # whether the study looks like those that the model knows
    combination: CombinationFacts | None = None  # of `enteron combine`
    runtime: RuntimeFacts | None = None
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of `enteron read` besides those of decoding; empty in files of older versions."""
    preset: str | None = None
    options: DecodeOptions | None = None
    frame_calibration: FrameCalibration | None = None  # applied to the scores before decoding
    event_context: EventContext | None = None  # what judged events by what surrounds them
    base_rates: dict[str, float] = Field(default_factory=dict)
    """Of each label in the studies of that calibration, as far as they show it."""
    thresholds: dict[str, float | None] = Field(default_factory=dict)
    """Of findings and landmarks, as decoding used them; None: the label is never reported."""
    scaling: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)  # seconds by stage
    profile: Profile | None = None  # where the time went

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        return {name: value for name, value in table.items() if value is not None}

    @classmethod
    def load(cls, folder: Path) -> "RunRecord | None":
        """The record of a folder; None where there is no run.json."""
        path = folder / RUN
        if not path.exists():
            return None
        remedy = "delete it and read the study again, or give another folder"
        return cls.parse(read_json(path, remedy, limit=RECORD_LIMIT))

    @classmethod
    def parse(cls, table: object) -> "RunRecord":
        """The record of a parsed run.json; the first wrong field is named."""
        try:
            record = cls.model_validate(table)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise EnteronError(
                f"{RUN} is damaged at '{shorten(where)}' ({shorten(first['msg'].lower())})",
                "run `enteron read` again, or take the field out of the file",
            ) from error
        if record.study is not None:
            require_study_id(record.study, f"{RUN}: the study's id")
        return record

    def save(self, folder: Path) -> None:
        """Write run.json, replacing the record of an earlier stage."""
        content = self.model_dump(mode="json")
        write_json(folder / RUN, content, sort_keys=True)

    def with_files(self, folder: Path, names: Iterable[str]) -> "RunRecord":
        """The record with the hashes of these files as they are now."""
        return self.model_copy(update={"files": {**self.files, **file_hashes(folder, names)}})

    def require_finished(self, folder: Path) -> None:
        """Refuse a folder whose files may be of this run and of an earlier one."""
        if self.state != "finished":
            stage = "" if self.state is None else f", after the stage '{self.state}'"
            raise EnteronError(
                f"the reading in '{folder.name}' was begun and not finished{stage}", FINISH
            )

    @property
    def is_unlike(self) -> bool:
        """Whether the study looks unlike everything that the model knows."""
        return self.likeness is not None and self.likeness.verdict == "unlike"

    @property
    def is_calibrated(self) -> bool | None:
        """Whether the scores were calibrated; None when the run does not tell."""
        return None if self.model is None else self.model.calibrated

    @property
    def training_note(self) -> str | None:
        """A sentence where the calibration was fitted on studies that trained the model."""
        count = 0 if self.model is None else self.model.calibrated_on_training
        if not count:
            return None
        studies = "a study" if count == 1 else f"{count} studies"
        return (
            f"the confidence was calibrated on {studies} that had trained the model, so that it is "
            "too high"
        )

    @property
    def unreadable_frames(self) -> tuple[int, ...]:
        """Numbers of the unreadable frames, as far as they are listed."""
        return () if self.unreadable is None else self.unreadable.frames

    @property
    def unnamed(self) -> int:
        """How many unreadable frames are counted but not listed."""
        if self.unreadable is None:
            return 0
        return max(0, self.unreadable.count - len(self.unreadable.frames))

    @property
    def rate_assumed(self) -> bool:
        """Whether the frame rate is an assumption rather than known."""
        return "assum" in (self.rate_note or "").lower()


def package_versions(*names: str) -> dict[str, str]:
    """Installed versions of packages; those that are not installed are left out."""
    versions: dict[str, str] = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def scaling_note(scores: Scores) -> str | None:
    """A sentence for studies whose decoder constants were scaled; None for real studies."""
    if scores.shortening == 1.0:
        return None
    return (
        f"a shortened study: a row stands for {scores.row_frames:.0f} original frames, so "
        f"constants counted in rows are divided by {scores.shortening:.1f}, for every decoder alike"
    )


# ---- events.json, events.csv, submission.json

EVENT_FIELDS = ("label", "start", "stop", "score", "region", "onset", "end", "times")


def write_events(
    folder: Path,
    scores: Scores,
    events: Sequence[DecodedEvent],
    identity: ReadingIdentity,
    options: DecodeOptions | None = None,
) -> None:
    """Write `events.json`, `events.csv` and `submission.json`, each atomically.

    The official file counts frames: where scores only number rows, none is written. The decoder's
    options say how it is cut and ordered; without them it holds the events as they are.
    """
    make_folder(folder)
    rows = [_event_row(event, scores) for event in events]
    head = json_text(
        {"study": scores.study, "unit": str(scores.unit), "identity": identity.at("decoded")}
    )
    lines = ",\n".join(json_text(row) for row in rows)
    listed = f"[\n{lines}\n]" if lines else "[]"
    write_text(folder / EVENTS, f'{head[:-1]}, "events": {listed}}}\n')
    write_text(folder / EVENTS_TABLE, _events_csv(rows))
    if scores.unit is Unit.FRAME:
        annotation = to_annotation(scores.study, scores.unit, events, options)
        write_submission(folder / SUBMISSION, [annotation])
    else:
        (folder / SUBMISSION).unlink(missing_ok=True)  # of an earlier decoding with frame numbers


@dataclass(frozen=True)
class EventsFile:
    """What `events.json` holds."""

    study: str
    unit: Unit
    events: tuple[DecodedEvent, ...]  # in file order
    identity: ReadingIdentity | None = None  # None in a file of an older version


def read_events_file(path: Path) -> EventsFile:
    """Read `events.json`; an invalid event is reported by its number."""
    remedy = "decode the scores again"
    content = read_json(path, remedy)
    try:
        study, unit, rows = content["study"], Unit(content["unit"]), content["events"]
        stated = content.get("identity")
        identity = None if stated is None else ReadingIdentity.model_validate(stated)
    except (KeyError, TypeError, ValueError) as error:
        raise EnteronError(f"{path.name} has no study, unit and events", remedy) from error
    if not (isinstance(study, str) and isinstance(rows, list)):
        raise EnteronError(f"{path.name} names no study, or its events are no list", remedy)
    require_study_id(study, f"{path.name}: the study's id")
    events = tuple(_event(row, i, path.name) for i, row in enumerate(rows, 1))
    return EventsFile(study, unit, events, identity)


def _event(row: Any, number: int, source: str) -> DecodedEvent:
    try:
        score, onset, end = (
            None if row.get(name) is None else float(row[name])
            for name in ("score", "onset", "end")
        )
        start, stop = _frame(row["start"]), _frame(row["stop"])
        if row.get("region") not in (None, *REGIONS):
            raise LabelError(f"{shown(row['region'])} is not a region", nearest("", REGIONS))
        return DecodedEvent(start, stop, row["label"], score, row.get("region"), onset, end)
    except EnteronError as error:
        problem = f"{source}, event {number}: {error.problem}"
        raise type(error)(problem, error.remedy) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise EnteronError(
            f"event {number} of {source} is damaged", "decode the scores again"
        ) from error


def _frame(value: Any) -> int:
    if type(value) is not int or value > MAX_FRAME + 1:
        raise LabelError(f"{shown(value)} is not a frame", "give a frame's whole number")
    return value


def _event_row(event: DecodedEvent, scores: Scores) -> dict[str, Any]:
    values = (
        event.label,
        event.start,
        event.stop,
        _rounded(event.score),
        event.region,
        _rounded(event.onset),
        _rounded(event.end),
        event_times(event, scores),
    )
    return dict(zip(EVENT_FIELDS, values, strict=True))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def event_times(event: DecodedEvent, scores: Scores) -> list[float] | None:
    """Seconds at which an event starts, and at which its last row ends; None where unknown."""
    if scores.times is None or scores.end_times is None:
        return None
    rows = event_rows(event, scores)
    start, end = scores.times[rows.start], scores.end_times[rows.stop - 1]
    return [round(float(start), 3), round(float(end), 3)]


def _events_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    names = [*EVENT_FIELDS[:-1], "start_time", "stop_time"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        times = row["times"] or ("", "")
        cells = {name: "" if row[name] is None else row[name] for name in EVENT_FIELDS[:-1]}
        writer.writerow({**cells, "start_time": times[0], "stop_time": times[1]})
    return text.getvalue()


# ---- who may write to the folder


def require_folder_of(folder: Path, study: str) -> RunRecord | None:
    """The record of an earlier run in the folder; a reading of another study is refused."""
    record = RunRecord.load(folder)
    if record is not None:
        _require_same_study(folder, record.study, study)
    return record


def _require_same_study(folder: Path, held: str | None, study: str) -> None:
    if held != study:
        raise EnteronError(
            f"'{folder.name}' holds the reading of study {held}, not of {study}",
            "give another folder",
        )


def replaceable_run(folder: Path, identity: ReadingIdentity) -> RunRecord | None:
    """The record of the reading whose events these scores may replace; None in a new folder.

    Refuses a reading of another study or of other scores, and one that is not finished.
    """
    record = require_folder_of(folder, identity.study)
    if record is None:
        if (folder / EVENTS).is_file():  # left by a run that was killed before it wrote run.json
            _require_same_study(folder, read_events_file(folder / EVENTS).study, identity.study)
        return None
    if record.identity is None:
        raise _old_folder_error(folder)
    record.require_finished(folder)
    if record.identity.scores != identity.scores:
        raise EnteronError(
            f"'{folder.name}' holds events of study {identity.study} that were decoded from other "
            "scores",
            "give another folder",
        )
    return record


def remove_derived(folder: Path) -> tuple[str, ...]:
    """Remove the files that show events which are about to be replaced; their names."""
    names = tuple(n for n in (REPORT, *LABEL_STUDIO) if (folder / n).is_file())
    for name in names:
        (folder / name).unlink()
    return names


def _old_folder_error(folder: Path) -> EnteronError:
    return EnteronError(
        f"'{folder.name}' was made by an older version of enteron, which did not record what its "
        "files belong to",
        "read the study again, or decode the scores into another folder",
    )


# ---- the whole folder


@dataclass(frozen=True, repr=False)
class Reading:
    """A study that was read: its scores, its events, and how they were made."""

    folder: Path
    scores: Scores  # of every readable frame, as the model gave them (not calibrated)
    events: tuple[DecodedEvent, ...]  # in file order; their position is their number on the page
    run: RunRecord

    @property
    def study(self) -> str:
        """The study's id."""
        return self.scores.study

    @property
    def unit(self) -> Unit:
        """Whether events count frames or rows."""
        return self.scores.unit

    @property
    def report(self) -> Path:
        """Path of the page."""
        return self.folder / REPORT

    @property
    def annotation(self) -> Annotation:
        """The events as the official file holds them."""
        return to_annotation(self.study, self.unit, self.events, self.run.options)

    @property
    def counts(self) -> dict[str, int]:
        """Number of events by label, the commonest label first."""
        return dict(Counter(event.label for event in self.events).most_common())

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each stage took."""
        return self.run.timings

    @cached_property
    def stored_axis(self) -> FrameAxis:
        """All frames of the study, unreadable ones included as far as they are listed."""
        unreadable = np.array(self.run.unreadable_frames, np.int64)
        return FrameAxis(np.union1d(self.scores.axis.frames, unreadable), self.unit)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Ranges of frame numbers that the study does not contain."""
        return gaps_of(self.scores.axis, self.run.unreadable_frames, self.run.unnamed)

    def table(self) -> "pl.DataFrame":
        """One row per event: label, start, stop, confidence, region, and times where known."""
        import polars as pl

        times = [event_times(event, self.scores) or (None, None) for event in self.events]
        return pl.DataFrame(
            {
                "label": [event.label for event in self.events],
                "start": [event.start for event in self.events],
                "stop": [event.stop for event in self.events],
                "confidence": [event.score for event in self.events],
                "region": [event.region for event in self.events],
                "start_time": [start for start, _ in times],
                "stop_time": [stop for _, stop in times],
            },
            schema={
                "label": pl.String,
                "start": pl.Int64,
                "stop": pl.Int64,
                "confidence": pl.Float64,
                "region": pl.String,
                "start_time": pl.Float64,
                "stop_time": pl.Float64,
            },
        )

    def __repr__(self) -> str:
        return (
            f"Reading(study={self.study!r}, frames={len(self.scores.axis)}, "
            f"events={len(self.events)}, folder={self.folder.name!r})"
        )

    def __str__(self) -> str:
        lines = [self._headline()]
        rows = self.summary()
        widths = [max(len(row[i]) for row in [_SUMMARY_HEAD, *rows]) for i in range(5)]
        for row in [_SUMMARY_HEAD, *rows] if rows else []:
            label, *figures = row
            cells = [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
            lines.append("  ".join([label.ljust(widths[0]), *cells]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in _SUMMARY_HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.summary()
        )
        return f"<p>{escape(self._headline())}</p><table><tr>{head}</tr>{body}</table>"

    def summary(self) -> list[tuple[str, str, str, str, str]]:
        """A row per label that occurs: label, events, first and last frame, highest confidence.

        In brackets where the study is unlike everything that the model knows.
        """
        shown = "({})" if self.run.is_unlike else "{}"
        rows: list[tuple[str, str, str, str, str]] = []
        for label in sorted(self.counts, key=LABELS.index):
            events = [event for event in self.events if event.label == label]
            scores = [event.score for event in events if event.score is not None]
            rows.append(
                (
                    shown.format(label),
                    f"{len(events):,}",
                    f"{min(event.start for event in events):,}",
                    f"{max(event.stop for event in events) - 1:,}",
                    shown.format(f"{max(scores):.2f}") if scores else "-",
                )
            )
        return rows

    def _headline(self) -> str:
        unreadable = 0 if self.run.unreadable is None else self.run.unreadable.count
        frames = len(self.scores.axis) + unreadable
        state = f"{unreadable:,} of them unreadable" if unreadable else "all readable"
        events = f"{len(self.events):,} event{'' if len(self.events) == 1 else 's'}"
        unlike = "; it looks unlike all that the model knows" if self.run.is_unlike else ""
        return f"Study {self.study}: {frames:,} {self.unit}s, {state}, {events}{unlike}"


_SUMMARY_HEAD = ("label", "events", "first", "last", "confidence")


def load_reading(
    folder: Path | str, scores_file: Path | None = None, *, unfinished: bool = False
) -> Reading:
    """The reading of a folder; missing, damaged, mixed and unfinished files are refused.

    Scores lie in the folder unless a file is named: `enteron decode` leaves them where they were.
    `unfinished` is for the run that is about to finish the reading.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise EnteronError(f"'{folder.name}' is not a folder", "give the folder of a reading")
    if not (folder / EVENTS).is_file():
        raise EnteronError(f"'{folder.name}' is not a reading: it has no {EVENTS}", READ_AGAIN)
    run = RunRecord.load(folder)
    if run is None:
        raise EnteronError(f"'{folder.name}' is not a whole reading: it has no {RUN}", READ_AGAIN)
    if run.identity is not None and not unfinished:
        run.require_finished(folder)
    if scores_file is None:
        scores_file = folder / SCORES
        if not scores_file.is_file():
            raise EnteronError(
                f"'{folder.name}' has no {SCORES}", "name the file that was decoded with --scores"
            )
    events = read_events_file(folder / EVENTS)
    scores = _decoded_scores(scores_file, events, run)
    _require_agreement(events, scores, run)
    _require_identity(folder, scores_file, events, scores, run)
    return Reading(folder, scores, events.events, run)


def _require_identity(
    folder: Path, scores_file: Path, events: EventsFile, scores: Scores, run: RunRecord
) -> None:
    """Refuse files that were not made by one run out of one another."""
    if run.identity is None or events.identity is None:
        raise _old_folder_error(folder)
    require_same((EVENTS, events.identity), (RUN, run.identity))
    stated = read_score_metadata(scores_file)
    stored = ReadingIdentity(
        study=run.identity.study,
        content=stated.content,
        model=stated.model,
        scores=scores_hash(scores),
    )
    fields = ("scores",) if stated.stage is None else ("content", "model", "scores")
    require_same((scores_file.name, stored), (RUN, run.identity), fields)
    require_described(folder, run.files, (SCORES, EVENTS, EVENTS_TABLE, SUBMISSION))


def _decoded_scores(path: Path, events: EventsFile, run: RunRecord) -> Scores:
    """Scores in the unit of the events: rows become frames if they did so while decoding."""
    stride = run.stride if events.unit is Unit.FRAME else None
    scores = read_scores(path, events.study, stride)
    stated = read_score_metadata(path).study  # None in files of other programs
    if stated not in (None, events.study):
        raise EnteronError(
            f"{path.name} holds scores of study {stated}, {EVENTS} events of study {events.study}",
            MIXED,
        )
    if scores.unit is not events.unit:
        raise EnteronError(
            f"{path.name} counts in '{scores.unit}', {EVENTS} in '{events.unit}'", MIXED
        )
    return scores


def _require_agreement(events: EventsFile, scores: Scores, run: RunRecord) -> None:
    """Refuse events, scores and run.json of different studies."""
    if run.study is not None and run.study != events.study:
        raise EnteronError(
            f"{EVENTS} is of study {events.study}, {RUN} of study {run.study}", MIXED
        )
    rows = len(scores.axis)
    expected = run.rows if run.scored is None else run.scored
    if expected is not None and expected != rows:
        raise EnteronError(
            f"the scores have {rows} rows where {RUN} of study {events.study} has {expected}", MIXED
        )
    first, last = int(scores.axis.frames[0]), int(scores.axis.ends()[-1])
    for event in events.events:
        if event.start < first or event.stop > last:
            raise EnteronError(
                f"the event '{event.label}' at {event.start} to {event.stop} lies outside the "
                f"scores, which go from {first} to {last}",
                MIXED,
            )


def content_of(reading: Reading, study: Study) -> StudyContent | None:
    """The content of the study that was read, for comparing frames with it; None if not recorded.

    Refuses a study of other content. The digests lie in embeddings.npy, and samples of all files
    must be those of its key; without it, or for a video, every file of the study is read.
    """
    identity = reading.run.identity
    if identity is None or identity.content is None:
        return None
    files = study.files()
    content: StudyContent | None = None
    with suppress(EnteronError, OSError):  # without it, the files tell
        embeddings = open_embeddings(reading.folder / EMBEDDINGS, check=False)
        if embeddings.record.per_row and embeddings.key.samples == sampled_hash(files):
            content = embeddings.content
    if content is None or content.hash != identity.content:
        content = read_content(study.numbers, files, per_row=len(files) == len(study) > 0)
    same = content.hash == identity.content and len(content.numbers) == len(study)
    if not same or not (content.numbers == study.numbers).all():
        raise EnteronError(
            f"the frames given are not those of study {identity.study} that were read",
            "give the study that was read, or read this one",
        )
    return content


def event_rows(event: Event, scores: Scores) -> range:
    """The rows of the scores that an event covers: at least one."""
    start, stop = np.searchsorted(scores.axis.frames, (event.start, event.stop))
    row = min(int(start), len(scores.axis) - 1)
    return range(row, max(int(stop), row + 1))

"""What people do with a reading: one value per kind of action, as the record stores it.

Decisions change what a study's review says; they are checked against what others decided since, and
can be undone. Notes (`viewed`, `time`, `comment`) only add, so that two people never collide.
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from enteron.errors import EnteronError, nearest, shorten, shown
from enteron.labels import LABELS, REGIONS
from enteron.options import Options, Sha256
from enteron.review.scores import Saurin, StudyScore
from enteron.types import LARGEST_FRAME, Unit

MOST_TEXT: Final = 20_000
"""Characters of a comment or of a section of the report."""

Landmark = Literal["first gastric image", "first duodenal image", "first caecal image"]
LANDMARK_REGION: Final[dict[Landmark, str]] = {
    "first gastric image": "stomach",
    "first duodenal image": "small intestine",
    "first caecal image": "colon",
}
"""The region that each landmark is the first image of."""

ReportField = Literal["indication", "preparation", "findings", "conclusion", "recommendation"]


def _label(name: str) -> str:
    if name not in LABELS:
        raise ValueError(f"is not one of the 17 labels: {nearest(name, LABELS)}")
    return name


def _region(name: str) -> str:
    if name not in REGIONS:
        raise ValueError(f"is not a region: {nearest(name, REGIONS)}")
    return name


Label = Annotated[str, AfterValidator(_label)]
Region = Annotated[str, AfterValidator(_region)]
Frame = Annotated[int, Field(ge=0, le=LARGEST_FRAME, strict=True)]
EventId = Annotated[str, Field(pattern=r"^(m|a)[0-9]{1,9}(r[0-9]{1,4})?$")]
Text = Annotated[str, Field(max_length=MOST_TEXT)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]


class _Span(Options):
    """Something with a range of frames [start, stop)."""

    start: Frame
    stop: Frame

    @model_validator(mode="after")
    def _ordered(self) -> "_Span":
        if self.stop <= self.start:
            raise ValueError("stop must be larger than start")
        return self


class MachineEvent(_Span):
    """An event of `events.json`, as the model reported it."""

    label: Label
    score: float | None = Field(default=None, ge=-1e-6, le=1 + 1e-6)
    region: Region | None = None
    onset: float | None = Field(default=None, ge=-1e-6, le=1 + 1e-6)


class Open(Options):
    """The reading that is reviewed. The record holds its events, so that it stands alone."""

    kind: Literal["open"] = "open"
    reading: Sha256  # of events.json
    unit: Unit
    first: Frame  # the study's first frame
    end: Frame  # the frame after its last
    events: tuple[MachineEvent, ...]


class Confirm(Options):
    """An event is real, as it stands."""

    kind: Literal["confirm"] = "confirm"
    event: EventId


class Reject(Options):
    """An event is not real."""

    kind: Literal["reject"] = "reject"
    event: EventId
    reason: Text = ""


class Relabel(Options):
    """An event is real and something else."""

    kind: Literal["relabel"] = "relabel"
    event: EventId
    label: Label


class Trim(_Span):
    """An event is real, from `start` to `stop`: shorter, longer or shifted."""

    kind: Literal["trim"] = "trim"
    event: EventId


class Add(_Span):
    """An event that the model missed."""

    kind: Literal["add"] = "add"
    label: Label
    region: Region | None = None


class Dismiss(Options):
    """A frame of the list of suspicious ones does not show what made it suspicious."""

    kind: Literal["dismiss"] = "dismiss"
    frame: Frame
    label: Label


class Grade(Options):
    """Bleeding potential of a finding; None takes it back."""

    kind: Literal["grade"] = "grade"
    event: EventId
    saurin: Saurin | None


class ConfirmLandmark(Options):
    """The proposed frame of a landmark is right."""

    kind: Literal["confirm-landmark"] = "confirm-landmark"
    landmark: Landmark


class MoveLandmark(Options):
    """A landmark lies at another frame."""

    kind: Literal["move-landmark"] = "move-landmark"
    landmark: Landmark
    frame: Frame


class ClearLandmark(Options):
    """A landmark is not in the study: the capsule did not get there."""

    kind: Literal["clear-landmark"] = "clear-landmark"
    landmark: Landmark


class SetScore(Options):
    """The parameters of a score."""

    kind: Literal["set-score"] = "set-score"
    score: StudyScore


class ClearScore(Options):
    """A score is taken back."""

    kind: Literal["clear-score"] = "clear-score"
    name: Literal["lewis", "cecdai", "koda"]


class EditReport(Options):
    """The text of a section of the report."""

    kind: Literal["edit-report"] = "edit-report"
    field: ReportField
    text: Text


class Sign(Options):
    """The report is signed as it stands; later decisions make a new version."""

    kind: Literal["sign"] = "sign"
    meaning: Text = ""


class Comment(Options):
    """A remark about the study, an event or a frame."""

    kind: Literal["comment"] = "comment"
    text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]
    event: EventId | None = None
    frame: Frame | None = None


class Viewed(Options):
    """Frames that were looked at, as ranges [start, stop); pictures per second, where they ran."""

    kind: Literal["viewed"] = "viewed"
    intervals: Annotated[tuple[tuple[Frame, Frame], ...], Field(min_length=1, max_length=10_000)]
    rate: Annotated[float, Field(gt=0, le=1000)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> "Viewed":
        if any(stop <= start for start, stop in self.intervals):
            raise ValueError("stop must be larger than start")
        return self


class Time(Options):
    """Seconds of active reading, and idle ones apart, since the last such note."""

    kind: Literal["time"] = "time"
    active: Seconds
    idle: Seconds = 0.0


class Undo(Options):
    """A decision of the same person no longer counts."""

    kind: Literal["undo"] = "undo"
    target: Annotated[int, Field(gt=0)]


class Redo(Options):
    """A decision that was undone counts again."""

    kind: Literal["redo"] = "redo"
    target: Annotated[int, Field(gt=0)]


Decision: TypeAlias = (
    Confirm
    | Reject
    | Relabel
    | Trim
    | Add
    | Dismiss
    | Grade
    | ConfirmLandmark
    | MoveLandmark
    | ClearLandmark
    | SetScore
    | ClearScore
    | EditReport
)
Note: TypeAlias = Comment | Viewed | Time
Action: TypeAlias = Open | Decision | Note | Sign | Undo | Redo

DECISIONS: Final = Decision.__args__
NOTES: Final = (Comment, Viewed, Time)

_ANY: Final = TypeAdapter(Annotated[Action, Field(discriminator="kind")])
_PERSONS: Final = TypeAdapter(
    Annotated[Decision | Note | Sign, Field(discriminator="kind")],
)


def deed(action: Action, number: int) -> str:
    """What the action with this number of its study did: 'relabelled event m12 as ulcer'."""
    match action:
        case Open():
            return "opened the review" if number == 1 else "put another reading under review"
        case Confirm(event=event):
            return f"confirmed event {event}"
        case Reject(event=event):
            return f"rejected event {event}"
        case Relabel(event=event, label=label):
            return f"relabelled event {event} as {label}"
        case Trim(event=event):
            return f"trimmed event {event}"
        case Add(label=label, start=start):
            return f"added {label} at frame {start}"
        case Dismiss(label=label, frame=frame):
            return f"dismissed {label} at frame {frame}"
        case Grade(event=event, saurin=saurin):
            return f"graded event {event} {saurin or 'without a bleeding potential'}"
        case ConfirmLandmark(landmark=landmark):
            return f"confirmed the {landmark}"
        case MoveLandmark(landmark=landmark, frame=frame):
            return f"moved the {landmark} to frame {frame}"
        case ClearLandmark(landmark=landmark):
            return f"marked the {landmark} as not reached"
        case SetScore(score=score):
            return f"entered the score {score.name}"
        case ClearScore(name=name):
            return f"took back the score {name}"
        case EditReport(field=field):
            return f"edited the {field} of the report"
        case Sign():
            return "signed the report"
        case Undo():
            return "undid a decision"
        case Redo():
            return "redid a decision"
        case Comment():
            return "commented"
        case Viewed():
            return "viewed frames"
        case Time():
            return "noted reading time"


def parse_action(table: object) -> Decision | Note | Sign:
    """An action that a person sent; the first wrong field is named.

    Openings, undo and redo are made by the store, not sent.
    """
    try:
        return _PERSONS.validate_python(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(shorten(str(part)) for part in first["loc"]) or "the action"
        message = shorten(first["msg"].removeprefix("Value error, "), 200)
        raise EnteronError(
            f"{where} = {shorten(shown(first['input']), 100)} is not valid", message.rstrip(".")
        ) from error


def stored_action(text: str) -> Action:
    """An action of the record; anything unknown raises ValidationError."""
    return _ANY.validate_json(text)

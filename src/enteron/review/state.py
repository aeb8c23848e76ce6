"""What a study's review says: derived from the recorded actions by a pure function.

`derive` replays the actions of one study. Nothing else is stored, so that the state is always what
the record says, and a signed version can be shown again at any time.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from enteron.errors import EnteronError, nearest
from enteron.files import json_text
from enteron.options import Options
from enteron.review.actions import (
    DECISIONS,
    LANDMARK_REGION,
    Action,
    Add,
    ClearLandmark,
    ClearScore,
    Comment,
    Confirm,
    ConfirmLandmark,
    Dismiss,
    EditReport,
    Grade,
    Landmark,
    MachineEvent,
    MoveLandmark,
    Open,
    Redo,
    Reject,
    Relabel,
    ReportField,
    SetScore,
    Sign,
    Time,
    Trim,
    Undo,
    Viewed,
)
from enteron.review.scores import Cecdai, Koda, Lewis, Saurin
from enteron.types import Unit

FAST: Final = 15.0
"""Pictures per second above which frames pass too fast to be called looked at with care."""

SAME_EVENT: Final = 0.5
"""Overlap over union from which events of two readings of a study are taken for the same one."""

Interval = tuple[int, int]


@dataclass(frozen=True)
class Entry:
    """One action of a study as it stands in the record."""

    number: int  # of the study's actions, from 1
    user: str
    time: str  # UTC, ISO 8601
    action: Action


class ReviewEvent(Options):
    """An event of the model or of a person, and what was decided about it."""

    id: str
    label: str
    start: int
    stop: int
    score: float | None = None  # the model's confidence
    region: str | None = None
    origin: Literal["machine", "person"]
    machine: MachineEvent | None = None  # as the model reported it
    decision: Literal["open", "confirmed", "rejected"] = "open"
    saurin: Saurin | None = None
    reason: str = ""
    by: str | None = None
    at: str | None = None

    @property
    def changed(self) -> bool:
        """Whether label or frames differ from what the model reported."""
        said = self.machine
        return said is not None and (said.label, said.start, said.stop) != (
            self.label,
            self.start,
            self.stop,
        )


class LandmarkState(Options):
    """A landmark: proposed by the model, then confirmed, moved or absent."""

    frame: int | None = None
    proposed: int | None = None
    confidence: float | None = None
    status: Literal["unknown", "proposed", "confirmed", "moved", "absent"] = "unknown"
    by: str | None = None
    at: str | None = None

    @property
    def decided(self) -> bool:
        """Whether a person has confirmed or moved it."""
        return self.status in ("confirmed", "moved")


class Remark(Options):
    """A comment, with who wrote it and when."""

    number: int
    user: str
    time: str
    text: str
    event: str | None = None
    frame: int | None = None


class Dismissed(Options):
    """A frame that somebody looked at and that does not show a label."""

    frame: int
    label: str
    by: str
    at: str


class ReadingTime(Options):
    """Seconds that a person spent on the study."""

    active: float = 0.0
    idle: float = 0.0


class Signature(Options):
    """A signed version of the report."""

    version: int  # 1 for the first
    number: int  # of the action that signed
    user: str
    time: str
    meaning: str = ""
    digest: str  # SHA-256 of what was signed


class ReviewState(Options):
    """The review of one study."""

    study: str
    reading: str | None = None  # SHA-256 of the events.json under review
    unit: Unit = Unit.FRAME
    first: int = 0
    end: int = 0
    generation: int = 0  # how many readings of this study were under review
    number: int = 0  # of the last action
    version: int = 0  # number of the last decision; give it as `expected` with the next one
    events: dict[str, ReviewEvent] = Field(default_factory=dict)
    landmarks: dict[Landmark, LandmarkState] = Field(
        default_factory=lambda: {name: LandmarkState() for name in LANDMARK_REGION}
    )
    lewis: Lewis | None = None
    cecdai: Cecdai | None = None
    koda: Koda | None = None
    dismissed: tuple[Dismissed, ...] = ()
    report: dict[ReportField, str] = Field(default_factory=dict)
    comments: tuple[Remark, ...] = ()
    viewed: tuple[Interval, ...] = ()  # looked at, at whatever speed
    viewed_slowly: tuple[Interval, ...] = ()  # at no more than `FAST` pictures a second
    times: dict[str, ReadingTime] = Field(default_factory=dict)  # by user
    signatures: tuple[Signature, ...] = ()
    readers: tuple[str, ...] = ()  # who decided, noted or signed something, in order
    last_time: str | None = None
    undoable: dict[str, tuple[int, ...]] = Field(default_factory=dict)  # by user, last one last
    redoable: dict[str, tuple[int, ...]] = Field(default_factory=dict)

    @property
    def status(self) -> Literal["unread", "in progress", "signed"]:
        """'signed' as long as nothing was decided after the last signature."""
        if self.signatures and self.signatures[-1].number >= self.version:
            return "signed"
        return "in progress" if self.readers else "unread"

    @property
    def findings(self) -> tuple[ReviewEvent, ...]:
        """Confirmed events, in the order of time."""
        confirmed = (event for event in self.events.values() if event.decision == "confirmed")
        return tuple(sorted(confirmed, key=lambda event: (event.start, event.stop, event.label)))

    def event(self, name: str) -> ReviewEvent:
        """An event by its id."""
        if name not in self.events:
            raise EnteronError(
                f"study {self.study} has no event '{name}'", nearest(name, self.events or ("m0",))
            )
        return self.events[name]

    def table(self) -> dict[str, Any]:
        """The state as JSON, with what is derived from it."""
        return {
            **self.model_dump(mode="json"),
            "status": self.status,
            "values": {
                "lewis": None if self.lewis is None else self.lewis.value,
                "cecdai": None if self.cecdai is None else self.cecdai.value,
                "koda": None if self.koda is None else self.koda.value,
            },
        }

    def digest(self) -> str:
        """SHA-256 of what a signature covers: all decisions, not who looked for how long."""
        covered = {"study", "reading", "events", "landmarks", "dismissed"}
        covered |= {"lewis", "cecdai", "koda", "report"}
        text = json_text(
            self.model_dump(mode="json", include=covered), sort_keys=True, separators=(",", ":")
        )
        return hashlib.sha256(text.encode()).hexdigest()


def derive(study: str, entries: Sequence[Entry], base: ReviewState | None = None) -> ReviewState:
    """Replay the actions of a study; with `base`, those after the state that is given.

    A base is the state after a signature or an opening: nothing before them can be undone later.
    """
    undone: set[int] = set()
    for entry in entries:
        if isinstance(entry.action, Undo):
            undone.add(entry.action.target)
        elif isinstance(entry.action, Redo):
            undone.discard(entry.action.target)
    state = ReviewState(study=study) if base is None else base
    for entry in entries:
        state = advance(state, entry, counts=entry.number not in undone)
    return state


def advance(state: ReviewState, entry: Entry, *, counts: bool = True) -> ReviewState:
    """The state after one more action; one that was undone only leaves its number behind."""
    if counts:
        changes = _changes(state, entry)
        if changes:
            state = state.model_copy(update=changes)
    return state.model_copy(update=_bookkeeping(state, entry))


def subjects(action: Action, entries: Sequence[Entry] = ()) -> frozenset[str]:
    """What an action changes; two actions collide where they change the same.

    `entries` are the study's actions, for undo and redo. '*' is everything.
    """
    if isinstance(action, Confirm | Reject | Relabel | Trim | Grade):
        return frozenset({f"event {action.event}"})
    if isinstance(action, ConfirmLandmark | MoveLandmark | ClearLandmark):
        return frozenset({action.landmark})
    if isinstance(action, SetScore):
        return frozenset({f"score {action.score.name}"})
    if isinstance(action, ClearScore):
        return frozenset({f"score {action.name}"})
    if isinstance(action, EditReport):
        return frozenset({f"report {action.field}"})
    if isinstance(action, Dismiss):
        return frozenset({f"frame {action.frame} {action.label}"})
    if isinstance(action, Open | Sign):
        return frozenset({"*"})
    if isinstance(action, Undo | Redo):
        target = next((e for e in entries if e.number == action.target), None)
        if target is None:
            return frozenset()
        if isinstance(target.action, Add):
            return frozenset({f"event a{target.number}"})
        return subjects(target.action)
    return frozenset()


def snapshot(state: ReviewState, names: Iterable[str]) -> dict[str, Any] | None:
    """The named subjects as the state has them: what the record keeps as before and after."""
    parts: dict[str, Any] = {}
    for name in sorted(names):
        kind, _, rest = name.partition(" ")
        value: Any = None
        if name in state.landmarks:
            value = state.landmarks[name].model_dump(mode="json")
        elif kind == "event" and rest in state.events:
            value = state.events[rest].model_dump(mode="json")
        elif kind == "score":
            score = getattr(state, rest)
            value = None if score is None else score.model_dump(mode="json")
        elif kind == "frame":
            value = any(f"{d.frame} {d.label}" == rest for d in state.dismissed)
        elif kind == "report":
            value = state.report.get(rest)  # pyright: ignore[reportArgumentType]
        parts[name] = value
    return parts or None


# ---- one action


def _changes(state: ReviewState, entry: Entry) -> dict[str, Any]:
    action = entry.action
    match action:
        case Open():
            return _opened(state, action)
        case Confirm() | Reject() | Relabel() | Trim() | Grade():
            return {"events": {**state.events, action.event: _decided(state, entry)}}
        case Add():
            _require_inside(state, action.start, action.stop)
            event = ReviewEvent(
                id=f"a{entry.number}",
                label=action.label,
                start=action.start,
                stop=action.stop,
                region=action.region,
                origin="person",
                decision="confirmed",
                by=entry.user,
                at=entry.time,
            )
            return {"events": {**state.events, event.id: event}}
        case ConfirmLandmark() | MoveLandmark() | ClearLandmark():
            landmark = _landmark(state, entry)
            return {"landmarks": {**state.landmarks, action.landmark: landmark}}
        case Dismiss():
            _require_inside(state, action.frame, action.frame + 1)
            dismissed = Dismissed(
                frame=action.frame, label=action.label, by=entry.user, at=entry.time
            )
            others = [d for d in state.dismissed if (d.frame, d.label) != _key(dismissed)]
            return {"dismissed": tuple(sorted((*others, dismissed), key=_key))}
        case SetScore():
            return {action.score.name: action.score}
        case ClearScore():
            return {action.name: None}
        case EditReport():
            return {"report": {**state.report, action.field: action.text}}
        case Sign():
            signature = Signature(
                version=len(state.signatures) + 1,
                number=entry.number,
                user=entry.user,
                time=entry.time,
                meaning=action.meaning,
                digest=state.digest(),
            )
            return {"signatures": (*state.signatures, signature)}
        case Comment():
            if action.event is not None:
                state.event(action.event)
            remark = Remark(
                number=entry.number,
                user=entry.user,
                time=entry.time,
                text=action.text,
                event=action.event,
                frame=action.frame,
            )
            return {"comments": (*state.comments, remark)}
        case Viewed():
            inside = [(max(a, state.first), min(b, state.end)) for a, b in action.intervals]
            inside = [(a, b) for a, b in inside if a < b]
            changes: dict[str, Any] = {"viewed": merge(state.viewed, inside)}
            if action.rate is None or action.rate <= FAST:
                changes["viewed_slowly"] = merge(state.viewed_slowly, inside)
            return changes
        case Time():
            before = state.times.get(entry.user, ReadingTime())
            spent = ReadingTime(
                active=round(before.active + action.active, 3),
                idle=round(before.idle + action.idle, 3),
            )
            return {"times": {**state.times, entry.user: spent}}
        case Undo() | Redo():
            return {}


def _key(dismissed: Dismissed) -> tuple[int, str]:
    return dismissed.frame, dismissed.label


def _decided(state: ReviewState, entry: Entry) -> ReviewEvent:
    action = entry.action
    assert isinstance(action, Confirm | Reject | Relabel | Trim | Grade)
    event = state.event(action.event)
    stamp: dict[str, Any] = {"by": entry.user, "at": entry.time}
    match action:
        case Confirm():
            stamp |= {"decision": "confirmed", "reason": ""}
        case Reject():
            stamp |= {"decision": "rejected", "reason": action.reason}
        case Relabel():
            stamp |= {"decision": "confirmed", "label": action.label, "reason": ""}
        case Trim():
            _require_inside(state, action.start, action.stop)
            stamp |= {
                "decision": "confirmed",
                "start": action.start,
                "stop": action.stop,
                "reason": "",
            }
        case Grade():
            stamp |= {"saurin": action.saurin}
    return event.model_copy(update=stamp)


def _landmark(state: ReviewState, entry: Entry) -> LandmarkState:
    action = entry.action
    assert isinstance(action, ConfirmLandmark | MoveLandmark | ClearLandmark)
    landmark = state.landmarks[action.landmark]
    stamp: dict[str, Any] = {"by": entry.user, "at": entry.time}
    match action:
        case ConfirmLandmark():
            if landmark.frame is None:
                raise EnteronError(
                    f"the {action.landmark} has no frame to confirm", "move it to its frame"
                )
            moved = landmark.frame != landmark.proposed
            stamp |= {"status": "moved" if moved else "confirmed"}
        case MoveLandmark():
            _require_inside(state, action.frame, action.frame + 1)
            _require_order(state, action.landmark, action.frame)
            stamp |= {"status": "moved", "frame": action.frame}
        case ClearLandmark():
            stamp |= {"status": "absent", "frame": None}
    return landmark.model_copy(update=stamp)


def _require_inside(state: ReviewState, start: int, stop: int) -> None:
    if start < state.first or stop > state.end:
        raise EnteronError(
            f"frames {start} to {stop - 1} are not all in study {state.study}",
            f"its frames go from {state.first} to {state.end - 1}",
        )


def _require_order(state: ReviewState, name: Landmark, frame: int) -> None:
    """Refuse a landmark before an earlier one or after a later one that a person has decided."""
    order = list(LANDMARK_REGION)
    place = order.index(name)
    for other, landmark in state.landmarks.items():
        if not landmark.decided or landmark.frame is None or other == name:
            continue
        wrong = landmark.frame > frame if order.index(other) < place else landmark.frame < frame
        if wrong:
            side = "before" if order.index(other) < place else "after"
            raise EnteronError(
                f"the {name} at frame {frame} would lie {side} the {other} at frame "
                f"{landmark.frame}",
                f"move the {other} first",
            )


def _opened(state: ReviewState, action: Open) -> dict[str, Any]:
    """Put a reading under review; what people decided about an earlier one stays."""
    generation = state.generation + 1
    suffix = "" if generation == 1 else f"r{generation}"
    events = {name: event for name, event in state.events.items() if event.decision != "open"}
    for number, said in enumerate(action.events):
        if any(_is_same(said, event) for event in events.values()):
            continue  # it was decided about already
        name = f"m{number}{suffix}"
        events[name] = ReviewEvent(
            id=name,
            label=said.label,
            start=said.start,
            stop=said.stop,
            score=said.score,
            region=said.region,
            origin="machine",
            machine=said,
        )
    landmarks = dict(state.landmarks)
    for name, landmark in landmarks.items():
        if landmark.decided or landmark.status == "absent":
            continue
        entries = [said for said in action.events if said.label == LANDMARK_REGION[name]]
        first = min(entries, key=lambda said: said.start, default=None)
        landmarks[name] = (
            LandmarkState()
            if first is None
            else LandmarkState(
                frame=first.start,
                proposed=first.start,
                confidence=first.onset,
                status="proposed",
            )
        )
    return {
        "reading": action.reading,
        "unit": action.unit,
        "first": action.first,
        "end": action.end,
        "generation": generation,
        "events": events,
        "landmarks": landmarks,
    }


def _is_same(said: MachineEvent, event: ReviewEvent) -> bool:
    """Whether a machine event is what an earlier reading reported and people decided about."""
    known = event.machine
    label, start, stop = (
        (event.label, event.start, event.stop)
        if known is None
        else (known.label, known.start, known.stop)
    )
    overlap = min(stop, said.stop) - max(start, said.start)
    union = max(stop, said.stop) - min(start, said.start)
    return label == said.label and overlap >= SAME_EVENT * union


# ---- numbers, and what can be undone


def _bookkeeping(state: ReviewState, entry: Entry) -> dict[str, Any]:
    action, user = entry.action, entry.user
    table: dict[str, Any] = {"number": entry.number, "last_time": entry.time}
    if not isinstance(action, Open) and user not in state.readers:
        table["readers"] = (*state.readers, user)
    if isinstance(action, DECISIONS):
        table["version"] = entry.number
        table["undoable"] = {
            **state.undoable,
            user: (*state.undoable.get(user, ()), entry.number),
        }
        table["redoable"] = {**state.redoable, user: ()}
    elif isinstance(action, Undo | Redo):
        table["version"] = entry.number
        source, sink = ("undoable", "redoable")
        if isinstance(action, Redo):
            source, sink = sink, source
        taken: dict[str, tuple[int, ...]] = getattr(state, source)
        given: dict[str, tuple[int, ...]] = getattr(state, sink)
        rest = tuple(n for n in taken.get(user, ()) if n != action.target)
        table[source] = {**taken, user: rest}
        table[sink] = {**given, user: (*given.get(user, ()), action.target)}
    elif isinstance(action, Open | Sign):
        # What was signed cannot be undone, only decided anew; and another reading has other events.
        table |= {"version": entry.number, "undoable": {}, "redoable": {}}
    return table


def merge(known: Sequence[Interval], more: Iterable[Interval]) -> tuple[Interval, ...]:
    """The union of intervals [start, stop), in order, without overlaps."""
    merged: list[Interval] = []
    for start, stop in sorted((*known, *more)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return tuple(merged)

"""Transit: when the capsule entered each region, and how long the stages took.

A stage has one of three outcomes. `reached`: both its ends were seen. `not reached`: the recording
ends, in a region that was recognised, before the stage does. `unknown`: anything else, such as a
region that the decoder does not report or a border that lies in a gap; it is never guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from enteron.decode.events import DecodedEvent
from enteron.labels import COLUMN, REGIONS
from enteron.report.clock import Clock, counted
from enteron.types import Gap

TOLERATED = 25
"""Rows that may be missing at a border: its certainty is stated for as many around it."""


class Outcome(StrEnum):
    """What is known about a stage."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stage:
    """One stage of the transit, from the entry into a region to the entry into the next."""

    title: str
    outcome: Outcome
    value: str  # duration or frames, 'not reached', 'unknown'
    detail: str  # one sentence
    start: int | None = None
    stop: int | None = None
    sureness: float | None = None  # the smaller confidence of its two borders


@dataclass(frozen=True)
class Stay:
    """One stay in a region, for the table."""

    number: int  # of the event
    region: str
    entered: str
    left: str
    lasted: str
    share: float  # of the study's frames
    onset: float | None

    @property
    def column(self) -> int:
        return COLUMN[self.region]


@dataclass(frozen=True)
class TransitPanel:
    """Transit times and stays."""

    stages: tuple[Stage, ...]
    stays: tuple[Stay, ...]
    time_known: bool
    time_assumed: bool
    word: str


def transit_panel(
    events: Sequence[DecodedEvent], clock: Clock, gaps: Sequence[Gap] = ()
) -> TransitPanel:
    """Gastric and small-bowel transit, whether the colon was reached, and every stay."""
    stays = [(n, event) for n, event in enumerate(events) if event.label in REGIONS]
    regions = [event for _, event in stays]
    total = max(1, clock.end - clock.first)
    rows = tuple(
        Stay(
            number,
            event.label,
            clock.at(event.start),
            clock.at(event.stop - 1),
            clock.lasting(event.start, event.stop),
            len(event) / total,
            event.onset,
        )
        for number, event in sorted(stays, key=lambda stay: stay[1].start)
    )
    stages = (
        _stage("Gastric transit", "stomach", "small intestine", regions, clock, gaps),
        _stage("Small-bowel transit", "small intestine", "colon", regions, clock, gaps),
        _arrival("Colon", "colon", regions, clock),
    )
    return TransitPanel(stages, rows, clock.known, clock.assumed, clock.word)


def _entry(region: str, events: Sequence[DecodedEvent]) -> DecodedEvent | None:
    """The first stay in a region."""
    return min((e for e in events if e.label == region), key=lambda e: e.start, default=None)


def _last(events: Sequence[DecodedEvent]) -> DecodedEvent | None:
    return max(events, key=lambda e: e.stop, default=None)


def _stage(
    title: str,
    region: str,
    following: str,
    events: Sequence[DecodedEvent],
    clock: Clock,
    gaps: Sequence[Gap],
) -> Stage:
    start, stop = _entry(region, events), _entry(following, events)
    if not events:
        return _unknown(title, "No region was recognised in this study.")
    if stop is None:
        return _unfinished(title, region, following, start, events, clock)
    if start is None or start.start >= stop.start:
        return _unknown(
            title, f"The {following} was recognised, but no entry into the {region} before it."
        )
    for event in (start, stop):
        gap = gap_before(event.start, gaps)
        if gap > TOLERATED * clock.axis.step:
            return _unknown(
                title,
                f"{counted(gap, clock.word).capitalize()} are missing just before the "
                f"{event.label} begins: the border lies somewhere among them.",
            )
    if start.start == clock.first:
        return Stage(
            title,
            Outcome.UNKNOWN,
            f"at least {clock.lasting(start.start, stop.start)}",
            f"The recording begins inside the {region}; its entry was not seen.",
            start.start,
            stop.start,
            stop.onset,
        )
    sureness = [e.onset for e in (start, stop) if e.onset is not None]
    return Stage(
        title,
        Outcome.REACHED,
        clock.lasting(start.start, stop.start),
        f"From {clock.at(start.start)} to {clock.at(stop.start)}.",
        start.start,
        stop.start,
        min(sureness, default=None),
    )


def _unfinished(
    title: str,
    region: str,
    following: str,
    start: DecodedEvent | None,
    events: Sequence[DecodedEvent],
    clock: Clock,
) -> Stage:
    """The region behind the stage does not occur: the recording ended before it, or who knows."""
    last = _last(events)
    assert last is not None
    if REGIONS.index(last.label) > REGIONS.index(following):
        return _unknown(title, f"A later region was recognised, but the {following} was not.")
    if last.stop < clock.end:
        return _unknown(title, "No region was recognised at the end of the recording.")
    if start is None:
        return Stage(
            title,
            Outcome.NOT_REACHED,
            "not reached",
            f"The recording ends in the {last.label}; the {region} was not entered.",
        )
    return Stage(
        title,
        Outcome.NOT_REACHED,
        "not reached",
        f"The recording ends in the {last.label}, {clock.lasting(start.start, last.stop)} after "
        f"entry into the {region}; the {following} was not entered.",
        start.start,
    )


def _arrival(title: str, region: str, events: Sequence[DecodedEvent], clock: Clock) -> Stage:
    """Whether a region was reached at all, and when."""
    entry, last = _entry(region, events), _last(events)
    if entry is not None:
        return Stage(
            title,
            Outcome.REACHED,
            "reached",
            f"First recognised at {clock.at(entry.start)}.",
            entry.start,
            sureness=entry.onset,
        )
    if last is None:
        return _unknown(title, "No region was recognised in this study.")
    if last.stop < clock.end:
        return _unknown(title, "No region was recognised at the end of the recording.")
    return Stage(
        title, Outcome.NOT_REACHED, "not reached", f"The recording ends in the {last.label}."
    )


def _unknown(title: str, detail: str) -> Stage:
    return Stage(title, Outcome.UNKNOWN, "unknown", detail)


def gap_before(frame: int, gaps: Sequence[Gap]) -> int:
    """How many frames are missing directly before a frame; 0 where none are."""
    return next((stop - start for start, stop in gaps if stop == frame), 0)

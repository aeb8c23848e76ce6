"""Transit: when the capsule entered each region, and how long the stages took.

A stage has one of three outcomes. `reached`: both its borders were seen. `not reached`: the
recording ends, in a region that was recognised, before the stage does. `unknown`: anything else,
such as a region that the decoder does not report, a border that lies in a gap, or a stage that may
lie in the missing end of a recording that was cut off.

Two confidences are kept apart: that the capsule was in a region at all (the score of the region's
event), and that it entered the region near the frame given (`onset`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from enteron.decoding.events import DecodedEvent
from enteron.labels import COLUMN, REGIONS
from enteron.report.clock import Clock, counted
from enteron.types import Gap

TOLERATED: Final = 25
"""Rows that may be missing at a border: `onset` is the probability of a border that near."""

CONFIDENT: Final = 0.9  # from here on a region is 'reached', below 'probably reached'
UNCERTAIN: Final = 0.5  # below, 'possibly reached', and durations are 'about'


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
    value: str  # a duration, '(probably) reached', 'not reached' or 'unknown'
    detail: str  # one sentence
    confidence: str = ""  # one sentence on the confidence in the borders, where it is known


@dataclass(frozen=True)
class RegionInterval:
    """One interval in a region, for the table."""

    number: int  # of the event
    region: str
    entered: str
    left: str
    duration: str
    share: float  # of the study's frames
    confidence: float | None  # that the capsule was in this region
    entry_confidence: float | None  # that it entered the region near this frame

    @property
    def column(self) -> int:
        """Column of the label, which selects the colour."""
        return COLUMN[self.region]


@dataclass(frozen=True)
class TransitPanel:
    """The stages, and every interval in a region."""

    stages: tuple[Stage, ...]
    intervals: tuple[RegionInterval, ...]
    has_times: bool
    word: str


def transit_panel(
    events: Sequence[DecodedEvent], clock: Clock, gaps: Sequence[Gap] = (), *, cut_off: bool = False
) -> TransitPanel:
    """Gastric and small-bowel transit, whether the colon was reached, and every region interval."""
    numbered = [(number, event) for number, event in enumerate(events) if event.label in REGIONS]
    regions = [event for _, event in numbered]
    stages = (
        _stage("Gastric transit", "stomach", "small intestine", regions, clock, gaps),
        _stage("Small-bowel transit", "small intestine", "colon", regions, clock, gaps),
        _arrival("Colon", "colon", regions, clock),
    )
    if cut_off:
        stages = tuple(_without_end(stage) for stage in stages)
    intervals = tuple(
        _interval(number, event, clock)
        for number, event in sorted(numbered, key=lambda pair: pair[1].start)
    )
    return TransitPanel(stages, intervals, clock.has_times, clock.word)


def _without_end(stage: Stage) -> Stage:
    """A stage of a recording whose end is missing: that nothing was reached is not known."""
    if stage.outcome is not Outcome.NOT_REACHED:
        return stage
    detail = stage.detail.replace("The recording ends in", "The file ends in")
    return Stage(
        stage.title, Outcome.UNKNOWN, "unknown", f"{detail} The end of the recording is missing."
    )


def _interval(number: int, event: DecodedEvent, clock: Clock) -> RegionInterval:
    return RegionInterval(
        number,
        event.label,
        entered=clock.at(event.start),
        left=clock.at(event.stop - 1),
        duration=clock.duration(event.start, event.stop),
        share=len(event) / max(1, clock.end - clock.first),
        confidence=event.score,
        entry_confidence=event.onset,
    )


def _stage(
    title: str,
    region: str,
    following: str,
    events: Sequence[DecodedEvent],
    clock: Clock,
    gaps: Sequence[Gap],
) -> Stage:
    """The stage from the entry into `region` to the entry into `following`."""
    entry, exit_ = _first(region, events), _first(following, events)
    if not events:
        return _unknown(title, "No region was recognised in this study.")
    if exit_ is None:
        return _unfinished(title, region, following, entry, events, clock)
    if entry is None or entry.start >= exit_.start:
        return _unknown(
            title, f"The {following} was recognised, but no entry into the {region} before it."
        )
    for event in (entry, exit_):
        missing = gap_before(event.start, gaps)
        if missing > TOLERATED * clock.axis.step:
            return _unknown(
                title,
                f"{counted(missing, clock.word).capitalize()} are missing just before the "
                f"{event.label} begins: the border lies somewhere among them.",
            )
    duration = clock.interval(entry.start, exit_.start)
    if entry.start == clock.first:
        return Stage(
            title,
            Outcome.UNKNOWN,
            f"at least {duration}",
            f"The recording begins inside the {region}; its entry was not seen.",
            _border_confidence([exit_]),
        )
    onsets = [event.onset for event in (entry, exit_) if event.onset is not None]
    uncertain = min(onsets, default=1.0) < UNCERTAIN
    return Stage(
        title,
        Outcome.REACHED,
        f"about {duration}" if uncertain else duration,
        f"From {clock.at(entry.start)} to {clock.at(exit_.start)}.",
        _border_confidence([entry, exit_]),
    )


def _unfinished(
    title: str,
    region: str,
    following: str,
    entry: DecodedEvent | None,
    events: Sequence[DecodedEvent],
    clock: Clock,
) -> Stage:
    """A stage whose next region does not occur: the recording ended first, or it is unknown why."""
    last = max(events, key=lambda event: event.stop)
    if REGIONS.index(last.label) > REGIONS.index(following):
        return _unknown(title, f"A later region was recognised, but the {following} was not.")
    if last.stop < clock.end:
        return _unknown(title, "No region was recognised at the end of the recording.")
    if entry is None:
        detail = f"The recording ends in the {last.label}; the {region} was not entered."
    else:
        detail = (
            f"The recording ends in the {last.label}, {clock.duration(entry.start, last.stop)} "
            f"after entry into the {region}; the {following} was not entered."
        )
    return Stage(title, Outcome.NOT_REACHED, "not reached", detail)


def _arrival(title: str, region: str, events: Sequence[DecodedEvent], clock: Clock) -> Stage:
    """Whether a region was reached at all, and when."""
    entry = _first(region, events)
    if entry is not None:
        confidence = "" if entry.score is None else f", confidence {entry.score:.2f}"
        return Stage(
            title,
            Outcome.REACHED,
            _reached(entry.score),
            f"First recognised at {clock.at(entry.start)}{confidence}.",
            _border_confidence([entry]),
        )
    if not events:
        return _unknown(title, "No region was recognised in this study.")
    last = max(events, key=lambda event: event.stop)
    if last.stop < clock.end:
        return _unknown(title, "No region was recognised at the end of the recording.")
    return Stage(
        title, Outcome.NOT_REACHED, "not reached", f"The recording ends in the {last.label}."
    )


def _first(region: str, events: Sequence[DecodedEvent]) -> DecodedEvent | None:
    """The first interval in a region."""
    intervals = (event for event in events if event.label == region)
    return min(intervals, key=lambda event: event.start, default=None)


def _reached(confidence: float | None) -> str:
    """'reached', qualified as the confidence demands."""
    if confidence is None or confidence >= CONFIDENT:
        return "reached"
    return "probably reached" if confidence >= UNCERTAIN else "possibly reached"


def _border_confidence(entries: Sequence[DecodedEvent]) -> str:
    """A sentence on the less certain of the entries."""
    onsets = [event.onset for event in entries if event.onset is not None]
    if not onsets:
        return ""
    borders = "this border" if len(entries) == 1 else "these borders"
    lower = " (the lower of the two)" if len(onsets) == 2 else ""
    return f"Confidence in the position of {borders}: {min(onsets):.2f}{lower}."


def _unknown(title: str, detail: str) -> Stage:
    return Stage(title, Outcome.UNKNOWN, "unknown", detail)


def gap_before(frame: int, gaps: Sequence[Gap]) -> int:
    """How many frames are missing directly before a frame; 0 where none are."""
    return next((stop - start for start, stop in gaps if stop == frame), 0)

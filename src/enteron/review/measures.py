"""What follows from a review's landmarks and from what was looked at: transit, completeness, share.

Frames become seconds by the study's own clock; where a study has no times, none are made up.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np

from enteron.report.clock import Clock, format_duration
from enteron.review.actions import Landmark
from enteron.review.state import Interval, ReviewState, merge

GASTRIC: Final[Landmark] = "first gastric image"
DUODENAL: Final[Landmark] = "first duodenal image"
CAECAL: Final[Landmark] = "first caecal image"

SHARE_DIGITS: Final = 4

Completeness = Literal["caecum reached", "caecum not reached", "unknown"]
_COMPLETENESS: Final[dict[bool | None, Completeness]] = {
    True: "caecum reached",
    False: "caecum not reached",
    None: "unknown",
}


@dataclass(frozen=True)
class Passage:
    """The way from one landmark to another."""

    title: str
    start: int | None  # frames
    stop: int | None
    seconds: float | None  # None where a landmark or the time is not known
    text: str  # '3 h 12 min', a count of frames, 'not reached' or 'unknown'
    confirmed: bool  # a person decided about both landmarks


@dataclass(frozen=True)
class Measures:
    """What follows from a state; `table` is its JSON."""

    gastric_transit: Passage
    small_bowel_transit: Passage
    complete: bool | None  # the caecum was reached; None where nobody and nothing says
    completeness: Completeness
    completeness_confirmed: bool
    small_bowel_viewed: float | None  # share of its frames that were looked at; None: no borders
    study_viewed: float
    small_bowel_viewed_slowly: float | None
    active_seconds: float
    idle_seconds: float

    def table(self) -> dict[str, Any]:
        """The measures as JSON."""
        return asdict(self)


def measures(state: ReviewState, clock: Clock) -> Measures:
    """Transit times, completeness and shares of one study."""
    caecum = state.landmarks[CAECAL]
    complete = {"absent": False, "unknown": None}.get(caecum.status, True)
    bowel = small_bowel(state)
    everything = [(state.first, state.end)]
    return Measures(
        gastric_transit=_passage("Gastric transit", GASTRIC, DUODENAL, state, clock),
        small_bowel_transit=_passage("Small-bowel transit", DUODENAL, CAECAL, state, clock),
        complete=complete,
        completeness=_COMPLETENESS[complete],
        completeness_confirmed=caecum.decided or caecum.status == "absent",
        small_bowel_viewed=None if bowel is None else _share(state.viewed, [bowel], clock),
        study_viewed=_share(state.viewed, everything, clock),
        small_bowel_viewed_slowly=(
            None if bowel is None else _share(state.viewed_slowly, [bowel], clock)
        ),
        active_seconds=round(sum(spent.active for spent in state.times.values()), 3),
        idle_seconds=round(sum(spent.idle for spent in state.times.values()), 3),
    )


def small_bowel(state: ReviewState) -> Interval | None:
    """Frames of the small bowel: up to the caecum, or to the end where it was not reached."""
    start = state.landmarks[DUODENAL].frame
    if start is None:
        return None
    stop = state.landmarks[CAECAL].frame
    stop = state.end if stop is None else stop
    return (start, stop) if start < stop else None


def tertiles(state: ReviewState, clock: Clock, parts: int = 3) -> tuple[Interval, ...] | None:
    """The small bowel in parts of equal transit time; None unless both landmarks are known.

    Without times, parts have as many frames as each other.
    """
    start, stop = state.landmarks[DUODENAL].frame, state.landmarks[CAECAL].frame
    if start is None or stop is None or stop - start < parts:
        return None
    frames = clock.axis.frames[(clock.axis.frames >= start) & (clock.axis.frames < stop)]
    if frames.size < parts:
        return None
    begin, end = clock.seconds(start), clock.seconds(stop)
    if begin is None or end is None or end <= begin:
        limits = np.linspace(start, stop, parts + 1)[1:-1]
        inner = np.searchsorted(frames, limits)
    else:
        if clock.knots is None:  # an even rate
            seconds = np.interp(frames, (start, stop), (begin, end))
        else:
            seconds = np.interp(frames, *clock.knots)
        inner = np.searchsorted(seconds, np.linspace(begin, end, parts + 1)[1:-1])
    borders = [start, *frames[np.minimum(inner, frames.size - 1)].tolist(), stop]
    pairs = tuple((int(a), int(b)) for a, b in pairwise(borders))
    return pairs if all(a < b for a, b in pairs) else None


def place(state: ReviewState, clock: Clock, frame: int) -> tuple[str | None, float | None]:
    """Where a frame lies: region by the landmarks, and share of small-bowel transit time.

    The share is known between the landmarks only.
    """
    region: str | None = None
    for name, landmark in state.landmarks.items():
        if landmark.frame is not None and frame >= landmark.frame:
            region = {GASTRIC: "stomach", DUODENAL: "small intestine", CAECAL: "colon"}[name]
    duodenum, caecum = state.landmarks[DUODENAL].frame, state.landmarks[CAECAL].frame
    if region != "small intestine" or duodenum is None or caecum is None:
        return region, None
    first, here, last = (clock.seconds(f) for f in (duodenum, frame, caecum))
    if first is None or here is None or last is None or last <= first:
        return region, round((frame - duodenum) / (caecum - duodenum), SHARE_DIGITS)
    return region, round((here - first) / (last - first), SHARE_DIGITS)


def _passage(
    title: str, first: Landmark, last: Landmark, state: ReviewState, clock: Clock
) -> Passage:
    start, stop = state.landmarks[first], state.landmarks[last]
    confirmed = start.decided and (stop.decided or stop.status == "absent")
    if start.frame is None or stop.frame is None or stop.frame <= start.frame:
        text = "not reached" if stop.status == "absent" else "unknown"
        if start.frame is not None and stop.frame is not None:
            text = f"unknown: the {last} is not after the {first}"
        return Passage(title, start.frame, stop.frame, None, text, confirmed)
    begin, end = clock.seconds(start.frame), clock.seconds(stop.frame)
    seconds = None if begin is None or end is None else round(end - begin, 3)
    text = clock.interval(start.frame, stop.frame) if seconds is None else format_duration(seconds)
    return Passage(title, start.frame, stop.frame, seconds, text, confirmed)


def _share(viewed: Sequence[Interval], within: Sequence[Interval], clock: Clock) -> float:
    """Share of the study's frames within ranges that lie in viewed ones."""
    inside = _count(within, clock)
    both = [(max(a, c), min(b, d)) for a, b in viewed for c, d in within if max(a, c) < min(b, d)]
    return round(_count(merge((), both), clock) / inside, SHARE_DIGITS) if inside else 0.0


def _count(ranges: Sequence[Interval], clock: Clock) -> int:
    edges = np.searchsorted(clock.axis.frames, np.array(ranges, dtype=np.int64).reshape(-1, 2))
    return int((edges[:, 1] - edges[:, 0]).sum())

"""A review in figures and words: transit, findings with place and CEST terms, scores, proposals.

Page, report and every export take them from here, so that all say the same. A proposal is what can
be computed from what people confirmed; it is marked as one, and counts once a person enters it.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from enteron.labels import FINDINGS
from enteron.report.clock import Clock
from enteron.review.cest import TERMS
from enteron.review.measures import CAECAL, DUODENAL, Measures, measures, place, tertiles
from enteron.review.scores import (
    FEW_ULCERS,
    KODA_EVERY,
    LONG_SEGMENT,
    SHORT_SEGMENT,
    Extent,
    Saurin,
)
from enteron.review.state import Interval, ReviewEvent, ReviewState, merge

NOTICE: Final = "For research only, not for diagnosis."
"""Stands on every page and in every export."""

PROPOSED_SAURIN: Final = {
    "active bleeding": Saurin.P2,
    "angiectasia": Saurin.P2,
    "blood": Saurin.P2,
    "erosion": Saurin.P1,
    "erythema": Saurin.P1,
    "hematin": Saurin.P2,
}
"""By label, where the label alone decides. Ulcers and polyps depend on size and kind."""


@dataclass(frozen=True)
class Finding:
    """A confirmed event as reports show it."""

    id: str
    label: str
    heading: str  # of CEST
    term: str
    start: int
    stop: int
    seconds: float | None  # since the first frame
    end_seconds: float | None
    region: str | None
    transit_share: float | None  # of small-bowel transit time, 0 at the duodenum, 1 at the caecum
    tertile: int | None  # 1 to 3
    saurin: Saurin | None
    proposed_saurin: Saurin | None
    origin: Literal["machine", "person"]
    changed: bool  # from what the model reported
    score: float | None  # the model's confidence
    by: str | None
    at: str | None


@dataclass(frozen=True)
class UlcerProposal:
    """What confirmed ulcers of a tertile say about its row of the Lewis score; size is missing."""

    events: int
    count: Literal["none", "single", "few", "multiple"]
    share: float  # of the tertile's transit time that ulcers take
    extent: Extent | None


@dataclass(frozen=True)
class Proposals:
    """What is computable, always to be checked by a person."""

    lewis_ulcers: tuple[UlcerProposal, ...] | None  # by tertile; None: needs both landmarks
    lewis_reason: str  # why there is none, or what is missing
    koda_frames: tuple[int, ...]  # to be rated: one every five minutes of the small bowel
    koda_reason: str


@dataclass(frozen=True)
class Summary:
    """Everything that follows from a review."""

    notice: str
    study: str
    status: str
    measures: Measures
    tertiles: tuple[Interval, ...] | None
    findings: tuple[Finding, ...]
    undecided: int  # findings of the model that nobody decided about
    lewis: int | None
    lewis_category: str | None
    cecdai: int | None
    koda: float | None
    proposals: Proposals

    def table(self) -> dict[str, Any]:
        """The summary as JSON."""
        return asdict(self)


def summarise(state: ReviewState, clock: Clock) -> Summary:
    """Derive everything that is shown from a state and the study's clock."""
    thirds = tertiles(state, clock)
    findings = tuple(
        _finding(event, state, clock, thirds) for event in state.findings if event.label in FINDINGS
    )
    undecided = sum(
        event.decision == "open" and event.label in FINDINGS for event in state.events.values()
    )
    return Summary(
        notice=NOTICE,
        study=state.study,
        status=state.status,
        measures=measures(state, clock),
        tertiles=thirds,
        findings=findings,
        undecided=undecided,
        lewis=None if state.lewis is None else state.lewis.value,
        lewis_category=None if state.lewis is None else state.lewis.category,
        cecdai=None if state.cecdai is None else state.cecdai.value,
        koda=None if state.koda is None else round(state.koda.value, 2),
        proposals=_proposals(state, clock, thirds, undecided),
    )


def _finding(
    event: ReviewEvent, state: ReviewState, clock: Clock, thirds: tuple[Interval, ...] | None
) -> Finding:
    region, share = place(state, clock, event.start)
    seconds, end = clock.seconds(event.start), clock.end_seconds(event.stop)
    inside = [n for n, (a, b) in enumerate(thirds or (), 1) if a <= event.start < b]
    term = TERMS[event.label]
    return Finding(
        id=event.id,
        label=event.label,
        heading=term.heading,
        term=term.term,
        start=event.start,
        stop=event.stop,
        seconds=None if seconds is None else round(seconds, 3),
        end_seconds=None if end is None else round(end, 3),
        region=region or event.region,
        transit_share=share,
        tertile=inside[0] if inside else None,
        saurin=event.saurin,
        proposed_saurin=PROPOSED_SAURIN.get(event.label),
        origin=event.origin,
        changed=event.changed,
        score=event.score,
        by=event.by,
        at=event.at,
    )


# ---- proposals


def _proposals(
    state: ReviewState, clock: Clock, thirds: tuple[Interval, ...] | None, undecided: int
) -> Proposals:
    frames, reason = koda_frames(state, clock)
    if thirds is None:
        return Proposals(
            None,
            "tertiles need the first duodenal and the first caecal image",
            frames,
            reason,
        )
    missing = "villi, the size of ulcers and stenoses have to be entered"
    if undecided:
        missing += f"; {undecided} findings are not decided yet"
    rows = tuple(_ulcers(state, clock, third) for third in thirds)
    return Proposals(rows, missing, frames, reason)


def _ulcers(state: ReviewState, clock: Clock, third: Interval) -> UlcerProposal:
    """Count of ulcers that begin in a tertile, and the share of its time that ulcers take."""
    ulcers = [event for event in state.findings if event.label == "ulcer"]
    count = sum(third[0] <= event.start < third[1] for event in ulcers)
    parts = [(max(event.start, third[0]), min(event.stop, third[1])) for event in ulcers]
    spans = merge((), [(a, b) for a, b in parts if a < b])
    share = sum(_length(span, clock) for span in spans) / max(_length(third, clock), 1e-9)
    share = min(share, 1.0)
    names: tuple[Literal["none", "single", "few"], ...] = ("none", "single", "few")
    name = names[min(count, 2)] if count <= FEW_ULCERS else "multiple"
    extent: Extent | None = None
    if count:
        extent = "short" if share <= SHORT_SEGMENT else "long" if share <= LONG_SEGMENT else "whole"
    return UlcerProposal(count, name, round(share, 4), extent)


def _length(span: Interval, clock: Clock) -> float:
    start, stop = clock.seconds(span[0]), clock.seconds(span[1])
    return float(span[1] - span[0]) if start is None or stop is None else stop - start


def koda_frames(state: ReviewState, clock: Clock) -> tuple[tuple[int, ...], str]:
    """The stored frames to rate, one every five minutes of the small bowel; and why there is none.

    The first one is taken five minutes after the first duodenal image.
    """
    start, stop = state.landmarks[DUODENAL].frame, state.landmarks[CAECAL].frame
    if start is None:
        return (), "the first duodenal image is not known"
    stop = state.end if stop is None else stop
    begin, end = clock.seconds(start), clock.seconds(stop)
    if begin is None or end is None:
        return (), "the times of frames are not known"
    frames = clock.axis.frames
    frames = frames[(frames >= start) & (frames < stop)]
    if clock.knots is None:
        seconds = np.interp(frames, (start, stop), (begin, end))
    else:
        seconds = np.interp(frames, *clock.knots)
    moments = np.arange(begin + KODA_EVERY, end, KODA_EVERY)
    rows = np.unique(np.searchsorted(seconds, moments))
    chosen = tuple(frames[rows[rows < frames.size]].tolist())
    return chosen, "" if chosen else "less than five minutes of the small bowel were recorded"

"""Completeness: which frames were looked at, and which were not."""

from collections.abc import Sequence
from dataclasses import dataclass

from enteron.report.clock import Clock, counted
from enteron.report.gaps import Gap
from enteron.report.run import RunFacts

MOST_LISTED = 24


@dataclass(frozen=True)
class Part:
    """A share of the study's frames."""

    name: str
    count: int
    share: float
    kind: str  # for its colour: 'read', 'redundant', 'unreadable'


@dataclass(frozen=True)
class CompletenessPanel:
    """Frames of the study, and what became of them."""

    total: int
    parts: tuple[Part, ...]
    unreadable_known: bool
    redundant_known: bool
    reasons: tuple[tuple[str, int], ...]
    listed: tuple[int, ...]  # the first unreadable frames
    more: int  # unreadable frames beyond these
    gaps: int
    gap_frames: int
    longest_gap: str | None
    stored: str | None  # how frames were stored, when not every one was
    notes: tuple[str, ...]  # oddities of the study's files
    word: str


def completeness_panel(clock: Clock, run: RunFacts, gaps: Sequence[Gap] = ()) -> CompletenessPanel:
    """Frames read, unreadable, skipped as redundant, and missing from the numbering."""
    axis = clock.axis
    total = max(len(axis), run.rows or 0)  # unreadable frames have no row of scores
    bad = min(run.unreadable.count, total) if run.unreadable else 0
    same = min(run.redundant.count, total - bad) if run.redundant else 0
    parts = [Part("looked at one by one", total - bad - same, (total - bad - same) / total, "read")]
    if run.redundant is not None:
        parts.append(Part("taken from an almost equal neighbour", same, same / total, "redundant"))
    if run.unreadable is not None:
        parts.append(Part("could not be read", bad, bad / total, "unreadable"))
    frames = run.unreadable.frames if run.unreadable else ()
    reasons = sorted(run.unreadable.reasons.items(), key=lambda r: -r[1]) if run.unreadable else []
    holes = [(stop - start) for start, stop in gaps]
    stored = None
    if axis.step > 1:
        stored = f"one of every {axis.step} frames is stored"
    return CompletenessPanel(
        total=total,
        parts=tuple(parts),
        unreadable_known=run.unreadable is not None,
        redundant_known=run.redundant is not None,
        reasons=tuple(reasons),
        listed=frames[:MOST_LISTED],
        more=max(0, bad - len(frames[:MOST_LISTED])),
        gaps=len(holes),
        gap_frames=sum(holes),
        longest_gap=counted(max(holes), clock.word) if holes else None,
        stored=stored,
        notes=run.notes,
        word=clock.word,
    )

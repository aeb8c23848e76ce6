"""The timeline: a bar of regions, a lane per landmark and finding, and the curves in the lanes."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from enteron.decoding.events import DecodedEvent
from enteron.folders.reading import RunRecord
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.report.clock import Clock
from enteron.types import Annotation, FrameAxis, Gap, Scores, longest

MOST_TICKS: Final = 400  # unreadable frames that are drawn; all are counted under completeness
MOST_GAPS: Final = 400  # gaps that are drawn; all are counted under completeness

# ---- marks and lanes


@dataclass(frozen=True)
class Mark:
    """A stretch of a lane; start and width are shares of the study's length."""

    start: float
    width: float
    description: str  # for a tooltip and for screen readers
    number: int | None = None  # of the event; None for a reference annotation
    score: float | None = None
    label: str = ""

    @property
    def column(self) -> int:
        """Column of the label, which selects the colour."""
        return COLUMN[self.label]


@dataclass(frozen=True)
class Lane:
    """One row of the timeline."""

    label: str
    column: int  # of the label; selects the row's colour and curve
    marks: tuple[Mark, ...]
    truth: tuple[Mark, ...]


@dataclass(frozen=True)
class TimelinePanel:
    """All rows, in the order in which the page shows them."""

    transit: tuple[Mark, ...]
    transit_truth: tuple[Mark, ...]
    landmarks: tuple[Lane, ...]
    findings: tuple[Lane, ...]
    regions: tuple[Lane, ...]  # for their curves only
    gaps: tuple[Mark, ...]
    unreadable: tuple[Mark, ...]
    with_truth: bool
    word: str


def timeline_panel(
    events: Sequence[DecodedEvent],
    clock: Clock,
    run: RunRecord,
    truth: Annotation | None,
    gaps: Sequence[Gap] = (),
) -> TimelinePanel:
    """Marks for every event, annotated interval, gap and unreadable frame."""
    scale = _Scale(clock)
    intervals = {} if truth is None else _merged_intervals(truth)
    event_marks: dict[str, list[Mark]] = {label: [] for label in LABELS}
    for number, event in enumerate(events):
        event_marks[event.label].append(scale.event(number, event))
    truth_marks = {
        label: tuple(
            scale.annotated(label, start, stop) for start, stop in intervals.get(label, ())
        )
        for label in LABELS
    }

    def lanes(labels: Sequence[str]) -> tuple[Lane, ...]:
        return tuple(
            Lane(label, COLUMN[label], tuple(event_marks[label]), truth_marks[label])
            for label in labels
        )

    unreadable = () if run.unreadable is None else run.unreadable.frames[:MOST_TICKS]
    return TimelinePanel(
        transit=tuple(mark for label in REGIONS for mark in event_marks[label]),
        transit_truth=tuple(mark for label in REGIONS for mark in truth_marks[label]),
        landmarks=lanes(LANDMARKS),
        findings=lanes(FINDINGS),
        regions=lanes(REGIONS),
        gaps=tuple(scale.gap(*gap) for gap in longest(list(gaps), MOST_GAPS)),
        unreadable=tuple(
            scale.mark(frame, frame + 1, f"{clock.word} {frame:,} cannot be read")
            for frame in unreadable
        ),
        with_truth=truth is not None,
        word=clock.word,
    )


class _Scale:
    """Makes marks: frame numbers as shares of the study's length, clipped to it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first = clock.first
        self.length = max(1, clock.end - self.first)

    def mark(self, start: int, stop: int, description: str) -> Mark:
        left = min(max((start - self.first) / self.length, 0.0), 1.0)
        right = min(max((stop - self.first) / self.length, left), 1.0)
        return Mark(round(left, 7), round(right - left, 7), description)

    def event(self, number: int, event: DecodedEvent) -> Mark:
        confidence = "" if event.score is None else f", confidence {event.score:.2f}"
        description = f"{event.label}, {self._span(event.start, event.stop)}{confidence}"
        mark = self.mark(event.start, event.stop, description)
        return Mark(mark.start, mark.width, description, number, event.score, event.label)

    def annotated(self, label: str, start: int, stop: int) -> Mark:
        mark = self.mark(start, stop, f"annotated: {label}, {self._span(start, stop)}")
        return Mark(mark.start, mark.width, mark.description, label=label)

    def gap(self, start: int, stop: int) -> Mark:
        word = self.clock.word
        if stop - start == 1:
            return self.mark(start, stop, f"{word} {start:,} is missing")
        return self.mark(start, stop, f"{word}s {start:,} to {stop - 1:,} are missing")

    def _span(self, start: int, stop: int) -> str:
        if stop - start == 1:
            return self.clock.at(start)
        return f"{self.clock.at(start)} to {stop - 1:,}"


def _merged_intervals(truth: Annotation) -> dict[str, list[tuple[int, int]]]:
    """Annotated [start, stop) per label, with touching ones joined.

    The official file cuts every interval wherever any other label begins or ends.
    """
    merged: dict[str, list[tuple[int, int]]] = {}
    for label, spans in truth.spans().items():
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(spans.tolist()):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((start, stop))
        merged[label] = joined
    return merged


# ---- curves

MOST_ROWS: Final = 160_000
"""Up to so many rows are embedded one by one; longer studies as minimum and maximum of a few rows
each. The page builds coarser levels from these, so that drawing takes the same time at any zoom."""

KNOTS: Final = 2_000  # at most, for times that do not follow a constant rate
TOLERANCE: Final = 0.05  # seconds by which a constant rate may miss a stated time


@dataclass(frozen=True)
class Curves:
    """Scores of a study in 8 bits: (17, buckets) of the least and greatest value per bucket."""

    bucket: int  # rows per bucket
    low: NDArray[np.uint8]
    high: NDArray[np.uint8]

    @property
    def full(self) -> bool:
        """Whether every row has a bucket of its own."""
        return self.bucket == 1


def curve_data(scores: Scores, clock: Clock) -> dict[str, Any]:
    """What the page's script needs to draw curves and to show frame and time at the cursor."""
    curves = quantised(scores)
    axis = scores.axis
    return {
        "rows": len(axis),
        "bucket": curves.bucket,
        "high": b64encode(curves.high.tobytes()).decode(),
        "low": None if curves.full else b64encode(curves.low.tobytes()).decode(),
        "step": axis.step,
        "first": int(axis.frames[0]),
        "end": clock.end,
        "runs": frame_runs(axis),
        "times": time_knots(clock),
    }


def quantised(scores: Scores, most_rows: int = MOST_ROWS) -> Curves:
    """Scores as whole numbers from 0 to 255; with more rows than allowed, in buckets of rows."""
    values = np.rint(scores.values.T * 255).astype(np.uint8)  # (17, rows)
    rows = values.shape[1]
    bucket = -(-rows // most_rows)
    if bucket == 1:
        return Curves(1, values, values)
    padded = np.pad(values, ((0, 0), (0, -rows % bucket)), mode="edge")
    grouped = padded.reshape(len(values), -1, bucket)
    return Curves(bucket, grouped.min(axis=2), grouped.max(axis=2))


def frame_runs(axis: FrameAxis) -> list[tuple[int, int]]:
    """(row, frame) wherever a row does not follow its predecessor by exactly one step."""
    rows = np.concatenate(([0], np.flatnonzero(np.diff(axis.frames) != axis.step) + 1))
    return list(zip(rows.tolist(), axis.frames[rows].tolist(), strict=True))


def _chosen_knots(frames: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.intp]:
    """At most `KNOTS` of the knots: evenly spread ones, and both ends of the longest pauses."""
    if len(frames) < KNOTS:
        return np.arange(len(frames))
    even = np.linspace(0, len(frames) - 1, KNOTS // 2).round().astype(np.intp)
    pauses = np.argsort(-np.diff(seconds), kind="stable")[: KNOTS // 4]
    return np.unique(np.concatenate((even, pauses, pauses + 1)))


def time_knots(clock: Clock) -> list[tuple[float, float]] | None:
    """(frame, seconds) between which time runs evenly; two of them for a constant rate."""
    end = clock.end_seconds(clock.end)
    if end is None:
        return None
    last = (clock.end, round(end, 3))
    if clock.knots is not None and len(clock.axis) > 1:
        frames, seconds = clock.knots
        constant = np.interp(frames, frames[[0, -1]], seconds[[0, -1]])
        if np.abs(constant - seconds).max() > TOLERANCE:
            chosen = _chosen_knots(frames, seconds)
            return [
                *((round(float(frames[i]), 6), round(float(seconds[i]), 2)) for i in chosen),
                last,
            ]
    return [(clock.first, round(clock.seconds(clock.first) or 0.0, 3)), last]

"""The timeline: transit bar, landmarks and a lane per finding, annotated ones beside them."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from enteron.decode.events import DecodedEvent
from enteron.folders.reading import RunRecord
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.report.clock import Clock
from enteron.types import Annotation, FrameAxis, Gap, Scores, longest


@dataclass(frozen=True)
class Mark:
    """A stretch of a lane; places are shares of the study's length."""

    at: float
    width: float
    said: str  # for a tooltip and for screen readers
    number: int | None = None  # of the event; None for annotation
    score: float | None = None
    label: str = ""

    @property
    def column(self) -> int:
        return COLUMN[self.label]


@dataclass(frozen=True)
class Lane:
    """What one row of the timeline shows."""

    name: str
    column: int  # of the label; the row's colour and curve
    marks: tuple[Mark, ...]
    truth: tuple[Mark, ...]


@dataclass(frozen=True)
class TimelinePanel:
    """All rows, in the order in which they stand."""

    transit: tuple[Mark, ...]
    transit_truth: tuple[Mark, ...]
    landmarks: tuple[Lane, ...]
    findings: tuple[Lane, ...]
    regions: tuple[Lane, ...]  # for their curves only
    gaps: tuple[Mark, ...]
    unreadable: tuple[Mark, ...]
    with_truth: bool
    word: str


MOST_TICKS = 400  # unreadable frames that get a tick of their own
MOST_GAPS = 400  # gaps that are drawn; all are counted under completeness


def timeline_panel(
    events: Sequence[DecodedEvent],
    clock: Clock,
    run: RunRecord,
    truth: Annotation | None,
    gaps: Sequence[Gap] = (),
) -> TimelinePanel:
    """Marks for every event, every annotated stretch, every gap and every unreadable frame."""
    place = _Place(clock)
    annotated = {} if truth is None else _merged(truth)
    marks = {label: [] for label in COLUMN}
    for number, event in enumerate(events):
        marks[event.label].append(place.event(number, event))

    def true(label: str) -> tuple[Mark, ...]:
        return tuple(place.annotated(label, *span) for span in annotated.get(label, ()))

    def lanes(labels: Sequence[str]) -> tuple[Lane, ...]:
        return tuple(
            Lane(label, COLUMN[label], tuple(marks[label]), true(label)) for label in labels
        )

    bad = () if run.unreadable is None else run.unreadable.frames[:MOST_TICKS]
    return TimelinePanel(
        transit=tuple(mark for label in REGIONS for mark in marks[label]),
        transit_truth=tuple(mark for label in REGIONS for mark in true(label)),
        landmarks=lanes(LANDMARKS),
        findings=lanes(FINDINGS),
        regions=lanes(REGIONS),
        gaps=tuple(
            place.mark(start, stop, f"{clock.word}s {start:,} to {stop - 1:,} are missing")
            for start, stop in longest(list(gaps), MOST_GAPS)
        ),
        unreadable=tuple(
            place.mark(frame, frame + 1, f"{clock.word} {frame:,} cannot be read") for frame in bad
        ),
        with_truth=truth is not None,
        word=clock.word,
    )


class _Place:
    """Frame numbers as shares of the study's length, within it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.first = clock.first
        self.length = max(1, clock.end - self.first)

    def mark(self, start: int, stop: int, said: str) -> Mark:
        at = min(max((start - self.first) / self.length, 0.0), 1.0)
        end = min(max((stop - self.first) / self.length, at), 1.0)
        return Mark(round(at, 7), round(end - at, 7), said)

    def event(self, number: int, event: DecodedEvent) -> Mark:
        sure = "" if event.score is None else f", confidence {event.score:.2f}"
        mark = self.mark(event.start, event.stop, f"{event.label}, {self._span(event)}{sure}")
        return Mark(mark.at, mark.width, mark.said, number, event.score, event.label)

    def annotated(self, label: str, start: int, stop: int) -> Mark:
        said = f"annotated: {label}, {self.clock.at(start)} to {stop - 1:,}"
        mark = self.mark(start, stop, said)
        return Mark(mark.at, mark.width, mark.said, label=label)

    def _span(self, event: DecodedEvent) -> str:
        if len(event) == 1:
            return self.clock.at(event.start)
        return f"{self.clock.at(event.start)} to {event.stop - 1:,}"


def _merged(truth: Annotation) -> dict[str, list[tuple[int, int]]]:
    """Annotated stretches per label, those that touch joined: the file cuts them everywhere."""
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


MOST_ROWS: Final = 160_000
"""Rows that are embedded one by one; longer studies as minimum and maximum of a few rows each.
The page builds coarser levels from these, so that drawing takes the same time at any zoom."""

KNOTS: Final = 2_000  # of times that do not follow a constant rate
TOLERANCE: Final = 0.05  # seconds by which a constant rate may miss a stated time


@dataclass(frozen=True)
class Curves:
    """Scores of a study in 8 bits: (17, buckets) of the least and greatest value per bucket."""

    bucket: int  # rows per bucket
    low: NDArray[np.uint8]
    high: NDArray[np.uint8]

    @property
    def full(self) -> bool:
        """Every row is there by itself."""
        return self.bucket == 1


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


def curve_data(scores: Scores, clock: Clock) -> dict[str, Any]:
    """What the page's script needs to draw curves and to tell frame and time under the cursor."""
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


def frame_runs(axis: FrameAxis) -> list[tuple[int, int]]:
    """(row, frame) wherever a row does not follow its predecessor by exactly one step."""
    rows = np.concatenate(([0], np.flatnonzero(np.diff(axis.frames) != axis.step) + 1))
    return list(zip(rows.tolist(), axis.frames[rows].tolist(), strict=True))


def time_knots(clock: Clock) -> list[tuple[float, float]] | None:
    """(frame, seconds) between which time runs evenly; two of them for a constant rate."""
    if not clock.known:
        return None
    frames = clock.axis.frames
    ends = [int(frames[0]), clock.end]
    if clock.times is not None and len(frames) > 1:
        straight = np.interp(frames, frames[[0, -1]], clock.times[[0, -1]])
        if np.abs(straight - clock.times).max() > TOLERANCE:
            places = np.unique(np.linspace(0, len(frames) - 1, KNOTS).round().astype(int))
            return [(int(frames[row]), round(float(clock.times[row]), 2)) for row in places]
    return [(frame, round(clock.seconds(frame) or 0.0, 3)) for frame in ends]

"""The values that stages hand to each other, checked when they are made.

Frames are half-open, [start, stop), everywhere inside enteron. The official inclusive ends exist
only in `enteron.galar.submission`.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError, LabelError, UnitError, nearest
from enteron.labels import COLUMN, LABELS

STORED_EVERY = 5
"""Original frames per row in most of Galar, where constants counted in rows were chosen."""


class Unit(StrEnum):
    """What an event's numbers count. In most Galar studies `frame = 5 * index`."""

    FRAME = "frame"  # the number in the image's file name
    INDEX = "index"  # the row number of the label file


def _check_span(start: int, stop: int, what: str) -> None:
    if start < 0 or stop <= start:
        raise EnteronError(
            f"{what} [{start}, {stop}) is not a stretch of frames",
            "start must be 0 or more and stop must lie after it",
        )


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, not to be written through the result; the caller's own array stays as is."""
    view = array.view()
    view.flags.writeable = False
    return view


def _check_label(label: str) -> None:
    if label not in COLUMN:
        raise LabelError(f"'{label}' is not one of the 17 labels", nearest(label, LABELS))


@dataclass(frozen=True, order=True, slots=True)
class Event:
    """One label over [start, stop), with the confidence of whoever found it."""

    start: int
    stop: int
    label: str
    score: float | None = None

    def __post_init__(self) -> None:
        _check_span(self.start, self.stop, f"event '{self.label}'")
        _check_label(self.label)
        if self.score is not None and not math.isfinite(self.score):
            raise EnteronError(
                f"event '{self.label}' at {self.start} has score {self.score}",
                "give a finite score, or none",
            )

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, order=True, slots=True)
class Segment:
    """A stretch [start, stop) that carries a set of labels: an event of the official format.

    The set may be empty: real truth has rows that nobody labelled, and says so.
    """

    start: int
    stop: int
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_span(self.start, self.stop, "segment")
        for label in self.labels:
            _check_label(label)
        if len(set(self.labels)) != len(self.labels):
            raise LabelError(
                f"the segment at {self.start} names a label twice", "name each label once"
            )

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Annotation:
    """The segments of one study, in file order, which is also their rank.

    The unit travels with the segments: whoever compares two annotations, or writes the official
    file, calls `require_unit`, which refuses rows where frames are needed.
    """

    study: str
    unit: Unit
    segments: tuple[Segment, ...] = ()

    @classmethod
    def from_events(cls, study: str, unit: Unit, events: Iterable[Event]) -> "Annotation":
        """One segment per event, in the order given."""
        return cls(study, unit, tuple(Segment(e.start, e.stop, (e.label,)) for e in events))

    def require_unit(self, unit: Unit) -> None:
        if self.unit is not unit:
            raise UnitError(
                f"study {self.study} counts in '{self.unit}' where '{unit}' is needed",
                "index or frame? convert one of them with the study's label file",
            )

    def spans(self) -> dict[str, NDArray[np.int64]]:
        """For each label that occurs, its (n, 2) array of [start, stop), in file order."""
        found: dict[str, list[tuple[int, int]]] = {}
        for segment in self.segments:
            for label in segment.labels:
                found.setdefault(label, []).append((segment.start, segment.stop))
        return {label: np.array(spans, dtype=np.int64) for label, spans in found.items()}

    @property
    def extent(self) -> tuple[int, int]:
        """First start and last stop; (0, 0) without segments."""
        if not self.segments:
            return (0, 0)
        return (min(s.start for s in self.segments), max(s.stop for s in self.segments))


@dataclass(frozen=True)
class FrameAxis:
    """The frame number of every row: strictly increasing, gaps allowed.

    A row holds from its own frame up to the next row's, so that durations and overlaps agree in
    rows and in frames. It never reaches further than `step`: behind a gap nothing is known.
    """

    frames: NDArray[np.int64]
    unit: Unit = Unit.FRAME  # INDEX where a score file numbers its rows only
    step: int = field(init=False)

    def __post_init__(self) -> None:
        frames = np.ascontiguousarray(self.frames, dtype=np.int64)
        if frames.ndim != 1 or frames.size == 0:
            raise EnteronError("there are no frames", "give at least one frame number")
        steps = np.diff(frames)
        if frames[0] < 0 or (steps <= 0).any():
            raise EnteronError(
                "frame numbers do not increase strictly", "sort them and remove duplicates"
            )
        frames = _read_only(frames)
        object.__setattr__(self, "frames", frames)
        # The commonest distance; the smaller one where two are equally common.
        lengths, counts = np.unique(steps, return_counts=True)
        object.__setattr__(self, "step", int(lengths[counts.argmax()]) if steps.size else 1)

    def __len__(self) -> int:
        return self.frames.size

    def ends(self) -> NDArray[np.int64]:
        """For every row the frame at which it stops holding."""
        ends = self.frames + self.step
        np.minimum(ends[:-1], self.frames[1:], out=ends[:-1])
        return ends

    def gaps(self) -> NDArray[np.int64]:
        """Rows that do not follow directly on the row before them."""
        return np.flatnonzero(np.diff(self.frames) > self.step) + 1


@dataclass(frozen=True)
class Scores:
    """Probabilities of the 17 labels for the frames of one study. They know their own frames."""

    study: str
    axis: FrameAxis
    values: NDArray[np.float32]  # (rows, 17), columns in the order of LABELS
    times: NDArray[np.float64] | None = None  # (rows,) seconds since the first frame, if known
    frames_per_row: float | None = None  # original frames a row stands for, in shortened studies

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float32)
        expected = (len(self.axis), len(LABELS))
        if values.shape != expected:
            raise EnteronError(
                f"scores of study {self.study} have shape {values.shape}, not {expected}",
                "give one row per frame and one column per label",
            )
        bad = ~((values >= 0) & (values <= 1))  # NaN compares false, so it is bad too
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise EnteronError(
                f"study {self.study}, frame {self.axis.frames[row]}: '{LABELS[column]}' has score "
                f"{values[row, column]}",
                "scores are probabilities from 0 to 1, and NaN means that the model failed",
            )
        object.__setattr__(self, "values", _read_only(values))
        if self.frames_per_row is not None and not self.frames_per_row > 0:
            raise EnteronError(
                f"a row of study {self.study} cannot stand for {self.frames_per_row} frames",
                "give a number above 0",
            )
        if self.times is not None and self.times.shape != (len(self.axis),):
            raise EnteronError(
                f"study {self.study} has {self.times.size} times for {len(self.axis)} frames",
                "give one time per frame, or none",
            )

    @property
    def unit(self) -> Unit:
        """Whether frames or rows are counted."""
        return self.axis.unit

    @property
    def row_frames(self) -> float:
        """Original frames a row stands for: the axis tells, unless the study was shortened."""
        return self.axis.step if self.frames_per_row is None else self.frames_per_row

    @property
    def shortening(self) -> float:
        """How many rows of a full-length study one row stands for; 1 for real studies."""
        return 1.0 if self.frames_per_row is None else max(1.0, self.frames_per_row / STORED_EVERY)

    @cached_property
    def end_times(self) -> NDArray[np.float64] | None:
        """(rows,) seconds at which each row stops holding, if times are known.

        A row holds until the next one begins. Before a gap and at the end of the study it holds
        for one frame period: the median distance of rows that follow each other directly.
        """
        if self.times is None or len(self.axis) == 1:
            return self.times  # the period of a single frame is unknown
        follows = np.diff(self.axis.frames) <= self.axis.step  # no gap before the next row
        ends = self.times + np.median(np.diff(self.times)[follows])
        ends[:-1] = np.where(follows, self.times[1:], np.minimum(ends[:-1], self.times[1:]))
        return ends

    def column(self, label: str) -> NDArray[np.float32]:
        return self.values[:, COLUMN[label]]


Runs = NDArray[np.int64]
"""(n, 2) array of [start, stop) in rows, ascending."""


def runs_of(column: NDArray[np.bool_]) -> Runs:
    """Every run of true rows."""
    padded = np.zeros(column.size + 2, dtype=np.int8)
    padded[1:-1] = column
    steps = np.diff(padded)
    return np.column_stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)])


def hysteresis(p: NDArray[np.floating], high: float, low: float) -> Runs:
    """Seeds where p >= high, extended to both sides while p >= low (paper stage 3, decision 27)."""
    # In the precision of p: a threshold of 0.55 must be reached by a float32 score of 0.55.
    high, low = np.asarray([high, low], dtype=p.dtype)
    # Only rows at or above the lower threshold are looked at: there are few of them.
    above = np.flatnonzero(p >= low)
    if not above.size:
        return np.empty((0, 2), dtype=np.int64)
    first = np.concatenate(([0], np.flatnonzero(np.diff(above) > 1) + 1))
    last = np.append(first[1:], above.size) - 1
    seeded = np.maximum.reduceat(p[above], first) >= high
    return np.stack([above[first[seeded]], above[last[seeded]] + 1], axis=1)


def means(values: NDArray[np.floating], spans: Runs) -> NDArray[np.float64]:
    """Mean of the values over each span."""
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    return (total[spans[:, 1]] - total[spans[:, 0]]) / (spans[:, 1] - spans[:, 0])


Gap = tuple[int, int]  # [start, stop) of the missing frame numbers


def gaps_of(axis: FrameAxis, unreadable: Collection[int] = (), unnamed: int = 0) -> list[Gap]:
    """The gaps of a study, in order.

    `unreadable` are frames that the study has but the axis lacks; `unnamed` is how many more of
    them there are, of which no number is known: these are taken to fill the shortest gaps.
    """
    bad = set(unreadable)
    found: list[tuple[int, Gap]] = []  # rows missing, and where
    for row in axis.gaps().tolist():
        before, after = int(axis.frames[row - 1]), int(axis.frames[row])
        lacking = [n for n in range(before + axis.step, after, axis.step) if n not in bad]
        if lacking:
            found.append((len(lacking), (before + axis.step, after)))
    shortest = sorted(found)
    while shortest and shortest[0][0] <= unnamed:
        unnamed -= shortest[0][0]
        found.remove(shortest.pop(0))
    return [gap for _, gap in found]


def longest(gaps: list[Gap], most: int) -> list[Gap]:
    """So many of the gaps, the longest, in order."""
    lengths = np.array([stop - start for start, stop in gaps], dtype=np.int64)
    kept = np.sort(np.argsort(-lengths, kind="stable")[:most])
    return [gaps[place] for place in kept.tolist()]

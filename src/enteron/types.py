"""The values that stages pass to each other, validated when they are constructed.

Frame ranges are half-open, [start, stop), everywhere inside enteron. The official inclusive ends
exist only in `enteron.datasets.submission`.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import EnteronError, LabelError, UnitError, nearest, shorten
from enteron.labels import COLOURS, COLUMN, LABELS
from enteron.options import Options, Sha256

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes


class StudyFingerprint(Options):
    """A study by two hashes, either of which recognises it without naming it."""

    id: Sha256
    """Hash of its id. Ids are short, so that whoever guesses one can confirm it."""

    pictures: Sha256 | None = None
    """Hash of the pixels of some pictures; None where none of them can be read."""

    def is_of(self, other: "StudyFingerprint") -> bool:
        """Whether both are of the same study, by its id or by its pictures."""
        same_pictures = self.pictures is not None and self.pictures == other.pictures
        return self.id == other.id or same_pictures


DataKind = Literal["drawings", "real frames", "drawings and real frames"]


class TrainingSource(Options):
    """One of the datasets that trained a model."""

    title: str = Field(max_length=200)
    """What the data are, such as "Kvasir-Capsule"; never a path or a folder's name."""

    kind: DataKind
    """Whether the pictures were drawn by `enteron phantom` or taken by a capsule."""

    studies: int = Field(ge=0)
    """Studies that trained."""

    frames: int = Field(ge=0)
    """Frames that trained."""

    labels: tuple[str, ...] = Field(default=(), max_length=len(LABELS))
    """The labels that it taught: those that its training frames show."""


def study_id_hash(study: str) -> str:
    """SHA-256 of a study's id."""
    return hashlib.sha256(f"enteron study {study}".encode(errors="surrogatepass")).hexdigest()


STORED_EVERY = 5
"""Original frames per row in most of Galar, where constants counted in rows were chosen."""


PAUSE = 10
"""Frame periods without a frame that make a gap in time; adaptive rates vary by less."""


class Unit(StrEnum):
    """What an event's numbers count. In most Galar studies `frame = 5 * index`."""

    FRAME = "frame"  # the number in the image's file name
    INDEX = "index"  # the row number of the label file


LARGEST_FRAME = 2**53
"""Frame numbers stay below it: whole numbers that every reader of JSON holds exactly."""


def check_confidence(value: float | None, what: str) -> None:
    """Refuse a confidence that is not a probability; rounding may add a last digit."""
    if value is not None and not -_ROUNDING <= value <= 1 + _ROUNDING:  # NaN compares false
        raise EnteronError(f"{what} is {value:g}", "give a finite score from 0 to 1, or none")


_ROUNDING = 1e-6


class Layout(StrEnum):
    """How labelled data are stored; `enteron.datasets.layouts` opens them."""

    GALAR = "galar"
    KVASIR = "kvasir"
    WCEBLEEDGEN = "wcebleedgen"
    TABLE = "table"


def _check_span(start: int, stop: int, what: str) -> None:
    if start < 0 or stop <= start or stop > LARGEST_FRAME:
        raise EnteronError(
            f"{what} [{start}, {stop}) is not a range of frames",
            "start must be 0 or more, and stop must be larger than start and at most 2^53",
        )


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of the same memory that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _check_label(label: str) -> None:
    if label not in COLUMN:
        raise LabelError(
            f"'{shorten(str(label))}' is not one of the 17 labels", nearest(label, LABELS)
        )


@dataclass(frozen=True, order=True, slots=True)
class Event:
    """One label over [start, stop), with a confidence where one is known."""

    start: int
    stop: int
    label: str
    score: float | None = None

    def __post_init__(self) -> None:
        _check_span(self.start, self.stop, f"event '{self.label}'")
        _check_label(self.label)
        check_confidence(self.score, f"the score of event '{self.label}' at {self.start}")

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
        spans: dict[str, list[tuple[int, int]]] = {}
        for segment in self.segments:
            for label in segment.labels:
                spans.setdefault(label, []).append((segment.start, segment.stop))
        return {label: np.array(pairs, dtype=np.int64) for label, pairs in spans.items()}

    @property
    def extent(self) -> tuple[int, int]:
        """First start and last stop; (0, 0) without segments."""
        if not self.segments:
            return (0, 0)
        return (min(s.start for s in self.segments), max(s.stop for s in self.segments))


@dataclass(frozen=True)
class FrameAxis:
    """The frame number of every row: strictly increasing, gaps allowed.

    A row covers its own frame up to the next row's, so that durations and overlaps agree in rows
    and in frames. It never covers more than `step` frames: what lies in a gap is unknown.
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
        """For every row, the frame at which its range ends."""
        ends = self.frames + self.step
        np.minimum(ends[:-1], self.frames[1:], out=ends[:-1])
        return ends

    def gaps(self) -> NDArray[np.int64]:
        """Rows that come directly after a gap in the numbering."""
        return np.flatnonzero(np.diff(self.frames) > self.step) + 1


@dataclass(frozen=True, repr=False)
class Scores:
    """Probabilities of the 17 labels for the frames of one study."""

    study: str
    axis: FrameAxis
    values: NDArray[np.float32]  # (rows, 17), columns in the order of LABELS
    times: NDArray[np.float64] | None = None  # (rows,) seconds since the first frame, if known
    frames_per_row: float | None = None  # original frames a row stands for, in shortened studies
    encoded: NDArray[np.bool_] | None = None
    """(rows,) frames that the model saw; the others have the scores of one nearby. None: all."""

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
        if self.times is not None:
            self._check_times(self.times)
        if self.encoded is not None and self.encoded.shape != (len(self.axis),):
            raise EnteronError(
                f"study {self.study} has {len(self.axis)} frames, and says of {self.encoded.size} "
                "whether the model saw them",
                "give one value per frame, or none",
            )

    def _check_times(self, times: NDArray[np.float64]) -> None:
        if times.shape != (len(self.axis),):
            raise EnteronError(
                f"study {self.study} has {times.size} times for {len(self.axis)} frames",
                "give one time per frame, or none",
            )
        remedy = "give every row its seconds since the first frame, in order, or leave times out"
        if not np.isfinite(times).all():
            row = int(np.flatnonzero(~np.isfinite(times))[0])
            raise EnteronError(
                f"study {self.study}: the time of {self.unit} {self.axis.frames[row]} is "
                f"{times[row]}",
                remedy,
            )
        if (np.diff(times) < 0).any():
            row = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
            raise EnteronError(
                f"study {self.study}: times go back at {self.unit} {self.axis.frames[row]}", remedy
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
        for one frame period: the median distance of rows that follow each other directly. A gap is
        one in the numbering, or a pause in time that the numbering does not show.
        """
        if self.times is None or len(self.axis) == 1:
            return self.times  # the period of a single frame is unknown
        waits = np.diff(self.times)
        follows = np.diff(self.axis.frames) <= self.axis.step  # no gap before the next row
        period = np.median(waits[follows])
        if period > 0:
            follows &= waits <= PAUSE * period
        ends = self.times + period
        ends[:-1] = np.where(follows, self.times[1:], np.minimum(ends[:-1], self.times[1:]))
        return ends

    def column(self, label: str) -> NDArray[np.float32]:
        """(rows,) scores of one label."""
        _check_label(label)
        return self.values[:, COLUMN[label]]

    def best_row(self, label: str, rows: range) -> int:
        """The row with the highest score of a label, of those whose frame the model saw, if any."""
        column = self.column(label)[rows.start : rows.stop]
        if self.encoded is not None and self.encoded[rows.start : rows.stop].any():
            column = np.where(self.encoded[rows.start : rows.stop], column, -1.0)
        return rows.start + int(column.argmax())

    def __repr__(self) -> str:
        first, last = int(self.axis.frames[0]), int(self.axis.frames[-1])
        return f"Scores(study={self.study!r}, rows={len(self.axis)}, {self.unit}s={first}..{last})"

    def table(self) -> "pl.DataFrame":
        """One row per frame: its number, its time where known, and a column per label."""
        import polars as pl

        columns: dict[str, NDArray[Any]] = {str(self.unit): self.axis.frames}
        if self.times is not None:
            columns["time"] = self.times
        return pl.DataFrame(columns | {label: self.column(label) for label in LABELS})

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def plot(self, labels: Sequence[str] | None = None) -> "Axes":
        """Draw scores against frames with matplotlib; by default labels that exceed one half."""
        from matplotlib.figure import Figure

        if labels is None:
            labels = [label for label in LABELS if self.column(label).max() > 0.5]
        axes = Figure(figsize=(9, 3), layout="constrained").subplots()
        for label in labels:
            axes.plot(self.axis.frames, self.column(label), label=label, color=COLOURS[label])
        axes.set(xlabel=str(self.unit), ylabel="score", ylim=(0, 1), title=f"Study {self.study}")
        if labels:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        return axes


@dataclass(frozen=True, eq=False)
class FrameLabels:
    """The 17 labels of some frames, each present, absent or unknown.

    Absent is `known & ~present`, never `~present`: ask `absent`. A label that is not known is not
    present either, so that sums of `present` count what the annotation says.
    """

    present: NDArray[np.bool_]  # (frames, 17), columns in the order of LABELS
    known: NDArray[np.bool_]  # (frames, 17)

    def __post_init__(self) -> None:
        for name in ("present", "known"):
            array = np.asarray(getattr(self, name))
            if array.dtype != np.bool_ or array.ndim != 2 or array.shape[1] != len(LABELS):
                raise LabelError(
                    f"labels of shape {array.shape} and type {array.dtype} are not a table of "
                    "labels",
                    f"give truth values of shape (frames, {len(LABELS)})",
                )
            object.__setattr__(self, name, _read_only(array))
        if self.present.shape != self.known.shape:
            raise LabelError(
                f"{len(self.present)} rows of labels do not fit {len(self.known)} rows of what is "
                "known",
                "give both for the same frames",
            )
        contradictions = np.argwhere(self.present & ~self.known)
        if contradictions.size:
            row, column = contradictions[0].tolist()
            raise LabelError(
                f"in row {row} '{LABELS[column]}' is both present and unknown",
                "a label that is present is known",
            )

    @classmethod
    def complete(cls, present: NDArray[np.bool_]) -> "FrameLabels":
        """Labels of which every one is known, as in Galar."""
        return cls(present, np.broadcast_to(np.True_, np.shape(present)))

    @classmethod
    def of(cls, truth: "FrameLabels | NDArray[np.bool_]") -> "FrameLabels":
        """The labels themselves, or an array of which every label is known."""
        return truth if isinstance(truth, FrameLabels) else cls.complete(truth)

    @classmethod
    def unknown(cls, frames: int) -> "FrameLabels":
        """Labels of which nothing is known."""
        nothing = np.zeros((frames, len(LABELS)), dtype=np.bool_)
        return cls(nothing, nothing)

    @classmethod
    def concatenate(cls, parts: Sequence["FrameLabels"]) -> "FrameLabels":
        """The rows of several tables one below the other."""
        none = np.empty((0, len(LABELS)), dtype=np.bool_)
        present = np.concatenate([none, *(part.present for part in parts)])
        if all(part.is_complete for part in parts):
            return cls.complete(present)
        return cls(present, np.concatenate([none, *(part.known for part in parts)]))

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "FrameLabels":
        """Some of the rows."""
        return FrameLabels(self.present[rows], self.known[rows])

    @property
    def absent(self) -> NDArray[np.bool_]:
        """(frames, 17): known not to show the label."""
        return self.known & ~self.present

    @cached_property
    def is_complete(self) -> bool:
        """Whether every label of every frame is known."""
        return bool(self.known.all())

    @cached_property
    def informative(self) -> NDArray[np.bool_]:
        """(frames,): at least one label is known."""
        return self.known.sum(axis=1) > 0

    @cached_property
    def present_counts(self) -> NDArray[np.int64]:
        """(17,) frames that show each label."""
        return self.present.sum(axis=0)

    @cached_property
    def known_counts(self) -> NDArray[np.int64]:
        """(17,) frames in which each label is present or absent."""
        return self.known.sum(axis=0)


Gap = tuple[int, int]  # [start, stop) of the missing frame numbers


def gaps_of(axis: FrameAxis, unreadable: Collection[int] = (), unnamed: int = 0) -> list[Gap]:
    """The ranges of frame numbers that a study does not contain, in order.

    `unreadable` are frames that the study has but the axis lacks; `unnamed` counts further ones
    whose numbers are not known: they are taken to fill the shortest gaps.
    """
    bad = np.unique(np.fromiter(unreadable, dtype=np.int64, count=len(unreadable)))
    gaps: list[tuple[int, Gap]] = []  # rows that are missing, and where
    for row in axis.gaps().tolist():
        start, stop = int(axis.frames[row - 1]) + axis.step, int(axis.frames[row])
        inside = bad[np.searchsorted(bad, start) : np.searchsorted(bad, stop)]
        rows = -(-(stop - start) // axis.step)
        missing = rows - int(((inside - start) % axis.step == 0).sum())
        if missing:
            gaps.append((missing, (start, stop)))
    shortest = sorted(gaps)
    while shortest and shortest[0][0] <= unnamed:
        unnamed -= shortest[0][0]
        gaps.remove(shortest.pop(0))
    return [gap for _, gap in gaps]


def longest(gaps: list[Gap], most: int) -> list[Gap]:
    """The `most` longest gaps, in order."""
    lengths = np.array([stop - start for start, stop in gaps], dtype=np.int64)
    kept = np.sort(np.argsort(-lengths, kind="stable")[:most])
    return [gaps[index] for index in kept.tolist()]

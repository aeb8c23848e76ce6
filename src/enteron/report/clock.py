"""Frame numbers and times in words; where a study has no times, none are made up."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from enteron.folders.reading import RunRecord
from enteron.types import FrameAxis, Scores, Unit


@dataclass(frozen=True)
class Clock:
    """Converts frame numbers to seconds since the first frame, if the study has times."""

    axis: FrameAxis
    times: NDArray[np.float64] | None  # (rows,) seconds, as the study states them
    end_times: NDArray[np.float64] | None  # (rows,) seconds at which each row stops holding
    rate: float | None  # frames per second, used where the rows have no times
    rate_assumed: bool  # the rate is an assumption and not a measurement

    @classmethod
    def of(cls, scores: Scores, run: RunRecord) -> "Clock":
        """The clock of a reading. The study's own times take precedence over a rate."""
        # A rate counts frames; rows that stand for an unknown number of frames have no time.
        rate = run.rate if scores.unit is Unit.FRAME else None
        return cls(scores.axis, scores.times, scores.end_times, rate, run.rate_assumed)

    @cached_property
    def first(self) -> int:
        """The study's first frame number."""
        return int(self.axis.frames[0])

    @cached_property
    def end(self) -> int:
        """The frame number after the study's last frame."""
        return int(self.axis.ends()[-1])

    @property
    def has_times(self) -> bool:
        """Whether frame numbers can be converted to seconds."""
        return self.times is not None or self.rate is not None

    @property
    def word(self) -> str:
        """What the numbers count: 'frame', or 'row' where only rows are numbered."""
        return "frame" if self.axis.unit is Unit.FRAME else "row"

    @cached_property
    def knots(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Frames and seconds between which time runs evenly, if the study states times.

        Every row is one. Before a gap there is another where the row ends: without it, the frames
        that the row stands for would get times from within the gap.
        """
        if self.times is None or self.end_times is None:
            return None
        frames, ends = self.axis.frames, self.axis.ends()
        before_gap = np.flatnonzero(self.end_times[:-1] < self.times[1:])
        # A pause that the numbering does not show begins just before the next row.
        stops = np.minimum(ends[before_gap], frames[before_gap + 1] - 1e-6)
        positions = np.concatenate((frames.astype(np.float64), stops))
        seconds = np.concatenate((self.times, self.end_times[before_gap]))
        order = np.argsort(positions, kind="stable")
        return positions[order], seconds[order]

    def seconds(self, frame: float) -> float | None:
        """Seconds from the study's first frame to a frame, interpolated between rows."""
        if self.knots is not None:
            return float(np.interp(frame, *self.knots))
        return None if self.rate is None else (frame - self.first) / self.rate

    def end_seconds(self, stop: int) -> float | None:
        """Seconds at which the last row before `stop` stops holding.

        This is where an event [start, stop) ends: one frame period after its last frame, not at
        the next frame, which may lie behind a gap.
        """
        row = max(0, int(np.searchsorted(self.axis.frames, stop)) - 1)
        if self.end_times is not None:
            return float(self.end_times[row])
        if self.rate is None:
            return None
        return (min(stop, int(self.axis.ends()[row])) - self.first) / self.rate

    def at(self, frame: int) -> str:
        """A moment: 'frame 12,345 (1:02:51)'."""
        time = self.timestamp(frame)
        number = f"{self.word} {frame:,}"
        return number if time is None else f"{number} ({time})"

    def timestamp(self, frame: int) -> str | None:
        """The time of a frame alone, or None."""
        seconds = self.seconds(frame)
        return None if seconds is None else format_timestamp(seconds)

    def duration(self, start: int, stop: int) -> str:
        """How long an event [start, stop) lasts: '3 h 12 min', or a count of frames."""
        return self._length(start, stop, self.end_seconds(stop))

    def interval(self, start: int, stop: int) -> str:
        """The time from one frame to another, gaps between them included."""
        return self._length(start, stop, self.seconds(stop))

    def _length(self, start: int, stop: int, end: float | None) -> str:
        begin = self.seconds(start)
        if begin is None or end is None:
            return counted(stop - start, self.word)
        return format_duration(end - begin)


def counted(number: int, noun: str) -> str:
    """'1 frame', '1,200 frames'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_timestamp(seconds: float) -> str:
    """'1:02:51' since the first frame."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def format_duration(seconds: float) -> str:
    """The two largest units that matter: '5 h 12 min', '3 min 20 s', '4.5 s'."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{round(whole / 60)} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"

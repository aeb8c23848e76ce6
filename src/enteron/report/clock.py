"""Frame numbers and times as people read them; no time is invented where none is known."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from enteron.folders.reading import RunRecord
from enteron.types import FrameAxis, Scores, Unit


@dataclass(frozen=True)
class Clock:
    """Tells when a frame was taken, in seconds since the first one, if that is known."""

    axis: FrameAxis
    unit: Unit
    times: NDArray[np.float64] | None  # (rows,) as the study states them
    rate: float | None  # frames per second, where the rows have no times of their own
    assumed: bool  # the rate is an assumption and not a measurement

    @classmethod
    def of(cls, scores: Scores, unit: Unit, run: RunRecord) -> "Clock":
        # A rate counts frames; rows that stand for an unknown number of frames have no time.
        rate = run.rate if unit is Unit.FRAME else None
        return cls(scores.axis, unit, scores.times, rate, run.rate_assumed)

    @cached_property
    def first(self) -> int:
        """The study's first frame number."""
        return int(self.axis.frames[0])

    @cached_property
    def end(self) -> int:
        """The frame number after the study's last frame."""
        return int(self.axis.ends()[-1])

    @property
    def known(self) -> bool:
        return self.times is not None or self.rate is not None

    @property
    def word(self) -> str:
        """What the numbers count: 'frame', or 'row' where only rows are known."""
        return "frame" if self.unit is Unit.FRAME else "row"

    def seconds(self, frame: float) -> float | None:
        """Seconds from the study's first frame to a frame number, interpolated between rows."""
        if self.times is not None:
            last = float(self.times[-1])
            if frame > self.axis.frames[-1]:  # the last row holds for as long as those before it
                pace = last / max(int(self.axis.frames[-1]) - self.first, 1)
                return last + pace * (min(frame, self.end) - float(self.axis.frames[-1]))
            return float(np.interp(frame, self.axis.frames, self.times))
        if self.rate is None:
            return None
        return (frame - self.first) / self.rate

    def at(self, frame: int) -> str:
        """A moment: 'frame 12,345 (1:02:51)'."""
        seconds = self.seconds(frame)
        number = f"{self.word} {frame:,}"
        return number if seconds is None else f"{number} ({stamp(seconds)})"

    def stamp(self, frame: int) -> str | None:
        """The time alone, or None."""
        seconds = self.seconds(frame)
        return None if seconds is None else stamp(seconds)

    def lasting(self, start: int, stop: int) -> str:
        """A duration: '3 h 12 min', or a count of frames where time is not known."""
        begin, end = self.seconds(start), self.seconds(stop)
        if begin is None or end is None:
            return counted(stop - start, self.word)
        return duration(end - begin)


def counted(number: int, word: str) -> str:
    """'1 frame', '1,200 frames'."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def stamp(seconds: float) -> str:
    """'1:02:51' since the first frame."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def duration(seconds: float) -> str:
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

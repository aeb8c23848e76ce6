"""What every kind of study offers: frames in order, one by number, an account of the bad ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.types import FrameAxis

RGB = NDArray[np.uint8]  # (height, width, 3)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture of a study, or the reason why there is none."""

    number: int  # as in the file name, or counted from 0 in a video
    time: Fraction | None  # seconds since the first frame, where the source knows
    image: RGB | None  # None when the frame cannot be read: never a black stand-in
    problem: str | None = None  # why the frame cannot be read


class Study(ABC):
    """A study that streams its frames in order and reads any one of them by number.

    Images are never held beyond the one being handed out. Frames that cannot be read keep their
    place in the numbering, are collected in `unreadable` as they are met, and make the study
    unusable once they are more than half of it.
    """

    def __init__(self, study_id: str, axis: FrameAxis, rate: Fraction | None) -> None:
        self.id = study_id
        self.axis = axis
        self.rate = rate  # frames per second, exact; None when unknown or variable
        # Original frames a row stands for, in a synthetic study with fewer rows than a real one.
        self.frames_per_row: float | None = None
        self.unreadable: dict[int, str] = {}
        self.notes: tuple[str, ...] = ()  # oddities of the source that a person should know

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Every frame number, unreadable frames included, ascending."""
        return self.axis.frames

    def __len__(self) -> int:
        return len(self.axis)

    def __iter__(self) -> Iterator[Frame]:
        return self.frames()

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """Stream the frames in order, from row `start` on (0 is the first frame)."""
        if not 0 <= start <= len(self):
            raise StudyError(
                f"study {self.id} has {len(self)} frames and cannot start at row {start}",
                f"start between 0 and {len(self)}",
            )
        if start == len(self):
            return
        for frame in self._stream(start):
            self._account(frame)
            yield frame

    def frame(self, number: int) -> Frame:
        """Read one frame by its number."""
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self) or self.numbers[row] != number:
            raise StudyError(
                f"study {self.id} has no frame {number}",
                f"its {len(self)} frames are numbered {self.numbers[0]} to {self.numbers[-1]}"
                + (f" in steps of {self.axis.step}" if self.axis.step > 1 else ""),
            )
        frame = self._fetch(row)
        self._account(frame)
        return frame

    random_access: ClassVar[bool] = False
    """Whether any frame is as cheap as the next, also from several threads at once."""

    def file_stamps(self, rows: slice = slice(None)) -> NDArray[np.int64]:
        """(files, 2): bytes and time of last change, to notice that a file is no longer the same.

        One for each of these rows where every frame is a file, a single one for a video; -1 where
        a file is gone. A source without files never changes.
        """
        return np.zeros((1, 2), dtype=np.int64)

    def times(self) -> NDArray[np.float64] | None:
        """Seconds of every frame since the first one, or None when the source does not know."""
        if self.rate is None:
            return None
        return (self.numbers - self.numbers[0]) / float(self.rate)

    def _time(self, row: int) -> Fraction | None:
        if self.rate is None:
            return None
        return int(self.numbers[row] - self.numbers[0]) / self.rate

    def _account(self, frame: Frame) -> None:
        if frame.image is not None:
            return
        self.unreadable[frame.number] = frame.problem or "unreadable"
        if 2 * len(self.unreadable) > len(self):
            first = min(self.unreadable.copy())  # other threads may be adding to it
            raise StudyError(
                f"more than half of study {self.id} cannot be read: {len(self.unreadable)} of "
                f"{len(self)} frames, the first is {first} ({self.unreadable[first]})",
                "copy the study again from its source",
            )

    @abstractmethod
    def _stream(self, start: int) -> Iterator[Frame]:
        """Every frame from row `start` on, in order, unreadable ones included."""

    @abstractmethod
    def _fetch(self, row: int) -> Frame:
        """The frame of one row."""

    def close(self) -> None:  # noqa: B027 (a folder holds nothing open)
        """Release what the source holds open. Reading again afterwards reopens it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

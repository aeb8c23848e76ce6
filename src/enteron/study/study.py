"""The interface of every study: frames in order, one by number, and a record of unreadable ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import ConfigError, StudyError
from enteron.files import RECORD_LIMIT, read_text
from enteron.options import Options, parse_json_options
from enteron.study.ignored import Ignored
from enteron.types import FrameAxis

RGB = NDArray[np.uint8]  # (height, width, 3)


# ---- what a study says about itself: `study.json` in a folder of frames, a comment in a video.
# Only the study's own files are asked, never those around it: a study that is copied elsewhere
# keeps its metadata, and one that lies beside others gets none of theirs.

METADATA_FILE = "study.json"
COMMENT_PREFIX = "enteron:"
"""Start of a video's comment tag that holds metadata. Any other comment is the recorder's."""


class StudyMetadata(Options):
    """Facts about a study that its frames do not show."""

    frames_per_row: float | None = Field(default=None, gt=0)
    """Original frames that one stored frame stands for, in a synthetic study that is shorter than
    the transit it shows. None for a real study."""

    def to_json(self) -> str:
        return self.model_dump_json(exclude_none=True)

    def to_comment(self) -> str:
        """The metadata as the comment tag of a video."""
        return COMMENT_PREFIX + self.to_json()


def read_folder_metadata(folder: Path, study_id: str) -> StudyMetadata:
    """The metadata in a folder of frames; empty where there is no such file."""
    path, source = folder / METADATA_FILE, f"{METADATA_FILE} of study {study_id}"
    if not path.exists():
        return StudyMetadata()
    remedy = "correct the file, or remove it"
    return _parse(read_text(path, RECORD_LIMIT, remedy, source=source, error=StudyError), source)


def read_comment_metadata(comment: str | None, study_id: str) -> StudyMetadata:
    """The metadata in a video's comment tag; empty where the comment is not ours."""
    if comment is None or not comment.startswith(COMMENT_PREFIX):
        return StudyMetadata()
    text = comment.removeprefix(COMMENT_PREFIX)
    return _parse(text, f"the comment in the video of study {study_id}")


def _parse(text: str, source: str) -> StudyMetadata:
    remedy = "correct it, or remove it"
    try:
        return parse_json_options(StudyMetadata, text, source, remedy)
    except ConfigError as error:
        raise StudyError(error.problem, error.remedy) from error


# ---- frames


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One frame of a study: its image, or the reason why it cannot be read."""

    number: int  # as in the file name, or counted from 0 in a video
    time: Fraction | None  # seconds since the first frame, where known
    image: RGB | None  # None when the frame cannot be read; never a black image instead
    problem: str | None = None  # why the frame cannot be read
    digest: bytes | None = None  # of the frame's own file (`enteron.study.content`), if it has one


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The end of a recording that its header promises and the file does not hold."""

    frames: int | None  # frames that are missing; None where they cannot be counted
    seconds: float | None  # time that is missing, where known
    found_frames: int  # up to the last frame there is, gaps included
    sentence: str  # for people

    @classmethod
    def of(
        cls,
        found: int,
        expected: int | None,
        covered: float,
        seconds: float | None,
        ends_inside: bool,
    ) -> "MissingPart | None":
        """What is missing of `expected` frames or of `seconds`; None where nothing is.

        `covered` are the seconds up to the last frame; `ends_inside` says that the file ends in the
        middle of a picture.
        """
        if expected is not None and expected > found:
            lost = expected - found
            length = covered / found * lost
            sentence = (
                f"the recording is cut off: {lost:,} of {expected:,} frames are missing at its end "
                f"({_duration(length)} of {_duration(covered + length)})"
            )
            return cls(lost, length, found, sentence)
        if (
            expected is None
            and seconds is not None
            and seconds - covered > max(2.0, 0.02 * seconds)
        ):
            sentence = (
                f"the recording is cut off: {_duration(seconds - covered)} of "
                f"{_duration(seconds)} are missing at its end"
            )
            return cls(None, seconds - covered, found, sentence)
        if ends_inside:
            return cls(
                None,
                None,
                found,
                "the recording is cut off in the middle of a picture; how much is missing at its "
                "end is not known",
            )
        return None


def _duration(seconds: float) -> str:
    """'2 h 05 min', '3 min 20 s' or '4.2 s'."""
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds >= 60:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{seconds:.1f} s"


class Study(ABC):
    """A study that streams its frames in order and reads any of them by number.

    Only one image is in memory at a time. Frames that cannot be read keep their number and are
    recorded in `unreadable` when they are read. More than half of them makes the study unusable.
    """

    one_camera: bool = True
    """Whether all frames are of one capsule; false for pictures of many, collected by somebody."""

    def __init__(
        self,
        study_id: str,
        axis: FrameAxis,
        rate: Fraction | None,
        metadata: StudyMetadata | None = None,
    ) -> None:
        self.id = study_id
        self.axis = axis
        self.metadata = StudyMetadata() if metadata is None else metadata
        self.rate = rate  # frames per second, exact; None when unknown or variable
        self.unreadable: dict[int, str] = {}
        self.notes: tuple[str, ...] = ()  # oddities of the source that a person should know
        self.ignored = Ignored()  # what lies beside the frames and is not read
        self.missing: MissingPart | None = None  # of a recording that is cut off

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Every frame number, unreadable frames included, ascending."""
        return self.axis.frames

    @property
    def frames_per_row(self) -> float | None:
        """Original frames that one frame of a shortened synthetic study stands for, else None."""
        return self.metadata.frames_per_row

    def __len__(self) -> int:
        return len(self.axis)

    def __iter__(self) -> Iterator[Frame]:
        return self.frames()

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """Stream the frames in order, from row `start` on (row 0 is the first frame)."""
        if not 0 <= start <= len(self):
            raise StudyError(
                f"study {self.id} has {len(self)} frames and cannot start at row {start}",
                f"start between 0 and {len(self)}",
            )
        if start == len(self):
            return
        for frame in self._stream(start):
            self._record_unreadable(frame)
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
        self._record_unreadable(frame)
        return frame

    random_access: bool = False
    """Whether any frame is as cheap to read as the next, also from several threads at once."""

    @property
    def seek_distance(self) -> int:
        """Most frames that have to be decoded to show any one of them."""
        return 1 if self.random_access else len(self)

    def files(self, rows: slice = slice(None)) -> list[str]:
        """Paths of the study's files: one for each of `rows`, or the single one of a video.

        A source without files never changes.
        """
        return []

    def new_files(self) -> int:
        """How many files belong to the study now and did not when it was opened."""
        return 0

    def times(self) -> NDArray[np.float64] | None:
        """(rows,) seconds of every frame since the first one, or None when not known."""
        if self.rate is None:
            return None
        return (self.numbers - self.numbers[0]) / float(self.rate)

    def _time(self, row: int) -> Fraction | None:
        if self.rate is None:
            return None
        return int(self.numbers[row] - self.numbers[0]) / self.rate

    def _record_unreadable(self, frame: Frame) -> None:
        if frame.image is None:
            self.note_unreadable(frame.number, frame.problem or "unreadable")

    def note_unreadable(self, number: int, problem: str) -> None:
        """Record a frame that cannot be read; too many of them make the study unusable."""
        self.unreadable[number] = problem
        if 2 * len(self.unreadable) > len(self):
            first = min(self.unreadable.copy())  # other threads may add to it meanwhile
            raise StudyError(
                f"more than half of study {self.id} cannot be read: {len(self.unreadable)} of "
                f"{len(self)} frames, the first is {first} ({self.unreadable[first]})",
                "copy the study again from its source",
            )

    @abstractmethod
    def _stream(self, start: int) -> Iterator[Frame]:
        """Yield every frame from row `start` on, in order, unreadable ones included."""

    @abstractmethod
    def _fetch(self, row: int) -> Frame:
        """Read the frame of one row."""

    def close(self) -> None:  # noqa: B027 (a folder keeps nothing open)
        """Close open files. Reading again afterwards reopens them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""A study whose frames are picture files anywhere on disk, or inside archives."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from enteron.study.archive import ArchivedPicture, ArchiveReader
from enteron.study.picture import UnreadablePictureError, decode_picture
from enteron.study.study import Frame, Study
from enteron.types import FrameAxis

PictureSource = Path | ArchivedPicture


class PictureStudy(Study):
    """Frames with given numbers, each in a file or an archive of its own choice.

    Datasets that sort pictures by class, not by study, are read as studies with it.
    """

    def __init__(
        self, study_id: str, numbers: NDArray[np.int64], sources: Sequence[PictureSource]
    ) -> None:
        """`numbers` ascending, and the picture of each."""
        super().__init__(study_id, FrameAxis(numbers), None)
        self._sources = tuple(sources)
        # A compressed archive is cheap to read in order only.
        self.random_access = not any(is_compressed(source) for source in self._sources)
        self._archives = ArchiveReader()
        self._lock = Lock()  # archives are read at a position that all threads share

    def __reduce__(
        self,
    ) -> tuple[type["PictureStudy"], tuple[str, NDArray[np.int64], tuple[PictureSource, ...]]]:
        # A worker process opens archives of its own.
        return type(self), (self.id, np.array(self.numbers), self._sources)

    def picture_bytes(self, row: int) -> bytes:
        """The file of one frame as it is stored."""
        source = self._sources[row]
        if isinstance(source, Path):
            return source.read_bytes()
        with self._lock:
            return self._archives.read(source)

    def file_stamps(self, rows: slice = slice(None)) -> NDArray[np.int64]:
        stamps = [_stamp(source) for source in self._sources[rows]]
        return np.array(stamps, dtype=np.int64).reshape(-1, 2)

    def close(self) -> None:
        with self._lock:
            self._archives.close()

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        number, time = int(self.numbers[row]), self._time(row)
        try:
            return Frame(number, time, decode_picture(self.picture_bytes(row)))
        except UnreadablePictureError as error:
            return Frame(number, time, None, str(error))
        except OSError as error:
            return Frame(number, time, None, f"the file cannot be opened: {error.strerror}")


def is_compressed(source: PictureSource) -> bool:
    """Whether the picture is inside a compressed archive."""
    return isinstance(source, ArchivedPicture) and source.archive.suffix.lower() != ".tar"


def _stamp(source: PictureSource) -> tuple[int, int]:
    """Size and modification time; of an archived picture its own size and the archive's time."""
    try:
        if isinstance(source, Path):
            status = source.stat()
            return status.st_size, status.st_mtime_ns
        return source.size, source.archive.stat().st_mtime_ns
    except OSError:
        return -1, -1

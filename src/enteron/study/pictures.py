"""A study whose frames are picture files anywhere on disk, or inside archives."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from enteron.study.archive import ArchivedPicture, ArchiveReader
from enteron.study.content import UNOPENED, digest
from enteron.study.picture import UnreadablePictureError, decode_picture, read_picture
from enteron.study.study import Frame, Study
from enteron.types import FrameAxis

PictureSource = Path | ArchivedPicture


class PictureStudy(Study):
    """Frames with given numbers, each in a file or an archive of its own choice.

    Datasets that sort pictures by class, not by study, are read as studies with it.
    """

    def __init__(
        self,
        study_id: str,
        numbers: NDArray[np.int64],
        sources: Sequence[PictureSource],
        one_camera: bool = True,
    ) -> None:
        """`numbers` ascending, and the picture of each."""
        super().__init__(study_id, FrameAxis(numbers), None)
        self._sources = tuple(sources)
        self.one_camera = one_camera
        # A compressed archive is cheap to read in order only.
        self.random_access = not any(is_compressed(source) for source in self._sources)
        self._archives = ArchiveReader()
        self._lock = Lock()  # archives are read at a position that all threads share

    def __reduce__(
        self,
    ) -> tuple[
        type["PictureStudy"], tuple[str, NDArray[np.int64], tuple[PictureSource, ...], bool]
    ]:
        # A worker process opens archives of its own.
        return type(self), (self.id, np.array(self.numbers), self._sources, self.one_camera)

    def picture_bytes(self, row: int) -> bytes:
        """The file of one frame as it is stored."""
        source = self._sources[row]
        if isinstance(source, Path):
            return read_picture(source)
        with self._lock:
            return self._archives.read(source)

    def files(self, rows: slice = slice(None)) -> list[str]:
        """One file per frame; none where pictures lie in archives."""
        paths = [str(source) for source in self._sources[rows] if isinstance(source, Path)]
        return paths if len(paths) == len(self._sources[rows]) else []

    def close(self) -> None:
        with self._lock:
            self._archives.close()

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        number, time = int(self.numbers[row]), self._time(row)
        is_file = isinstance(self._sources[row], Path)
        content_digest = UNOPENED if is_file else None
        try:
            content = self.picture_bytes(row)
            content_digest = digest(content) if is_file else None
            return Frame(number, time, decode_picture(content), None, content_digest)
        except UnreadablePictureError as error:
            return Frame(number, time, None, str(error), content_digest)
        except OSError as error:
            problem = f"the file cannot be opened: {error.strerror}"
            return Frame(number, time, None, problem, content_digest)


def is_compressed(source: PictureSource) -> bool:
    """Whether the picture is inside a compressed archive."""
    return isinstance(source, ArchivedPicture) and source.archive.suffix.lower() != ".tar"

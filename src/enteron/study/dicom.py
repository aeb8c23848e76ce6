"""A DICOM file as a study: frames of a multi-frame image, or the video inside of one.

Only what the pixels need is read from the header. Nothing that DICOM says about a patient, a
physician or a place is looked at, kept or shown. pydicom comes with the extra `exchange`.
"""

import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError, shorten
from enteron.files import MAX_ROWS, NO_LIMIT, open_file
from enteron.study.picture import UnreadablePictureError, decode_picture
from enteron.study.study import RGB, Frame, Study
from enteron.study.video import VideoFile
from enteron.types import FrameAxis

DICOM_SUFFIXES: Final = (".dcm", ".dicom")

_TAGS: Final = (
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "FrameTime",
    "CineRate",
    "RecommendedDisplayFrameRate",
)
_NATIVE: Final = {"1.2.840.10008.1.2", "1.2.840.10008.1.2.1"}
_JPEG: Final = "1.2.840.10008.1.2.4.50"
# MPEG-2, H.264 and HEVC; those that end in .1 are stored in fragments.
_VIDEO: Final = {f"1.2.840.10008.1.2.4.{n}" for n in range(100, 109)} | {
    f"1.2.840.10008.1.2.4.{n}.1" for n in range(100, 107)
}
_SIDE: Final = 4096
_COLOURS: Final = {"RGB": 3, "YBR_FULL_422": 3, "YBR_FULL": 3, "MONOCHROME2": 1}
_CONVERT: Final = "convert it to uncompressed or JPEG baseline frames, or to a video file"


@dataclass(frozen=True)
class _Header:
    """What is needed to find and decode the frames."""

    syntax: str
    colours: str
    planar: bool
    frames: int
    height: int
    width: int
    rate: Fraction | None
    pixels: int  # position in the file where the pixel data begin
    length: int  # bytes of it; 0xFFFFFFFF where it is in fragments


def open_dicom(path: Path, study_id: str) -> Study:
    """Open a DICOM file: a multi-frame image, or an encapsulated video."""
    header = _read_header(path)
    return (DicomVideo if header.syntax in _VIDEO else DicomFrames)(path, study_id, header)


class DicomFrames(Study):
    """A multi-frame image: uncompressed, or one JPEG per frame. Frames count from 0."""

    random_access = True

    def __init__(self, path: Path, study_id: str, header: _Header) -> None:
        self._path, self._header = path, header
        _require_pixels(path, header)
        with _open(path) as file:
            self._offsets = _frame_offsets(path, file, header)
        super().__init__(study_id, FrameAxis(np.arange(header.frames)), header.rate)

    def __reduce__(self) -> tuple[object, ...]:
        return open_dicom, (self._path, self.id)

    def files(self, rows: slice = slice(None)) -> list[str]:
        return [str(self._path)]

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        number, time = int(self.numbers[row]), self._time(row)
        begin, end = self._offsets[row].tolist()
        # Opened for every frame, which is cheap beside decoding it, and safe in several threads.
        with _open(self._path) as file:
            file.seek(begin)
            content = file.read(end - begin)
        try:
            return Frame(number, time, self._decode(content))
        except UnreadablePictureError as error:
            return Frame(number, time, None, str(error))

    def _decode(self, content: bytes) -> RGB:
        header = self._header
        if header.syntax == _JPEG:
            image = decode_picture(_without_items(content))
            if image.shape[:2] != (header.height, header.width):
                raise UnreadablePictureError("its size is not that of the header")
            return image
        samples = _COLOURS[header.colours]
        size = header.height * header.width * samples
        if len(content) < size:
            raise UnreadablePictureError("the file ends inside of it")
        pixels = np.frombuffer(content, np.uint8, size)
        if samples == 1:
            grey = pixels.reshape(header.height, header.width, 1)
            return np.repeat(grey, 3, axis=2)
        if header.planar:
            planes = pixels.reshape(3, header.height, header.width)
            return np.ascontiguousarray(np.moveaxis(planes, 0, 2))
        return pixels.reshape(header.height, header.width, 3)


class DicomVideo(Study):
    """A video inside of a DICOM file, read as any video is.

    FFmpeg needs it as a file: it is copied without DICOM's header into a private temporary folder,
    which goes when the study is closed.
    """

    def __init__(self, path: Path, study_id: str, header: _Header) -> None:
        self._path, self._header = path, header
        self._folder: Path | None = None
        self._video: VideoFile | None = None
        video = self._opened(study_id)
        super().__init__(study_id, video.axis, video.rate, video.metadata)
        self.missing, self.notes = video.missing, video.notes

    def __reduce__(self) -> tuple[object, ...]:
        return open_dicom, (self._path, self.id)

    def __del__(self) -> None:
        self.close()

    def files(self, rows: slice = slice(None)) -> list[str]:
        return [str(self._path)]

    @property
    def seek_distance(self) -> int:
        return self._opened(self.id).seek_distance

    def times(self) -> NDArray[np.float64] | None:
        return self._opened(self.id).times()

    def close(self) -> None:
        if self._video is not None:
            self._video.close()
            self._video = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _stream(self, start: int) -> Iterator[Frame]:
        yield from self._opened(self.id).frames(start)

    def _fetch(self, row: int) -> Frame:
        return self._opened(self.id).frame(int(self.numbers[row]))

    def _opened(self, study_id: str) -> VideoFile:
        with _open(self._path) as file:
            if self._video is None:
                self._folder = Path(tempfile.mkdtemp(prefix="enteron-"))  # readable by us alone
                copy = _copy_video(self._path, file, self._header, self._folder)
                self._video = VideoFile(copy, study_id)
        return self._video


# ---- the file


def _open(path: Path) -> BinaryIO:
    return open_file(path, NO_LIMIT, "give a DICOM file that you may read", error=StudyError)


def _read_header(path: Path) -> _Header:
    try:
        import pydicom
        from pydicom.errors import InvalidDicomError
    except ModuleNotFoundError as error:
        raise StudyError(
            f"'{path.name}' is a DICOM file, for which pydicom is needed",
            "install it with `pip install 'enteron[exchange]'`",
        ) from error
    remedy = "give a DICOM file with a multi-frame image or a video"
    # Values of the header may name a patient: neither a warning nor a log may quote them.
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)
    with _open(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Stops in front of the pixels; tags that are not named here are skipped unread.
            dataset = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=list(_TAGS))
            position = file.tell()
            head = file.read(12)
        except InvalidDicomError as error:
            raise StudyError(f"'{path.name}' is not a DICOM file", remedy) from error
        except Exception as error:  # pydicom raises whatever a damaged header leads to
            raise StudyError(f"the DICOM header of '{path.name}' is damaged", remedy) from error
    syntax = str(dataset.file_meta.get("TransferSyntaxUID", ""))
    implicit = syntax == "1.2.840.10008.1.2"
    if head[:4] != b"\xe0\x7f\x10\x00":
        raise StudyError(f"'{path.name}' holds no pixels", remedy)
    length = int.from_bytes(head[4:8] if implicit else head[8:12], "little")
    try:
        return _Header(
            syntax=syntax,
            colours=str(dataset.get("PhotometricInterpretation", "")),
            planar=int(dataset.get("PlanarConfiguration", 0) or 0) == 1,
            frames=int(dataset.get("NumberOfFrames", 1) or 1),
            height=int(dataset.get("Rows", 0)),
            width=int(dataset.get("Columns", 0)),
            rate=_rate(dataset),
            pixels=position + (8 if implicit else 12),
            length=length,
        )
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise StudyError(f"the DICOM header of '{path.name}' is damaged", remedy) from error


def _rate(dataset: object) -> Fraction | None:
    """Frames per second; rates of video such as 30000/1001 are taken exactly."""
    get = dataset.get  # pyright: ignore[reportAttributeAccessIssue]
    if get("FrameTime"):
        rate = Fraction(1000) / Fraction(str(get("FrameTime")))
    elif get("CineRate") or get("RecommendedDisplayFrameRate"):
        rate = Fraction(str(get("CineRate") or get("RecommendedDisplayFrameRate")))
    else:
        return None
    if not 0 < rate < 10_000:
        return None
    near = rate.limit_denominator(1001)
    return near if abs(near - rate) < rate / 1_000_000 else rate


def _require_pixels(path: Path, header: _Header) -> None:
    """Refuse what cannot be decoded here, with the reason."""
    name = f"'{path.name}'"
    if header.syntax not in _NATIVE | {_JPEG}:
        raise StudyError(
            f"{name} is compressed in a way that is not read (transfer syntax "
            f"{shorten(header.syntax)})",
            _CONVERT,
        )
    if header.colours not in _COLOURS or (header.syntax == _JPEG and header.colours == "RGB"):
        raise StudyError(
            f"{name} has colours that are not read ('{shorten(header.colours)}')", _CONVERT
        )
    if header.syntax in _NATIVE and header.colours.startswith("YBR"):
        raise StudyError(f"{name} has colours that are not read ('{header.colours}')", _CONVERT)
    fits = 0 < header.height <= _SIDE and 0 < header.width <= _SIDE
    if not fits or not 0 < header.frames <= MAX_ROWS:
        raise StudyError(
            f"{name} states {header.frames} frames of {header.width} x {header.height} pixels",
            f"there are at most {MAX_ROWS:,} of {_SIDE} x {_SIDE}",
        )


def _frame_offsets(path: Path, file: BinaryIO, header: _Header) -> NDArray[np.int64]:
    """(frames, 2) first byte and byte after the last of every frame's data."""
    size = os.fstat(file.fileno()).st_size
    if header.syntax in _NATIVE:
        each = header.height * header.width * _COLOURS[header.colours]
        starts = header.pixels + each * np.arange(header.frames, dtype=np.int64)
        return np.minimum(np.column_stack((starts, starts + each)), size)
    items = _items(path, file, header)
    table, fragments = items[0], items[1:]
    if len(fragments) == header.frames:
        return np.array([(start - 8, stop) for start, stop in fragments], dtype=np.int64)
    file.seek(table[0])
    offsets = np.frombuffer(file.read(table[1] - table[0]), "<u4").astype(np.int64)
    if len(offsets) != header.frames or not fragments or (np.diff(offsets) <= 0).any():
        raise StudyError(
            f"'{path.name}' has {len(fragments)} pieces for {header.frames} frames, and no table "
            "that says which is which",
            "copy it again from its source, or convert it to a video file",
        )
    starts = np.minimum(fragments[0][0] - 8 + offsets, fragments[-1][1])
    return np.column_stack((starts, np.append(starts[1:], fragments[-1][1])))


def _items(path: Path, file: BinaryIO, header: _Header) -> list[tuple[int, int]]:
    """Where the items of encapsulated pixel data lie; the first one is the table of offsets."""
    size = os.fstat(file.fileno()).st_size
    items: list[tuple[int, int]] = []
    position = header.pixels
    while position + 8 <= size:
        file.seek(position)
        head = file.read(8)
        length = int.from_bytes(head[4:], "little")
        if head[:4] == b"\xfe\xff\xdd\xe0":  # the delimiter at the end
            break
        if head[:4] != b"\xfe\xff\x00\xe0":
            raise StudyError(
                f"the pixel data of '{path.name}' are damaged", "copy it again from its source"
            )
        items.append((position + 8, min(position + 8 + length, size)))
        position += 8 + length
    if len(items) < 2:
        raise StudyError(f"'{path.name}' holds no pixels", "copy it again from its source")
    return items


def _without_items(content: bytes) -> bytes:
    """The data of one frame without the heads of the items it is stored in."""
    parts: list[bytes] = []
    position = 0
    while position + 8 <= len(content) and content[position : position + 4] == b"\xfe\xff\x00\xe0":
        length = int.from_bytes(content[position + 4 : position + 8], "little")
        parts.append(content[position + 8 : position + 8 + length])
        position += 8 + length
    return b"".join(parts)


_CONTAINERS: Final = (
    (4, b"ftyp", ".mp4"),
    (0, b"\x00\x00\x01\xba", ".mpg"),
    (0, b"\x47", ".ts"),
    (0, b"\x00\x00\x01\xb3", ".mpg"),
)


def _copy_video(path: Path, file: BinaryIO, header: _Header, folder: Path) -> Path:
    """Copy the video out of its fragments; its container is told by its first bytes."""
    fragments = _items(path, file, header)[1:]
    file.seek(fragments[0][0])
    head = file.read(16)
    suffix = next(
        (suffix for at, mark, suffix in _CONTAINERS if head[at : at + len(mark)] == mark), None
    )
    if suffix is None:
        raise StudyError(
            f"the video in '{path.name}' is in no container that is read",
            "take it out of the DICOM file as MP4, and give that",
        )
    copy = folder / f"video{suffix}"
    try:
        with copy.open("wb") as out:
            for start, stop in fragments:
                file.seek(start)
                left = stop - start
                while left > 0 and (block := file.read(min(left, 1 << 20))):
                    out.write(block)
                    left -= len(block)
    except OSError as error:
        raise StudyError(
            f"the video in '{path.name}' cannot be copied ({error.strerror})",
            "free some space in the temporary folder (TMPDIR)",
        ) from error
    return copy

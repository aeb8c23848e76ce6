"""A study as a video file, decoded with PyAV.

A stamp is the presentation time of a packet or frame, counted in ticks of the stream's time base.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.study.study import Frame, Study, StudyMetadata, read_comment_metadata
from enteron.types import FrameAxis

_PROBE_FRAMES = 64  # enough for several groups of pictures with B-frames
_READ_ON = 100  # frames: up to here, decoding on is cheaper than seeking


class VideoFile(Study):
    """Frames of a video, numbered from 0 in the order in which they are shown.

    The frames are counted by reading all packets once, without decoding. The counts in headers
    are estimates in some containers, and those of a truncated file are too large.

    A decoded frame gets its number by its presentation stamp. The stamps of two containers cannot
    be used: AVI stamps packets in decoding order, which is wrong with B-frames, and an MPEG
    program stream stamps only some frames. There, frames are counted as they are decoded, times
    follow from the stated rate, and reading one frame decodes all frames before it.
    """

    def __init__(self, path: Path, study_id: str) -> None:
        self._path = path
        with _open(path, study_id) as container:
            index = _read_index(container, study_id)
            declared = container.streams.video[0].frames
            metadata = _metadata(container, study_id)
        self._stamps = index.stamps
        self._time_base = index.time_base
        self._has_stamps = index.unique and _stamps_increase(path, study_id)
        rate = index.constant_rate if self._has_stamps else index.stated_rate
        super().__init__(study_id, FrameAxis(np.arange(len(index.stamps))), rate, metadata)
        self._cursor: _Cursor | None = None
        if declared and declared != len(self):
            self.notes = (f"the header states {declared} frames, the file holds {len(self)}",)

    def times(self) -> NDArray[np.float64] | None:
        if self.rate is not None or not self._has_stamps:
            return super().times()
        return (self._stamps - self._stamps[0]) * float(self._time_base)

    def _time(self, row: int) -> Fraction | None:
        if self.rate is not None or not self._has_stamps:
            return super()._time(row)
        return int(self._stamps[row] - self._stamps[0]) * self._time_base

    def files(self, rows: slice = slice(None)) -> list[str]:
        return [str(self._path)]

    def _stream(self, start: int) -> Iterator[Frame]:
        cursor = self._open_cursor(start)
        try:
            yield from cursor
        finally:
            cursor.close()

    def _fetch(self, row: int) -> Frame:
        # Neighbouring frames are often read one after the other: decode on where that is cheaper.
        near = _READ_ON if self._has_stamps else len(self)
        if self._cursor is None or not 0 <= row - self._cursor.row <= near:
            self.close()
            self._cursor = self._open_cursor(row)
        for frame in self._cursor:
            if frame.number == row:
                return frame
        raise AssertionError("a cursor yields every row up to the last one")

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _open_cursor(self, row: int) -> "_Cursor":
        return _Cursor(self, _open(self._path, self.id), row)


class _Cursor:
    """Decodes forward from a row and yields every row from there on, missing ones included."""

    def __init__(self, video: VideoFile, container: InputContainer, row: int) -> None:
        self._video = video
        self._container = container
        self.row = row  # the next row to yield
        self._pictures = self._seek(row)
        self._ahead: tuple[int, VideoFrame] | None = next(self._pictures, None)

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        video = self._video
        row = self.row
        if row == len(video):
            raise StopIteration
        while self._ahead is not None and self._ahead[0] < row:
            self._ahead = next(self._pictures, None)
        self.row += 1
        if self._ahead is None or self._ahead[0] > row:
            return Frame(row, video._time(row), None, "the video has no decodable picture here")
        picture = self._ahead[1]
        if picture.is_corrupt:
            return Frame(row, video._time(row), None, "the picture is damaged in the video")
        image = np.asarray(picture.to_ndarray(format="rgb24"), dtype=np.uint8)
        return Frame(row, video._time(row), image)

    def close(self) -> None:
        self._container.close()

    def _seek(self, row: int) -> Iterator[tuple[int, VideoFrame]]:
        """Yield (row, picture) from the key frame before `row` on.

        Some containers seek too far. Then try again from further back, and at last from the start
        of the file, which always works.
        """
        back = 0  # rows
        while True:
            target = row - back
            if target <= 0 or not self._video._has_stamps:
                self._reopen()
                return self._rows()
            stream = self._container.streams.video[0]
            self._container.seek(int(self._video._stamps[target]), stream=stream, backward=True)
            pictures = self._rows()
            first = next(pictures, None)
            if first is not None and first[0] <= row:
                return _chain(first, pictures)
            back = max(2 * back, 16)

    def _reopen(self) -> None:
        # Not seek(0): where the first stamp is not 0, some containers seek into the middle.
        self._container.close()
        self._container = _open(self._video._path, self._video.id)

    def _rows(self) -> Iterator[tuple[int, VideoFrame]]:
        stamps = self._video._stamps
        if not self._video._has_stamps:
            # A packet that does not decode still counts as a row, so that later rows stay right.
            for row, picture in enumerate(_pictures(self._container)):
                if picture is not None:
                    yield row, picture
            return
        previous = -1
        for picture in _pictures(self._container):
            if picture is None or picture.pts is None:
                continue
            row = int(np.searchsorted(stamps, picture.pts))
            if row == stamps.size or stamps[row] != picture.pts:
                continue  # left over from before a seek point, with a stamp that no packet has
            if row <= previous:
                raise StudyError(
                    f"the video of study {self._video.id} goes back in time at frame {row}",
                    "convert it with: ffmpeg -i VIDEO -fps_mode cfr VIDEO.mkv",
                )
            previous = row
            yield row, picture


def _chain(
    first: tuple[int, VideoFrame], rest: Iterator[tuple[int, VideoFrame]]
) -> Iterator[tuple[int, VideoFrame]]:
    yield first
    yield from rest


def _open(path: Path, study_id: str) -> InputContainer:
    try:
        container = av.open(str(path), options={"fflags": "genpts"})
    except (FFmpegError, OSError) as error:
        raise StudyError(
            f"the video of study {study_id} cannot be opened ({_reason(error)})",
            "check that it is a whole video file; an MP4 cut off while copying has no index",
        ) from error
    if not container.streams.video:
        container.close()
        raise StudyError(f"the file of study {study_id} has no video in it", "give a video file")
    container.streams.video[0].thread_type = "AUTO"
    return container


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return str(text).lower()


def _pictures(container: InputContainer) -> Iterator[VideoFrame | None]:
    """Yield decoded pictures in presentation order, and None for a packet that does not decode."""
    stream = container.streams.video[0]
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, FFmpegError):  # the latter where the file is truncated
            break
        try:
            yield from packet.decode()
        except FFmpegError:
            yield None


@dataclass(frozen=True)
class _Index:
    """What the packets of a video say about its frames."""

    stamps: NDArray[np.int64]  # presentation stamp of every frame, ascending, in ticks
    unique: bool  # no two frames share a stamp, and none lacks one
    time_base: Fraction  # seconds per tick
    stated_rate: Fraction | None
    constant_rate: Fraction | None  # a stated rate that all stamps fit


def _read_index(container: InputContainer, study_id: str) -> _Index:
    stream = container.streams.video[0]
    stamps: list[int] = []
    unstamped = 0
    try:
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                unstamped += packet.pts is None
                stamps.append(packet.pts or 0)
    except FFmpegError:
        pass  # the file is truncated: the study is what can be read
    if not stamps or stream.time_base is None:
        raise StudyError(
            f"the video of study {study_id} holds no frames", "copy it again from its source"
        )
    ordered = np.sort(np.array(stamps, dtype=np.int64))
    return _Index(
        ordered,
        unstamped == 0 and bool((np.diff(ordered) > 0).all()),
        stream.time_base,
        stream.average_rate or stream.guessed_rate,
        _constant_rate(ordered, stream),
    )


def _constant_rate(stamps: NDArray[np.int64], stream: VideoStream) -> Fraction | None:
    """The exact rate, if one of the stated rates fits every stamp to within a tick."""
    assert stream.time_base is not None
    elapsed = (stamps - stamps[0]).astype(np.float64)
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate:
            ticks = np.arange(stamps.size) * float(1 / (rate * stream.time_base))
            if np.abs(elapsed - ticks).max() <= 1.01:  # both stamps of a difference are rounded
                return rate
    return None


def _stamps_increase(path: Path, study_id: str) -> bool:
    """Whether decoded pictures have increasing stamps; only the first ones are checked."""
    previous = None
    with _open(path, study_id) as container:
        for count, picture in enumerate(_pictures(container)):
            if picture is None:
                continue
            if picture.pts is None or (previous is not None and picture.pts <= previous):
                return False
            if count == _PROBE_FRAMES:
                break
            previous = picture.pts
    return True


def _metadata(container: InputContainer, study_id: str) -> StudyMetadata:
    # Matroska spells the key in capitals, MP4 does not.
    tags = {name.lower(): value for name, value in container.metadata.items()}
    return read_comment_metadata(tags.get("comment"), study_id)

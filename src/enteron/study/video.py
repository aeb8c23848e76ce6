"""A study as a video file, decoded with PyAV.

Every packet is decoded under the number that the index gives it, and nothing is shown after damage
up to the next intact key frame: decoders hide damage, and pictures that are predicted from a
damaged one are damaged too.
"""

import itertools
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Literal

import av.logging as av_logging
import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.profile import timed
from enteron.study.bitstream import HEADER_BYTES, FrameNumbers
from enteron.study.packets import UNNUMBERED
from enteron.study.slice_check import DECODER_OPTIONS, SliceCheck, TallDecoder
from enteron.study.study import Frame, Study, StudyMetadata, read_comment_metadata
from enteron.study.video_index import VideoIndex, read_index
from enteron.study.video_source import VideoSource, errors_in
from enteron.types import FrameAxis

_READ_ON = 100  # frames: up to here, decoding on is cheaper than seeking
_AHEAD = 8  # pictures that are decoded before they are asked for
_TRIED_SLICES = 100  # packets that show whether slices can be checked
_COMPARED = 25  # pictures of these that two decoders must give alike
_UNSEEKABLE = ("avi", "mpeg")  # their packets have no stamps, or only some of them have
_EMPTY_PACKET = 32  # bytes; a packet this small may repeat the picture before without a new one

NO_PICTURE = "the video has no decodable picture here"
DAMAGED = "the picture is damaged in the video"
AFTER_DAMAGE = "the video is damaged before this picture, up to the next intact key frame"


SlicesBy = Literal["decoder", "second decoder"] | None
"""Who checks that pictures are decoded to their end: `enteron.study.slice_check`."""


class VideoFile(Study):
    """Frames of a video, numbered from 0 as in the undamaged file.

    At a constant rate a number is a place in time, and frames that the file lacks leave a gap in
    the numbering. At a variable rate frames are numbered by their order.
    """

    def __init__(self, path: Path, study_id: str) -> None:
        self._path = path
        self._index = index = read_index(path, study_id)
        super().__init__(study_id, FrameAxis(index.frames), index.rate, self._metadata(study_id))
        self._cursor: _Cursor | None = None
        self.missing = index.missing
        self.notes = index.notes
        header = index.facts.header_frames
        if header and header != int(index.frames[-1]) + 1:
            stated = f"the header states {header} frames, the file holds {len(self)}"
            self.notes = (stated, *self.notes)
        first = int(index.frames[0])
        if first:
            self.notes = (f"the first {first:,} frames of the recording are lost", *self.notes)

    def _metadata(self, study_id: str) -> StudyMetadata:
        # Matroska spells the key in capitals, MP4 does not.
        tags = {name.lower(): value for name, value in self._index.tags.items()}
        return read_comment_metadata(tags.get("comment"), study_id)

    def times(self) -> NDArray[np.float64] | None:
        stamps = self._index.stamps
        if stamps is None:
            return super().times()
        return (stamps * float(self._index.facts.time_base)).astype(np.float64)

    def _time(self, row: int) -> Fraction | None:
        return self._index.seconds(row)

    def files(self, rows: slice = slice(None)) -> list[str]:
        return [str(self._path)]

    @property
    def seek_distance(self) -> int:
        if self._index.facts.container in _UNSEEKABLE:
            return len(self)
        keys = np.flatnonzero(self._index.packets.key)
        return int(np.diff(keys, prepend=0, append=len(self._index.packets)).max())

    def _stream(self, start: int) -> Iterator[Frame]:
        cursor = _Cursor(self, _DecodingThread(self._decoder(start)), start)
        try:
            yield from cursor
        finally:
            cursor.close()

    def _fetch(self, row: int) -> Frame:
        # Neighbouring frames are often read one after the other: decode on where that is cheaper.
        if self._cursor is None or not 0 <= row - self._cursor.row <= _READ_ON:
            self.close()
            self._cursor = _Cursor(self, self._decoder(row), row)
        for frame in self._cursor:
            if frame.number == self.numbers[row]:
                return frame
        raise AssertionError("a cursor yields every row up to the last one")

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _decoder(self, row: int) -> "_Decoder":
        """A decoder that starts at or before a frame."""
        index = self._index
        start = self._starting_packet(row)
        return _Decoder(self._path, self.id, index, start, slices=self._slices)

    @cached_property
    def _slices(self) -> "SlicesBy":
        """By whom the slices of this video can be checked, as the first ones show."""
        facts = self._index.facts
        tall = None if self._reorders else TallDecoder.for_stream(facts.codec, facts.extradata)
        if tall is not None and self._is_decoded_alike(tall):
            return "decoder"
        check = SliceCheck.for_stream(facts.codec, facts.extradata)
        if check is None:
            return None
        with closing(check), self._source() as source:
            packets = itertools.islice(_demuxed(source), _TRIED_SLICES)
            results = [check.submit(packet).result() for packet in packets]
        return "second decoder" if 2 * sum(results) > len(results) else None

    @property
    def _reorders(self) -> bool:
        """Whether pictures are shown in another order than they are stored."""
        numbers = self._index.numbers
        numbers = numbers[numbers != UNNUMBERED]
        return self._index.facts.reorders or bool((np.diff(numbers) < 0).any())

    def _is_decoded_alike(self, tall: TallDecoder) -> bool:
        """Whether a decoder of higher pictures gives those of a plain one, as long as it can."""
        whole = tried = 0
        compares = True
        with self._source() as source:
            plain = source.stream.codec_context
            plain.thread_count = 1
            for row, packet in enumerate(itertools.islice(_demuxed(source), _TRIED_SLICES)):
                picture, damaged = tall.decode(packet, row)
                tried, whole = tried + 1, whole + (not damaged)
                compares &= row < _COMPARED and not damaged
                if compares:
                    with av_logging.Capture():
                        expected = plain.decode(packet)
                    assert picture is not None
                    if len(expected) != 1 or not _are_alike(expected[0], picture, tall.lines):
                        return False
        return 2 * whole > tried

    def _source(self) -> VideoSource:
        return VideoSource(self._path, self.id, fill_in=self._index.fill_in)

    def _starting_packet(self, row: int) -> int:
        """The key packet from which a frame can be decoded."""
        index = self._index
        packet = int(np.flatnonzero(index.numbers == self.numbers[row])[0])
        keys = np.flatnonzero(index.packets.key[: packet + 1])
        # Pictures shown before the key frame that they follow are predicted from the group before.
        shown_before = index.numbers[keys] <= self.numbers[row]
        keys = keys[shown_before & (index.numbers[keys] != UNNUMBERED)]
        return int(keys[-1]) if keys.size else 0


@dataclass(frozen=True, slots=True)
class _Picture:
    """A decoded picture, or the reason why there is none."""

    number: int
    frame: VideoFrame | None
    problem: str | None = None
    lines: int | None = None  # of the frame, from the top, that belong to the picture; None: all


class _Cursor:
    """Yields every row from one on, missing ones included."""

    def __init__(self, video: VideoFile, decoder: "_Decoder | _DecodingThread", row: int) -> None:
        self._video = video
        self._decoder = decoder
        self.row = row  # the next row to yield
        self._problems: dict[int, str] = {}
        self._reformatter = VideoReformatter()  # keeps its tables from picture to picture
        self._ahead: _Picture | None = None
        self._advance()

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        video, row = self._video, self.row
        if row == len(video):
            raise StopIteration
        number = int(video.numbers[row])
        while self._ahead is not None and self._ahead.number < number:
            self._advance()
        self.row += 1
        problem = self._problems.pop(number, NO_PICTURE)
        picture = self._ahead
        if picture is None or picture.number > number or picture.frame is None:
            return Frame(number, video._time(row), None, problem)
        with timed("decode"):
            # One thread: by default every core gets a strip of the picture, and all wait for the
            # last.
            rgb = self._reformatter.reformat(picture.frame, format="rgb24", threads=1)
            image = np.asarray(rgb.to_ndarray(), dtype=np.uint8)
        return Frame(number, video._time(row), image[: picture.lines])

    def _advance(self) -> None:
        """Go on to the next picture, keeping the reasons for those that are missing."""
        for picture in self._decoder:
            if picture.frame is not None:
                self._ahead = picture
                return
            self._problems[picture.number] = picture.problem or NO_PICTURE
        self._ahead = None

    def close(self) -> None:
        self._decoder.close()


class _Decoder:
    """Decodes packet by packet from a key packet on, and yields only pictures that can be trusted.

    Decoding takes a single thread: FFmpeg's own threads report an error some packets later.
    Each packet carries its row in place of its stamp, so that every picture names its packet.
    """

    def __init__(
        self, path: Path, study_id: str, index: VideoIndex, start: int, *, slices: "SlicesBy"
    ) -> None:
        self._index = index
        self._study_id = study_id
        self._path = path
        self._source = VideoSource(path, study_id, fill_in=index.fill_in)
        self._prepare()
        self._frame_numbers = (
            FrameNumbers(index.facts.extradata) if index.facts.codec == "h264" else None
        )
        facts = index.facts
        self._tall: TallDecoder | None = None  # decodes in place of the stream's own decoder
        self._slices: SliceCheck | None = None
        if slices == "decoder":
            self._tall = TallDecoder.for_stream(facts.codec, facts.extradata)
        elif slices == "second decoder":
            self._slices = SliceCheck.for_stream(facts.codec, facts.extradata)
        self._trusted = False
        self._start = start
        self._run_first = 0  # number of the key frame at which decoding started
        self._last_key = 0  # number of the last key frame that was decoded
        self._last_number = -1  # of the last picture shown
        self._fed: dict[int, int] = {}  # number of each packet that was decoded: its row
        self._pictures: Generator[_Picture, None, None] = self._run()

    def __iter__(self) -> Iterator[_Picture]:
        return self._pictures

    def close(self) -> None:
        self._pictures.close()
        if self._slices is not None:
            self._slices.close()
        self._source.close()

    def _prepare(self) -> None:
        context = self._source.stream.codec_context
        context.thread_count = 1
        context.options = DECODER_OPTIONS

    def _run(self) -> Generator[_Picture, None, None]:
        index = self._index
        packets, numbers = index.packets, index.numbers
        for row, packet in self._packets():
            number = int(numbers[row])
            if packets.broken[row] or packets.suspect[row]:
                yield from self._leave()
            if packets.suspect[row]:
                yield from self._reject(number, DAMAGED)
                continue
            if not self._trusted:
                if not packets.key[row] or number == UNNUMBERED:
                    yield from self._reject(number, AFTER_DAMAGE)
                    continue
                self._enter(number)
            if not self._follows(packet):
                yield from self._leave()
                if not packets.key[row]:
                    yield from self._reject(number, AFTER_DAMAGE)
                    continue
                self._enter(number)
                self._follows(packet)
            is_leading = number < self._run_first
            packet.pts, packet.dts = row, None
            whole = None if self._slices is None else self._slices.submit(packet)
            pictures, damaged = self._decode(packet, row)
            damaged |= whole is not None and not whole.result()
            if packets.key[row]:
                self._last_key = number
            if damaged and not is_leading:
                if number < self._last_key:
                    yield from self._skip_leading(number)
                else:
                    yield from self._leave(pictures, row)
                    yield from self._reject(number, DAMAGED)
                    continue
            elif not is_leading:
                self._fed[number] = row
            yield from self._shown(pictures)
        yield from self._leave()

    def _packets(self) -> Iterator[tuple[int, Packet]]:
        """Row and packet from the starting packet on."""
        if self._start > 0:
            found = self._sought()
            if found is not None:
                yield from self._checked(self._start, found)
                return
            self._source.close()
            self._source = VideoSource(self._path, self._study_id, fill_in=self._index.fill_in)
            self._prepare()
        rows = self._checked(0, _demuxed(self._source))
        for row, packet in rows:
            if row >= self._start:
                yield row, packet

    def _sought(self) -> Iterator[Packet] | None:
        """The packets from the starting one on, by seeking; None where that is not possible."""
        packets, start = self._index.packets, self._start
        stamps = [stamp for stamp in (packets.pts[start], packets.dts[start]) if stamp > -(2**62)]
        if not stamps or self._index.facts.container in _UNSEEKABLE:
            return None
        with av_logging.Capture():
            try:
                stream = self._source.stream
                self._source.container.seek(int(min(stamps)), stream=stream, backward=True)
            except (FFmpegError, OSError):
                return None
        found = _demuxed(self._source)
        for count, packet in enumerate(found):
            if packets.same(start, packet):
                return _chain(packet, found)
            if count > 2000:
                break
        return None

    def _checked(self, row: int, packets: Iterator[Packet]) -> Iterator[tuple[int, Packet]]:
        """Packets with their rows; a file that is no longer the one that was indexed is refused."""
        for packet in packets:
            if row >= len(self._index.packets):
                return
            if not self._index.packets.same(row, packet):
                raise StudyError(
                    f"the video of study {self._study_id} cannot be read twice alike",
                    "wait until nothing writes to it, or convert it with: "
                    "ffmpeg -i VIDEO -fps_mode cfr VIDEO.mkv",
                )
            yield row, packet
            row += 1

    def _enter(self, number: int) -> None:
        """Start afresh at a key frame, as if the video began here."""
        self._source.stream.codec_context.flush_buffers()
        if self._tall is not None:
            self._tall.restart()
        if self._frame_numbers is not None:
            self._frame_numbers.restart()
        if self._slices is not None:
            self._slices.restart()
        self._trusted = True
        self._run_first = number
        self._fed.clear()

    def _leave(
        self, pictures: Sequence[VideoFrame] = (), damaged: int | None = None
    ) -> Iterator[_Picture]:
        """Show what was decoded before the damaged packet, and trust nothing from here on."""
        if not self._trusted:
            return
        rest, _ = self._decode(None, None)
        intact = [p for p in (*pictures, *rest) if damaged is None or (p.pts or 0) < damaged]
        yield from self._shown(intact)
        self._trusted = False
        for number in sorted(self._fed):
            yield from self._reject(number, NO_PICTURE)
        self._fed.clear()

    def _skip_leading(self, number: int) -> Iterator[_Picture]:
        """Give up the pictures between the last key frame and the one shown before it.

        They are predicted from both sides, and nothing that follows the key frame is predicted
        from them. So a damaged one is as if decoding had started at the key frame.
        """
        self._run_first = self._last_key
        for waiting in sorted(fed for fed in self._fed if fed < self._run_first):
            del self._fed[waiting]
            yield from self._reject(waiting, AFTER_DAMAGE)
        yield from self._reject(number, DAMAGED)

    def _follows(self, packet: Packet) -> bool:
        if self._frame_numbers is None:
            return True
        return self._frame_numbers.follows(memoryview(packet)[:HEADER_BYTES].tobytes())

    def _decode(self, packet: Packet | None, row: int | None) -> tuple[Sequence[VideoFrame], bool]:
        """Pictures that come out when a packet goes in, and whether the decoder reports damage."""
        if self._tall is not None:
            if packet is None or row is None:
                return [], False  # no picture waits to be shown
            with timed("decode"):
                picture, damaged = self._tall.decode(packet, row)
            return ([] if picture is None else [picture]), damaged
        with av_logging.Capture() as errors:
            try:
                with timed("decode"):
                    pictures = self._source.stream.codec_context.decode(packet)
            except (FFmpegError, EOFError):
                return [], True
        return pictures, bool(errors_in(errors))

    def _shown(self, pictures: Sequence[VideoFrame]) -> Iterator[_Picture]:
        """Those of the pictures that can be trusted, in order."""
        for picture in pictures:
            row = picture.pts
            number = UNNUMBERED if row is None else int(self._index.numbers[row])
            if not self._trusted or number == UNNUMBERED or number < self._run_first:
                continue
            # The additional row of a higher picture counts as corrupt; its decoder tells damage.
            if picture.is_corrupt and self._tall is None:
                self._trusted = False
                yield from self._reject(number, DAMAGED)
                continue
            if number <= self._last_number or self._passes_over(number):
                self._trusted = False  # the decoder shows them in another order than their stamps
                yield from self._reject(number, DAMAGED)
                continue
            self._fed.pop(number, None)
            self._last_number = number
            yield _Picture(number, picture, lines=None if self._tall is None else self._tall.lines)

    def _passes_over(self, number: int) -> bool:
        """Whether a picture comes before one that was decoded and is to be shown earlier."""
        earlier = [fed for fed in self._fed if fed < number]
        sizes = [int(self._index.packets.size[self._fed.pop(fed)]) for fed in earlier]
        return self._index.facts.reorders and max(sizes, default=0) > _EMPTY_PACKET

    @staticmethod
    def _reject(number: int, problem: str) -> Iterator[_Picture]:
        if number != UNNUMBERED:
            yield _Picture(number, None, problem)


def _are_alike(plain: VideoFrame, tall: VideoFrame, lines: int) -> bool:
    first, second = (frame.to_ndarray(format="rgb24") for frame in (plain, tall))
    return np.array_equal(first, second[:lines])


def _demuxed(source: VideoSource) -> Iterator[Packet]:
    """Packets of the video, as the index counts them."""
    packets = source.container.demux(source.stream)
    while True:
        with av_logging.Capture():
            try:
                packet = next(packets)
            except (StopIteration, FFmpegError, EOFError, IndexError):  # as in the index
                source.require_read()
                return
        if packet.size and not packet.is_discard:
            yield packet


def _chain(first: Packet, rest: Iterator[Packet]) -> Iterator[Packet]:
    yield first
    yield from rest


class _DecodingThread:
    """A decoder in a thread of its own, some pictures ahead of whoever converts them."""

    def __init__(self, decoder: _Decoder) -> None:
        self._decoder = decoder
        self._ready: queue.Queue[_Picture | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._decode, name="enteron-video", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[_Picture]:
        return self

    def __next__(self) -> _Picture:
        if self._ended:
            raise StopIteration
        item = self._ready.get()
        if item is None or isinstance(item, BaseException):
            self._ended = True
            if item is not None:
                raise item
            raise StopIteration
        return item

    def close(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():  # it may be blocked on a full queue
            try:
                self._ready.get_nowait()
            except queue.Empty:
                self._thread.join(0.005)
        self._decoder.close()

    def _decode(self) -> None:
        try:
            for picture in self._decoder:
                self._ready.put(picture)
                if self._stopped.is_set():
                    return
            self._ready.put(None)
        except BaseException as error:  # raised again where the pictures are used
            self._ready.put(error)

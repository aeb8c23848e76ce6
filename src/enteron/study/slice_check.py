"""Whether an H.264 picture was decoded to its end: what FFmpeg does not check.

Behind damage an arithmetic decoder goes on with values that mean nothing, often without an error
and the picture shows parts of the one before. An intact slice ends exactly with its last block,
and a damaged one hardly ever does. FFmpeg does not look, since the picture is full by then. So a
decoder is told that pictures are one row of macroblocks higher than they are. For an intact
picture it then reports precisely that row as missing; for a damaged one it reports something else.

`TallDecoder` is the only decoder of a stream whose pictures come out in the order in which they go
in. `SliceCheck` is a second one, whose pictures are not shown, beside the decoder of any other.
"""

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import av
import av.logging as av_logging
import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from enteron.study.bitstream import H264Headers, SequenceParameters
from enteron.study.video_source import MAX_PIXELS, errors_in

DECODER_OPTIONS = {"err_detect": "crccheck+bitstream+buffer", "max_pixels": str(MAX_PIXELS)}
"""Of decoders whose pictures are shown."""

_MACROBLOCK = 16  # pixels
_REPORT = re.compile(r"concealing (\d+) DC, (\d+) AC, (\d+) MV errors")

_Reports = Sequence[tuple[int, str, str]]


def _is_missing_only_its_row(reports: _Reports, parameters: SequenceParameters) -> bool:
    missing = [match.groups() for _, _, text in reports if (match := _REPORT.match(text))]
    return missing == [(str(parameters.width),) * 3]


def _decoder(headers: H264Headers, extradata: bytes | None) -> VideoCodecContext:
    """A decoder of pictures that are one row higher."""
    context = av.CodecContext.create("h264", "r")
    assert isinstance(context, VideoCodecContext)
    if extradata:
        context.extradata = headers.with_another_row(extradata)
    context.thread_count = 1  # FFmpeg's own threads report an error some packets later
    return context


def _repeat_last_line(picture: VideoFrame, height: int) -> None:
    """Fill what lies below a picture of `height` macroblocks with its last line."""
    for plane in picture.planes:
        pixels = np.frombuffer(memoryview(plane), np.uint8)
        lines = pixels.reshape(plane.height, plane.line_size)
        last = plane.height * height // (height + 1) - 1
        lines[last + 1 :] = lines[last]


class TallDecoder:
    """Decodes a stream, and knows of every picture whether it was decoded to its end.

    Blocks may be predicted from below the edge of a picture, where a decoder of the stream as it is
    repeats the last line. Here the row that no slice fills lies there. So the last line is copied
    into it as soon as a picture comes out, before another one is predicted from it, and pictures
    are the same, byte by byte. That is why none may wait in the decoder to be shown later.
    """

    def __init__(self, extradata: bytes | None) -> None:
        self._headers = H264Headers(extradata)
        self._context = _decoder(self._headers, extradata)
        self._context.options = DECODER_OPTIONS

    @classmethod
    def for_stream(cls, codec: str, extradata: bytes | None) -> "TallDecoder | None":
        """A decoder of a stream; None for other codecs, interlaced video and cut off corners."""
        if codec != "h264":
            return None
        try:
            decoder = cls(extradata)
        except (ValueError, IndexError, FFmpegError):
            return None
        parameters = decoder._headers.parameters
        if parameters is not None:
            left, _, top, _ = parameters.cut
            if not parameters.frames_only or left or top:  # the last line would lie elsewhere
                return None
        return decoder

    def restart(self) -> None:
        """Forget the pictures before, as at a key frame after damage."""
        self._context.flush_buffers()

    def decode(self, packet: Packet, row: int) -> tuple[VideoFrame | None, bool]:
        """The picture of a packet, stamped with its row, and whether it is damaged."""
        data = bytes(packet)
        if packet.is_keyframe:  # the only ones with parameters in front of them
            try:
                self._headers.picture(data)
                data = self._headers.with_another_row(data)
            except (ValueError, IndexError):
                return None, True
        tall = Packet(data)
        tall.pts = row
        with av_logging.Capture() as reports:
            try:
                pictures = self._context.decode(tall)
            except (FFmpegError, EOFError):
                return None, True
        parameters = self._headers.parameters
        if parameters is None or [picture.pts for picture in pictures] != [row]:
            return None, True
        _repeat_last_line(pictures[0], parameters.height)
        others = [report for report in reports if not _REPORT.match(report[2])]
        whole = _is_missing_only_its_row(reports, parameters) and not errors_in(others)
        return pictures[0], not whole

    @property
    def lines(self) -> int:
        """Lines of pixels that belong to a picture: those above its additional row."""
        parameters = self._headers.parameters
        return 0 if parameters is None else _MACROBLOCK * parameters.height - parameters.cut[3]


class SliceCheck:
    """Follows a stream packet by packet, in a thread beside the decoder that shows it."""

    def __init__(self, extradata: bytes | None) -> None:
        self._headers = H264Headers(extradata)
        self._context = _decoder(self._headers, extradata)
        # Pictures are not looked at.
        self._context.options = {"skip_loop_filter": "all", "skip_idct": "all"}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="enteron-slices")

    @classmethod
    def for_stream(cls, codec: str, extradata: bytes | None) -> "SliceCheck | None":
        """A check of a stream; None for other codecs and for interlaced video."""
        if codec != "h264":
            return None
        try:
            check = cls(extradata)
        except (ValueError, IndexError, FFmpegError):
            return None
        parameters = check._headers.parameters
        if parameters is not None and not parameters.frames_only:
            check.close()
            return None
        return check

    def restart(self) -> None:
        """Forget the pictures before, as a decoder does that starts at a key frame."""
        self._thread.submit(self._context.flush_buffers).result()

    def submit(self, packet: Packet) -> "Future[bool]":
        """Start to check a packet. The result says whether its picture is whole."""
        data = bytes(packet)
        return self._thread.submit(self._is_whole, data, packet.is_keyframe)

    def _is_whole(self, data: bytes, is_key: bool) -> bool:
        if is_key:  # the only ones with parameters in front of them
            try:
                self._headers.picture(data)
                data = self._headers.with_another_row(data)
            except (ValueError, IndexError):
                return False
        parameters = self._headers.parameters
        if parameters is None:
            return False
        with av_logging.Capture() as reports:
            try:
                self._context.decode(Packet(data))
            except (FFmpegError, EOFError):
                return False
        return _is_missing_only_its_row(reports, parameters)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

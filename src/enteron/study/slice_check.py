"""Whether an H.264 picture was decoded to its end: what FFmpeg does not check.

Behind damage an arithmetic decoder goes on with values that mean nothing, often without an error
and the picture shows parts of the one before. An intact slice ends exactly with its last block,
and a damaged one hardly ever does. FFmpeg does not look, since the picture is full by then. So a
second decoder is told that pictures are one row of macroblocks higher than they are. For an intact
picture it then reports precisely that row as missing; for a damaged one it reports something else.
What it decodes is not shown.
"""

import re
from concurrent.futures import Future, ThreadPoolExecutor

import av
import av.logging as av_logging
from av.error import FFmpegError
from av.packet import Packet

from enteron.study.bitstream import H264Headers

_REPORT = re.compile(r"concealing (\d+) DC, (\d+) AC, (\d+) MV errors")


class SliceCheck:
    """Follows a stream packet by packet, in a thread beside the decoder that shows it."""

    def __init__(self, extradata: bytes | None) -> None:
        self._headers = H264Headers(extradata)
        self._context = av.CodecContext.create("h264", "r")
        if extradata:
            self._context.extradata = self._headers.with_another_row(extradata)
        self._context.thread_count = 1
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
        missing = [match.groups() for _, _, text in reports if (match := _REPORT.match(text))]
        return missing == [(str(parameters.width),) * 3]

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

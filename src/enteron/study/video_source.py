"""A video file opened for PyAV: regular files only, read by us, nothing else ever opened.

FFmpeg gets an object to read from instead of a path. So a read error of the disk is seen as what
it is, where FFmpeg would end the video early, and no name of a file reaches FFmpeg. A file that
refers to others (a playlist, a list of segments, an MP4 with external data) finds no protocol to
open them with.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Any

import av
import av.logging as av_logging
from av.container import Flags, InputContainer
from av.error import FFmpegError
from av.video.stream import VideoStream

from enteron.errors import StudyError

# Demuxers that read a single file. Those that follow references (hls, concat, dash, image2, sdp,
# imf, ...) are not among them.
_FORMATS = "mov,matroska,avi,mpeg,mpegts,asf,flv,ogg,dhav,mxf,wtv,mpegvideo"

MAX_PIXELS = 4096 * 4096
"""As for pictures: a video that claims more is damaged or an attack on memory."""

_BUFFER = 1 << 18  # bytes per read


class VideoReader:
    """The bytes of a video, as PyAV reads them."""

    def __init__(self, path: Path) -> None:
        # Checked before opening: to open a FIFO waits for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise FileNotFoundError("not a regular file")
        self.name = f"video{path.suffix.lower()}"  # a path may name a patient
        self.failure: OSError | None = None
        self._file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._file).st_size

    def read(self, count: int) -> bytes:
        """The next bytes; none at the end, and none where the disk fails, which is remembered."""
        try:
            return os.read(self._file, count)
        except OSError as error:
            self.failure = error
            return b""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._file, offset, whence)

    def peek(self, position: int, count: int) -> bytes:
        """Bytes at a position; the place where FFmpeg reads on stays the same."""
        return os.pread(self._file, count, position)

    def tell(self) -> int:
        return os.lseek(self._file, 0, os.SEEK_CUR)

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class VideoSource:
    """An open video and its first video stream; a context manager."""

    def __init__(
        self, path: Path, study_id: str, *, fill_in: bool = False, probe: bool = True
    ) -> None:
        self.study_id = study_id
        capture_errors()
        try:
            self.reader = VideoReader(path)
        except OSError as error:
            raise _cannot_open(study_id, error) from error
        try:
            self.container = self._open(fill_in, probe)
        except BaseException:
            self.reader.close()
            raise
        self.stream: VideoStream = self.container.streams.video[0]

    def _open(self, fill_in: bool, probe: bool) -> InputContainer:
        limits = {"max_pixels": str(MAX_PIXELS)}
        options = {
            "format_whitelist": _FORMATS,
            "protocol_whitelist": "none",
            "enable_drefs": "0",
            **limits,
        }
        if not fill_in:
            # Stamps as the container holds them. What FFmpeg infers from the packets before is
            # wrong where packets are lost.
            options["fflags"] = "nofillin"
        if not probe:
            options |= {"probesize": "4096", "analyzeduration": "1", "fpsprobesize": "0"}
        try:
            with av_logging.Capture() as logs:
                container = av.open(
                    self.reader,
                    "r",
                    options=options,
                    buffer_size=_BUFFER,
                    metadata_errors="replace",
                )
                self.opening_errors = errors_in(logs)
        except (FFmpegError, OSError, ValueError, MemoryError) as error:
            self.require_read()
            raise _cannot_open(self.study_id, error) from error
        self.require_read()
        if not fill_in:
            container.flags &= ~Flags.gen_pts.value
        if not container.streams.video:
            container.close()
            raise StudyError(
                f"the file of study {self.study_id} has no video in it", "give a video file"
            )
        return container

    def require_read(self) -> None:
        """Raise where the disk failed; FFmpeg itself takes a failing disk for the end."""
        failure = self.reader.failure
        if failure is not None:
            raise StudyError(
                f"the video of study {self.study_id} cannot be read from its disk "
                f"({(failure.strerror or 'read error').lower()})",
                "check the disk, or copy the video to another one and read the copy",
            ) from failure

    def close(self) -> None:
        self.container.close()
        self.reader.close()

    def __enter__(self) -> "VideoSource":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def capture_errors() -> None:
    """Let FFmpeg report errors. PyAV's default is to drop them, and decoders hide damage.

    Reports are captured where they are expected; others go to the logger `libav`, which stays
    silent unless the program that uses us gives it a handler.
    """
    if av_logging.get_level() is None:
        logger = logging.getLogger("libav")
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
            logger.propagate = False
        av_logging.set_level(av_logging.INFO)
    av_logging.set_skip_repeated(False)


def errors_in(reports: list[tuple[int, str, str]]) -> list[str]:
    """Who reports an error: the names of containers and codecs.

    That a decoder has filled in what it could not decode is only news to FFmpeg, not an error.
    """
    return [
        name
        for level, name, message in reports
        if level <= av_logging.ERROR or message.startswith("concealing")
    ]


def _cannot_open(study_id: str, error: BaseException) -> StudyError:
    reason = getattr(error, "strerror", None) or str(error)
    return StudyError(
        f"the video of study {study_id} cannot be opened ({str(reason).lower()})",
        "check that it is a whole video file; an MP4 cut off while copying has no index",
    )

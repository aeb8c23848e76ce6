"""The packets of a video as its container describes them, read once without decoding."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import av.logging as av_logging
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.study.bitstream import (
    HEADER_BYTES,
    H264Headers,
    H264Picture,
    Mpeg4Picture,
    MpegPicture,
    mpeg4_picture,
    mpeg_picture,
)
from enteron.study.containers import (
    Bytes,
    asf_seconds,
    cue_times,
    nothing_between_blocks,
    only_other_tags,
)
from enteron.study.video_source import MAX_PIXELS, VideoSource, errors_in

CodedPicture = MpegPicture | Mpeg4Picture | H264Picture
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNNUMBERED = -1
"""In place of the frame number of a packet where it is not certain."""

NO_STAMP = int(np.iinfo(np.int64).min)
"""In place of a stamp that a packet does not have."""

MAX_PACKETS = 5_000_000  # two days at 30 frames a second
MAX_SECONDS = 30 * 86400  # a recording is shorter; stamps further apart are damaged

EXPLICIT_CONTAINERS = ("mov", "matroska", "avi", "mpeg", "mpegts", "asf", "flv")
"""Where packets state their own times, and FFmpeg's guesses can be done without."""

_INTRA_CODECS = frozenset(
    ("mjpeg", "ffv1", "huffyuv", "ffvhuff", "utvideo", "rawvideo", "png", "prores", "dnxhd",
     "dvvideo", "magicyuv", "jpeg2000", "mjpegb", "v210", "lagarith", "cfhd")
)  # fmt: skip
"""Codecs whose pictures are all coded alone, so that damage never spreads."""


@dataclass(frozen=True)
class Packets:
    """What the container says about its packets, in file order."""

    pts: Numbers  # NO_STAMP where it has none
    dts: Numbers
    position: Numbers  # in the file; -1 where not known
    size: Numbers  # bytes
    key: Flags
    broken: Flags  # something may be lost directly before the packet
    suspect: Flags  # the packet itself may be damaged

    def __len__(self) -> int:
        return self.pts.size

    def same(self, row: int, packet: Packet) -> bool:
        """Whether a packet is the one of a row."""
        return packet.size == self.size[row] and self.stamps_of(packet) == (
            int(self.pts[row]),
            int(self.dts[row]),
            int(self.position[row]),
        )

    @staticmethod
    def stamps_of(packet: Packet) -> tuple[int, int, int]:
        """Presentation stamp, decoding stamp and position of a packet."""
        return (
            NO_STAMP if packet.pts is None else packet.pts,
            NO_STAMP if packet.dts is None else packet.dts,
            -1 if packet.pos is None else packet.pos,
        )


@dataclass(frozen=True)
class StreamFacts:
    """What the header says about the video."""

    container: str  # FFmpeg's short name of the container
    codec: str
    time_base: Fraction  # seconds per tick
    rates: tuple[Fraction, ...]  # frames per second, as stated or guessed, the best first
    header_frames: int  # 0 where the header has no count
    seconds: float | None  # length that the header states
    reorders: bool  # pictures may be shown in another order than they are stored
    extradata: bytes | None
    streams: int
    is_explicit: bool  # stamps are the container's own, not inferred from the packets before
    is_complete: bool  # the header lists every packet, so none can be lost unseen
    head_damaged: bool = False
    cues: tuple[int, ...] = ()  # stamps of key frames, as a table of the file lists them

    @property
    def is_intra(self) -> bool:
        return self.codec in _INTRA_CODECS


def unnumberable(study_id: str, reason: str) -> StudyError:
    """A video whose frames would get wrong numbers."""
    return StudyError(
        f"the frames of study {study_id} cannot be numbered: {reason}",
        "copy the video again from its source, or convert it with: "
        "ffmpeg -i VIDEO -fps_mode cfr VIDEO.mkv",
    )


# ---- reading


def stream_facts(source: VideoSource) -> StreamFacts:
    """Read the header of an open video."""
    stream, container = source.stream, source.container
    context = stream.codec_context
    if context.width * context.height > MAX_PIXELS:
        raise StudyError(
            f"the video of study {source.study_id} claims pictures of {context.width} x "
            f"{context.height} pixels",
            "copy it again from its source: its header is damaged",
        )
    name = container.format.name.split(",")[0]
    rates = [stream.average_rate, stream.guessed_rate, stream.base_rate, context.framerate]
    stated = [Fraction(rate) for rate in rates if rate and 0 < rate < 10_000]
    ticks = stream.duration if stream.duration and stream.duration > 0 else None
    seconds = None
    if name == "asf":
        seconds = asf_seconds(source.reader)
    elif name not in ("mpeg", "mpegts"):  # there FFmpeg guesses the length from the last packets
        if ticks is not None and stream.time_base:
            seconds = float(ticks * stream.time_base)
        elif container.duration and container.duration > 0:
            seconds = container.duration / 1e6
    return StreamFacts(
        container=name,
        codec=context.codec.name,
        time_base=stream.time_base or Fraction(1, 1000),
        rates=tuple(dict.fromkeys([*stated, *(rate / 2 for rate in stated)])),
        header_frames=max(0, stream.frames),
        seconds=seconds if seconds is None or seconds < MAX_SECONDS else None,
        reorders=bool(context.has_b_frames),
        extradata=context.extradata,
        streams=len(container.streams),
        is_explicit=name in EXPLICIT_CONTAINERS,
        cues=tuple(cue_times(source.reader)) if name == "matroska" else (),
        is_complete=name == "mov"
        and stream.frames > 0
        and stream.frames == len(stream.index_entries),
    )


@dataclass
class PacketWalk:
    """Reads all packets, noting what the container reports meanwhile."""

    source: VideoSource
    facts: StreamFacts
    pictures: "list[CodedPicture | None]" = field(default_factory=list)
    """Headers of the packets' pictures, where numbers need them."""
    cut: bool = False  # the last packet ends with the file

    def read(self) -> Packets:
        pts, dts, position, size = array("q"), array("q"), array("q"), array("q")
        key, broken, suspect = bytearray(), bytearray(), bytearray()
        read_picture = self._picture_reader()
        container_name = self.source.container.format.name
        with av_logging.Capture() as logs:
            for packet in self._packets(self.source.container):
                if len(pts) >= MAX_PACKETS:
                    raise StudyError(
                        f"the video of study {self.source.study_id} holds more than "
                        f"{MAX_PACKETS:,} packets",
                        "split it into shorter videos",
                    )
                stamps = Packets.stamps_of(packet)
                pts.append(stamps[0])
                dts.append(stamps[1])
                position.append(stamps[2])
                size.append(packet.size)
                key.append(packet.is_keyframe)
                broken.append(0)
                suspect.append(packet.is_corrupt)
                if read_picture is not None:
                    self.pictures.append(read_picture(packet))
                if logs and (errors := errors_in(logs)):
                    # The container's errors concern what it skipped to get here, and the packet
                    # before, which ran into the damage; the codec's concern this packet.
                    skipped = container_name in errors
                    broken[-1] |= skipped
                    suspect[-1] |= any(name != container_name for name in errors)
                    if skipped and len(suspect) > 1:
                        suspect[-2] = 1
                logs.clear()
            if errors_in(logs):
                self.cut = True
                if suspect:
                    suspect[-1] = 1
        if suspect and suspect[-1] and self.facts.container != "mpeg":
            self.cut = True
        self.source.require_read()
        packets = Packets(
            np.array(pts, dtype=np.int64),
            np.array(dts, dtype=np.int64),
            np.array(position, dtype=np.int64),
            np.array(size, dtype=np.int64),
            np.frombuffer(key, dtype=np.bool_).copy(),
            np.frombuffer(broken, dtype=np.bool_).copy(),
            np.frombuffer(suspect, dtype=np.bool_).copy(),
        )
        return _with_neighbours(packets, self.facts, self.source.reader)

    def _packets(self, container: InputContainer) -> Iterator[Packet]:
        packets = container.demux(self.source.stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (FFmpegError, EOFError, IndexError):
                # The file is truncated here, or damage looks like a new stream, which PyAV trips
                # over when it reaches the end.
                self.source.require_read()
                self.cut = True
                return
            if packet.size and not packet.is_discard:
                yield packet

    def ends_inside(self) -> bool:
        """Whether the file ends in the middle of a packet; known after reading."""
        if self.facts.container == "mpegts":
            size = self.source.reader.size
            return size % 188 != 0 and size % 192 != 0
        return self.cut

    def _picture_reader(self) -> "Callable[[Packet], CodedPicture | None] | None":
        """What reads the header of a picture, where numbers need it."""
        codec, container = self.facts.codec, self.facts.container
        if codec in ("mpeg1video", "mpeg2video"):
            if container in ("mpeg", "mpegts", "mpegvideo", "avi"):
                return lambda packet: mpeg_picture(_head(packet))
        elif container == "avi" and self.facts.reorders and codec == "mpeg4":
            return lambda packet: mpeg4_picture(bytes(packet))
        elif container == "avi" and self.facts.reorders and codec == "h264":
            return lambda packet: self.h264.picture(_head(packet))
        return None

    @cached_property
    def h264(self) -> H264Headers:
        """Reads headers of H.264 pictures, with the parameters found so far."""
        return H264Headers(self.facts.extradata)


def _head(packet: Packet) -> bytes:
    return memoryview(packet)[:HEADER_BYTES].tobytes()


def _with_neighbours(packets: Packets, facts: StreamFacts, file: Bytes) -> Packets:
    """Damage that shows in the bytes between packets."""
    broken, suspect = packets.broken.copy(), packets.suspect.copy()
    if facts.container == "mpeg":
        # All pictures of the last packet of the program stream are marked if its end is missing.
        suspect[:-1] = False
    elif facts.container == "mpegts":
        # A parser cuts these streams into packets; what it reports may concern a neighbour.
        near = suspect.copy()
        near[1:] |= suspect[:-1]
        near[:-1] |= suspect[1:]
        suspect = near
    between = packets.position[1:] - packets.position[:-1] - packets.size[:-1]
    if facts.container in ("matroska", "flv") and facts.streams == 1:
        # Headers take a few bytes. More was skipped, unless it is something else than video.
        nothing_lost = nothing_between_blocks if facts.container == "matroska" else only_other_tags
        for row in np.flatnonzero((between > 48) | (between < 0)).tolist():
            start, stop = int(packets.position[row]), int(packets.position[row + 1])
            if not nothing_lost(file, start, int(packets.size[row]), stop):
                broken[row + 1] = suspect[row] = True
    if facts.container == "mov":
        overlapping = between < 0  # entries of a damaged index
        broken[1:] |= overlapping
        suspect[1:] |= overlapping
        suspect[:-1] |= overlapping
    return replace(packets, broken=broken, suspect=suspect)

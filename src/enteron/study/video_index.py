"""The index of a video: the frame number of every packet, and where the file is damaged.

A stamp is the presentation time of a packet, counted in ticks of the stream's time base. All
packets are read once, without decoding. Numbers come from what the container states about a packet
itself: its stamp; in MPEG program streams, where some packets have none, the temporal reference
beside it; in AVI, which has no stamps, the file's own index and the order of display that the codec
states. They never come from counting across a place where something may be lost.

A packet whose number is not certain has none (`UNNUMBERED`), and its picture is not readable.
"""

import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.study.bitstream import HEADER_BYTES, H264Headers, mpeg4_is_b, mpeg_picture, mpeg_rate
from enteron.study.avi import AviChunks
from enteron.study.study import MissingPart
from enteron.study.video_source import MAX_PIXELS, VideoReader, VideoSource, errors_in

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNNUMBERED = -1
NO_STAMP = int(np.iinfo(np.int64).min)

MAX_PACKETS = 5_000_000  # two days at 30 frames a second
_MAX_SECONDS = 30 * 86400  # a recording is shorter; stamps further apart are damaged
_MAX_NUMBER = 10**9
_MAX_REORDER = 16  # pictures; the largest buffer of any codec
_MAX_RUNS = 2000
_CONVERT = "convert it with: ffmpeg -i VIDEO -fps_mode cfr VIDEO.mkv"

# Where every packet states its own times, and FFmpeg's guesses can be done without.
_EXPLICIT = ("mov", "matroska", "avi", "mpeg", "mpegts", "asf", "flv")
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
    is_complete: bool  # the header lists every packet, so none can be lost unseen
    head_damaged: bool = False
    cues: tuple[int, ...] = ()  # stamps of key frames, as a table of the file lists them

    @property
    def is_intra(self) -> bool:
        return self.codec in _INTRA_CODECS


@dataclass(frozen=True)
class VideoIndex:
    """Every packet of a video in file order, with its frame number."""

    facts: StreamFacts
    packets: Packets
    numbers: Numbers  # of every packet; UNNUMBERED where not certain
    frames: Numbers  # the frame numbers of the study, ascending
    rate: Fraction | None  # frames per second where it is constant
    stamps: Numbers | None  # of every frame, in ticks since the first; None at a constant rate
    fill_in: bool  # how the file was opened
    tags: Mapping[str, str] = field(default_factory=dict)  # of the container
    missing: MissingPart | None = None
    notes: tuple[str, ...] = ()

    def seconds(self, row: int) -> Fraction | None:
        """Time of a frame since the first one."""
        if self.stamps is not None:
            return int(self.stamps[row]) * self.facts.time_base
        if self.rate is None:
            return None
        return int(self.frames[row] - self.frames[0]) / self.rate


# ---- reading


def read_index(path: Path, study_id: str) -> VideoIndex:
    """Read all packets of a video and number them."""
    with VideoSource(path, study_id) as source:
        explicit = source.container.format.name.split(",")[0] in _EXPLICIT
        if explicit and not _demuxer_errors(source):
            return _index(source, fill_in=False)
    if not explicit:
        with VideoSource(path, study_id, fill_in=True) as source:
            return _index(source, fill_in=True)
    # The damage lies in the part that FFmpeg reads ahead to recognise the streams. Reading ahead
    # as little as possible shows between which packets it lies.
    with VideoSource(path, study_id) as source, VideoSource(path, study_id, probe=False) as walked:
        return _index(source, fill_in=False, walked=walked)


def _demuxer_errors(source: VideoSource) -> bool:
    return source.container.format.name in source.opening_errors


def _index(source: VideoSource, *, fill_in: bool, walked: VideoSource | None = None) -> VideoIndex:
    facts = _facts(source)
    if walked is not None:
        facts = replace(facts, head_damaged=_demuxer_errors(walked))
    walk = _Walk(walked or source, facts)
    packets = walk.read()
    if not len(packets):
        raise StudyError(
            f"the video of study {source.study_id} holds no frames", "copy it again from its source"
        )
    if facts.container == "matroska":
        facts = replace(facts, cues=tuple(_cue_times(source.reader)))
    numbering = _Numbering(source, facts, packets, walk)
    return replace(numbering.index(), fill_in=fill_in)


def _facts(source: VideoSource) -> StreamFacts:
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
    if name not in ("mpeg", "mpegts"):  # there FFmpeg guesses the length from the last packets
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
        seconds=seconds if seconds is None or seconds < _MAX_SECONDS else None,
        reorders=bool(context.has_b_frames),
        extradata=context.extradata,
        streams=len(container.streams),
        is_complete=name == "mov" and stream.frames > 0 and stream.frames == len(stream.index_entries),
    )


@dataclass
class _Walk:
    """Reads all packets, noting what the container reports meanwhile."""

    source: VideoSource
    facts: StreamFacts
    heads: list[bytes] = field(default_factory=list)  # of packets, where the codec's order counts
    cut: bool = False  # the last packet ends with the file

    def read(self) -> Packets:
        pts, dts, position, size = array("q"), array("q"), array("q"), array("q")
        key, broken, suspect = bytearray(), bytearray(), bytearray()
        keep_heads = self._keeps_heads()
        container_name = self.source.container.format.name
        with av.logging.Capture() as logs:
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
                if keep_heads:
                    self.heads.append(memoryview(packet)[:HEADER_BYTES].tobytes())
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
        self.source.require_read()
        flags = [np.frombuffer(values, dtype=np.bool_).copy() for values in (key, broken, suspect)]
        arrays = [np.array(values, dtype=np.int64) for values in (pts, dts, position, size)]
        packets = Packets(*arrays, *flags)
        return _with_neighbours(packets, self.facts)

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

    def _keeps_heads(self) -> bool:
        if self.facts.codec in ("mpeg1video", "mpeg2video"):
            return self.facts.container in ("mpeg", "mpegts", "avi")
        in_avi = self.facts.container == "avi" and self.facts.reorders
        return in_avi and self.facts.codec in ("mpeg4", "h264")


def _with_neighbours(packets: Packets, facts: StreamFacts) -> Packets:
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
    if facts.container == "matroska" and facts.streams == 1:
        # Headers of blocks and clusters take a few bytes; more was skipped.
        skipped = (between > 96) | (between < 0)
        broken[1:] |= skipped
        suspect[:-1] |= skipped
    if facts.container == "flv" and facts.streams == 1:
        skipped = (between > 64) | (between < 0)
        broken[1:] |= skipped
        suspect[:-1] |= skipped
    if facts.container == "mov":
        overlapping = between < 0  # entries of a damaged index
        broken[1:] |= overlapping
        suspect[1:] |= overlapping
        suspect[:-1] |= overlapping
    return replace(packets, broken=broken, suspect=suspect)


_CUES, _CUE_POINT, _CUE_TIME, _CRC = b"\x1c\x53\xbb\x6b", 0xBB, 0xB3, 0xBF


def _cue_times(reader: VideoReader) -> list[int]:
    """Times of key frames in Matroska's table of cues, in ticks; empty where it is lost or damaged.

    The table lies at the end of a file, or at its beginning.
    """
    length = min(reader.size, 1 << 22)
    for data in (reader.peek(reader.size - length, length), reader.peek(0, length)):
        at = data.rfind(_CUES)
        if at < 0:
            continue
        content = _element(data, at + 4)
        times = [] if content is None else _times_in(data[content[0] : content[1]])
        if times and all(later > earlier for earlier, later in pairwise(times)):
            return times
    return []


def _times_in(cues: bytes) -> list[int]:
    times: list[int] = []
    at = 0
    while at < len(cues):
        kind = cues[at]
        content = _element(cues, at + 1)
        if content is None or kind not in (_CUE_POINT, _CRC):
            return []
        start, stop = content
        if kind == _CRC and zlib.crc32(cues[stop:]) != int.from_bytes(cues[start:stop], "little"):
            return []
        if kind == _CUE_POINT:
            time = _element(cues, start + 1)
            if cues[start] != _CUE_TIME or time is None:
                return []
            times.append(int.from_bytes(cues[time[0] : time[1]], "big"))
        at = stop
    return times


def _element(data: bytes, at: int) -> tuple[int, int] | None:
    """Start and stop of the content of an EBML element whose size stands at `at`."""
    if at >= len(data) or not data[at]:
        return None
    width = 9 - data[at].bit_length()
    size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    start = at + width
    return (start, start + size) if start + size <= len(data) else None


# ---- numbering


@dataclass(frozen=True)
class _Lattice:
    """A constant rate: stamps are multiples of a period, apart from rounding to ticks."""

    rate: Fraction
    period: float  # ticks
    reference: int  # the stamp of number 0
    fits: bool  # every stamp lies on it


_NO_BASE = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class _Groups:
    """Groups of MPEG-1 or MPEG-2 pictures, each of which states its place in the group."""

    place: Numbers  # of every picture, in order of display
    known: Flags  # whether the picture states it
    starts: Numbers  # first packet of every group
    codes: Numbers  # time code of every group, in pictures

    @classmethod
    def of(cls, heads: Sequence[bytes], rate: Fraction) -> "_Groups":
        pictures = [mpeg_picture(head) for head in heads]
        opens = np.array([p is not None and p.starts_group for p in pictures])
        opens[0] = True
        starts = np.flatnonzero(opens)
        codes = [(0, 0) if p is None or p.time_code is None else p.time_code for p in pictures]
        return cls(
            np.array([0 if p is None else p.temporal_reference for p in pictures]),
            np.array([p is not None for p in pictures]),
            starts,
            np.array([codes[start][0] * round(rate) + codes[start][1] for start in starts]),
        )

    @property
    def sizes(self) -> Numbers:
        return np.diff(self.starts, append=self.place.size)

    def rows(self) -> "Iterator[slice]":
        """The packets of every group."""
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield slice(start, start + size)

    def stated_bases(self, numbers: Numbers, placed: Flags) -> tuple[Numbers, Numbers]:
        """The first number of every group by most of its stamps (or _NO_BASE), and how many."""
        usable = placed & self.known
        bases = np.full(self.starts.size, _NO_BASE, dtype=np.int64)
        votes = np.zeros(self.starts.size, dtype=np.int64)
        for group, rows in enumerate(self.rows()):
            stated = (numbers[rows] - self.place[rows])[usable[rows]]
            if stated.size:
                values, counts = np.unique(stated, return_counts=True)
                bases[group], votes[group] = values[counts.argmax()], counts.max()
        return bases, votes

    def bases(self, numbers: Numbers, placed: Flags, *, damaged: bool) -> Numbers:
        """The first number of every group, by its stamps, its time code and the group before.

        Two of the three must agree where groups have time codes. Program streams attach a stamp to
        the wrong picture where several start in one packet, so a single stamp proves little.
        """
        stated, votes = self.stated_bases(numbers, placed)
        coded = self._coded_bases(stated, votes)
        whole = [self._is_whole(rows) for rows in self.rows()]
        bases = np.full(stated.size, _NO_BASE, dtype=np.int64)
        for group in range(stated.size):
            follows = _NO_BASE
            if group and whole[group - 1] and bases[group - 1] != _NO_BASE:
                follows = int(bases[group - 1] + self.sizes[group - 1])
            by_stamp, by_code = int(stated[group]), _NO_BASE
            if coded is not None:
                by_code = int(coded[group])
                for proposal in (by_code, by_stamp):
                    others = [by_code, by_stamp, follows]
                    if proposal != _NO_BASE and others.count(proposal) > 1:
                        bases[group] = proposal
                        break
                else:
                    if group == 0:
                        bases[group] = by_stamp
            elif votes[group] > 1 or by_stamp == follows:
                bases[group] = by_stamp
            elif follows != _NO_BASE and not damaged:
                bases[group] = follows
            elif group == 0:
                bases[group] = by_stamp
        return bases

    def _coded_bases(self, stated: Numbers, votes: Numbers) -> Numbers | None:
        """First numbers as the time codes have them; None for an encoder that writes none."""
        whole = np.array([self._is_whole(rows) for rows in self.rows()])[:-1]
        if self.codes.size > 1 and whole.any():
            confirmed = (np.diff(self.codes) == self.sizes[:-1])[whole]
            if confirmed.mean() < 0.8:
                return None
        known = stated != _NO_BASE
        if not known.any():
            return None
        ahead: dict[int, int] = {}  # what stamps add to the codes, and how many say so
        for difference, count in zip((stated - self.codes)[known], votes[known], strict=True):
            ahead[int(difference)] = ahead.get(int(difference), 0) + int(count)
        return self.codes + max(ahead, key=lambda difference: ahead[difference])

    def _is_whole(self, rows: slice) -> bool:
        places = np.sort(self.place[rows])
        return bool(self.known[rows].all()) and np.array_equal(places, np.arange(places.size))

    def agreement(self, numbers: Numbers, placed: Flags) -> float:
        """Share of stamps and of group lengths that agree with the places."""
        bases, _ = self.stated_bases(numbers, placed)
        usable = placed & self.known
        agrees = numbers - self.place == np.repeat(bases, self.sizes)
        both = (bases[1:] != _NO_BASE) & (bases[:-1] != _NO_BASE)
        lengths = np.diff(bases)[both] == self.sizes[:-1][both]
        checks = np.concatenate((agrees[usable], lengths))
        return float(checks.mean()) if checks.size else 0.0

    def behind_losses(self, numbered: Flags, bases: Numbers) -> list[int]:
        """Packets behind a lost picture: a place of a group that no picture has, or a whole group."""
        lost: list[int] = []
        for group, rows in enumerate(self.rows()):
            places = np.unique(self.place[rows][numbered[rows]])
            if places.size and places[-1] + 1 > places.size:
                hole = int(np.argmax(places != np.arange(places.size)))
                # Pictures shown shortly before the lost one may be predicted from it.
                behind = np.flatnonzero(self.place[rows] >= max(0, hole - 3))
                lost.append(rows.start + int(behind[0]))
            if group and bases[group] != bases[group - 1] + self.sizes[group - 1]:
                lost.append(rows.start)
        return lost


class _Numbering:
    """Gives every packet its number, or none."""

    def __init__(
        self, source: VideoSource, facts: StreamFacts, packets: Packets, walk: _Walk
    ) -> None:
        self._source, self._facts, self._walk = source, facts, walk
        self._packets = packets
        self._broken, self._suspect = packets.broken.copy(), packets.suspect.copy()
        self._notes: list[str] = []
        self._lattice: _Lattice | None = None
        self._numbers_itself = False  # the codec numbers the pictures of a group
        self._stamps = packets.pts

    def index(self) -> VideoIndex:
        if self._facts.container == "avi":
            numbers = self._avi_numbers()
            rate = self._facts.rates[0] if self._facts.rates else None
        else:
            self._stamps = self._presentation_stamps()
            numbers, rate = self._stamped_numbers()
        numbers[(numbers > _MAX_NUMBER) | (numbers < 0)] = UNNUMBERED
        frames = np.unique(numbers[numbers >= 0])
        if not frames.size:
            raise self._unnumberable("its packets carry no usable times")
        row_stamps = None
        if rate is None:
            row_stamps = self._row_stamps(numbers, frames)
        packets = replace(self._packets, broken=self._broken, suspect=self._suspect)
        missing = self._missing(frames, rate, row_stamps)
        return VideoIndex(
            self._facts,
            packets,
            numbers,
            frames,
            rate,
            row_stamps,
            fill_in=False,
            tags=dict(self._source.container.metadata),
            missing=missing,
            notes=tuple(self._notes),
        )

    def _unnumberable(self, reason: str) -> StudyError:
        return StudyError(
            f"the frames of study {self._source.study_id} cannot be numbered: {reason}",
            f"copy the video again from its source, or {_CONVERT}",
        )

    # -- stamps

    def _presentation_stamps(self) -> Numbers:
        packets = self._packets
        stamps = packets.pts.copy()
        if (stamps == NO_STAMP).all() and not self._facts.reorders:
            stamps = packets.dts.copy()  # shown as they are decoded
        valid = stamps != NO_STAMP
        if not valid.any():
            raise self._unnumberable("its packets carry no times")
        middle = int(np.median(stamps[valid]))
        limit = int(_MAX_SECONDS / self._facts.time_base)
        far = valid & ((stamps > middle + limit) | (stamps < middle - limit))
        stamps[far] = NO_STAMP
        return stamps

    def _stamped_numbers(self) -> tuple[Numbers, Fraction | None]:
        stamps = self._stamps
        self._lattice = self._find_lattice()
        if self._lattice is None:
            return self._ranks(), None
        lattice = self._lattice
        valid = stamps != NO_STAMP
        offset = np.where(valid, stamps - lattice.reference, 0).astype(np.float64)
        numbers = np.rint(offset / lattice.period).astype(np.int64)
        on_lattice = np.abs(offset - numbers * lattice.period) <= _tolerance(lattice.period)
        placed = valid & on_lattice & ~self._uncued()
        if self._groups is not None and self._numbers_itself:
            numbers, placed = self._by_temporal_reference(numbers, placed)
        elif not valid.all() and not self._has_damage():
            raise self._unnumberable("not every picture has a time")
        numbers, placed = self._in_order(numbers, placed)
        self._mark_losses(numbers, placed)
        origin = self._origin(numbers, placed)
        return np.where(placed, numbers - origin, UNNUMBERED), lattice.rate

    def _mark_losses(self, numbers: Numbers, placed: Flags) -> None:
        """Take a missing number for a lost packet, where nothing else would show the loss.

        Where packets lie in the file without a gap, none is lost and the recorder skipped a
        frame; in H.264, MPEG-1 and MPEG-2 the pictures themselves tell.
        """
        facts = self._facts
        tells = facts.codec == "h264" or self._numbers_itself or facts.is_intra
        if tells or facts.streams == 1 and facts.container in ("matroska", "flv", "mov"):
            return
        seen = np.maximum.accumulate(np.where(placed, numbers, -1))
        reach = _MAX_REORDER if facts.reorders else 0
        jumps = np.flatnonzero(np.diff(np.unique(numbers[placed])) > 1)
        for lost in np.unique(numbers[placed])[jumps] + 1:
            self._broken[np.searchsorted(seen, lost - reach)] = True

    def _find_lattice(self) -> _Lattice | None:
        """The stated rate whose multiples the stamps are, if there is one."""
        stamps = np.unique(self._stamps[self._stamps != NO_STAMP])
        if stamps.size == 1 and self._groups is None:
            rate = self._facts.rates[0] if self._facts.rates else Fraction(1)
            return _Lattice(rate, float(1 / (rate * self._facts.time_base)), int(stamps[0]), True)
        if (lattice := self._lattice_of_groups(stamps)) is not None:
            self._numbers_itself = True
            return lattice
        steps = np.diff(stamps).astype(np.float64)
        best: _Lattice | None = None
        best_share = 0.8  # of the stamps follow the one before after one period
        for rate in (*self._facts.rates, *self._guessed_rates(steps)):
            period = float(1 / (rate * self._facts.time_base))
            if period < 1:
                continue
            share = float((np.abs(steps - period) <= 2 * _tolerance(period)).mean())
            if share <= best_share:
                continue
            lattice = self._fitted(stamps, rate, period)
            if lattice is not None:
                best, best_share = lattice, share
        if best is not None and not best.fits and not self._has_damage():
            return None  # a variable rate, whose frames are numbered by their order
        return best

    def _lattice_of_groups(self, stamps: Numbers) -> _Lattice | None:
        """The stated rate at which stamps agree with the places of pictures in their groups."""
        groups, best, best_share = self._groups, None, 0.8
        if groups is None:
            return None
        valid = self._stamps != NO_STAMP
        stated = [rate for rate in map(mpeg_rate, self._walk.heads[:64]) if rate is not None]
        for rate in dict.fromkeys([*stated, *self._facts.rates]):
            period = float(1 / (rate * self._facts.time_base))
            lattice = self._fitted(stamps, rate, period, least=0.5)
            if lattice is None:
                continue
            offset = np.where(valid, self._stamps - lattice.reference, 0) / period
            share = groups.agreement(np.rint(offset).astype(np.int64), valid)
            if share > best_share:
                best, best_share = lattice, share
        return best

    def _guessed_rates(self, steps: NDArray[np.float64]) -> list[Fraction]:
        """Rates near the commonest distance, where damage has changed the stated one."""
        if not self._has_damage():
            return []
        near = steps[np.abs(steps - np.median(steps)) <= 2]
        rate = 1 / (float(near.mean()) * float(self._facts.time_base))
        whole = Fraction(max(1, round(rate)))
        return [whole, whole * Fraction(1000, 1001), Fraction(rate).limit_denominator(12)]

    def _fitted(
        self, stamps: Numbers, rate: Fraction, period: float, least: float = 0.9
    ) -> _Lattice | None:
        """The lattice through one of a few stamps that most stamps lie on."""
        tolerance = _tolerance(period)
        for place in (0, stamps.size // 2, stamps.size // 3):
            offset = (stamps - stamps[place]).astype(np.float64)
            fits = np.abs(offset - np.rint(offset / period) * period) <= tolerance
            if fits.all() or (fits.mean() >= least and self._has_damage()):
                return _Lattice(rate, period, int(stamps[place]), bool(fits.all()))
        return None

    def _has_damage(self) -> bool:
        if self._broken.any() or self._suspect.any() or self._facts.head_damaged:
            return True
        stamps = self._stamps[self._stamps != NO_STAMP]
        if stamps.size < self._stamps.size and not self._walk.heads:
            return True
        # Without reordering, stamps increase from packet to packet.
        late = np.maximum.accumulate(stamps) - stamps
        usual = 0 if not self._facts.reorders else float(np.quantile(late, 0.98))
        return bool((late > 2 * usual).any())

    def _ranks(self) -> Numbers:
        """Numbers at a variable rate: by order, as far as nothing can be lost."""
        stamps = self._stamps
        valid = stamps != NO_STAMP
        if valid.all() and np.unique(stamps).size == stamps.size and not self._has_damage():
            return np.argsort(np.argsort(stamps)).astype(np.int64)
        first = self._first_loss()
        if np.unique(stamps[:first]).size < first:
            raise self._unnumberable("several of its frames have the same time")
        numbers = np.full(stamps.size, UNNUMBERED, dtype=np.int64)
        ranks = np.argsort(np.argsort(stamps[:first]))
        # Pictures behind the loss may belong between the last ones before it.
        certain = ranks < first - (_MAX_REORDER if self._facts.reorders else 0)
        if first == stamps.size and not self._walk.cut:
            certain[:] = True
        numbers[:first] = np.where(certain, ranks, UNNUMBERED)
        if not certain.any():
            raise self._unnumberable("it is damaged, and its frame rate varies")
        if first < stamps.size:
            self._notes.append(
                "the frame rate varies, so frames behind the first damage have no certain number "
                "and were left out"
            )
        return numbers

    def _first_loss(self) -> int:
        """The first packet before which another may be lost, or whose stamp is not in order."""
        if self._facts.is_complete:
            lost = self._stamps == NO_STAMP
        else:
            lost = self._broken | self._suspect | (self._stamps == NO_STAMP)
            lost[0] |= self._facts.head_damaged
        late = np.maximum.accumulate(self._stamps) - self._stamps
        if not self._facts.reorders:
            lost |= late > 0
        return int(np.argmax(lost)) if lost.any() else lost.size

    def _row_stamps(self, numbers: Numbers, frames: Numbers) -> Numbers:
        """Stamps of the frames, counted from the first one."""
        placed = numbers >= 0
        stamps = np.zeros(frames.size, dtype=np.int64)
        stamps[np.searchsorted(frames, numbers[placed])] = self._stamps[placed]
        return stamps - stamps[0]

    # -- MPEG-1 and MPEG-2

    @cached_property
    def _groups(self) -> "_Groups | None":
        """Groups of pictures that number their pictures themselves."""
        if self._facts.codec not in ("mpeg1video", "mpeg2video") or not self._walk.heads:
            return None
        rates = [rate for rate in map(mpeg_rate, self._walk.heads[:64]) if rate is not None]
        return _Groups.of(self._walk.heads, rates[0] if rates else Fraction(25))

    def _by_temporal_reference(self, numbers: Numbers, placed: Flags) -> tuple[Numbers, Flags]:
        """Number pictures without a stamp by their place in the group, and compare the others."""
        groups = self._groups
        assert groups is not None
        bases = groups.bases(numbers, placed, damaged=bool(self._broken.any() | self._suspect.any()))
        base = np.repeat(bases, groups.sizes)
        numbered = groups.known & (base != _NO_BASE)
        self._suspect |= ~numbered
        self._broken[groups.behind_losses(numbered, bases)] = True
        return np.where(numbered, base + groups.place, numbers), numbered

    # -- order

    def _in_order(self, numbers: Numbers, placed: Flags) -> tuple[Numbers, Flags]:
        """Leave out packets whose numbers contradict the order of the file, or each other."""
        placed = placed.copy()
        starts = np.flatnonzero(self._packets.key)
        if not starts.size or starts[0] != 0:
            starts = np.concatenate(([0], starts))
        unit = np.zeros(numbers.size, dtype=np.int64)
        unit[starts] = 1
        unit = np.cumsum(unit) - 1
        if placed.all() and self._is_ordered(numbers, starts):
            return numbers, placed
        placed &= ~self._far_from_unit(numbers, placed, unit, starts)
        lowest = np.full(starts.size, np.iinfo(np.int64).max, dtype=np.int64)
        highest = np.full(starts.size, np.iinfo(np.int64).min, dtype=np.int64)
        np.minimum.at(lowest, unit[placed], numbers[placed])
        np.maximum.at(highest, unit[placed], numbers[placed])
        weight = np.bincount(unit[placed], minlength=starts.size)
        used = np.flatnonzero(weight)
        if not used.size:
            raise self._unnumberable("its packets carry no usable times")
        chosen = self._chain(used, starts, lowest, highest, weight)
        in_chain = np.zeros(starts.size, dtype=bool)
        in_chain[chosen] = True
        placed &= in_chain[unit]
        values, counts = np.unique(numbers[placed], return_counts=True)
        twice = values[counts > 1]
        placed &= ~np.isin(numbers, twice)
        self._suspect |= ~placed
        return numbers, placed

    def _is_ordered(self, numbers: Numbers, starts: Numbers) -> bool:
        """Whether each group lies behind the one before, and no number occurs twice."""
        lowest = np.minimum.reduceat(numbers, starts)
        highest = np.maximum.reduceat(numbers, starts)
        return bool((lowest[1:] > highest[:-1]).all()) and np.unique(numbers).size == numbers.size

    def _far_from_unit(
        self, numbers: Numbers, placed: Flags, unit: Numbers, starts: Numbers
    ) -> Flags:
        """Packets whose number lies far from the others of their group of pictures."""
        far = np.zeros(numbers.size, dtype=bool)
        stops = [*starts[1:].tolist(), numbers.size]
        for start, stop in zip(starts.tolist(), stops, strict=True):
            own = placed[start:stop]
            if not own.any():
                continue
            inside = numbers[start:stop]
            reach = 2 * (stop - start) + 2 * _MAX_REORDER
            far[start:stop] = own & (np.abs(inside - np.median(inside[own])) > reach)
        return far

    def _chain(
        self, used: Numbers, starts: Numbers, lowest: Numbers, highest: Numbers, weight: Numbers
    ) -> Numbers:
        """The groups in the heaviest chain of increasing numbers.

        Groups that follow each other without a gap are weighed together. A jump ahead where the
        container reports no loss counts little: it may be a damaged stamp.
        """
        joined = (lowest[used[1:]] == highest[used[:-1]] + 1).astype(np.int64)
        run = np.cumsum(np.concatenate(([0], 1 - joined)))
        count = int(run[-1]) + 1
        if count > _MAX_RUNS:
            raise self._unnumberable("its times are damaged throughout")
        first = np.searchsorted(run, np.arange(count))
        last = np.searchsorted(run, np.arange(count), side="right") - 1
        low, high = lowest[used[first]], highest[used[last]]
        mass = np.bincount(run, weights=weight[used])
        losses = np.concatenate(([0], np.cumsum(self._broken | self._suspect)))
        begin = starts[used[first]]
        end = begin.copy()
        end[:-1] = begin[1:]
        end[-1] = self._broken.size
        best = np.zeros(count)
        previous = np.full(count, -1, dtype=np.int64)
        for here in range(count):
            best[here] = mass[here]
            before = np.flatnonzero(high[:here] < low[here])
            if not before.size:
                continue
            reported = losses[begin[here] + 1] > losses[np.maximum(end[before] - 1, 0)]
            smooth = (high[before] + 1 == low[here]) | reported
            gain = best[before] + np.where(smooth, 1.0, 0.2) * mass[here]
            winner = int(gain.argmax())
            if gain[winner] > best[here]:
                best[here], previous[here] = gain[winner], before[winner]
        chain: list[int] = []
        here = int(best.argmax())
        while here >= 0:
            chain.append(here)
            here = int(previous[here])
        return used[np.isin(run, chain)]

    # -- the first frame

    def _origin(self, numbers: Numbers, placed: Flags) -> int:
        """The number of the first frame of the undamaged recording."""
        facts, key = self._facts, self._packets.key
        stop = int(np.argmax(key[1:])) + 1 if key[1:].any() else key.size
        first_unit = placed[:stop]
        whole = bool(key[0] and placed[0] and not self._broken[0] and not facts.head_damaged)
        if facts.is_complete and first_unit.any():
            return int(numbers[:stop][first_unit].min())
        if whole and self._starts_cleanly():
            first = int(numbers[:stop][first_unit].min())
            cued = self._cued()
            return first if cued is None else min(first, cued)
        stated = self._stated_origin(numbers, placed)
        if stated is None:
            raise self._unnumberable("its beginning is lost")
        return stated

    def _starts_cleanly(self) -> bool:
        """Whether the file begins as its container demands."""
        container = self._facts.container
        if container == "mpegts":
            return _ts_starts_cleanly(self._source)
        if container == "mpeg":
            with_header = _head(self._source, 4) == b"\0\0\1\xba"
            pictures = [mpeg_picture(head) for head in self._walk.heads[:1]]
            first = pictures[0] if pictures else None
            return with_header and not self._suspect[0] and (first is None or first.starts_group)
        return True

    def _uncued(self) -> Flags:
        """Key frames whose stamp is not in the table of the file, if the table has the others."""
        cues, key = self._facts.cues, self._packets.key
        listed = np.isin(self._stamps, np.array(cues, dtype=np.int64))
        if not cues or (listed & key).sum() < max(2, 0.8 * key.sum()):
            return np.zeros(key.size, dtype=bool)
        return key & ~listed

    def _cued(self) -> int | None:
        """The first number as Matroska's cues have it."""
        lattice = self._lattice
        if not self._facts.cues or lattice is None:
            return None
        offset = float(self._facts.cues[0] - lattice.reference)
        number = round(offset / lattice.period)
        if abs(offset - number * lattice.period) > _tolerance(lattice.period):
            return None
        return number

    def _stated_origin(self, numbers: Numbers, placed: Flags) -> int | None:
        """The first number where the first packets are lost, if the container lets it be known."""
        container, lattice = self._facts.container, self._lattice
        assert lattice is not None
        if container == "matroska":
            return self._cued()
        if container not in ("flv", "asf", "mov"):
            return None
        # These begin with decoding stamp 0; a key frame tells how much later it is shown.
        packets = self._packets
        delays = packets.pts - packets.dts
        usable = packets.key & placed & (packets.pts != NO_STAMP) & (packets.dts != NO_STAMP)
        delay = int(np.median(delays[usable])) if usable.any() else 0
        offset = float(delay - lattice.reference)
        number = round(offset / lattice.period)
        return number if abs(offset - number * lattice.period) <= 1.01 else None

    # -- AVI

    def _avi_numbers(self) -> Numbers:
        """Order of storage from the chunks and the file's index; order of display from the codec."""
        ordinals = self._avi_ordinals()
        placed = ordinals >= 0
        self._suspect |= ~placed
        if not self._facts.reorders:
            return ordinals
        codec = self._facts.codec
        if codec == "mpeg4":
            return self._mpeg4_order(ordinals)
        if codec == "h264":
            return self._h264_order(ordinals)
        if codec in ("mpeg1video", "mpeg2video"):
            return self._mpeg_order(ordinals)
        raise self._unnumberable("its container does not say when pictures are shown")

    def _avi_ordinals(self) -> Numbers:
        """The place of every chunk in order of storage, empty chunks counted; or UNNUMBERED."""
        packets, chunks = self._packets, AviChunks(self._source.reader, self._source.stream.index)
        follows, places = chunks.runs(packets.position, packets.size)
        starts = np.flatnonzero(~follows)
        head_known = chunks.starts_cleanly(int(packets.position[0]))
        if starts.size == 1 and head_known:
            return places
        ordinals = np.full(len(packets), UNNUMBERED, dtype=np.int64)
        entries = chunks.stored_index(self._facts.header_frames)
        for start, stop in zip(starts, [*starts[1:], len(packets)], strict=True):
            local = places[start:stop] - places[start]
            if start == 0 and head_known:
                ordinals[:stop] = local
            elif entries is not None:
                first = entries.place_of(packets.size[start:stop], local)
                if first is not None:
                    ordinals[start:stop] = first + local
        if (ordinals < 0).all():
            raise self._unnumberable("the index of the file is lost and its beginning is damaged")
        if entries is None:
            self._notes.append(
                "the index of the file is lost, so frames behind the first damage have no certain "
                "number and were left out"
            )
        self._drop_contradictions(ordinals, starts)
        self._broken |= ~follows
        self._broken[0] = not head_known
        return ordinals

    @staticmethod
    def _drop_contradictions(ordinals: Numbers, starts: Numbers) -> None:
        """Keep the heaviest chain of runs whose places increase, and leave out the others."""
        stops = [*starts[1:].tolist(), ordinals.size]
        runs = [run for run in zip(starts.tolist(), stops, strict=True) if ordinals[run[0]] >= 0]
        best: list[tuple[int, int]] = []  # weight of the best chain up to a run, and the run before
        for here, (start, stop) in enumerate(runs):
            before = [
                (best[other][0], other)
                for other in range(here)
                if ordinals[runs[other][1] - 1] < ordinals[start]
            ]
            weight, previous = max(before, default=(0, -1))
            best.append((weight + stop - start, previous))
        here = max(range(len(runs)), key=lambda run: best[run][0], default=-1)
        kept: set[int] = set()
        while here >= 0:
            kept.add(here)
            here = best[here][1]
        for run, (start, stop) in enumerate(runs):
            if run not in kept:
                ordinals[start:stop] = UNNUMBERED

    def _mpeg4_order(self, ordinals: Numbers) -> Numbers:
        """A B picture is shown when it is decoded, another one when the next of its kind is."""
        is_b = [mpeg4_is_b(head) for head in self._walk.heads]
        packed = [head.count(b"\0\0\1\xb6") > 1 for head in self._walk.heads]
        numbers = np.full(ordinals.size, UNNUMBERED, dtype=np.int64)
        if not any(is_b) and not any(packed):
            return ordinals
        waiting: int | None = None  # a picture that is shown when the next reference is decoded
        expected = -1
        for row, ordinal in enumerate(ordinals.tolist()):
            kind = True if row and packed[row - 1] else is_b[row]
            if ordinal != expected:
                waiting = None  # what was lost may have been shown in between
            expected = ordinal + 1
            if ordinal < 0 or kind is None or self._suspect[row]:
                waiting, expected = None, -1
            elif kind:
                numbers[row] = ordinal - 1
            else:
                if waiting is not None:
                    numbers[waiting] = ordinal - 1
                waiting = row
        complete = self._facts.header_frames in (0, int(ordinals.max()) + 1) and not self._walk.cut
        if waiting is not None and complete:
            numbers[waiting] = int(ordinals[waiting:].max())
        return numbers

    def _h264_order(self, ordinals: Numbers) -> Numbers:
        """Numbers from the picture order count, which starts again at every IDR picture."""
        headers = H264Headers(self._facts.extradata)
        pictures = [headers.picture(head) for head in self._walk.heads]
        parameters = headers.parameters
        if parameters is None or parameters.poc_type == 1:
            raise self._unnumberable("its container does not say when pictures are shown")
        if parameters.poc_type == 2:
            return ordinals
        wrap = 1 << parameters.poc_bits
        orders = np.full(ordinals.size, -1, dtype=np.int64)
        idr = np.full(ordinals.size, UNNUMBERED, dtype=np.int64)
        start, high, previous = UNNUMBERED, 0, 0
        for row, (picture, ordinal) in enumerate(zip(pictures, ordinals.tolist(), strict=True)):
            if picture is None or ordinal < 0 or self._broken[row] or self._suspect[row]:
                start = UNNUMBERED
            if picture is not None and picture.is_idr and ordinal >= 0:
                start, high, previous = ordinal, 0, 0
            if start == UNNUMBERED or picture is None:
                continue
            if picture.poc_lsb < previous and previous - picture.poc_lsb >= wrap // 2:
                order_high = high + wrap
            elif picture.poc_lsb > previous and picture.poc_lsb - previous > wrap // 2:
                order_high = high - wrap
            else:
                order_high = high
            orders[row], idr[row] = order_high + picture.poc_lsb, start
            if picture.is_reference:
                high, previous = order_high, picture.poc_lsb
        known = idr >= 0
        step = 2 if not (orders[known] % 2).any() else 1
        return np.where(known & (orders >= 0), idr + orders // step, UNNUMBERED)

    def _mpeg_order(self, ordinals: Numbers) -> Numbers:
        pictures = [mpeg_picture(head) for head in self._walk.heads]
        numbers = np.full(ordinals.size, UNNUMBERED, dtype=np.int64)
        start = UNNUMBERED
        for row, (picture, ordinal) in enumerate(zip(pictures, ordinals.tolist(), strict=True)):
            if picture is None or ordinal < 0:
                start = UNNUMBERED
                continue
            if picture.starts_group:
                start = ordinal
            if start != UNNUMBERED:
                numbers[row] = start + picture.temporal_reference
        return numbers

    # -- what is missing

    def _missing(
        self, frames: Numbers, rate: Fraction | None, row_stamps: Numbers | None
    ) -> MissingPart | None:
        """The end that the header promises and the file lacks."""
        facts = self._facts
        found = int(frames[-1]) + 1
        expected = facts.header_frames or None
        if expected is None and facts.seconds is not None and rate is not None:
            expected = round(facts.seconds * rate)
        if expected is not None and expected > _MAX_NUMBER:
            expected = None
        seconds = None
        if rate is not None:
            covered = float(found / rate)
        elif row_stamps is not None:
            covered = float(int(row_stamps[-1]) * facts.time_base)
            if facts.seconds is not None and not facts.header_frames:
                seconds = facts.seconds
        else:
            return None
        return MissingPart.of(found, expected, covered, seconds, self._ends_inside())

    def _ends_inside(self) -> bool:
        """Whether the file ends in the middle of a packet."""
        if self._facts.container == "mpegts":
            return self._source.reader.size % 188 != 0 and self._source.reader.size % 192 != 0
        return self._walk.cut or (self._facts.container != "mpeg" and bool(self._packets.suspect[-1]))


def _tolerance(period: float) -> float:
    """Ticks by which a stamp may miss its multiple: both ends of a difference are rounded."""
    return min(1.01, period / 4)


def _head(source: VideoSource, count: int) -> bytes:
    return _bytes_at(source, 0, count)


def _bytes_at(source: VideoSource, position: int, count: int) -> bytes:
    return source.reader.peek(position, count) if position >= 0 else b""


def _ts_starts_cleanly(source: VideoSource) -> bool:
    """Whether the first packet of the video in a transport stream starts a picture."""
    data = _head(source, 1 << 18)
    for length, before in ((188, 0), (192, 4), (204, 0)):
        if data[before : before + 1] == b"\x47" and data[before + length : before + length + 1] == b"\x47":
            break
    else:
        return False
    for at in range(before, len(data) - length, length):
        if data[at] != 0x47:
            return False
        if (data[at + 1] & 31) << 8 | data[at + 2] == source.stream.id:
            return bool(data[at + 1] & 64)
    return False



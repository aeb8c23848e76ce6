"""The index of a video: the frame number of every packet, and where the file is damaged.

A stamp is the presentation time of a packet, counted in ticks of the stream's time base. All
packets are read once, without decoding. Numbers come from what the container states about a packet
itself: its stamp; in MPEG program streams, where some packets have none, the temporal reference
beside it; in AVI, which has no stamps, the file's own index and the order of display that the codec
states. They never come from counting across a place where something may be lost.

A packet whose number is not certain has none (`UNNUMBERED`), and its picture is not readable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from enteron.errors import StudyError
from enteron.study.avi_numbers import AviNumbering
from enteron.study.packets import (
    EXPLICIT_CONTAINERS,
    UNNUMBERED,
    Numbers,
    Packets,
    PacketWalk,
    StreamFacts,
    stream_facts,
    unnumberable,
)
from enteron.study.stamp_numbers import StampNumbering
from enteron.study.study import MissingPart
from enteron.study.video_source import VideoSource

_MAX_NUMBER = 10**9


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


def read_index(path: Path, study_id: str) -> VideoIndex:
    """Read all packets of a video and number them."""
    with VideoSource(path, study_id) as source:
        explicit = source.container.format.name.split(",")[0] in EXPLICIT_CONTAINERS
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
    facts = stream_facts(source)
    if walked is not None:
        facts = replace(facts, head_damaged=_demuxer_errors(walked))
    walk = PacketWalk(walked or source, facts)
    packets = walk.read()
    if not len(packets):
        raise StudyError(
            f"the video of study {source.study_id} holds no frames", "copy it again from its source"
        )
    if facts.container == "avi":
        return _avi_index(source, facts, packets, walk)
    numbering = StampNumbering(source, facts, packets, walk)
    numbers, rate = numbering.numbers()
    frames = _frames(numbers, source)
    row_stamps = None if rate is not None else numbering.row_stamps(numbers, frames)
    in_header = facts.container in ("matroska", "flv")  # whose length counts from stamp 0
    before = numbering.first_stamp * facts.time_base if in_header else Fraction(0)
    return VideoIndex(
        facts,
        replace(packets, broken=numbering.broken, suspect=numbering.suspect),
        numbers,
        frames,
        rate,
        row_stamps,
        fill_in,
        dict(source.container.metadata),
        _missing(source, facts, walk, int(frames[-1]) + 1, rate, row_stamps, before),
        tuple(numbering.notes),
    )


def _avi_index(
    source: VideoSource, facts: StreamFacts, packets: Packets, walk: PacketWalk
) -> VideoIndex:
    numbering = AviNumbering(source, facts, packets, walk)
    numbers = numbering.numbers()
    frames = _frames(numbers, source)
    rate = facts.rates[0] if facts.rates else None
    found = int(frames[-1]) + 1 + numbering.empty_behind
    return VideoIndex(
        facts,
        replace(packets, broken=numbering.broken, suspect=numbering.suspect),
        numbers,
        frames,
        rate,
        None,
        False,
        dict(source.container.metadata),
        _missing(source, facts, walk, found, rate, None),
        tuple(numbering.notes),
    )


def _frames(numbers: Numbers, source: VideoSource) -> Numbers:
    """The numbers that occur, ascending."""
    numbers[(numbers > _MAX_NUMBER) | (numbers < 0)] = UNNUMBERED
    frames = np.unique(numbers[numbers >= 0])
    if not frames.size:
        raise unnumberable(source.study_id, "its packets carry no usable times")
    return frames


# ---- what is missing


def _missing(
    source: VideoSource,
    facts: StreamFacts,
    walk: PacketWalk,
    found: int,
    rate: Fraction | None,
    row_stamps: Numbers | None,
    before: Fraction = Fraction(0),
) -> MissingPart | None:
    """The end that the header promises and the file lacks.

    `found` frames there are, gaps included; `before` are seconds before the first one that the
    header counts as well.
    """
    expected = facts.header_frames or None
    if expected is None and facts.seconds is not None and rate is not None:
        expected = round((facts.seconds - max(0.0, float(before))) * rate)
        # The header's length is that of the longest stream, and rounded.
        slack = 1 if facts.streams == 1 else 2 * rate
        expected = expected if expected - found > slack else None
    if expected is not None and expected > _MAX_NUMBER:
        expected = None
    seconds, covered = None, 0.0
    if rate is not None:
        covered = float(found / rate)
    elif row_stamps is not None:
        covered = float(int(row_stamps[-1]) * facts.time_base)
        seconds = None if facts.header_frames else facts.seconds
    return MissingPart.of(found, expected, covered, seconds, walk.ends_inside())

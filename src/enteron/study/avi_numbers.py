"""Frame numbers in AVI: order of storage from the chunks, order of display from the codec."""

import numpy as np

from enteron.study.avi import AviChunks
from enteron.study.bitstream import H264Picture, Mpeg4Picture, MpegPicture
from enteron.study.packets import (
    UNNUMBERED,
    Numbers,
    Packets,
    PacketWalk,
    StreamFacts,
    unnumberable,
)
from enteron.study.video_source import VideoSource


class AviNumbering:
    """Numbers the packets of an AVI file."""

    def __init__(
        self, source: VideoSource, facts: StreamFacts, packets: Packets, walk: PacketWalk
    ) -> None:
        self._source, self._facts, self._walk, self._packets = source, facts, walk, packets
        self.broken, self.suspect = packets.broken.copy(), packets.suspect.copy()
        self.notes: list[str] = []
        self.empty_behind = 0  # places behind the last frame that repeat it

    def numbers(self) -> Numbers:
        """The number of every packet; UNNUMBERED where it is not certain."""
        ordinals = self._ordinals()
        placed = ordinals >= 0
        self.suspect |= ~placed
        if not self._facts.reorders:
            return ordinals
        codec = self._facts.codec
        if codec == "mpeg4":
            return self._mpeg4_order(ordinals)
        if codec == "h264":
            return self._h264_order(ordinals)
        if codec in ("mpeg1video", "mpeg2video"):
            return self._mpeg_order(ordinals)
        raise unnumberable(
            self._source.study_id, "its container does not say when pictures are shown"
        )

    def _ordinals(self) -> Numbers:
        """The place of every chunk in order of storage, empty chunks counted; or UNNUMBERED."""
        packets, chunks = self._packets, AviChunks(self._source.reader, self._source.stream.index)
        follows, places = chunks.runs(packets.position, packets.size)
        self.empty_behind = chunks.empty_behind(int(packets.position[-1]), int(packets.size[-1]))
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
            raise unnumberable(
                self._source.study_id, "the index of the file is lost and its beginning is damaged"
            )
        if entries is None:
            self.notes.append(
                "the index of the file is lost, so frames behind the first damage have no certain "
                "number and were left out"
            )
        self._drop_contradictions(ordinals, starts)
        self.broken |= ~follows
        self.broken[0] = not head_known
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
        pictures = [p if isinstance(p, Mpeg4Picture) else None for p in self._walk.pictures]
        numbers = np.full(ordinals.size, UNNUMBERED, dtype=np.int64)
        if not any(p.is_b or p.is_packed for p in pictures if p is not None):
            return ordinals
        waiting: int | None = None  # a picture that is shown when the next reference is decoded
        expected = -1
        for row, ordinal in enumerate(ordinals.tolist()):
            picture, before = pictures[row], pictures[row - 1] if row else None
            # The B picture of a packed packet is decoded with the next packet, which is empty.
            is_b = picture is not None and (
                picture.is_b or (before is not None and before.is_packed)
            )
            if ordinal != expected:
                waiting = None  # what was lost may have been shown in between
            expected = ordinal + 1
            if ordinal < 0 or picture is None or self.suspect[row]:
                waiting, expected = None, -1
            elif is_b:
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
        pictures = [p if isinstance(p, H264Picture) else None for p in self._walk.pictures]
        parameters = self._walk.h264.parameters
        if parameters is None or parameters.poc_type == 1:
            raise unnumberable(
                self._source.study_id, "its container does not say when pictures are shown"
            )
        if parameters.poc_type == 2:
            return ordinals
        wrap = 1 << parameters.poc_bits
        orders = np.full(ordinals.size, -1, dtype=np.int64)
        idr = np.full(ordinals.size, UNNUMBERED, dtype=np.int64)
        start, high, previous = UNNUMBERED, 0, 0
        for row, (picture, ordinal) in enumerate(zip(pictures, ordinals.tolist(), strict=True)):
            if picture is None or ordinal < 0 or self.broken[row] or self.suspect[row]:
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
        pictures = [p if isinstance(p, MpegPicture) else None for p in self._walk.pictures]
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

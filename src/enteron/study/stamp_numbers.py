"""Frame numbers from presentation stamps: at a constant rate a number is a place in time.

Stamps may be damaged like everything else. They are compared with each other, with the order of
the packets in the file and with what the container and the codec say besides; a packet whose stamp
does not fit gets no number.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from enteron.study.bitstream import MpegPicture
from enteron.study.containers import transport_stream_starts_cleanly
from enteron.study.mpeg_groups import NO_BASE, MpegGroups
from enteron.study.packets import (
    MAX_SECONDS,
    NO_STAMP,
    UNNUMBERED,
    Flags,
    Numbers,
    Packets,
    PacketWalk,
    StreamFacts,
    unnumberable,
)
from enteron.study.video_source import VideoSource

_MAX_REORDER = 16  # pictures; the largest buffer of any codec
_MAX_RUNS = 2000
_UNCERTAIN_BEHIND = "{}, so frames behind the first damage have no certain number and were left out"


@dataclass(frozen=True)
class _Lattice:
    """A constant rate: stamps are multiples of a period, apart from rounding to ticks."""

    rate: Fraction
    period: float  # ticks
    reference: int  # the stamp of number 0
    fits: bool  # every stamp lies on it


class StampNumbering:
    """Numbers the packets of a video by their stamps."""

    def __init__(
        self, source: VideoSource, facts: StreamFacts, packets: Packets, walk: PacketWalk
    ) -> None:
        self._source, self._facts, self._walk, self._packets = source, facts, walk, packets
        self.broken, self.suspect = packets.broken.copy(), packets.suspect.copy()
        self.notes: list[str] = []
        self.first_stamp = Fraction(0)  # of the recording, in ticks
        self._lattice: _Lattice | None = None
        self._numbers_itself = False  # the codec numbers the pictures of a group
        self._stamps = self._presentation_stamps()

    def numbers(self) -> tuple[Numbers, Fraction | None]:
        """The number of every packet, and the rate if it is constant."""
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
            raise unnumberable(self._source.study_id, "not every picture has a time")
        numbers, placed = self._in_order(numbers, placed)
        if (
            not (self._facts.is_explicit or self._numbers_itself)
            and self._first_loss() < placed.size
        ):
            placed[self._first_loss() :] = False
            self.notes.append(_UNCERTAIN_BEHIND.format("the container states few times"))
        self._mark_losses(numbers, placed)
        origin = self._origin(numbers, placed)
        self.first_stamp = Fraction(lattice.reference + origin * lattice.period)
        return np.where(placed, numbers - origin, UNNUMBERED), lattice.rate

    # -- stamps

    def _presentation_stamps(self) -> Numbers:
        packets = self._packets
        stamps = packets.pts.copy()
        if (stamps == NO_STAMP).all() and not self._facts.reorders:
            stamps = packets.dts.copy()  # shown as they are decoded
        if self._facts.container == "mpegvideo":
            stamps[1:] = NO_STAMP  # FFmpeg counts the pictures of a stream without a container
        valid = stamps != NO_STAMP
        if not valid.any():
            raise unnumberable(self._source.study_id, "its packets carry no times")
        middle = int(np.median(stamps[valid]))
        limit = int(MAX_SECONDS / self._facts.time_base)
        far = valid & ((stamps > middle + limit) | (stamps < middle - limit))
        stamps[far] = NO_STAMP
        return stamps

    def _mark_losses(self, numbers: Numbers, placed: Flags) -> None:
        """Take a missing number for a lost packet, where nothing else would show the loss.

        Where packets lie in the file without a gap, none is lost and the recorder skipped a
        frame; in H.264, MPEG-1 and MPEG-2 the pictures themselves tell.
        """
        facts = self._facts
        tells = facts.codec == "h264" or self._numbers_itself or facts.is_intra
        if tells or (facts.streams == 1 and facts.container in ("matroska", "flv", "mov")):
            return
        seen = np.maximum.accumulate(np.where(placed, numbers, -1))
        reach = _MAX_REORDER if self._reorders else 0
        jumps = np.flatnonzero(np.diff(np.unique(numbers[placed])) > 1)
        for lost in np.unique(numbers[placed])[jumps] + 1:
            self.broken[np.searchsorted(seen, lost - reach)] = True

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
        stated = [] if groups.rate is None else [groups.rate]
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
        if self.broken.any() or self.suspect.any() or self._facts.head_damaged:
            return True
        stamps = self._stamps[self._stamps != NO_STAMP]
        if stamps.size < self._stamps.size and not self._walk.pictures:
            return True
        # Without reordering, stamps increase from packet to packet.
        late = np.maximum.accumulate(stamps) - stamps
        usual = float(np.quantile(late, 0.98)) if self._reorders else 0
        return bool((late > 2 * usual).any())

    @cached_property
    def _reorders(self) -> bool:
        """Whether pictures are shown in another order than they are stored."""
        stamps = self._stamps[self._stamps != NO_STAMP]
        late = np.maximum.accumulate(stamps) > stamps
        return self._facts.reorders or bool(late.mean() > 0.05)

    def _ranks(self) -> Numbers:
        """Numbers at a variable rate: by order, as far as nothing can be lost."""
        stamps = self._stamps
        valid = stamps != NO_STAMP
        if valid.all() and np.unique(stamps).size == stamps.size and not self._has_damage():
            return np.argsort(np.argsort(stamps)).astype(np.int64)
        first = self._first_loss()
        if np.unique(stamps[:first]).size < first:
            raise unnumberable(self._source.study_id, "several of its frames have the same time")
        numbers = np.full(stamps.size, UNNUMBERED, dtype=np.int64)
        ranks = np.argsort(np.argsort(stamps[:first]))
        # Pictures behind the loss may belong between the last ones before it.
        certain = ranks < first - (_MAX_REORDER if self._reorders else 0)
        if first == stamps.size and not self._walk.cut:
            certain[:] = True
        numbers[:first] = np.where(certain, ranks, UNNUMBERED)
        if not certain.any():
            raise unnumberable(self._source.study_id, "it is damaged, and its frame rate varies")
        if first < stamps.size:
            self.notes.append(_UNCERTAIN_BEHIND.format("the frame rate varies"))
        return numbers

    def _first_loss(self) -> int:
        """The first packet before which another may be lost, or whose stamp is not in order."""
        if self._facts.is_complete:
            lost = self._stamps == NO_STAMP
        else:
            lost = self.broken | self.suspect | (self._stamps == NO_STAMP)
            lost[0] |= self._facts.head_damaged
        late = np.maximum.accumulate(self._stamps) - self._stamps
        if not self._reorders:
            lost |= late > 0
        return int(np.argmax(lost)) if lost.any() else lost.size

    def row_stamps(self, numbers: Numbers, frames: Numbers) -> Numbers:
        """Stamps of the frames, counted from the first one."""
        placed = numbers >= 0
        stamps = np.zeros(frames.size, dtype=np.int64)
        stamps[np.searchsorted(frames, numbers[placed])] = self._stamps[placed]
        return stamps - stamps[0]

    # -- MPEG-1 and MPEG-2

    @cached_property
    def _groups(self) -> "MpegGroups | None":
        """Groups of pictures that number their pictures themselves."""
        if not self._walk.pictures:
            return None
        pictures = self._walk.pictures
        return MpegGroups.of([p if isinstance(p, MpegPicture) else None for p in pictures])

    def _by_temporal_reference(self, numbers: Numbers, placed: Flags) -> tuple[Numbers, Flags]:
        """Number pictures without a stamp by their place in the group, and compare the others."""
        groups = self._groups
        assert groups is not None
        bases = groups.bases(numbers, placed, damaged=bool(self.broken.any() | self.suspect.any()))
        base = np.repeat(bases, groups.sizes)
        numbered = groups.known & (base != NO_BASE)
        self.suspect |= ~numbered
        self.broken[groups.behind_losses(numbered, bases)] = True
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
            raise unnumberable(self._source.study_id, "its packets carry no usable times")
        chosen = self._chain(used, starts, lowest, highest, weight)
        in_chain = np.zeros(starts.size, dtype=bool)
        in_chain[chosen] = True
        placed &= in_chain[unit]
        values, counts = np.unique(numbers[placed], return_counts=True)
        twice = values[counts > 1]
        placed &= ~np.isin(numbers, twice)
        self.suspect |= ~placed
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
            raise unnumberable(self._source.study_id, "its times are damaged throughout")
        first = np.searchsorted(run, np.arange(count))
        last = np.searchsorted(run, np.arange(count), side="right") - 1
        low, high = lowest[used[first]], highest[used[last]]
        mass = np.bincount(run, weights=weight[used])
        losses = np.concatenate(([0], np.cumsum(self.broken | self.suspect)))
        begin = starts[used[first]]
        end = begin.copy()
        end[:-1] = begin[1:]
        end[-1] = self.broken.size
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
        whole = bool(key[0] and placed[0] and not self.broken[0] and not facts.head_damaged)
        if facts.is_complete and first_unit.any():
            return int(numbers[:stop][first_unit].min())
        if whole and self._starts_cleanly():
            first = int(numbers[:stop][first_unit].min())
            cued = self._cued()
            return first if cued is None else min(first, cued)
        stated = self._stated_origin(numbers, placed)
        if stated is None:
            raise unnumberable(self._source.study_id, "its beginning is lost")
        return stated

    def _starts_cleanly(self) -> bool:
        """Whether the file begins as its container demands."""
        container = self._facts.container
        if container == "mpegts":
            return transport_stream_starts_cleanly(self._source.reader, self._source.stream.id)
        if container == "mpeg":
            return self._starts_with(b"\0\0\1\xba")
        if container == "mpegvideo":
            return self._starts_with(b"\0\0\1\xb3")
        return True

    def _starts_with(self, code: bytes) -> bool:
        """Whether the file starts with a code, and its first picture with a group."""
        first = self._walk.pictures[0] if self._walk.pictures else None
        starts_group = not isinstance(first, MpegPicture) or first.starts_group
        return self._source.reader.peek(0, 4) == code and not self.suspect[0] and starts_group

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


def _tolerance(period: float) -> float:
    """Ticks by which a stamp may miss its multiple: both ends of a difference are rounded."""
    return min(1.01, period / 4)

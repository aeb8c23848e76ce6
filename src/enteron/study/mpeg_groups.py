"""Groups of MPEG-1 and MPEG-2 pictures: numbers for pictures that have no stamp of their own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from enteron.study.bitstream import MpegPicture
from enteron.study.packets import Flags, Numbers

NO_BASE = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class MpegGroups:
    """Groups of MPEG-1 or MPEG-2 pictures, each of which states its place in the group."""

    place: Numbers  # of every picture, in order of display
    known: Flags  # whether the picture states it
    starts: Numbers  # first packet of every group
    codes: Numbers  # time code of every group, in pictures
    rate: Fraction | None  # frames per second, as most sequence headers state it

    @classmethod
    def of(cls, pictures: Sequence[MpegPicture | None]) -> "MpegGroups":
        """The groups of a stream; None stands for a packet without a picture's header."""
        rates = [p.rate for p in pictures if p is not None and p.rate is not None]
        rate = max(set(rates), key=rates.count) if rates else None
        opens = np.array([p is not None and p.starts_group for p in pictures])
        opens[0] = True
        starts = np.flatnonzero(opens)
        codes = [(0, 0) if p is None or p.time_code is None else p.time_code for p in pictures]
        return cls(
            np.array([0 if p is None else p.temporal_reference for p in pictures]),
            np.array([p is not None for p in pictures]),
            starts,
            np.array([codes[start][0] * round(rate or 25) + codes[start][1] for start in starts]),
            rate,
        )

    @property
    def sizes(self) -> Numbers:
        return np.diff(self.starts, append=self.place.size)

    def rows(self) -> "Iterator[slice]":
        """The packets of every group."""
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield slice(start, start + size)

    def stated_bases(self, numbers: Numbers, placed: Flags) -> tuple[Numbers, Numbers]:
        """The first number of every group by most of its stamps (or NO_BASE), and how many."""
        usable = placed & self.known
        bases = np.full(self.starts.size, NO_BASE, dtype=np.int64)
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
        bases = np.full(stated.size, NO_BASE, dtype=np.int64)
        for group in range(stated.size):
            follows = NO_BASE
            if group and whole[group - 1] and bases[group - 1] != NO_BASE:
                follows = int(bases[group - 1] + self.sizes[group - 1])
            by_stamp, by_code = int(stated[group]), NO_BASE
            if coded is not None:
                by_code = int(coded[group])
                for proposal in (by_code, by_stamp):
                    others = [by_code, by_stamp, follows]
                    if proposal != NO_BASE and others.count(proposal) > 1:
                        bases[group] = proposal
                        break
                else:
                    if group == 0:
                        bases[group] = by_stamp
            elif votes[group] > 1 or by_stamp == follows:
                bases[group] = by_stamp
            elif follows != NO_BASE and not damaged:
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
        known = stated != NO_BASE
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
        both = (bases[1:] != NO_BASE) & (bases[:-1] != NO_BASE)
        lengths = np.diff(bases)[both] == self.sizes[:-1][both]
        checks = np.concatenate((agrees[usable], lengths))
        return float(checks.mean()) if checks.size else 0.0

    def behind_losses(self, numbered: Flags, bases: Numbers) -> list[int]:
        """Packets behind lost pictures: a place of a group that none has, or a whole group."""
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

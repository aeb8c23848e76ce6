"""Gaps: stretches of frame numbers that a study does not contain.

Scores know the frames that could be read. A number that they lack is a gap only if no file had it:
frames that could not be read were part of the study, and are told as such.
"""

from collections.abc import Collection

import numpy as np

from enteron.types import FrameAxis

Gap = tuple[int, int]  # [start, stop) of the missing frame numbers


def gaps_of(axis: FrameAxis, unreadable: Collection[int] = (), unnamed: int = 0) -> list[Gap]:
    """The gaps of a study, in order.

    `unreadable` are frames that the study has but the axis lacks; `unnamed` is how many more of
    them there are, of which no number is known: these are taken to fill the shortest gaps.
    """
    bad = set(unreadable)
    found: list[tuple[int, Gap]] = []  # rows missing, and where
    for row in axis.gaps().tolist():
        before, after = int(axis.frames[row - 1]), int(axis.frames[row])
        lacking = [n for n in range(before + axis.step, after, axis.step) if n not in bad]
        if lacking:
            found.append((len(lacking), (before + axis.step, after)))
    shortest = sorted(found)
    while shortest and shortest[0][0] <= unnamed:
        unnamed -= shortest[0][0]
        found.remove(shortest.pop(0))
    return [gap for _, gap in found]


def longest(gaps: list[Gap], most: int) -> list[Gap]:
    """So many of the gaps, the longest, in order."""
    lengths = np.array([stop - start for start, stop in gaps], dtype=np.int64)
    kept = np.sort(np.argsort(-lengths, kind="stable")[:most])
    return [gaps[place] for place in kept.tolist()]

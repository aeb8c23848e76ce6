"""Ranked lists of frames: what the first N pictures of a study show."""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from enteron.errors import EnteronError
from enteron.labels import FINDINGS, LABELS
from enteron.metrics.intervals import Estimate, StudyIntervals, ratio_of
from enteron.metrics.lesions import (
    Lesions,
    ReadingSpeed,
    best_inside,
    of_finding,
    require_same_studies,
)
from enteron.types import Scores

TOP_FRAMES: Final = (10, 30, 100, 300)
"""Lengths of ranked lists that are reported; commercial readers show a "top 100"."""

_FIRST_FINDING: Final = len(LABELS) - len(FINDINGS)  # findings are the last columns


def rank_frames(scores: Scores) -> NDArray[np.int64]:
    """Frame numbers, the most suspicious first: by the highest probability of any finding.

    Equal ones come in recording order.
    """
    suspicion = scores.values[:, _FIRST_FINDING:].max(axis=1)
    return scores.axis.frames[np.argsort(-suspicion, kind="stable")]


def fold_near_duplicates(
    ranked: ArrayLike,
    distance: int = 0,
    source: ArrayLike | None = None,
    most: int | None = None,
) -> NDArray[np.int64]:
    """A ranked list of frames without those that repeat one further up.

    A frame is left out when a kept frame lies at most `distance` frames away, or (`source`: one
    number per ranked frame) when a kept frame has the same source, as the frames of a stall that
    look alike have. `most` ends the list early.
    """
    frames = np.asarray(ranked, dtype=np.int64)
    # Without sources every frame is a source of its own.
    sources = np.arange(frames.size) if source is None else np.asarray(source)
    if sources.shape != frames.shape:
        raise EnteronError(
            f"{frames.size} ranked frames have {sources.size} sources",
            "give one source per frame",
        )
    ranks: list[int] = []
    by_number: list[int] = []  # the kept frames, ascending
    seen: set[object] = set()  # their sources
    for rank, (frame, origin) in enumerate(zip(frames.tolist(), sources.tolist(), strict=True)):
        if len(ranks) == most:
            break
        place = bisect(by_number, frame)
        near_before = place > 0 and frame - by_number[place - 1] <= distance
        near_after = place < len(by_number) and by_number[place] - frame <= distance
        if not (near_before or near_after or origin in seen):
            by_number.insert(place, frame)
            seen.add(origin)
            ranks.append(rank)
    return frames[ranks]


@dataclass(frozen=True)
class TopRecall:
    """Lesions that the first N frames of each study's ranked list show."""

    lesions: Lesions
    first_rank: NDArray[np.int64]  # (lesions,) frames up to the first one in the lesion; 0: none
    lengths: tuple[int, ...]  # of each study's list

    def found(self, frames: int) -> NDArray[np.bool_]:
        """(lesions,) whether one of the first `frames` frames lies in it."""
        return (self.first_rank > 0) & (self.first_rank <= frames)

    def recall(
        self, frames: int, intervals: StudyIntervals | None = None, finding: str | None = None
    ) -> Estimate:
        """Share of lesions found, over all findings or of one."""
        chosen = of_finding(self.lesions.finding, finding)
        lesions = self.lesions.counts(chosen).sum(axis=1)
        found = self.lesions.counts(chosen & self.found(frames)).sum(axis=1)
        return ratio_of(found, lesions, intervals)

    def study_recall(self, frames: int) -> NDArray[np.float64]:
        """(studies,) share of each study's lesions; NaN where it has none."""
        lesions = self.lesions.counts().sum(axis=1)
        found = self.lesions.counts(self.found(frames)).sum(axis=1)
        return np.where(lesions > 0, found / np.maximum(lesions, 1), np.nan)

    def reading_seconds(
        self, frames: int, speed: ReadingSpeed | None = None
    ) -> NDArray[np.float64]:
        """(studies,) to look at the first `frames` frames as stills."""
        speed = ReadingSpeed() if speed is None else speed
        return np.minimum(self.lengths, frames) * speed.seconds_per_still


def top_recall(lesions: Lesions, ranked: Mapping[str, ArrayLike]) -> TopRecall:
    """Look for lesions in ranked lists of frames, most suspicious first, one list per study.

    A frame shows every lesion that it lies in, whatever the finding. Fold near-duplicates first
    (`fold_near_duplicates`), or one stall of the capsule fills the list.
    """
    require_same_studies(lesions.studies, tuple(ranked), "the ranked lists")
    lists = [np.asarray(frames, dtype=np.int64) for frames in ranked.values()]
    study = np.repeat(np.arange(len(lists)), [frames.size for frames in lists])
    rank = np.concatenate([np.arange(1.0, frames.size + 1) for frames in lists])
    frames = np.concatenate(lists)
    best = best_inside(lesions.study, lesions.start, lesions.stop, study, frames, -rank)
    first_rank = np.where(np.isinf(best), 0, -best).astype(np.int64)
    return TopRecall(lesions, first_rank, tuple(frames.size for frames in lists))

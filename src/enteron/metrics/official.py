"""The official score of RARE-VISION: temporal mAP, exactly as the challenge computes it.

A study's events become spans, one per label. Predicted spans are compared with true ones of the
same study and label by temporal intersection over union (tIoU, in frames), matched in file order,
and summed to an average precision (AP). The mean over 17 labels and then over studies is the score.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.labels import COLUMN, LABELS
from enteron.types import Segment

THRESHOLDS = (0.5, 0.95)
"""tIoU thresholds at which the challenge scores."""

_MAX_PAIRS_AT_ONCE = 4_000_000  # bounds the memory of a comparison, whatever its size


# ---- Spans


@dataclass(frozen=True)
class Spans:
    """Spans [start, stop) in file order; a group is one label of one study."""

    group: NDArray[np.int64]  # 17 * study + column
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __len__(self) -> int:
        return self.group.size

    def where(self, keep: NDArray[np.bool_]) -> "Spans":
        return Spans(self.group[keep], self.start[keep], self.stop[keep])

    @property
    def study(self) -> NDArray[np.int64]:
        return self.group // len(LABELS)

    @property
    def column(self) -> NDArray[np.int64]:
        return self.group % len(LABELS)


def flatten(segments_by_study: Iterable[Sequence[Segment]]) -> Spans:
    """Make one span per label of each segment; studies are numbered in the order given."""
    rows = [
        (study * len(LABELS) + COLUMN[label], segment.start, segment.stop)
        for study, segments in enumerate(segments_by_study)
        for segment in segments
        for label in segment.labels
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Spans(*np.ascontiguousarray(table.T))


def merge_touching(spans: Spans) -> Spans:
    """Merge spans of a group that touch or overlap; the result ranks where its first part did."""
    if not len(spans):
        return spans
    order = np.lexsort((spans.start, spans.group))
    group, start, stop = spans.group[order], spans.start[order], spans.stop[order]
    # The furthest stop so far within the group; an offset keeps the groups apart.
    offset = (np.cumsum(np.diff(group, prepend=group[0]) != 0)) * (int(stop.max()) + 1)
    reach = np.maximum.accumulate(stop + offset) - offset
    starts_new = np.ones(len(spans), dtype=bool)
    starts_new[1:] = (group[1:] != group[:-1]) | (start[1:] > reach[:-1])
    first = np.flatnonzero(starts_new)
    last = np.append(first[1:], len(spans)) - 1
    rank = np.minimum.reduceat(order, first)
    by_rank = np.argsort(rank)
    return Spans(group[first][by_rank], start[first][by_rank], reach[last][by_rank])


# ---- Overlaps


@dataclass(frozen=True)
class Pairs:
    """Predicted and true spans of the same group that overlap, by prediction, then by truth."""

    predicted: NDArray[np.int64]  # position among the predicted spans
    true: NDArray[np.int64]  # position among the true spans
    tiou: NDArray[np.float64]


def overlapping_pairs(truth: Spans, predicted: Spans, min_tiou: float) -> Pairs:
    """Find all pairs with tIoU >= `min_tiou` (> 0) without comparing every span with every other.

    With the truth sorted by start, a prediction of length n can reach the threshold t only on
    true spans that start between n(1/t - 1) before and n(1 - t) after its own start.
    """
    # Lay the groups one behind the other on a single axis, so that one search serves them all.
    # The space between them is wide enough that no search range reaches into another group.
    longest = int(max(truth.stop.max(initial=0), predicted.stop.max(initial=0))) + 1
    stride = int(longest * (1 + 1 / min_tiou)) + 2
    order = np.argsort(truth.group * stride + truth.start, kind="stable")
    true_starts = (truth.group * stride + truth.start)[order]
    starts = predicted.group * stride + predicted.start
    length = predicted.stop - predicted.start
    # Rounding outwards loses no candidate; the tIoU decides below.
    before = np.ceil(length * (1 / min_tiou - 1)).astype(np.int64) + 1
    after = np.ceil(length * (1 - min_tiou)).astype(np.int64) + 1
    low = np.searchsorted(true_starts, starts - before)
    high = np.searchsorted(true_starts, starts + after)
    blocks = [
        _pairs_of_block(truth, predicted, order, low, high, block, min_tiou)
        for block in _blocks(high - low)
    ]
    return Pairs(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))


def _blocks(counts: NDArray[np.int64]) -> list[slice]:
    """Divide the predictions into blocks with a bounded number of candidate pairs."""
    total = np.cumsum(counts)
    pieces = int(total[-1]) // _MAX_PAIRS_AT_ONCE + 1 if total.size else 1
    borders = np.searchsorted(total, np.arange(1, pieces) * _MAX_PAIRS_AT_ONCE)
    edges = [0, *borders.tolist(), counts.size]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _pairs_of_block(
    truth: Spans,
    predicted: Spans,
    order: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    block: slice,
    min_tiou: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Pairs of the predictions in `block`, whose candidates are true spans order[low:high]."""
    counts = (high - low)[block]
    p = np.repeat(np.arange(block.start, block.stop), counts)
    # 0, 1, 2, … within each prediction's range of candidates, moved to where the range starts
    within = np.arange(p.size) - np.repeat(np.cumsum(counts) - counts, counts)
    t = order[np.repeat(low[block], counts) + within]
    overlap = np.minimum(truth.stop[t], predicted.stop[p]) - np.maximum(
        truth.start[t], predicted.start[p]
    )
    lengths = (truth.stop - truth.start)[t] + (predicted.stop - predicted.start)[p]
    tiou = np.maximum(overlap, 0) / (lengths - overlap)
    keep = (tiou >= min_tiou) & (truth.group[t] == predicted.group[p])
    p, t, tiou = p[keep], t[keep], tiou[keep]
    by_prediction = np.lexsort((t, p))
    return p[by_prediction], t[by_prediction], tiou[by_prediction]


def match_in_file_order(pairs: Pairs, threshold: float) -> dict[int, int]:
    """Match predictions to true spans. Each takes the first free one, not the best one."""
    keep = pairs.tiou >= threshold
    matches: dict[int, int] = {}
    taken: set[int] = set()
    for p, t in zip(pairs.predicted[keep].tolist(), pairs.true[keep].tolist(), strict=True):
        if p not in matches and t not in taken:
            matches[p] = t
            taken.add(t)
    return matches


# ---- Score


@dataclass(frozen=True)
class TemporalScore:
    """Average precision of every study and label at one tIoU threshold."""

    threshold: float
    ap: NDArray[np.float64]  # (studies, 17)
    present: NDArray[np.bool_]  # (studies, 17): whether the truth has the label

    @property
    def studies(self) -> NDArray[np.float64]:
        """(studies,) official mAP of each: the mean over all 17 labels."""
        return self.ap.mean(axis=1)

    @property
    def present_studies(self) -> NDArray[np.float64]:
        """(studies,) mean over the labels that the study's truth has; NaN where it has none."""
        return self._mean_where_present(axis=1)

    @property
    def labels(self) -> NDArray[np.float64]:
        """(17,) mean over all studies."""
        return self.ap.mean(axis=0)

    @property
    def present_labels(self) -> NDArray[np.float64]:
        """(17,) mean over the studies whose truth has the label; NaN where none has."""
        return self._mean_where_present(axis=0)

    def _mean_where_present(self, axis: int) -> NDArray[np.float64]:
        count = self.present.sum(axis=axis)
        total = np.where(self.present, self.ap, 0.0).sum(axis=axis)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    @property
    def map(self) -> float:
        """The official number: the mean over the truth's studies."""
        return float(self.studies.mean())

    @property
    def present_map(self) -> float:
        """The mean over studies of `present_studies`; NaN when no study has a label."""
        values = self.present_studies[~np.isnan(self.present_studies)]
        return float(values.mean()) if values.size else float("nan")


def temporal_scores(
    truth: Spans, predicted: Spans, studies: int, thresholds: Sequence[float] = THRESHOLDS
) -> list[TemporalScore]:
    """Score the predictions of `studies` studies against their truth, once per threshold."""
    _require_scorable(truth, predicted, studies, thresholds)
    pairs = overlapping_pairs(truth, predicted, min(thresholds))
    return [
        _score(truth, predicted, studies, threshold, match_in_file_order(pairs, threshold))
        for threshold in thresholds
    ]


def _require_scorable(
    truth: Spans, predicted: Spans, studies: int, thresholds: Sequence[float]
) -> None:
    if not thresholds or not all(0 < threshold <= 1 for threshold in thresholds):
        raise EnteronError(
            f"tIoU thresholds {tuple(thresholds)} cannot be used",
            "did you supply percent? give fractions above 0 and up to 1",
        )
    for side, spans in (("truth", truth), ("prediction", predicted)):
        if len(spans) and (last := int(spans.study.max())) >= studies:
            raise EnteronError(
                f"the {side} has spans of study number {last}, but {studies} studies are scored",
                "did you flatten more studies on one side? number them from 0, the same on both",
            )


def _score(
    truth: Spans, predicted: Spans, studies: int, threshold: float, matches: dict[int, int]
) -> TemporalScore:
    groups = studies * len(LABELS)
    correct = np.zeros(len(predicted), dtype=bool)
    correct[list(matches)] = True
    # Bring each group's predictions together without losing their file order.
    order = np.argsort(predicted.group, kind="stable")
    group, correct = predicted.group[order], correct[order]
    group_start = np.searchsorted(group, group)  # position at which each prediction's group starts
    hits = np.cumsum(correct)
    hits_before_group = (hits - correct)[group_start] if correct.size else hits
    rank = np.arange(correct.size) - group_start + 1
    precision = (hits - hits_before_group) / rank
    # Recall grows by one true span at every hit, so the sum runs over the hits only.
    precision_sum = np.bincount(group[correct], weights=precision[correct], minlength=groups)
    true_count = np.bincount(truth.group, minlength=groups)
    # A label that the truth does not have scores 1 when nothing is predicted for it, else 0.
    not_predicted = np.bincount(predicted.group, minlength=groups) == 0
    ap = np.where(
        true_count > 0, precision_sum / np.maximum(true_count, 1), not_predicted.astype(np.float64)
    )
    shape = (studies, len(LABELS))
    return TemporalScore(threshold, ap.reshape(shape), (true_count > 0).reshape(shape))

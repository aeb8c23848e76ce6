"""The official score of RARE-VISION: temporal mAP, exactly as the challenge computes it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment

_PAIRS_AT_ONCE = 4_000_000  # bounds the memory of a comparison, whatever is compared


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
    """One span per label of each segment, studies numbered in the order given."""
    columns = {label: COLUMN[label] for label in LABELS}
    rows = [
        (study * len(LABELS) + columns[label], segment.start, segment.stop)
        for study, segments in enumerate(segments_by_study)
        for segment in segments
        for label in segment.labels
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Spans(*np.ascontiguousarray(table.T))


def merge_touching(spans: Spans) -> Spans:
    """Join spans of a group that touch or overlap. A joined span ranks where its first part did."""
    if not len(spans):
        return spans
    order = np.lexsort((spans.start, spans.group))
    group, start, stop = spans.group[order], spans.start[order], spans.stop[order]
    # The furthest stop so far within the group; groups are kept apart by an offset.
    offset = (np.cumsum(np.diff(group, prepend=group[0]) != 0)) * (int(stop.max()) + 1)
    reach = np.maximum.accumulate(stop + offset) - offset
    fresh = np.ones(len(spans), dtype=bool)
    fresh[1:] = (group[1:] != group[:-1]) | (start[1:] > reach[:-1])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(spans)) - 1
    rank = np.minimum.reduceat(order, first)
    by_rank = np.argsort(rank)
    merged = Spans(group[first], start[first], reach[last])
    return Spans(merged.group[by_rank], merged.start[by_rank], merged.stop[by_rank])


def merge_per_label(annotation: Annotation) -> Annotation:
    """The same study with every label's touching segments joined into whole events."""
    spans = merge_touching(flatten([annotation.segments]))
    segments = tuple(
        Segment(int(start), int(stop), (LABELS[column],))
        for column, start, stop in zip(spans.column, spans.start, spans.stop, strict=True)
    )
    return Annotation(annotation.study, annotation.unit, segments)


@dataclass(frozen=True)
class Pairs:
    """Predicted and true spans of the same group that overlap, by prediction, then by truth."""

    predicted: NDArray[np.int64]  # position in the predictions
    true: NDArray[np.int64]  # position in the truth
    overlap: NDArray[np.float64]  # tIoU


def overlapping(truth: Spans, predicted: Spans, at_least: float) -> Pairs:
    """All pairs with tIoU >= `at_least` (> 0), found without comparing everything with everything.

    With the truth sorted by start, a prediction of length n can reach the bound t only on truth
    spans that start between n(1/t - 1) before and n(1 - t) after its own start.
    """
    # Groups are laid out one behind the other on a single axis, so one search serves them all.
    # The space between them is wide enough that no search range reaches into another group.
    longest = int(max(truth.stop.max(initial=0), predicted.stop.max(initial=0))) + 1
    stride = int(longest * (1 + 1 / at_least)) + 2
    order = np.argsort(truth.group * stride + truth.start, kind="stable")
    starts = (truth.group * stride + truth.start)[order]
    at = predicted.group * stride + predicted.start
    length = predicted.stop - predicted.start
    # Rounding outwards keeps candidates that a rounding inwards could lose; tIoU decides below.
    low = np.searchsorted(starts, at - np.ceil(length * (1 / at_least - 1)).astype(np.int64) - 1)
    high = np.searchsorted(starts, at + np.ceil(length * (1 - at_least)).astype(np.int64) + 1)
    found = [
        _compare(truth, predicted, order, low, high, block, at_least)
        for block in _blocks(high - low)
    ]
    joined = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Pairs(*joined)


def _blocks(counts: NDArray[np.int64]) -> list[slice]:
    """Cut the predictions into runs of a bounded number of candidate pairs."""
    total = np.cumsum(counts)
    pieces = int(total[-1]) // _PAIRS_AT_ONCE + 1 if total.size else 1
    marks = np.searchsorted(total, np.arange(1, pieces) * _PAIRS_AT_ONCE)
    edges = [0, *marks.tolist(), counts.size]
    return [slice(a, b) for a, b in pairwise(edges)]


def _compare(
    truth: Spans,
    predicted: Spans,
    order: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    block: slice,
    at_least: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    counts = (high - low)[block]
    p = np.repeat(np.arange(block.start, block.stop), counts)
    # 0, 1, 2, … within each prediction's range of candidates, moved to where the range begins
    within = np.arange(p.size) - np.repeat(np.cumsum(counts) - counts, counts)
    t = order[np.repeat(low[block], counts) + within]
    shared = np.minimum(truth.stop[t], predicted.stop[p]) - np.maximum(
        truth.start[t], predicted.start[p]
    )
    both = (truth.stop - truth.start)[t] + (predicted.stop - predicted.start)[p]
    tiou = np.maximum(shared, 0) / (both - shared)
    keep = (tiou >= at_least) & (truth.group[t] == predicted.group[p])
    p, t, tiou = p[keep], t[keep], tiou[keep]
    by_truth = np.lexsort((t, p))
    return p[by_truth], t[by_truth], tiou[by_truth]


THRESHOLDS = (0.5, 0.95)


@dataclass(frozen=True)
class TemporalScore:
    """Average precision of every study and label at one tIoU threshold."""

    threshold: float
    ap: NDArray[np.float64]  # (studies, 17)
    present: NDArray[np.bool_]  # (studies, 17): the truth has the label

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
    """Score predictions against the truth of `studies` studies, at several thresholds."""
    pairs = overlapping(truth, predicted, min(thresholds))
    return [
        _score(truth, predicted, studies, threshold, match_in_file_order(pairs, threshold))
        for threshold in thresholds
    ]


def match_in_file_order(pairs: Pairs, threshold: float) -> dict[int, int]:
    """Prediction -> truth. Each prediction takes the first free truth span, not the best one."""
    keep = pairs.overlap >= threshold
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for p, t in zip(pairs.predicted[keep].tolist(), pairs.true[keep].tolist(), strict=True):
        if p not in matched and t not in taken:
            matched[p] = t
            taken.add(t)
    return matched


def _score(
    truth: Spans, predicted: Spans, studies: int, threshold: float, matched: dict[int, int]
) -> TemporalScore:
    groups = studies * len(LABELS)
    hit = np.zeros(len(predicted), dtype=bool)
    hit[list(matched)] = True
    # Bring each group's predictions together without losing their file order.
    order = np.argsort(predicted.group, kind="stable")
    group, hit = predicted.group[order], hit[order]
    begin = np.searchsorted(group, group)  # where each prediction's group begins
    hits = np.cumsum(hit)
    hits_before_group = (hits - hit)[begin] if hit.size else hits
    rank = np.arange(hit.size) - begin + 1
    precision = (hits - hits_before_group) / rank
    # Recall grows by one truth span at every hit, so the sum needs the hits only.
    summed = np.bincount(group[hit], weights=precision[hit], minlength=groups)
    truths = np.bincount(truth.group, minlength=groups)
    silent = np.bincount(predicted.group, minlength=groups) == 0
    ap = np.where(truths > 0, summed / np.maximum(truths, 1), silent.astype(np.float64))
    shape = (studies, len(LABELS))
    return TemporalScore(threshold, ap.reshape(shape), (truths > 0).reshape(shape))

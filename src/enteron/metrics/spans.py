"""Events of many studies as flat arrays, so that they can be matched all at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment, U

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


def merge_per_label(annotation: Annotation[U]) -> Annotation[U]:
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

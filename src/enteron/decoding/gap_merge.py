"""The gap merge of the prior submission (v3.1, decision 32): every label on its own, no anatomy.

Scores become yes or no by the label's threshold; a median removes short changes, short runs are
dropped, and short gaps closed. The official file is then cut wherever the label set changes, in
time order: the fragmentation that the paper's state machine replaced.
"""

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Thresholds
from enteron.decoding.events import DecodedRun
from enteron.decoding.options import GapMergeOptions
from enteron.labels import LABELS
from enteron.runs import Runs, means, runs_of


def gap_merge_runs(
    p: NDArray[np.float32], thresholds: Thresholds, options: GapMergeOptions
) -> list[DecodedRun]:
    """Runs of every label in (rows, 17) probabilities, each scored by its mean probability.

    A label without a threshold is never emitted (decision 21).
    """
    runs: list[DecodedRun] = []
    for column, label in enumerate(LABELS):
        threshold = thresholds[label]
        if threshold is None:
            continue
        values = np.ascontiguousarray(p[:, column])
        spans = merged_spans(values >= p.dtype.type(threshold), options)
        runs += [
            DecodedRun(label, start, stop, float(mean))
            for (start, stop), mean in zip(spans.tolist(), means(values, spans), strict=True)
        ]
    return runs


def merged_spans(active: NDArray[np.bool_], options: GapMergeOptions) -> Runs:
    """Median, then the shortest run, then the gap: in the order of v3.1."""
    spans = runs_of(_majority(active, options.window))
    spans = spans[spans[:, 1] - spans[:, 0] >= options.shortest]
    if not len(spans):
        return spans
    begins = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > options.gap))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(spans)) - 1
    return np.column_stack([spans[first, 0], spans[last, 1]])


def _majority(active: NDArray[np.bool_], window: int) -> NDArray[np.bool_]:
    """The median of truth values: what more than half of the window around a row says.

    Beyond its ends the study is mirrored, the last row included, as scipy's median does unless it
    is told otherwise, and so v3.1. The paper's decoder holds the edges (decision 22).
    """
    half = window // 2
    mirrored = np.pad(active, half, mode="symmetric")
    total = np.concatenate(([0], np.cumsum(mirrored, dtype=np.int64)))
    return 2 * (total[window:] - total[:-window]) > window

"""Scores of single frames: AP, AUC, F1, precision, recall and support of every label."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.labels import LABELS

Convention = Literal["zero", "left out"]
"""Labels without positives count as 0 in a macro mean (as in the paper), or are left out of it."""


@dataclass(frozen=True)
class FrameMetrics:
    """(17,) arrays; NaN where a figure is not defined, as AP is without a positive frame."""

    ap: NDArray[np.float64]
    auc: NDArray[np.float64]
    f1: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    support: NDArray[np.int64]

    def macro(self, name: str, convention: Convention) -> float:
        """Mean of one figure over the labels; NaN when nothing is left to average."""
        values: NDArray[np.float64] = getattr(self, name)
        if convention == "zero":
            return float(np.nan_to_num(values).mean())
        values = values[self.support > 0]
        return float(np.nan_to_num(values).mean()) if values.size else float("nan")


def frame_metrics(
    truth: NDArray[np.bool_],
    scores: NDArray[np.floating],
    thresholds: float | NDArray[np.floating] = 0.5,
) -> FrameMetrics:
    """Compare (frames, 17) scores with labels; a label counts as found where score >= threshold.

    The two curves' areas follow scikit-learn: AP without interpolation, ties taken together.
    """
    if truth.shape != scores.shape or truth.ndim != 2 or truth.shape[1] != len(LABELS):
        raise EnteronError(
            f"labels of shape {truth.shape} do not fit scores of shape {scores.shape}",
            "give both as (frames, 17)",
        )
    if not np.isfinite(scores).all():
        raise EnteronError(
            f"{int((~np.isfinite(scores)).sum())} scores are NaN or infinite",
            "find out what went wrong where they were made",
        )
    support = truth.sum(axis=0)
    found = scores >= np.asarray(thresholds)
    hits = (found & truth).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = hits / found.sum(axis=0)
        recall = hits / support
        f1 = 2 * hits / (found.sum(axis=0) + support)
    curves = [_areas(truth[:, c], scores[:, c]) for c in range(len(LABELS))]
    ap, auc = (np.array(areas, dtype=np.float64) for areas in zip(*curves, strict=True))
    return FrameMetrics(ap, auc, f1, precision, recall, support)


def _areas(truth: NDArray[np.bool_], score: NDArray[np.floating]) -> tuple[float, float]:
    """Average precision and area under the ROC curve of one label."""
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0:
        return float("nan"), float("nan")
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last_of_tie = np.append(np.flatnonzero(np.diff(ranked)), truth.size - 1)
    hits = np.cumsum(truth[order])[last_of_tie]
    misses = last_of_tie + 1 - hits
    ap = float((np.diff(hits, prepend=0) / positives * hits / (last_of_tie + 1)).sum())
    if negatives == 0:
        return ap, float("nan")
    # Trapezoids over (misses, hits): a tie of positives and negatives counts one half.
    heights = hits + np.concatenate(([0], hits[:-1]))
    auc = float((np.diff(misses, prepend=0) * heights).sum() / (2.0 * positives * negatives))
    return ap, auc

"""Metrics of single frames: AP, AUC, F1, precision, recall and support of every label.

Areas under curves follow scikit-learn: AP without interpolation, tied scores taken together.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.labels import LABELS
from enteron.types import FrameLabels

Convention = Literal["zero", "left out"]
"""Labels without positive frames count as 0 in a macro mean (as in the paper), or are left out."""


@dataclass(frozen=True)
class FrameMetrics:
    """(17,) arrays; NaN where a metric is not defined, such as AP without a positive frame."""

    ap: NDArray[np.float64]
    auc: NDArray[np.float64]
    f1: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    support: NDArray[np.int64]  # positive frames
    unknown: NDArray[np.int64]  # frames that say nothing about the label; they do not count

    def macro(self, name: str, convention: Convention) -> float:
        """Mean of one metric over the labels; NaN when no label is left to average."""
        values: NDArray[np.float64] = getattr(self, name)
        if convention == "zero":
            return float(np.nan_to_num(values).mean())
        values = values[self.support > 0]
        return float(np.nan_to_num(values).mean()) if values.size else float("nan")


def frame_metrics(
    truth: FrameLabels | NDArray[np.bool_],
    scores: NDArray[np.floating],
    thresholds: float | NDArray[np.floating] = 0.5,
) -> FrameMetrics:
    """Compare (frames, 17) scores with labels; a label is predicted where score >= threshold.

    Of an array of truth values every label is known.
    """
    _require_comparable(truth.present if isinstance(truth, FrameLabels) else truth, scores)
    labels = FrameLabels.of(truth)
    support = labels.present_counts
    predicted = (scores >= np.asarray(thresholds)) & labels.known
    predicted_count = predicted.sum(axis=0)
    correct = (predicted & labels.present).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = correct / predicted_count
        recall = correct / support
        f1 = 2 * correct / (predicted_count + support)
    by_label = [
        areas(labels.present[known, column], scores[known, column])
        for column, known in enumerate(labels.known.T)
    ]
    ap, auc = np.array(by_label, dtype=np.float64).T
    unknown = len(labels) - labels.known_counts
    return FrameMetrics(ap, auc, f1, precision, recall, support, unknown)


def _require_comparable(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> None:
    if truth.shape != scores.shape or truth.ndim != 2 or truth.shape[1] != len(LABELS):
        transposed = truth.T.shape == scores.shape or truth.shape[:1] == (len(LABELS),)
        raise EnteronError(
            f"labels of shape {truth.shape} do not fit scores of shape {scores.shape}",
            ("did you supply (labels, frames)? " if transposed else "")
            + f"give both as (frames, {len(LABELS)})",
        )
    if not np.isfinite(scores).all():
        raise EnteronError(
            f"{int((~np.isfinite(scores)).sum())} scores are NaN or infinite",
            "did you include frames that could not be read? leave them out, or check the model",
        )


def sensitivity_at(
    truth: NDArray[np.bool_], score: NDArray[np.floating], specificity: float
) -> float:
    """The largest sensitivity of any threshold that keeps the specificity; NaN if undefined.

    Thresholds are the scores themselves, without interpolation between them.
    """
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    true_positives, false_positives = _cumulative_counts(truth, score)
    allowed = false_positives <= allowed_share(specificity) * negatives
    return float(true_positives[allowed].max(initial=0) / positives)


def allowed_share(specificity: float) -> float:
    """The share of negatives that may reach the threshold; safe against rounding of 1 - 0.9."""
    return 1 - specificity + 1e-9


def _cumulative_counts(
    truth: NDArray[np.bool_], score: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """True and false positives at each distinct score taken as threshold, from the highest down."""
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(score[order])), truth.size - 1)
    true_positives = np.cumsum(truth[order], dtype=np.int64)[last_of_tie]
    return true_positives, last_of_tie + 1 - true_positives


def areas(truth: NDArray[np.bool_], score: NDArray[np.floating]) -> tuple[float, float]:
    """Average precision and area under the ROC curve of one label; NaN where undefined."""
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0:
        return float("nan"), float("nan")
    true_positives, false_positives = _cumulative_counts(truth, score)
    recall_steps = np.diff(true_positives, prepend=0) / positives
    ap = float((recall_steps * true_positives / (true_positives + false_positives)).sum())
    if negatives == 0:
        return ap, float("nan")
    # Trapezoids over (false, true positives): a tie of positives and negatives counts one half.
    heights = true_positives + np.concatenate(([0], true_positives[:-1]))
    area = (np.diff(false_positives, prepend=0) * heights).sum()
    return ap, float(area / (2.0 * positives * negatives))

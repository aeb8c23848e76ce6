"""Metrics of single frames: AP, AUC, F1, precision, recall and support of every label.

Areas under curves follow scikit-learn: AP without interpolation, tied scores taken together.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.labels import LABELS

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

    def macro(self, name: str, convention: Convention) -> float:
        """Mean of one metric over the labels; NaN when no label is left to average."""
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
    """Compare (frames, 17) scores with labels; a label is predicted where score >= threshold."""
    _require_comparable(truth, scores)
    support = truth.sum(axis=0)
    predicted = scores >= np.asarray(thresholds)
    predicted_count = predicted.sum(axis=0)
    correct = (predicted & truth).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = correct / predicted_count
        recall = correct / support
        f1 = 2 * correct / (predicted_count + support)
    areas = [_areas(truth[:, column], scores[:, column]) for column in range(len(LABELS))]
    ap, auc = np.array(areas, dtype=np.float64).T
    return FrameMetrics(ap, auc, f1, precision, recall, support)


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


def _areas(truth: NDArray[np.bool_], score: NDArray[np.floating]) -> tuple[float, float]:
    """Average precision and area under the ROC curve of one label."""
    positives = int(truth.sum())
    negatives = truth.size - positives
    if positives == 0:
        return float("nan"), float("nan")
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(score[order])), truth.size - 1)
    true_positives = np.cumsum(truth[order])[last_of_tie]
    false_positives = last_of_tie + 1 - true_positives
    recall_steps = np.diff(true_positives, prepend=0) / positives
    ap = float((recall_steps * true_positives / (last_of_tie + 1)).sum())
    if negatives == 0:
        return ap, float("nan")
    # Trapezoids over (false, true positives): a tie of positives and negatives counts one half.
    heights = true_positives + np.concatenate(([0], true_positives[:-1]))
    area = (np.diff(false_positives, prepend=0) * heights).sum()
    return ap, float(area / (2.0 * positives * negatives))

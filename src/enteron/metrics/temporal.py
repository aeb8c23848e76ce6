"""The official score of RARE-VISION: temporal mAP, exactly as the challenge computes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import LABELS
from enteron.metrics.spans import Pairs, Spans, overlapping

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

"""How good scores of frames are: what epochs are compared by."""

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.metrics.frame import FrameMetrics, frame_metrics
from enteron.training.history import Figures

_FINDINGS = [COLUMN[label] for label in FINDINGS]


def judge(truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> Figures:
    """The figures of the epoch table, from (n, 17) truth and scores."""
    found = frame_metrics(truth, scores)
    return Figures(
        macro_ap=found.macro("ap", "zero"),
        macro_ap_present=found.macro("ap", "left out"),
        macro_f1=found.macro("f1", "zero"),
        findings_ap=findings_ap(found),
        region_accuracy=region_accuracy(truth, scores),
    )


def findings_ap(found: FrameMetrics) -> float:
    """Mean AP of the findings that have positives; 0 when there are none."""
    present = [column for column in _FINDINGS if found.support[column] > 0]
    return float(found.ap[present].mean()) if present else 0.0


def region_accuracy(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Share of the frames whose most probable region is a true one."""
    said = scores[:, : len(REGIONS)].argmax(axis=1)
    return float(truth[np.arange(len(truth)), said].mean())

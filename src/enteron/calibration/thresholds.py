"""One threshold per label, by F1 of frames."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.labelled import Labelled
from enteron.calibration.logits import calibrated
from enteron.calibration.value import LANDMARK_FLOOR, FrameCalibration
from enteron.labels import LABELS, LANDMARKS

GRID: Final = np.round(np.arange(0.01, 0.951, 0.01), 2)
"""The paper searches [0.01, 0.95]."""


def fit_thresholds(
    studies: Sequence[Labelled], calibration: FrameCalibration
) -> dict[str, float | None]:
    """Each label's threshold with the best F1 on calibrated scores (decision 21).

    Landmarks are not let below 0.55. None for a label without positives: never emitted.
    """
    # (17, 2, grid + 1): rows below the first threshold, between two, and at or above the last
    counts = np.zeros((len(LABELS), 2, GRID.size + 1), dtype=np.int64)
    edges = GRID.astype(np.float32)
    for study in studies:
        p = calibrated(study.scores, calibration, _device(study, calibration))
        for column in range(len(LABELS)):
            place = _place(np.ascontiguousarray(p[:, column]), edges)
            both = place + (GRID.size + 1) * study.truth[:, column]
            size = 2 * (GRID.size + 1)
            counts[column] += np.bincount(both, minlength=size).reshape(2, GRID.size + 1)
    first = np.arange(1, GRID.size + 1)
    found: dict[str, float | None] = {}
    for column, label in enumerate(LABELS):
        if not counts[column, 1].any():
            found[label] = None
            continue
        f1 = f1_of_counts(counts[column], first)
        if label in LANDMARKS:
            f1 = np.where(GRID >= LANDMARK_FLOOR, f1, -1.0)
        found[label] = float(GRID[int(f1.argmax())])
    return found


def _place(p: NDArray[np.float32], edges: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many thresholds each score reaches. The grid is even, so a product nearly says it."""
    place = np.clip((p * np.float32(100)).astype(np.int64), 0, GRID.size)
    place -= (place > 0) & (p < edges[np.maximum(place, 1) - 1])
    place += (place < GRID.size) & (p >= edges[np.minimum(place, GRID.size - 1)])
    return place


def f1_of_counts(counts: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1 when bins from `first` on count as found; counts are (2, bins), negatives first."""
    above = np.concatenate(
        [np.cumsum(counts[:, ::-1], axis=1)[:, ::-1], np.zeros((2, 1), dtype=np.int64)], axis=1
    )
    wrong, right = above[0, first], above[1, first]
    return 2 * right / np.maximum(wrong + right + counts[1].sum(), 1)


def _device(study: Labelled, calibration: FrameCalibration) -> str | None:
    return study.device if study.device in calibration.devices else None

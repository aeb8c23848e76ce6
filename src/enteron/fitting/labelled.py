"""Scores beside the true labels of the same rows: what calibrations are fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.errors import LabelError
from enteron.labels import COLUMN
from enteron.types import Annotation, Scores


@dataclass(frozen=True)
class LabelledStudy:
    """One study for fitting."""

    scores: Scores
    truth: NDArray[np.bool_]  # (rows, 17)

    def __post_init__(self) -> None:
        if self.truth.shape != self.scores.values.shape:
            raise LabelError(
                f"study {self.scores.study}: truth of shape {self.truth.shape} does not fit scores "
                f"of shape {self.scores.values.shape}",
                "give both for the same rows",
            )


def require_studies(studies: Sequence[LabelledStudy]) -> None:
    """Refuse to fit on nothing."""
    if not studies:
        raise LabelError("there are no studies to calibrate on", "give at least one")


def label_rows(scores: Scores, truth: Annotation) -> NDArray[np.bool_]:
    """(rows, 17): which labels the truth's segments give to each scored frame."""
    values = np.zeros(scores.values.shape, dtype=np.bool_)
    for segment in truth.segments:
        first, last = np.searchsorted(scores.axis.frames, (segment.start, segment.stop))
        for label in segment.labels:
            values[first:last, COLUMN[label]] = True
    return values

"""What a trained model reaches on validation studies: the paper's tables, and what lies behind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.fit import fit_calibration
from enteron.calibration.labelled import Labelled
from enteron.calibration.logits import calibrated
from enteron.calibration.value import Calibration
from enteron.labels import LABELS, REGIONS
from enteron.metrics.frame import FrameMetrics, frame_metrics
from enteron.training.samples import Samples
from enteron.training.validation import Validation
from enteron.types import FrameAxis, Scores

_NEVER = 2.0  # a threshold that no probability reaches


@dataclass(frozen=True)
class Judgement:
    """Of the best epoch's averaged weights."""

    metrics: FrameMetrics  # calibrated, at each label's own threshold (the paper's Table 2)
    calibration: Calibration
    confusion: NDArray[np.int64]  # (5, 5) frames by true region and most probable region


def judgement(samples: Samples, validation: Validation) -> Judgement:
    """Calibrate on the validation studies, as the paper does, and compare with their labels."""
    studies = _studies(samples, validation)
    calibration = fit_calibration(studies)
    scores = np.concatenate([calibrated(study.scores, calibration.paper) for study in studies])
    truth = np.concatenate([study.truth for study in studies])
    chosen = (calibration.paper.thresholds[label] for label in LABELS)
    thresholds = np.array([_NEVER if t is None else t for t in chosen], dtype=np.float32)
    return Judgement(
        frame_metrics(truth, scores, thresholds), calibration, confusion(truth, scores)
    )


def confusion(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """(5, 5) frames by true region (rows) and most probable region; frames with one region."""
    count = len(REGIONS)
    clear = truth[:, :count].sum(axis=1) == 1
    true = truth[clear, :count].argmax(axis=1)
    said = scores[clear, :count].argmax(axis=1)
    return np.bincount(true * count + said, minlength=count**2).reshape(count, count)


def _studies(samples: Samples, validation: Validation) -> list[Labelled]:
    """The validation as scores of studies."""
    made: list[Labelled] = []
    place = samples.study[validation.samples]
    for number in np.unique(place):
        mine = place == number
        study = samples.studies[number]
        frames = study.stored[samples.row[validation.samples[mine]]]
        scores = Scores(study.study, FrameAxis(frames), validation.scores[mine])
        made.append(Labelled(scores, validation.truth[mine]))
    return made

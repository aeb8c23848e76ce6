"""Results on validation frames: scores, metrics per epoch, and metrics at calibrated thresholds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.calibration import Calibration, calibrated
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.frames import FrameMetrics, frame_metrics
from enteron.options import Options
from enteron.training.sampling import Samples
from enteron.types import FrameAxis, FrameLabels, Scores

_FINDING_COLUMNS = [COLUMN[label] for label in FINDINGS]
_NEVER = 2.0  # a threshold that no probability reaches


class ValidationMetrics(Options):
    """Metrics of uncalibrated scores on validation frames."""

    macro_ap: float
    """Mean AP of the 17 labels, 0 for those without positives, as in the paper."""
    macro_ap_present: float
    """Mean AP of the labels that have positives."""
    macro_f1: float
    """Mean F1 of the 17 labels at a threshold of one half, 0 for those without positives."""
    findings_ap: float
    """Mean AP of the findings that have positives; 0 if there are none."""
    region_accuracy: float | None
    """Share of the frames whose most probable region is a true one; None if no frame's is known."""


class EpochRecord(Options):
    """One row of the epoch table."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean of the objective over the epoch's batches."""
    val_loss: float
    """The objective on validation frames with averaged weights, without label smoothing."""
    val_classification: float | None = None
    """The classification loss alone on the same frames: what the paper's Table 3 most likely
    has, since its validation losses lie far below its training losses. None in older histories."""
    figures: ValidationMetrics
    """Metrics of the averaged weights."""
    sources: dict[str, ValidationMetrics] = Field(default_factory=dict)
    """The same for the validation frames of each source, where there are several."""


class History(Options):
    """The epochs so far; stored as `history.json`."""

    epochs: tuple[EpochRecord, ...] = ()
    """In order."""

    @property
    def best(self) -> EpochRecord | None:
        """The first epoch with the largest macro AP (decision 31)."""
        return max(self.epochs, key=lambda record: record.figures.macro_ap, default=None)

    def should_stop(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought no improvement; never for None."""
        best = self.best
        if patience is None or best is None:
            return False
        return self.epochs[-1].epoch - best.epoch >= patience


@dataclass(frozen=True)
class Validation:
    """Scores and truth of the readable validation samples, in the order of the source."""

    samples: NDArray[np.int64]  # (n,)
    truth: FrameLabels  # of the n samples
    scores: NDArray[np.float32]  # (n, 17) uncalibrated probabilities
    loss: float  # the whole objective
    classification: float  # the classification loss alone


def validation_metrics(truth: FrameLabels, scores: NDArray[np.float32]) -> ValidationMetrics:
    """The metrics of the epoch table on (n, 17) scores; unknown labels do not count."""
    metrics = frame_metrics(truth, scores)
    return ValidationMetrics(
        macro_ap=metrics.macro("ap", "zero"),
        macro_ap_present=_or_zero(metrics.macro("ap", "left out")),
        macro_f1=metrics.macro("f1", "zero"),
        findings_ap=findings_ap(metrics),
        region_accuracy=region_accuracy(truth, scores),
    )


def _or_zero(value: float) -> float:
    """NaN as 0: a source may have validation frames and none that shows a label."""
    return 0.0 if np.isnan(value) else value


def findings_ap(metrics: FrameMetrics) -> float:
    """Mean AP of the findings that have positives; 0 if there are none."""
    present = [column for column in _FINDING_COLUMNS if metrics.support[column] > 0]
    return float(metrics.ap[present].mean()) if present else 0.0


def region_accuracy(truth: FrameLabels, scores: NDArray[np.floating]) -> float | None:
    """Share of the frames whose most probable region is a true one; None without such frames.

    Frames count whose region is known: one is present, or all are known.
    """
    count = len(REGIONS)
    present, known = truth.present[:, :count], truth.known[:, :count]
    rows = np.flatnonzero(present.any(axis=1) | known.all(axis=1))
    if rows.size == 0:
        return None
    predicted = scores[rows, :count].argmax(axis=1)
    return float(present[rows, predicted].mean())


@dataclass(frozen=True)
class CalibratedResults:
    """Validation results of the best epoch at calibrated thresholds."""

    metrics: FrameMetrics  # at each label's threshold by the paper's rule (the paper's Table 2)
    calibration: Calibration
    confusion: NDArray[np.int64]  # (5, 5) frames by true region and most probable region


def calibrated_results(samples: Samples, validation: Validation) -> CalibratedResults:
    """Calibrate on the validation frames and evaluate on the same frames, as the paper does.

    The per-label table of the training page needs thresholds, and its reliability diagram needs
    calibrated scores; this calibration exists for the page only and is not stored. The one that
    decoding uses is fitted by `enteron calibrate` on complete studies.
    """
    studies = _labelled_studies(samples, validation)
    calibration = fit_calibration(studies)
    scores = np.concatenate([calibrated(study.scores, calibration.paper) for study in studies])
    truth = FrameLabels.concatenate([study.labels for study in studies])
    fitted = (calibration.paper.thresholds[label] for label in LABELS)
    thresholds = np.array([_NEVER if t is None else t for t in fitted], dtype=np.float32)
    return CalibratedResults(
        frame_metrics(truth, scores, thresholds), calibration, region_confusion(truth, scores)
    )


def _labelled_studies(samples: Samples, validation: Validation) -> list[LabelledStudy]:
    """Validation scores and truth, study by study."""
    studies: list[LabelledStudy] = []
    study_index = samples.study_index[validation.samples]
    for index in np.unique(study_index):
        in_study = study_index == index
        study = samples.studies[index]
        frames = study.stored[samples.rows[validation.samples[in_study]]]
        scores = Scores(study.study, FrameAxis(frames), validation.scores[in_study])
        labels = validation.truth[in_study]
        studies.append(LabelledStudy(scores, labels.present, labels.known))
    return studies


def region_confusion(truth: FrameLabels, scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """(5, 5) frames by true region (rows) and most probable region (columns).

    Only frames with exactly one true region count.
    """
    count = len(REGIONS)
    present = truth.present[:, :count]
    single = present.sum(axis=1) == 1
    true = present[single].argmax(axis=1)
    predicted = scores[single, :count].argmax(axis=1)
    return np.bincount(true * count + predicted, minlength=count**2).reshape(count, count)

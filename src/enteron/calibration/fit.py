"""Calibration of frames on held-out studies."""

from collections.abc import Sequence

import numpy as np

from enteron.calibration.counts import count_log_odds
from enteron.calibration.labelled import Labelled, require_studies
from enteron.calibration.logits import calibrated
from enteron.calibration.reliability import reliability
from enteron.calibration.temperature import temperature_by_f1, temperature_by_likelihood
from enteron.calibration.thresholds import fit_thresholds
from enteron.calibration.value import Calibration, FrameCalibration
from enteron.labels import LABELS


def fit_calibration(studies: Sequence[Labelled], *, by_device: bool = False) -> Calibration:
    """Temperatures, biases and thresholds; what concerns events is fitted by `enteron.decode`."""
    require_studies(studies)
    counts = count_log_odds(studies)
    paper = FrameCalibration(temperature=temperature_by_f1(counts))
    temperature, bias = temperature_by_likelihood(counts)
    devices: dict[str, float] = {}
    if by_device:
        for device in sorted({study.device for study in studies if study.device is not None}):
            mine = [study for study in studies if study.device == device]
            devices[device] = temperature_by_likelihood(count_log_odds(mine))[0]
    likelihood = FrameCalibration(
        temperature=temperature,
        bias={label: float(b) for label, b in zip(LABELS, bias, strict=True)},
        devices=devices,
    )
    return Calibration(
        studies=len(studies),
        rows=sum(len(study.scores.axis) for study in studies),
        rates=_rates(studies),
        paper=_finished(paper, studies),
        likelihood=_finished(likelihood, studies),
    )


def _rates(studies: Sequence[Labelled]) -> dict[str, float]:
    shares = np.concatenate([study.truth for study in studies]).mean(axis=0)
    return {
        label: float(share)
        for label, share in zip(LABELS, shares, strict=True)
        if 0 < share < 1  # of a label that is never or always there nothing was learnt
    }


def _finished(calibration: FrameCalibration, studies: Sequence[Labelled]) -> FrameCalibration:
    """With thresholds and reliability."""
    return calibration.model_copy(
        update={
            "thresholds": fit_thresholds(studies, calibration),
            "before": reliability((study.scores.values, study.truth) for study in studies),
            "after": reliability(
                (calibrated(study.scores, calibration), study.truth) for study in studies
            ),
        }
    )

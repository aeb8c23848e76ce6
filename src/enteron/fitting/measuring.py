"""How well findings are told apart in real studies that a model has not seen."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration, FrameCalibration, Measured
from enteron.fitting.frames import LabelledStudy
from enteron.labels import COLUMN, FINDINGS

OWN_NEGATIVES: Final = 20
"""Frames without a finding that a study must have for its lesions to be compared with; otherwise
they are compared with those of all studies."""


def measure_studies(studies: Sequence[LabelledStudy], title: str) -> dict[str, Measured]:
    """AUC of each finding that two studies or more show, mean over these studies."""
    measured: dict[str, Measured] = {}
    for finding in FINDINGS:
        column = COLUMN[finding]
        absent = [s.scores.values[s.labels.absent[:, column], column] for s in studies]
        present = [s.scores.values[s.truth[:, column], column] for s in studies]
        everywhere = np.concatenate(absent) if absent else np.empty(0)
        aucs = [
            frame_auc(shown, own if own.size >= OWN_NEGATIVES else everywhere)
            for shown, own in zip(present, absent, strict=True)
            if shown.size and everywhere.size
        ]
        if len(aucs) >= 2:
            measured[finding] = Measured(auc=float(np.mean(aucs)), studies=len(aucs), data=title)
    return measured


def measure_frames(studies: Sequence[LabelledStudy], title: str) -> dict[str, Measured]:
    """AUC of each finding over all frames: for collections of pictures, whose studies are mixed."""
    measured: dict[str, Measured] = {}
    for finding in FINDINGS:
        column = COLUMN[finding]
        present = np.concatenate([s.scores.values[s.truth[:, column], column] for s in studies])
        absent = np.concatenate(
            [s.scores.values[s.labels.absent[:, column], column] for s in studies]
        )
        if present.size and absent.size:
            shown = sum(bool(s.truth[:, column].any()) for s in studies)
            auc = frame_auc(present, absent)
            measured[finding] = Measured(auc=auc, studies=shown, data=title)
    return measured


def frame_auc(present: NDArray[np.floating], absent: NDArray[np.floating]) -> float:
    """Share of pairs of frames in the right order; ties count one half."""
    order = np.sort(absent)
    below = np.searchsorted(order, present, side="left")
    up_to = np.searchsorted(order, present, side="right")
    return float((below + up_to).mean() / (2 * len(absent)))


def with_measured(calibration: Calibration, measured: Mapping[str, Measured]) -> Calibration:
    """The calibration that reports only findings which were measured and are told apart."""
    extended = calibration.model_copy(update={"measured": dict(measured)})
    off = set(extended.unproven)
    events = {
        finding: rule.model_copy(update={"threshold": None, "clinical": None})
        if finding in off
        else rule
        for finding, rule in extended.events.items()
    }
    frames = {name: _switched_off(getattr(extended, name), off) for name in ("paper", "likelihood")}
    context = extended.event_context
    if context is not None:
        reported = {
            name: {
                finding: x for finding, x in getattr(context, name).items() if finding not in off
            }
            for name in ("constants", "candidates")
        }
        context = context.model_copy(update=reported)
    return extended.model_copy(update={"events": events, "event_context": context, **frames})


def _switched_off(frames: FrameCalibration, off: set[str]) -> FrameCalibration:
    thresholds = {
        label: None if label in off else threshold for label, threshold in frames.thresholds.items()
    }
    return frames.model_copy(update={"thresholds": thresholds})


def without_lonely_findings(studies: Sequence[LabelledStudy]) -> list[LabelledStudy]:
    """Left-out studies, of which one that alone shows a finding says nothing where it shows it.

    Whoever scored it while it was left out had never seen the finding.
    """
    shows = np.array([study.truth.any(axis=0) for study in studies])
    lonely = shows.sum(axis=0) == 1
    changed: list[LabelledStudy] = []
    for study in studies:
        unseen = study.truth & lonely
        if study.known is None or not unseen.any():
            changed.append(study)
            continue
        changed.append(
            LabelledStudy(
                study.scores,
                study.truth & ~unseen,
                study.known & ~unseen,
                study.drawn,
                study.recording_frames,
            )
        )
    return changed

"""Cross-validation over studies: what is reported of a study was never fitted on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from enteron.calibration.labelled import Labelled
from enteron.calibration.value import Calibration
from enteron.decode import PRESETS, DecodeOptions, decode
from enteron.decode.challenge import to_annotation
from enteron.errors import LabelError
from enteron.priors import Priors
from enteron.tuning.fit import FitOptions, fit_decoder
from enteron.types import Annotation, FrameUnit, Unit


@dataclass(frozen=True)
class Fold:
    """One fold: what was fitted on the others, and the events of its own studies by preset."""

    studies: tuple[str, ...]
    fitted_on: tuple[str, ...]
    calibration: Calibration
    predictions: dict[str, list[Annotation[FrameUnit]]]


def cross_validate(
    studies: Sequence[Labelled], priors: Priors, folds: int, options: FitOptions
) -> Iterator[Fold]:
    """Fit on all folds but one, decode that one with every preset; fold by fold."""
    if not 2 <= folds <= len(studies):
        raise LabelError(
            f"{len(studies)} studies cannot be divided into {folds} folds",
            "give at least two studies, and from 2 to that many folds",
        )
    for fold in range(folds):
        mine = studies[fold::folds]
        others = [study for place, study in enumerate(studies) if place % folds != fold]
        calibration = fit_decoder(others, priors, options)
        predictions = {
            name: [_predicted(study, preset, priors, calibration) for study in mine]
            for name, preset in PRESETS.items()
        }
        yield Fold(_names(mine), _names(others), calibration, predictions)


def _predicted(
    study: Labelled, preset: DecodeOptions, priors: Priors, calibration: Calibration
) -> Annotation[FrameUnit]:
    events = decode(study.scores, preset, priors, calibration)
    return to_annotation(study.scores.study, Unit.FRAME, events, cut=preset.cut)


def _names(studies: Sequence[Labelled]) -> tuple[str, ...]:
    return tuple(study.scores.study for study in studies)

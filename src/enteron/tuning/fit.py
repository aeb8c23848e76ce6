"""Fitting everything that presets need, on held-out studies."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from enteron.calibration.fit import fit_calibration
from enteron.calibration.labelled import Labelled
from enteron.calibration.value import Calibration, EventRule
from enteron.config import Options
from enteron.decode.compose import Decoder
from enteron.decode.confidence import log_odds
from enteron.decode.presets import TRANSIT
from enteron.labels import COLUMN, FINDINGS
from enteron.metrics.evaluation import NOMINAL_RATE
from enteron.priors import Priors
from enteron.tuning.budget import within_budget
from enteron.tuning.curves import GRID, Column, Curve, curve, samples, summed
from enteron.tuning.logistic import fit_logistic
from enteron.tuning.silence import fit_silence
from enteron.tuning.transit import choose_kappa

UNSEEN: Final = EventRule(threshold=None, clinical=None, intercept=-6.0, slope=0.0)
"""Of a finding that no fitted study shows."""


USEFUL: Final = 0.2
"""`transit` emits a finding only at thresholds where one event in five is right."""


class FitOptions(Options):
    """What is fitted, and what is tried."""

    budget: float = 5.0  # false alarms per hour, all findings together
    rate: float = NOMINAL_RATE  # original frames per second
    kappas: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    lows: tuple[float, ...] = (0.5, 0.7, 0.9)
    folds: int = 3  # for what must be estimated on studies that were not fitted
    by_device: bool = False


def fit_decoder(
    studies: Sequence[Labelled], priors: Priors, options: FitOptions | None = None
) -> Calibration:
    """Calibration of frames, kappa, rules for findings, and the statistics of silence.

    Silence needs predictions for studies that the rules were not fitted on: they come from folds
    within `studies`. Temperature, biases, kappa and `low` are shared by the folds: some twenty
    numbers from a million rows.
    """
    options = FitOptions() if options is None else options
    frames = fit_calibration(studies, by_device=options.by_device)
    kappa = choose_kappa(studies, frames, priors, options.kappas)
    calibration = frames.model_copy(update={"kappa": kappa, "budget": options.budget})
    columns = [finding_columns(study, calibration, priors) for study in studies]
    low, curves = _choose_low(columns, options.lows, priors)
    calibration = calibration.model_copy(update={"low": low})

    def rules(chosen: Sequence[int]) -> Calibration:
        fitted = _rules(
            [columns[i] for i in chosen],
            [curves[i] for i in chosen],
            low,
            _allowed_alarms([studies[i] for i in chosen], options),
            priors,
        )
        return calibration.model_copy(update={"events": fitted})

    everything = rules(range(len(studies)))
    folds = min(options.folds, len(studies))
    if folds < 2:
        return everything
    predictions: list[tuple[Labelled, Calibration]] = []
    for fold in range(folds):
        known = rules([i for i in range(len(studies)) if i % folds != fold])
        predictions += [(study, known) for study in studies[fold::folds]]
    return everything.model_copy(update={"silence": fit_silence(predictions, priors)})


def finding_columns(study: Labelled, calibration: Calibration, priors: Priors) -> dict[str, Column]:
    """The smoothed and gated scores of each finding, as `transit` sees them."""
    decoder = Decoder(study.scores, TRANSIT, priors, calibration)
    smoothed = decoder.smoothed(decoder.regions()[0])
    return {
        label: Column(
            np.ascontiguousarray(smoothed[:, COLUMN[label]]), study.truth[:, COLUMN[label]]
        )
        for label in FINDINGS
    }


def _choose_low(
    columns: Sequence[dict[str, Column]], lows: Sequence[float], priors: Priors
) -> tuple[float, list[dict[str, Curve]]]:
    """The lower threshold's share with the best F1 of events, and its curves by study."""
    tried = {
        low: [
            {label: curve(column, low, _shortest(label, priors)) for label, column in study.items()}
            for study in columns
        ]
        for low in lows
    }

    def worth(low: float) -> float:
        return sum(
            float(summed([study[label] for study in tried[low]]).f1.max()) for label in FINDINGS
        )

    best = max(tried, key=worth)
    return best, tried[best]


def _allowed_alarms(studies: Sequence[Labelled], options: FitOptions) -> float:
    """The budget in alarms; a row stands for `step` original frames."""
    frames = sum(len(study.scores.axis) * study.scores.axis.step for study in studies)
    return options.budget * frames / options.rate / 3600


def _rules(
    columns: Sequence[dict[str, Column]],
    curves: Sequence[dict[str, Curve]],
    low: float,
    alarms: float,
    priors: Priors,
) -> dict[str, EventRule]:
    together = {label: summed([study[label] for study in curves]) for label in FINDINGS}
    clinical = within_budget(together, alarms)
    return {
        label: _rule(
            label,
            [study[label] for study in columns],
            together[label],
            clinical[label],
            low,
            priors,
        )
        for label in FINDINGS
    }


def _shortest(label: str, priors: Priors) -> int:
    return int(priors.run_lengths(label).quantile(TRANSIT.findings.floor or 0.0))


def _rule(
    label: str,
    columns: Sequence[Column],
    known: Curve,
    clinical: float | None,
    low: float,
    priors: Priors,
) -> EventRule:
    """Threshold by F1 of events, and how right events of a given peak are."""
    if known.truths == 0:
        return UNSEEN
    worth = np.where(known.precision >= USEFUL, known.f1, 0.0)
    threshold = float(GRID[int(worth.argmax())]) if worth.max() > 0 else None
    chosen = [t for t in (threshold, clinical) if t is not None]
    lowest = min(chosen) if chosen else float(GRID[int(known.f1.argmax())])
    peaks, right = samples(columns, lowest, low, _shortest(label, priors))
    x = np.array([log_odds(peak) for peak in peaks])
    intercept, slope = fit_logistic(x, right)
    return EventRule(threshold=threshold, clinical=clinical, intercept=intercept, slope=slope)

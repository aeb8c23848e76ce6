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
from enteron.decode.findings import median_run
from enteron.decode.presets import TRANSIT
from enteron.labels import COLUMN, FINDINGS
from enteron.metrics.evaluation import NOMINAL_RATE
from enteron.priors import Priors
from enteron.tuning.budget import Choice, within_budget
from enteron.tuning.curves import GRID, Column, Curve, curve, samples, summed
from enteron.tuning.logistic import fit_logistic
from enteron.tuning.silence import fit_silence
from enteron.tuning.transit import choose_kappa

UNSEEN: Final = EventRule(threshold=None, clinical=None, window=1, intercept=-6.0, slope=0.0)
"""Of a finding that no fitted study shows."""

USEFUL: Final = 0.2
"""`transit` emits a finding only at thresholds where one event in five is right."""


Columns = dict[str, dict[int, Column]]
"""One study's columns by finding and by rows of smoothing."""

Curves = dict[str, dict[int, Curve]]


class FitOptions(Options):
    """What is fitted, and what is tried."""

    budget: float = 1.0  # false alarms per hour, of all findings together
    rate: float = NOMINAL_RATE  # original frames per second
    kappas: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    lows: tuple[float, ...] = (0.5, 0.7, 0.9)
    windows: tuple[int, ...] = (25, 101)  # rows of smoothing tried for `clinical`, beside the usual
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
    columns = [finding_columns(study, calibration, priors, options) for study in studies]
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


def finding_columns(
    study: Labelled, calibration: Calibration, priors: Priors, options: FitOptions
) -> Columns:
    """The smoothed and gated scores of each finding, as the decoder sees them."""
    decoder = Decoder(study.scores, TRANSIT, priors, calibration)
    stays = decoder.regions()[0]
    columns: Columns = {label: {} for label in FINDINGS}
    usual = decoder.windows()
    for extra in (None, *options.windows):
        windows = {label: usual[label] if extra is None else extra for label in FINDINGS}
        smoothed = decoder.smoothed(stays, windows)
        for label, window in windows.items():
            place = COLUMN[label]
            p = np.ascontiguousarray(smoothed[:, place])
            scores = study.scores
            column = Column(p, study.truth[:, place], scores.row_frames, scores.shortening)
            columns[label][window] = column
    return columns


def _choose_low(
    columns: Sequence[Columns], lows: Sequence[float], priors: Priors
) -> tuple[float, list[Curves]]:
    """The lower threshold's share with the best F1 of events, and all curves by study."""

    def usual(low: float) -> float:
        total = 0.0
        for label in FINDINGS:
            window = median_run(label, priors)
            shortest = _shortest(label, priors)
            curves = [curve(study[label][window], low, shortest) for study in columns]
            total += float(summed(curves).f1.max())
        return total

    best = max(lows, key=usual)
    return best, [
        {
            label: {
                window: curve(column, best, _shortest(label, priors))
                for window, column in windows.items()
            }
            for label, windows in study.items()
        }
        for study in columns
    ]


def _allowed_alarms(studies: Sequence[Labelled], options: FitOptions) -> float:
    """The budget in alarms; a row stands for `step` original frames."""
    frames = sum(len(study.scores.axis) * study.scores.row_frames for study in studies)
    return options.budget * frames / options.rate / 3600


def _rules(
    columns: Sequence[Columns],
    curves: Sequence[Curves],
    low: float,
    alarms: float,
    priors: Priors,
) -> dict[str, EventRule]:
    together = {
        label: {window: summed([s[label][window] for s in curves]) for window in curves[0][label]}
        for label in FINDINGS
    }
    clinical = within_budget(together, alarms)
    rules: dict[str, EventRule] = {}
    for label in FINDINGS:
        usual = median_run(label, priors)
        chosen = clinical[label]
        window = usual if chosen is None else chosen[0]
        rules[label] = _rule(
            [study[label][window] for study in columns],
            together[label][usual],
            chosen,
            usual,
            low,
            _shortest(label, priors),
        )
    return rules


def _shortest(label: str, priors: Priors) -> int:
    return int(priors.run_lengths(label).quantile(TRANSIT.findings.floor or 0.0))


def _rule(
    columns: Sequence[Column],
    known: Curve,
    clinical: Choice | None,
    usual: int,
    low: float,
    shortest: int,
) -> EventRule:
    """Threshold by F1 of events, and how right events of a given peak are."""
    if known.truths == 0:
        return UNSEEN
    worth = np.where(known.precision >= USEFUL, known.f1, 0.0)
    threshold = float(GRID[int(worth.argmax())]) if worth.max() > 0 else None
    window, strict = (usual, None) if clinical is None else clinical
    chosen = [t for t in (threshold, strict) if t is not None]
    lowest = min(chosen) if chosen else float(GRID[int(known.f1.argmax())])
    peaks, right = samples(columns, lowest, low, shortest)
    x = np.array([log_odds(peak) for peak in peaks])
    intercept, slope = fit_logistic(x, right)
    return EventRule(
        threshold=threshold, clinical=strict, window=window, intercept=intercept, slope=slope
    )

"""Fitting everything that presets need, on held-out studies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.calibration import Calibration, EventRule, Silence, calibrated
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.decode import PRESETS, DecodeOptions
from enteron.decode.events import to_annotation
from enteron.decode.evidence import evidence, known_rates
from enteron.decode.findings import log_odds, median_run
from enteron.decode.options import TRANSIT
from enteron.decode.pipeline import Decoder, decode
from enteron.decode.regions import DEFAULT_KAPPA, log_durations, make_problem, solve
from enteron.errors import LabelError
from enteron.fitting.events import (
    GRID,
    Choice,
    Column,
    Curve,
    curve,
    fit_logistic,
    samples,
    summed,
    within_budget,
)
from enteron.fitting.frames import fit_calibration
from enteron.fitting.labelled import Labelled
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.evaluation import NOMINAL_RATE
from enteron.metrics.official import flatten, temporal_scores
from enteron.options import Options
from enteron.priors import Priors
from enteron.types import Annotation, Segment, Unit


def fit_silence(
    predictions: Sequence[tuple[Labelled, Calibration]], priors: Priors
) -> dict[str, Silence]:
    """For every label, from studies with the calibration of a fold that did not contain them.

    Only studies in which something was decoded for the label say what emitting it is worth. One
    study of AP 0 is added to each mean: with few studies silence is the safer error.
    """
    truths, decoded, best = [], [], []
    for study, calibration in predictions:
        events = decode(study.scores, TRANSIT, priors, calibration)
        truths.append(_true_segments(study))
        decoded.append(
            to_annotation(study.scores.study, study.scores.unit, events, cut=True).segments
        )
        scores = {event.label: 0.0 for event in events}
        for event in events:
            scores[event.label] = max(scores[event.label], event.score or 0.0)
        best.append(scores)
    (score,) = temporal_scores(flatten(truths), flatten(decoded), len(predictions), [0.5])
    statistics: dict[str, Silence] = {}
    for column, label in enumerate(LABELS):
        present = score.present[:, column]
        spoken = np.array([label in scores for scores in best])
        x = np.array([log_odds(scores[label]) for scores in best if label in scores])
        intercept, slope = fit_logistic(x, present[spoken])
        worth = score.ap[present & spoken, column]
        statistics[label] = Silence(
            presence=float((present.sum() + 0.5) / (present.size + 1)),
            expected_ap=float(worth.sum() / (worth.size + 1)),
            intercept=intercept,
            slope=slope,
        )
    return statistics


def _true_segments(study: Labelled) -> tuple[Segment, ...]:
    """The study's official truth, in frames."""
    axis = study.scores.axis
    table = LabelTable(study.scores.study, axis, np.arange(len(axis)), study.truth)
    return truth_events(table, Unit.FRAME).segments


def choose_kappa(
    studies: Sequence[Labelled],
    calibration: Calibration,
    priors: Priors,
    kappas: Sequence[float],
) -> float:
    """The kappa with the best mean overlap of regions; of equal ones the one nearest to 0.3."""
    options = TRANSIT.semi_markov
    count = len(REGIONS)
    rates = known_rates(calibration, priors)[:count]
    totals = np.zeros(len(kappas))
    for study in studies:
        rows, stride = len(study.scores.axis), study.scores.row_frames
        p = calibrated(study.scores, calibration.likelihood)[:, :count]
        known = evidence(p, rates, options.clip)
        durations = log_durations(rows, stride, priors)
        for place, kappa in enumerate(kappas):
            borders = solve(make_problem(known, durations, kappa), options.cells, options.dense)
            totals[place] += mean_overlap(borders, study.truth[:, :count])
    best = [k for k, total in zip(kappas, totals, strict=True) if total >= totals.max() - 1e-9]
    return min(best, key=lambda kappa: abs(np.log(kappa / DEFAULT_KAPPA)))


def mean_overlap(borders: NDArray[np.int64], truth: NDArray[np.bool_]) -> float:
    """Mean tIoU of stays with the rows of their region, over regions that either side has."""
    total = np.concatenate([np.zeros((1, truth.shape[1]), int), np.cumsum(truth, axis=0)])
    shares: list[float] = []
    for k, (start, stop) in enumerate(pairwise(borders.tolist())):
        shared = int(total[stop, k] - total[start, k])
        union = int(stop - start) + int(total[-1, k]) - shared
        if union:
            shares.append(shared / union)
    return float(np.mean(shares)) if shares else 1.0


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


@dataclass(frozen=True)
class Fold:
    """One fold: what was fitted on the others, and the events of its own studies by preset."""

    studies: tuple[str, ...]
    fitted_on: tuple[str, ...]
    calibration: Calibration
    predictions: dict[str, list[Annotation]]


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
) -> Annotation:
    events = decode(study.scores, preset, priors, calibration)
    return to_annotation(study.scores.study, study.scores.unit, events, cut=preset.cut)


def _names(studies: Sequence[Labelled]) -> tuple[str, ...]:
    return tuple(study.scores.study for study in studies)

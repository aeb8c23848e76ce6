"""Fitting everything that the presets need on held-out studies, and cross-validation of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration, EventRule, Silence, calibrated, log_odds
from enteron.confidence import (
    EventReliability,
    IsotonicCalibrator,
    LogisticCalibrator,
    VennAbersCalibrator,
)
from enteron.context import GROUPS
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.decoding import PRESETS, DecodedEvent, DecodeOptions
from enteron.decoding.events import cut_at_changes, to_annotation
from enteron.decoding.evidence import evidence, score_base_rates
from enteron.decoding.findings import median_run_length
from enteron.decoding.options import DEFAULT_KAPPA, TRANSIT
from enteron.decoding.pipeline import Decoder, decode
from enteron.decoding.regions import best_borders, log_durations, make_problem
from enteron.errors import LabelError
from enteron.fitting.context import LEAST_STUDIES, FittedContext, choose_context
from enteron.fitting.event_confidence import choose_calibrator, reliability
from enteron.fitting.event_context import StudyEvents, fit_event_context, study_events
from enteron.fitting.events import (
    THRESHOLDS,
    Choice,
    EventCurve,
    FindingColumn,
    event_curve,
    fit_logistic,
    peaks_and_matches,
    sum_curves,
    within_budget,
)
from enteron.fitting.frames import (
    LabelledStudy,
    absent_weights,
    complete_studies,
    fit_calibration,
    real_outrank_drawn,
)
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.evaluation import Evaluation, evaluate
from enteron.metrics.official import flatten, temporal_scores
from enteron.options import Options
from enteron.priors import Priors
from enteron.types import Annotation, Segment, Unit

UNSEEN: Final = EventRule(threshold=None, clinical=None, window=1, intercept=-6.0, slope=0.0)
"""Rule of a finding that no fitted study shows."""

LEAST_PRECISION: Final = 0.2
"""`transit` emits a finding only at thresholds where one event in five is right."""

Columns = dict[str, dict[int, FindingColumn]]
"""One study's columns by finding and by full-length rows of smoothing."""

Curves = dict[str, dict[int, EventCurve]]
"""The same for its curves."""


ContextUse = Literal["none", "frames", "events"]


class FitOptions(Options):
    """What the fit tries."""

    budget: float = 8.0
    """False alarms per study, of all findings together: one an hour in eight hours of recording.
    Per study, since the time of many recordings is unknown."""
    kappas: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    lows: tuple[float, ...] = (0.5, 0.7, 0.9)
    windows: tuple[int, ...] = (25, 101)  # rows of smoothing tried for `clinical`, beside the usual
    folds: int = 3  # for what must be estimated on studies outside the fit
    context: ContextUse = "none"
    """What the scores around in time are used for. `events`: to judge events of findings. `frames`:
    to refine the scores themselves, for labels of which frames of left-out studies gain by it; that
    blurs single lesions. `compare_context` says what is better."""
    anatomy_apart: bool = False
    """Whether regions and landmarks have a temperature of their own: where findings are local
    evidence, the log-odds of both have nothing in common. One for all labels, as in the paper, was
    set by findings then, and flat scores of regions counted for the rarest of them."""


def fit_decoder(
    studies: Sequence[LabelledStudy], priors: Priors, options: FitOptions | None = None
) -> Calibration:
    """Calibration of frames, kappa, rules for findings, and the statistics of silence.

    Rules of findings are fitted on studies that know them. Where real studies show a finding, drawn
    ones do not take part; excerpts of recordings take part with the false alarms that the whole
    recordings would have. Regions and silence need studies of which every label is known.

    Silence needs predictions for studies that the rules were not fitted on: they come from folds
    within `studies`. Context, temperature, biases, kappa and `low` are shared by the folds: some
    forty numbers from a million rows.
    """
    options = FitOptions() if options is None else options
    judging = real_outrank_drawn(studies)
    refines = options.context == "frames"
    chosen = choose_context(judging) if refines else FittedContext(None, {})
    frames = fit_calibration(judging, chosen.context, anatomy_apart=options.anatomy_apart)
    frames = _extended(frames, context_gains=chosen.gains)
    # Regions need whole sequences of labels. Without any such study nothing is fitted of events.
    complete = [index for index, study in enumerate(studies) if study.labels.is_complete]
    if not complete:
        return frames
    kappa = choose_kappa([studies[i] for i in complete], frames, priors, options.kappas)
    calibration = _extended(frames, kappa=kappa, budget=options.budget)
    weights = absent_weights(judging)
    columns = [finding_columns(s, calibration, priors, options, weights) for s in judging]
    low, curves = _choose_low(columns, options.lows, priors)
    calibration = _extended(calibration, low=low)
    candidates = _candidate_thresholds(curves, priors)
    around: dict[int, StudyEvents] = {}
    if options.context == "events":
        around = {
            index: study_events(study, calibration, priors, candidates)
            for index, study in enumerate(judging)
            if study.recording_frames is None and study.labels.known[:, GROUPS["findings"]].any()
        }

    def with_rules(indices: Sequence[int]) -> Calibration:
        rules = _event_rules(
            [columns[i] for i in indices],
            [curves[i] for i in indices],
            low,
            options.budget * len(indices),
            priors,
        )
        context = fit_event_context(
            [around[i] for i in indices if i in around],
            candidates,
            budget=options.budget,
            least_precision=LEAST_PRECISION,
        )
        return _extended(calibration, events=rules, event_context=context)

    fitted = with_rules(range(len(studies)))
    folds = min(options.folds, len(complete))
    if folds < 2:
        return fitted
    held_out: list[tuple[LabelledStudy, Calibration]] = []
    for fold in range(folds):
        left_out = set(complete[fold::folds])
        fold_calibration = with_rules([i for i in range(len(studies)) if i not in left_out])
        held_out += [(studies[i], fold_calibration) for i in complete[fold::folds]]
    decoded = [decode(study.scores, TRANSIT, priors, rules) for study, rules in held_out]
    held_out_studies = [study for study, _ in held_out]
    outranked = {
        label
        for label in FINDINGS
        if not any(judging[i].labels.known[:, COLUMN[label]].any() for i in complete)
    }
    return _extended(
        fitted,
        silence=fit_silence(held_out_studies, decoded),
        reliability={
            label: found
            for label, found in held_out_reliability(held_out_studies, decoded).items()
            if label not in outranked
        },
    )


def _extended(calibration: Calibration, **fields: Any) -> Calibration:
    """The calibration with more fields, validated."""
    return Calibration(**{**dict(calibration), **fields})


# kappa


def choose_kappa(
    studies: Sequence[LabelledStudy],
    calibration: Calibration,
    priors: Priors,
    kappas: Sequence[float],
) -> float:
    """The kappa with the best mean overlap of regions; of equal ones the one nearest to 0.3."""
    options = TRANSIT.semi_markov
    count = len(REGIONS)
    rates = score_base_rates(calibration, priors)[:count]
    totals = np.zeros(len(kappas))
    for study in studies:
        p = calibrated(study.scores, calibration.likelihood)[:, :count]
        row_evidence = evidence(p, rates, options.clip)
        durations = log_durations(len(study.scores.axis), study.scores.row_frames, priors)
        for index, kappa in enumerate(kappas):
            problem = make_problem(row_evidence, durations, kappa)
            borders = best_borders(problem, options.cells, options.dense)
            totals[index] += mean_overlap(borders, study.truth[:, :count])
    best = [k for k, total in zip(kappas, totals, strict=True) if total >= totals.max() - 1e-9]
    return min(best, key=lambda kappa: abs(np.log(kappa / DEFAULT_KAPPA)))


def mean_overlap(borders: NDArray[np.int64], truth: NDArray[np.bool_]) -> float:
    """Mean tIoU of regions with their true rows, over regions that either side has."""
    total = np.concatenate([np.zeros((1, truth.shape[1]), int), np.cumsum(truth, axis=0)])
    overlaps: list[float] = []
    for k, (start, stop) in enumerate(pairwise(borders.tolist())):
        shared = int(total[stop, k] - total[start, k])
        union = int(stop - start) + int(total[-1, k]) - shared
        if union:
            overlaps.append(shared / union)
    return float(np.mean(overlaps)) if overlaps else 1.0


# Rules for findings


def finding_columns(
    study: LabelledStudy,
    calibration: Calibration,
    priors: Priors,
    options: FitOptions,
    absent: NDArray[np.int64],
) -> Columns:
    """The smoothed and gated scores of each finding that the study knows, as the decoder sees them.

    `absent` (17,): see `absent_weights`; they count in excerpts.
    """
    decoder = Decoder(study.scores, TRANSIT, priors, calibration)
    regions = decoder.regions()[0]
    columns: Columns = {label: {} for label in FINDINGS}
    usual = decoder.windows()
    for extra in (None, *options.windows):
        windows = {label: usual[label] if extra is None else extra for label in FINDINGS}
        smoothed = decoder.smooth(regions, windows)
        for label, window in windows.items():
            known = study.labels.known[:, COLUMN[label]]
            if not known.any():
                continue
            p, truth = smoothed[:, COLUMN[label]], study.truth[:, COLUMN[label]]
            if not known.all():
                p, truth = _known_stretches(p, truth, known, study.scores.axis.frames)
            columns[label][window] = FindingColumn(
                np.ascontiguousarray(p),
                truth,
                study.scores.row_frames,
                study.scores.shortening,
                1.0 if study.recording_frames is None else float(absent[COLUMN[label]]),
            )
    return {label: windows for label, windows in columns.items() if windows}


def _known_stretches(
    p: NDArray[np.float32],
    truth: NDArray[np.bool_],
    known: NDArray[np.bool_],
    frames: NDArray[np.int64],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The known rows; where rows between them are left out, a row of score 0 keeps events apart."""
    rows = np.flatnonzero(known)
    step = int(np.diff(frames).min()) if frames.size > 1 else 1
    breaks = np.flatnonzero((np.diff(rows) > 1) | (np.diff(frames[rows]) > step)) + 1
    return np.insert(p[rows], breaks, 0.0), np.insert(truth[rows], breaks, False)


def _choose_low(
    columns: Sequence[Columns], lows: Sequence[float], priors: Priors
) -> tuple[float, list[Curves]]:
    """The lower threshold's share with the best F1 of events, and all curves by study."""

    def total_f1(low: float) -> float:
        total = 0.0
        for label in FINDINGS:
            window = median_run_length(label, priors)
            shortest = _shortest(label, priors)
            curves = [
                event_curve(study[label][window], low, shortest)
                for study in columns
                if label in study
            ]
            total += float(sum_curves(curves).f1.max())
        return total

    best = max(lows, key=total_f1)
    return best, [
        {
            label: {
                window: event_curve(column, best, _shortest(label, priors))
                for window, column in windows.items()
            }
            for label, windows in study.items()
        }
        for study in columns
    ]


def _candidate_thresholds(curves: Sequence[Curves], priors: Priors) -> dict[str, float]:
    """From which smoothed score on a run may be an event: the best F1, however low."""
    thresholds: dict[str, float] = {}
    for label in FINDINGS:
        window = median_run_length(label, priors)
        total = sum_curves([study[label][window] for study in curves if label in study])
        if total.f1.max() > 0:
            thresholds[label] = float(THRESHOLDS[int(total.f1.argmax())])
    return thresholds


def _shortest(label: str, priors: Priors) -> int:
    """Full-length rows that an event of `transit` has at least."""
    floor = TRANSIT.findings.floor
    return 0 if floor is None else int(priors.run_lengths(label).quantile(floor))


def _event_rules(
    columns: Sequence[Columns],
    curves: Sequence[Curves],
    low: float,
    alarms: float,
    priors: Priors,
) -> dict[str, EventRule]:
    windows_of = {label: study[label] for study in curves for label in study}
    total = {
        label: {
            window: sum_curves([s[label][window] for s in curves if label in s])
            for window in windows_of[label]
        }
        for label in FINDINGS
        if label in windows_of
    }
    clinical = within_budget(total, alarms)
    rules: dict[str, EventRule] = {}
    for label in FINDINGS:
        if label not in total:
            rules[label] = UNSEEN
            continue
        usual = median_run_length(label, priors)
        choice = clinical[label]
        window = usual if choice is None else choice.window
        rules[label] = _event_rule(
            [study[label][window] for study in columns if label in study],
            total[label][usual],
            choice,
            usual,
            low,
            _shortest(label, priors),
        )
    return rules


def _event_rule(
    columns: Sequence[FindingColumn],
    curve: EventCurve,
    clinical: Choice | None,
    usual: int,
    low: float,
    shortest: int,
) -> EventRule:
    """Threshold by F1 of events, and the probability that an event of a given peak is true."""
    if curve.truths == 0:
        return UNSEEN
    f1 = np.where(curve.precision >= LEAST_PRECISION, curve.f1, 0.0)
    threshold = float(THRESHOLDS[int(f1.argmax())]) if f1.max() > 0 else None
    window, within = (usual, None) if clinical is None else clinical
    thresholds = [t for t in (threshold, within) if t is not None]
    lowest = min(thresholds) if thresholds else float(THRESHOLDS[int(curve.f1.argmax())])
    peaks, matches, study = peaks_and_matches(columns, lowest, low, shortest)
    alarm_weights = np.array([column.alarm_weight for column in columns])
    weights = np.where(matches, 1.0, alarm_weights[study])
    intercept, slope = fit_logistic(
        np.array([log_odds(peak) for peak in peaks]),
        matches,
        weights,
        false_weight=float(alarm_weights.max(initial=1.0)),
    )
    is_weighted = bool((alarm_weights != 1).any())
    return EventRule(
        threshold=threshold,
        clinical=within,
        window=window,
        intercept=intercept,
        slope=slope,
        # Other curves are compared by unweighted events.
        curve=None if is_weighted else _better_curve(peaks, matches, study),
    )


def _better_curve(
    peaks: NDArray[np.float64], matches: NDArray[np.bool_], study: NDArray[np.int64]
) -> IsotonicCalibrator | VennAbersCalibrator | None:
    """Another curve than the logistic one, where that is clearly worse on held-out studies."""
    if not peaks.size:
        return None
    chosen = choose_calibrator(peaks, matches, study).calibrator
    return None if isinstance(chosen, LogisticCalibrator) else chosen


# Silence


def fit_silence(
    held_out: Sequence[LabelledStudy], decoded_events: Sequence[Sequence[DecodedEvent]]
) -> dict[str, Silence]:
    """For every label, from studies decoded with the rules of a fold that did not contain them.

    Only studies in which something was decoded for the label say what emitting it is worth. One
    study of AP 0 is added to each mean: with few studies silence is the safer error.
    """
    truths: list[tuple[Segment, ...]] = []
    decoded: list[tuple[Segment, ...]] = []
    best_scores: list[dict[str, float]] = []
    for study, events in zip(held_out, decoded_events, strict=True):
        truths.append(_true_segments(study))
        decoded.append(tuple(cut_at_changes(events)))
        best = {event.label: 0.0 for event in events}
        for event in events:
            best[event.label] = max(best[event.label], event.score or 0.0)
        best_scores.append(best)
    (result,) = temporal_scores(flatten(truths), flatten(decoded), len(held_out), [0.5])
    statistics: dict[str, Silence] = {}
    for column, label in enumerate(LABELS):
        present = result.present[:, column]
        emitted = np.array([label in best for best in best_scores])
        x = np.array([log_odds(best[label]) for best in best_scores if label in best])
        intercept, slope = fit_logistic(x, present[emitted])
        ap = result.ap[present & emitted, column]
        statistics[label] = Silence(
            presence=float((present.sum() + 0.5) / (present.size + 1)),
            expected_ap=float(ap.sum() / (ap.size + 1)),
            intercept=intercept,
            slope=slope,
        )
    return statistics


# Reliability


def held_out_reliability(
    held_out: Sequence[LabelledStudy], decoded_events: Sequence[Sequence[DecodedEvent]]
) -> dict[str, EventReliability]:
    """By finding with events: their confidence beside the share that overlaps the truth."""
    confidences: dict[str, list[float]] = {label: [] for label in FINDINGS}
    matches: dict[str, list[bool]] = {label: [] for label in FINDINGS}
    for study, events in zip(held_out, decoded_events, strict=True):
        frames = study.scores.axis.frames
        for event in events:
            if event.label in FINDINGS and event.score is not None:
                start, stop = np.searchsorted(frames, (event.start, event.stop))
                confidences[event.label].append(event.score)
                matches[event.label].append(
                    bool(study.truth[start:stop, COLUMN[event.label]].any())
                )
    return {
        label: reliability(confidence, matches[label])
        for label, confidence in confidences.items()
        if confidence
    }


def _true_segments(study: LabelledStudy) -> tuple[Segment, ...]:
    """The study's official truth, in frames."""
    axis = study.scores.axis
    table = LabelTable(study.scores.study, axis, np.arange(len(axis)), study.truth)
    return truth_events(table, Unit.FRAME).segments


# Cross-validation


@dataclass(frozen=True)
class Fold:
    """One fold: the calibration fitted on the others, and the events of its studies by preset."""

    studies: tuple[str, ...]
    fitted_on: tuple[str, ...]
    calibration: Calibration
    predictions: dict[str, list[Annotation]]


def cross_validate(
    studies: Sequence[LabelledStudy], priors: Priors, folds: int, options: FitOptions
) -> Iterator[Fold]:
    """Fit on all folds but one, decode that one with every preset; fold by fold."""
    if not 2 <= folds <= len(studies):
        raise LabelError(
            f"{len(studies)} studies cannot be divided into {folds} folds",
            "give at least two studies, and from 2 to that many folds",
        )
    for fold in range(folds):
        held_out = studies[fold::folds]
        fitted_on = [study for index, study in enumerate(studies) if index % folds != fold]
        calibration = fit_decoder(fitted_on, priors, options)
        predictions = {
            name: [_predict(study, preset, priors, calibration) for study in held_out]
            for name, preset in PRESETS.items()
        }
        yield Fold(_names(held_out), _names(fitted_on), calibration, predictions)


ContextComparison = dict[str, dict[str, float]]
"""By `without` and `with`: figures of events in cross-validation."""


def compare_context(
    studies: Sequence[LabelledStudy], priors: Priors, options: FitOptions
) -> ContextComparison | None:
    """Events of studies that were left out, by `transit`, without context and judged by it.

    None where too few studies know all their labels, or no fold has a context.
    """
    complete = complete_studies(studies)
    if len(complete) < LEAST_STUDIES:
        return None
    folds = min(options.folds, len(complete))
    truths = [_truth(study) for fold in range(folds) for study in complete[fold::folds]]
    comparison: ContextComparison = {}
    for name, context in _USES.items():
        predictions: list[Annotation] = []
        uses = False
        for fold in range(folds):
            others = [study for index, study in enumerate(complete) if index % folds != fold]
            fitted = fit_decoder(others, priors, options.model_copy(update={"context": context}))
            uses |= fitted.uses_context
            predictions += [_predict(s, TRANSIT, priors, fitted) for s in complete[fold::folds]]
        if context != "none" and not uses:
            return None
        comparison[name] = compared_figures(evaluate(truths, predictions))
    return comparison


_USES: Final[dict[str, ContextUse]] = {"without": "none", "with": "events"}

_OFFICIAL, _FINDINGS = "official mAP", "F1 of findings"


def compared_figures(evaluation: Evaluation) -> dict[str, float]:
    """The figures by which context is judged: the official score, and F1 of findings' events."""
    findings = evaluation.findings
    recall, precision = findings.recall or 0.0, findings.precision or 0.0
    f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
    return {_OFFICIAL: evaluation.map[0.5], _FINDINGS: f1}


def context_pays(comparison: ContextComparison | None) -> bool:
    """Whether context is worse in neither figure and better in one."""
    if comparison is None:
        return False
    gains = [comparison["with"][name] - value for name, value in comparison["without"].items()]
    return min(gains) >= 0 and max(gains) > 0


def _truth(study: LabelledStudy) -> Annotation:
    axis = study.scores.axis
    table = LabelTable(study.scores.study, axis, np.arange(len(axis)), study.truth)
    return truth_events(table, study.scores.unit)


def _predict(
    study: LabelledStudy, preset: DecodeOptions, priors: Priors, calibration: Calibration
) -> Annotation:
    events = decode(study.scores, preset, priors, calibration)
    return to_annotation(study.scores.study, study.scores.unit, events, preset)


def _names(studies: Sequence[LabelledStudy]) -> tuple[str, ...]:
    return tuple(study.scores.study for study in studies)

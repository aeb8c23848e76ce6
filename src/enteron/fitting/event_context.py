"""Fitting an event context (`enteron.context`) on studies that did not train the model.

Every run of scores above a low threshold is a candidate. What its peak, its duration and the scores
around it say of whether it touches a true event is one logistic regression over all findings, with
a constant for each. Thresholds of confidence are chosen on studies that were left out of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from enteron.calibration import Calibration
from enteron.context import EVENT_SCALES, EVENT_TERMS, EventContext
from enteron.decoding.options import TRANSIT
from enteron.decoding.pipeline import Decoder
from enteron.fitting.context import LEAST_STUDIES
from enteron.fitting.events import count_overlapped, match_spans, true_rows_before
from enteron.fitting.frames import LabelledStudy
from enteron.labels import COLUMN, FINDINGS
from enteron.priors import Priors
from enteron.runs import runs_of

LEAST_TRUE: Final = 10
"""Candidates that must be true for a fit."""

_RIDGE = 1.0  # of the weights of standardised terms
_CONSTANTS = 0.1  # of the constants of findings
_FOLDS = 3


@dataclass(frozen=True)
class StudyEvents:
    """The candidates of one study beside its true events."""

    finding: NDArray[np.int64]  # (n,) position in FINDINGS
    terms: NDArray[np.float64]  # (n, 3 + scales)
    right: NDArray[np.bool_]  # (n,) whether it touches a true event
    alarms: NDArray[np.float64]  # (n,) false alarms that it counts as
    truths: int  # true events
    touched: NDArray[np.int64]  # (pairs, 2) a candidate, and a true event that it touches


def study_events(
    study: LabelledStudy,
    calibration: Calibration,
    priors: Priors,
    thresholds: Mapping[str, float],
    scales: Sequence[float] = EVENT_SCALES,
) -> StudyEvents:
    """Candidates at these thresholds, of the findings that the study knows throughout."""
    plain = calibration.model_copy(update={"event_context": None})
    decoder = Decoder(study.scores, TRANSIT, priors, plain)
    regions = decoder.regions()[0]
    smoothed = decoder.smooth(regions, decoder.windows())
    known = {
        label: threshold
        for label, threshold in thresholds.items()
        if study.labels.known[:, COLUMN[label]].all()
    }
    candidates = decoder.candidates(smoothed, known)
    right, alarms = np.zeros(len(candidates), np.bool_), np.zeros(len(candidates))
    pairs: list[tuple[int, int]] = []
    truths = 0
    for label in known:
        truth = study.truth[:, COLUMN[label]]
        before, true_spans = true_rows_before(truth), runs_of(truth)
        for number, candidate in enumerate(candidates):
            if candidate.label != label:
                continue
            span = np.array([[candidate.start, candidate.stop]])
            matched, alarms[number] = match_spans(span, before, study.scores.row_frames)
            right[number] = matched[0]
            first = np.searchsorted(true_spans[:, 1], candidate.start, side="right")
            last = first + count_overlapped(true_spans, span)
            pairs += [(number, truths + k) for k in range(first, last)]
        truths += len(true_spans)
    return StudyEvents(
        np.array([FINDINGS.index(c.label) for c in candidates], np.int64),
        decoder.event_terms(candidates, regions, scales),
        right,
        alarms,
        truths,
        np.array(pairs, np.int64).reshape(-1, 2),
    )


def fit_event_context(
    studies: Sequence[StudyEvents],
    thresholds: Mapping[str, float],
    *,
    budget: float,
    least_precision: float,
    scales: Sequence[float] = EVENT_SCALES,
) -> EventContext | None:
    """The context of these studies; None where there are too few of them or of true candidates.

    `budget`: false alarms a study of `clinical`; `least_precision`: of `transit`.
    """
    if len(studies) < LEAST_STUDIES or sum(int(s.right.sum()) for s in studies) < LEAST_TRUE:
        return None
    folds = min(_FOLDS, len(studies))
    confidences: list[NDArray[np.float64]] = [np.empty(0)] * len(studies)
    for fold in range(folds):
        weights, constants = _fitted([s for i, s in enumerate(studies) if i % folds != fold])
        for index in range(fold, len(studies), folds):
            left_out = studies[index]
            confidences[index] = expit(left_out.terms @ weights + constants[left_out.finding])
    threshold, clinical = _thresholds(studies, confidences, budget, least_precision)
    weights, constants = _fitted(studies)
    rounded = [round(float(weight), 6) for weight in weights]
    return EventContext(
        scales=tuple(scales),
        peak=rounded[0],
        duration=rounded[1],
        region=rounded[2],
        around=tuple(rounded[EVENT_TERMS:]),
        constants={
            label: round(float(constants[FINDINGS.index(label)]), 6) for label in thresholds
        },
        candidates=dict(thresholds),
        threshold=threshold,
        clinical=clinical,
    )


def _fitted(studies: Sequence[StudyEvents]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of the terms, and the constant of every finding."""
    terms = np.concatenate([study.terms for study in studies])
    finding = np.concatenate([study.finding for study in studies])
    right = np.concatenate([study.right for study in studies]).astype(np.float64)
    mean, spread = terms.mean(axis=0), terms.std(axis=0) + 1e-6
    standard = (terms - mean) / spread
    size = standard.shape[1]

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, constants = x[:size], x[size:]
        odds = standard @ weights + constants[finding]
        value = (np.logaddexp(0, odds) - right * odds).sum()
        value += (_RIDGE * (weights**2).sum() + _CONSTANTS * (constants**2).sum()) / 2
        error = expit(odds) - right
        return float(value), np.concatenate(
            [
                standard.T @ error + _RIDGE * weights,
                np.bincount(finding, error, minlength=len(FINDINGS)) + _CONSTANTS * constants,
            ]
        )

    # A higher peak never makes an event less likely.
    bounds = [(0.0, None), *[(None, None)] * (size - 1 + len(FINDINGS))]
    start = np.zeros(size + len(FINDINGS))
    x = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    weights = x[:size] / spread
    return weights, x[size:] - weights @ mean


def _thresholds(
    studies: Sequence[StudyEvents],
    confidences: Sequence[NDArray[np.float64]],
    budget: float,
    least_precision: float,
) -> tuple[float, float | None]:
    """Least confidences: by F1 of events, and within the budget, if anything is."""
    confidence = np.concatenate(confidences)
    order = np.argsort(-confidence, kind="stable")
    right = np.concatenate([study.right for study in studies])[order]
    alarms = np.cumsum(np.concatenate([study.alarms for study in studies])[order])
    best = [np.zeros(study.truths) for study in studies]  # of the events that touch a true one
    for found, study, own in zip(best, studies, confidences, strict=True):
        np.maximum.at(found, study.touched[:, 1], own[study.touched[:, 0]])
    reached = np.sort(np.concatenate(best))
    kept = confidence[order]
    recall = (reached.size - np.searchsorted(reached, kept)) / max(reached.size, 1)
    hits = np.cumsum(right)
    precision = hits / np.maximum(hits + alarms, 1e-12)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    f1 = np.where(precision >= least_precision, f1, 0.0)
    affordable = np.flatnonzero(alarms <= budget * len(studies))
    clinical = _confidence(float(kept[affordable[-1]])) if affordable.size else None
    return _confidence(float(kept[int(f1.argmax())])), clinical


def _confidence(value: float) -> float:
    """Rounded down, so that the event it was taken from is still above it."""
    return min(max(float(np.floor(value * 1e6) / 1e6), 1e-6), 1 - 1e-6)

"""Calibration of frame scores: temperature, bias, thresholds and reliability.

Fits work on histograms of log-odds in steps of 0.01, so that a million rows cost no more than a
thousand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from enteron.calibration import (
    LANDMARK_FLOOR,
    LARGEST_BIAS,
    TEMPERATURES,
    Bin,
    Calibration,
    FrameCalibration,
    Reliability,
    calibrated,
    logit,
)
from enteron.context import Context
from enteron.errors import LabelError
from enteron.labels import ANATOMY, COLUMN, FINDINGS, LABELS, LANDMARKS
from enteron.types import Annotation, FrameLabels, Scores

LIMIT: Final = 14.0  # the histogram reaches from -14 to 14; `logit` ends at 13.8
WIDTH: Final = 0.01
BINS: Final = int(2 * LIMIT / WIDTH)
CENTRES: Final = np.linspace(-LIMIT, LIMIT, BINS, endpoint=False) + WIDTH / 2

PAPER_TEMPERATURES: Final = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)
"""The paper's grid of temperatures."""

THRESHOLD_GRID: Final = np.round(np.arange(0.01, 0.951, 0.01), 2)
"""The paper searches thresholds in [0.01, 0.95]."""

BIAS_DEVIATION: Final = 5.0  # standard deviation of the prior on a label's bias, in log-odds
RELIABILITY_BINS: Final = 15

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledStudy:
    """One study for fitting.

    What is fitted on frames uses `labels` and leaves unknown ones out. What is fitted on events
    needs whole sequences: it takes `truth` of studies that `require_complete` or
    `complete_studies` let pass.
    """

    scores: Scores
    truth: NDArray[np.bool_]  # (rows, 17) labels that are present
    known: NDArray[np.bool_] | None = None  # (rows, 17); None: all labels of all rows
    drawn: bool = False  # synthetic
    recording_frames: int | None = None
    """Frames of the whole recording, where the study holds excerpts of it: all lesions, but only
    some of the frames without. None: the study is the recording."""

    def __post_init__(self) -> None:
        if self.truth.shape != self.scores.values.shape:
            raise LabelError(
                f"study {self.scores.study}: truth of shape {self.truth.shape} does not fit scores "
                f"of shape {self.scores.values.shape}",
                "give both for the same rows",
            )
        assert len(self.labels) == len(self.truth)  # refuses contradictions

    @cached_property
    def labels(self) -> FrameLabels:
        """The truth with what is known of it."""
        if self.known is None:
            return FrameLabels.complete(self.truth)
        return FrameLabels(self.truth, self.known)


def complete_studies(studies: Sequence[LabelledStudy]) -> list[LabelledStudy]:
    """Those of which every label of every row is known: only they have true events."""
    return [study for study in studies if study.labels.is_complete]


MIN_REAL_STUDIES: Final = 2
"""Real studies that must show a finding before drawn ones no longer speak for it."""


def real_outrank_drawn(studies: Sequence[LabelledStudy]) -> list[LabelledStudy]:
    """The same studies; drawn ones say nothing about findings that real ones show.

    What a drawing of a lesion scores says little about a lesion.
    """
    real = [study for study in studies if not study.drawn]
    outranked = [
        COLUMN[finding]
        for finding in FINDINGS
        if sum(study.truth[:, COLUMN[finding]].any() for study in real) >= MIN_REAL_STUDIES
    ]
    if not outranked:
        return list(studies)
    return [_without(study, outranked) if study.drawn else study for study in studies]


def _without(study: LabelledStudy, columns: Sequence[int]) -> LabelledStudy:
    """The study, of which nothing is known in some columns."""
    truth, known = study.truth.copy(), study.labels.known.copy()
    truth[:, columns] = known[:, columns] = False
    return replace(study, truth=truth, known=known)


def absent_weights(studies: Sequence[LabelledStudy]) -> NDArray[np.int64]:
    """(17,) frames of recordings that a frame of an excerpt stands for if it lacks a label.

    An excerpt holds the lesions of its recording and few frames without them. Counted as they are,
    they would make findings look common and false alarms rare.
    """
    excerpts = [study for study in studies if study.recording_frames is not None]
    absent = np.zeros(len(LABELS), np.int64)
    for study in excerpts:
        absent += study.labels.absent.sum(axis=0)
    recorded = sum(study.recording_frames or 0 for study in excerpts)
    return np.maximum(np.rint(recorded / np.maximum(absent, 1)), 1).astype(np.int64)


def require_studies(studies: Sequence[LabelledStudy]) -> None:
    """Refuse to fit on nothing."""
    if not studies:
        raise LabelError("there are no studies to calibrate on", "give at least one")


def label_rows(scores: Scores, truth: Annotation) -> NDArray[np.bool_]:
    """(rows, 17): which labels the truth's segments give to each scored frame."""
    values = np.zeros(scores.values.shape, dtype=np.bool_)
    for segment in truth.segments:
        first, last = np.searchsorted(scores.axis.frames, (segment.start, segment.stop))
        for label in segment.labels:
            values[first:last, COLUMN[label]] = True
    return values


def fit_calibration(
    studies: Sequence[LabelledStudy],
    context: Context | None = None,
    *,
    anatomy_apart: bool = False,
) -> Calibration:
    """Temperatures, biases and thresholds. `enteron.fitting.decoder` adds what concerns events.

    `context` refines the scores first, but not for the paper's calibration. `anatomy_apart`:
    regions and landmarks have a temperature of their own.
    """
    require_studies(studies)
    counts = count_log_odds(studies)
    refined = studies if context is None else [with_context(study, context) for study in studies]
    likelihood = _with_thresholds(
        refined,
        _by_likelihood(counts if context is None else count_log_odds(refined), anatomy_apart),
    )
    if context is not None:
        likelihood = likelihood.model_copy(update={"context": context})
    return Calibration(
        studies=len(studies),
        rows=sum(len(study.scores.axis) for study in studies),
        rates=_base_rates(studies),
        paper=_with_thresholds(studies, FrameCalibration(temperature=temperature_by_f1(counts))),
        likelihood=likelihood,
    )


def with_context(study: LabelledStudy, context: Context) -> LabelledStudy:
    """The study with refined scores."""
    return replace(study, scores=replace(study.scores, values=context.refined(study.scores)))


def _base_rates(studies: Sequence[LabelledStudy]) -> dict[str, float]:
    """Share of the rows that show a label, among those in which it is known."""
    weights = absent_weights(studies)
    present = np.sum([study.labels.present_counts for study in studies], axis=0)
    absent = np.sum(
        [
            study.labels.absent.sum(axis=0) * (1 if study.recording_frames is None else weights)
            for study in studies
        ],
        axis=0,
    )
    shares = present / np.maximum(present + absent, 1)
    # A label that is always or never present has no log-odds.
    return {label: float(p) for label, p in zip(LABELS, shares, strict=True) if 0 < p < 1}


def _by_likelihood(counts: Counts, anatomy_apart: bool) -> FrameCalibration:
    """Temperature and biases of all labels, or of anatomy and findings each for themselves."""
    if anatomy_apart:
        anatomy, anatomy_bias = temperature_by_likelihood(counts[: len(ANATOMY)])
        temperature, bias = temperature_by_likelihood(counts[len(ANATOMY) :])
        bias = np.concatenate([anatomy_bias, bias])
    else:
        anatomy = None
        temperature, bias = temperature_by_likelihood(counts)
    by_label = {label: float(b) for label, b in zip(LABELS, bias, strict=True)}
    return FrameCalibration(temperature=temperature, anatomy_temperature=anatomy, bias=by_label)


def _with_thresholds(studies: Sequence[LabelledStudy], scale: FrameCalibration) -> FrameCalibration:
    """The calibration with thresholds and reliability on the same studies."""
    weights = absent_weights(studies)
    return scale.model_copy(
        update={
            "thresholds": fit_thresholds(studies, scale),
            "before": reliability(_known_cells(s, s.scores.values, weights) for s in studies),
            "after": reliability(
                _known_cells(s, calibrated(s.scores, scale), weights) for s in studies
            ),
        }
    )


def _known_cells(
    study: LabelledStudy, values: NDArray[np.floating], absent: NDArray[np.int64]
) -> tuple[NDArray[np.floating], NDArray[np.bool_], NDArray[np.int64] | None]:
    """Scores, truth and weights of what is known, row by row; None where all weights are 1."""
    labels = study.labels
    cells, truth = values[labels.known], labels.present[labels.known]
    if study.recording_frames is None:
        return cells, truth, None
    weights = np.where(labels.present, 1, absent)
    return cells, truth, weights[labels.known]


def count_log_odds(studies: Sequence[LabelledStudy]) -> Counts:
    """(17, 2, bins): rows without and with each label, by log-odds in steps of 0.01.

    Rows in which a label is unknown are not counted for it; those of excerpts without it count for
    the frames of the recording that they stand for.
    """
    labels = studies[0].truth.shape[1]
    weights = absent_weights(studies)
    counts = np.zeros((labels, 2, BINS), dtype=np.int64)
    for study in studies:
        bins = ((logit(study.scores.values) + np.float32(LIMIT)) / np.float32(WIDTH)).astype(int)
        for column in range(labels):
            known = study.labels.known[:, column]
            cells = (bins[:, column] + BINS * study.truth[:, column])[known]
            counted = np.bincount(cells, minlength=2 * BINS).reshape(2, BINS)
            if study.recording_frames is not None:
                counted[0] *= weights[column]
            counts[column] += counted
    return counts


# Temperature and bias


def temperature_by_f1(counts: Counts) -> float:
    """The temperature of the paper's grid with the best macro F1 at a fixed threshold of 0.5.

    Dividing log-odds moves none across 0, so at a threshold of 0.5 every temperature has the same
    F1 (decision 20 meant to avoid exactly that). What still tells them apart is the range of the
    threshold grid, 0.01 to 0.95: the tie is broken by macro F1 at each label's best threshold on
    it, then by the distance from 1.
    """

    def key(temperature: float) -> tuple[float, float, float]:
        scores = expit(CENTRES / temperature)
        fixed = macro_f1(counts, scores, np.array([0.5]))
        best = macro_f1(counts, scores, THRESHOLD_GRID)
        return round(fixed, 9), round(best, 9), -abs(np.log(temperature))

    return max(PAPER_TEMPERATURES, key=key)


def macro_f1(counts: Counts, scores: NDArray[np.float64], grid: NDArray[np.float64]) -> float:
    """Mean over the labels with positives of the best F1 on the grid; scores by bin, ascending."""
    first = np.searchsorted(scores, grid)
    best = [_f1_from(histogram, first).max() for histogram in counts if histogram[1].any()]
    return float(np.mean(best)) if best else 0.0


def _f1_from(histogram: Counts, first: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1 when bins from `first` on are positive; (2, bins), rows without the label first."""
    above = np.concatenate(
        [np.cumsum(histogram[:, ::-1], axis=1)[:, ::-1], np.zeros((2, 1), dtype=np.int64)], axis=1
    )
    false_positives, true_positives = above[0, first], above[1, first]
    positives = histogram[1].sum()
    return 2 * true_positives / np.maximum(false_positives + true_positives + positives, 1)


def temperature_by_likelihood(counts: Counts) -> tuple[float, NDArray[np.float64]]:
    """The temperature of some labels and the bias of each that make the truth most likely.

    One temperature for all of them; the biases undo base rates that training changed. A label
    without positives keeps a bias of 0: nothing can be fitted for it.
    """
    present = counts[:, 1].any(axis=1)
    if not present.any():
        return 1.0, np.zeros(len(counts))

    def loss(log_temperature: float) -> float:
        slope = np.exp(-log_temperature)
        return _loss(counts[present], slope, _biases(counts[present], slope))

    optimum = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
    temperature = float(np.clip(np.exp(optimum.x), *TEMPERATURES))
    bias = np.zeros(len(counts))
    # Scores that separate a label perfectly have no best temperature, and biases without end.
    bias[present] = np.clip(_biases(counts[present], 1 / temperature), -LARGEST_BIAS, LARGEST_BIAS)
    return temperature, bias


def _biases(counts: Counts, slope: float) -> NDArray[np.float64]:
    """Newton's method for every label at once; each has one unknown and a convex loss."""
    total, positives = counts.sum(axis=1), counts[:, 1].sum(axis=1)
    bias = np.zeros(len(counts))
    for _ in range(100):
        p = expit(slope * CENTRES[None, :] + bias[:, None])
        gradient = (total * p).sum(axis=1) - positives + bias / BIAS_DEVIATION**2
        curvature = (total * p * (1 - p)).sum(axis=1) + 1 / BIAS_DEVIATION**2
        step = np.clip(gradient / curvature, -1, 1)
        bias -= step
        if np.abs(step).max() < 1e-9:
            break
    return bias


def _loss(counts: Counts, slope: float, bias: NDArray[np.float64]) -> float:
    x = slope * CENTRES[None, :] + bias[:, None]
    loss = counts[:, 0] * np.logaddexp(0, x) + counts[:, 1] * np.logaddexp(0, -x)
    return float(loss.sum() / counts.sum())


# Thresholds


def fit_thresholds(
    studies: Sequence[LabelledStudy], calibration: FrameCalibration
) -> dict[str, float | None]:
    """Each label's threshold with the best F1 on calibrated scores (decision 21).

    Landmarks are not let below 0.55. None for a label without positives: never emitted. None also
    for one that is unknown wherever it is not present: the lowest threshold would look perfect.
    """
    # (17, 2, grid + 1): rows below the first threshold, between two, and at or above the last
    size = THRESHOLD_GRID.size + 1
    weights = absent_weights(studies)
    counts = np.zeros((len(LABELS), 2, size), dtype=np.int64)
    for study in studies:
        p = calibrated(study.scores, calibration)
        for column in range(len(LABELS)):
            reached = _thresholds_reached(np.ascontiguousarray(p[:, column]))
            cells = (reached + size * study.truth[:, column])[study.labels.known[:, column]]
            counted = np.bincount(cells, minlength=2 * size).reshape(2, size)
            if study.recording_frames is not None:
                counted[0] *= weights[column]
            counts[column] += counted
    first = np.arange(1, size)
    thresholds: dict[str, float | None] = {}
    for column, label in enumerate(LABELS):
        is_partial = any(not study.labels.known[:, column].all() for study in studies)
        if not counts[column, 1].any() or (is_partial and not counts[column, 0].any()):
            thresholds[label] = None
            continue
        f1 = _f1_from(counts[column], first)
        if label in LANDMARKS:
            f1 = np.where(THRESHOLD_GRID >= LANDMARK_FLOOR, f1, -1.0)
        thresholds[label] = float(THRESHOLD_GRID[int(f1.argmax())])
    return thresholds


def _thresholds_reached(p: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many thresholds of the grid each score reaches.

    The grid is even, so that a product gives the number up to rounding, which is corrected.
    """
    edges = THRESHOLD_GRID.astype(np.float32)
    reached = np.clip((p * np.float32(100)).astype(np.int64), 0, edges.size)
    reached -= (reached > 0) & (p < edges[np.maximum(reached, 1) - 1])
    reached += (reached < edges.size) & (p >= edges[np.minimum(reached, edges.size - 1)])
    return reached


# Reliability


def reliability(
    cells: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_], NDArray[np.integer] | None]],
    bins: int = RELIABILITY_BINS,
) -> Reliability:
    """Scores beside truth in bins of equal width, all labels together; ECE weighs by count.

    Each of `cells` has scores, truth and, where they do not all count 1, the counts.
    """
    count, score, positives = (np.zeros(bins) for _ in range(3))
    for p, truth, weights in cells:
        position = np.minimum((p.ravel() * bins).astype(np.int64), bins - 1)
        if weights is None:
            count += np.bincount(position, minlength=bins)
            score += np.bincount(position, weights=p.ravel(), minlength=bins)
        else:
            count += np.bincount(position, weights=weights, minlength=bins)
            score += np.bincount(position, weights=p.ravel() * weights, minlength=bins)
        positives += np.bincount(position, weights=truth.ravel(), minlength=bins)
    divisor = np.maximum(count, 1)
    edges = np.linspace(0, 1, bins + 1)
    return Reliability(
        ece=float(np.abs(score - positives).sum() / max(count.sum(), 1)),
        bins=tuple(
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                count=int(count[i]),
                score=float(score[i] / divisor[i]),
                share=float(positives[i] / divisor[i]),
            )
            for i in range(bins)
        ),
    )

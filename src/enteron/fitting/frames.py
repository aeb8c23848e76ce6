"""Calibration of frames on held-out studies."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from enteron.calibration.calibration import (
    LANDMARK_FLOOR,
    Bin,
    Calibration,
    FrameCalibration,
    Reliability,
    calibrated,
    logit,
)
from enteron.fitting.labelled import Labelled, require_studies
from enteron.labels import LABELS, LANDMARKS

EDGE = 14.0  # log-odds of EDGE in `logits` are 13.8
WIDTH = 0.01
BINS = int(2 * EDGE / WIDTH)
CENTRES = np.linspace(-EDGE, EDGE, BINS, endpoint=False) + WIDTH / 2


def count_log_odds(studies: Sequence[Labelled]) -> NDArray[np.int64]:
    """(17, 2, bins): rows without and with each label, by log-odds in steps of 0.01."""
    labels = studies[0].truth.shape[1]
    counts = np.zeros((labels, 2, BINS), dtype=np.int64)
    for study in studies:
        place = ((logit(study.scores.values) + np.float32(EDGE)) / np.float32(WIDTH)).astype(int)
        for column in range(labels):
            both = place[:, column] + BINS * study.truth[:, column]
            counts[column] += np.bincount(both, minlength=2 * BINS).reshape(2, BINS)
    return counts


RELIABILITY_BINS = 15


def reliability(
    pairs: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_]]], bins: int = RELIABILITY_BINS
) -> Reliability:
    """Scores beside truth in bins of equal width, all labels together; ECE weighs by count."""
    count, score, hits = (np.zeros(bins) for _ in range(3))
    for p, truth in pairs:
        place = np.minimum((p.ravel() * bins).astype(np.int64), bins - 1)
        count += np.bincount(place, minlength=bins)
        score += np.bincount(place, weights=p.ravel(), minlength=bins)
        hits += np.bincount(place, weights=truth.ravel(), minlength=bins)
    filled = np.maximum(count, 1)
    ece = float(np.abs(score - hits).sum() / max(count.sum(), 1))
    edges = np.linspace(0, 1, bins + 1)
    return Reliability(
        ece=ece,
        bins=tuple(
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                count=int(count[i]),
                score=float(score[i] / filled[i]),
                share=float(hits[i] / filled[i]),
            )
            for i in range(bins)
        ),
    )


GRID: Final = np.round(np.arange(0.01, 0.951, 0.01), 2)
"""The paper searches [0.01, 0.95]."""


def fit_thresholds(
    studies: Sequence[Labelled], calibration: FrameCalibration
) -> dict[str, float | None]:
    """Each label's threshold with the best F1 on calibrated scores (decision 21).

    Landmarks are not let below 0.55. None for a label without positives: never emitted.
    """
    # (17, 2, grid + 1): rows below the first threshold, between two, and at or above the last
    counts = np.zeros((len(LABELS), 2, GRID.size + 1), dtype=np.int64)
    edges = GRID.astype(np.float32)
    for study in studies:
        p = calibrated(study.scores, calibration, _device(study, calibration))
        for column in range(len(LABELS)):
            place = _place(np.ascontiguousarray(p[:, column]), edges)
            both = place + (GRID.size + 1) * study.truth[:, column]
            size = 2 * (GRID.size + 1)
            counts[column] += np.bincount(both, minlength=size).reshape(2, GRID.size + 1)
    first = np.arange(1, GRID.size + 1)
    found: dict[str, float | None] = {}
    for column, label in enumerate(LABELS):
        if not counts[column, 1].any():
            found[label] = None
            continue
        f1 = f1_of_counts(counts[column], first)
        if label in LANDMARKS:
            f1 = np.where(GRID >= LANDMARK_FLOOR, f1, -1.0)
        found[label] = float(GRID[int(f1.argmax())])
    return found


def _place(p: NDArray[np.float32], edges: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many thresholds each score reaches. The grid is even, so a product nearly says it."""
    place = np.clip((p * np.float32(100)).astype(np.int64), 0, GRID.size)
    place -= (place > 0) & (p < edges[np.maximum(place, 1) - 1])
    place += (place < GRID.size) & (p >= edges[np.minimum(place, GRID.size - 1)])
    return place


def f1_of_counts(counts: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1 when bins from `first` on count as found; counts are (2, bins), negatives first."""
    above = np.concatenate(
        [np.cumsum(counts[:, ::-1], axis=1)[:, ::-1], np.zeros((2, 1), dtype=np.int64)], axis=1
    )
    wrong, right = above[0, first], above[1, first]
    return 2 * right / np.maximum(wrong + right + counts[1].sum(), 1)


def _device(study: Labelled, calibration: FrameCalibration) -> str | None:
    return study.device if study.device in calibration.devices else None


PAPER_GRID: Final = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)
_WIDEST_BIAS: Final = 5.0  # standard deviation of the prior on a label's bias, in log-odds

Counts = NDArray[np.int64]


def temperature_by_f1(counts: Counts) -> float:
    """The temperature of the paper's grid with the best macro F1 at a fixed threshold of 0.5.

    Dividing log-odds moves none across 0, so at a threshold of 0.5 every temperature has the same
    F1 (decision 20 meant to avoid exactly that). What still tells them apart is the reach of the
    threshold grid, 0.01 to 0.95: the tie is broken by macro F1 at each label's best threshold on
    it, then by the distance from 1.
    """

    def key(temperature: float) -> tuple[float, float, float]:
        scaled = expit(CENTRES / temperature)
        fixed = macro_f1(counts, scaled, np.array([0.5]))
        best = macro_f1(counts, scaled, GRID)
        return round(fixed, 9), round(best, 9), -abs(np.log(temperature))

    return max(PAPER_GRID, key=key)


def macro_f1(counts: Counts, scores: NDArray[np.float64], grid: NDArray[np.float64]) -> float:
    """Mean over the labels with positives of the best F1 on the grid; scores by bin, ascending."""
    first = np.searchsorted(scores, grid)
    known = [f1_of_counts(both, first).max() for both in counts if both[1].any()]
    return float(np.mean(known)) if known else 0.0


def temperature_by_likelihood(counts: Counts) -> tuple[float, NDArray[np.float64]]:
    """Temperature of all labels and bias of each that make the truth most likely.

    One temperature, as in the paper; the biases take back base rates that training changed. A
    label without positives keeps a bias of 0: nothing is known of it.
    """
    known = counts[:, 1].any(axis=1)

    def loss(log_temperature: float) -> float:
        slope = np.exp(-log_temperature)
        bias = _biases(counts[known], slope)
        return _loss(counts[known], slope, bias)

    if not known.any():
        return 1.0, np.zeros(len(counts))
    found = minimize_scalar(loss, bounds=(np.log(0.2), np.log(5.0)), method="bounded")
    temperature = float(np.exp(found.x))
    bias = np.zeros(len(counts))
    bias[known] = _biases(counts[known], 1 / temperature)
    return temperature, bias


def _biases(counts: Counts, slope: float) -> NDArray[np.float64]:
    """Newton's method for every label at once; each has one unknown and a convex loss."""
    total, positives = counts.sum(axis=1), counts[:, 1].sum(axis=1)
    bias = np.zeros(len(counts))
    for _ in range(100):
        p = expit(slope * CENTRES[None, :] + bias[:, None])
        gradient = (total * p).sum(axis=1) - positives + bias / _WIDEST_BIAS**2
        curvature = (total * p * (1 - p)).sum(axis=1) + 1 / _WIDEST_BIAS**2
        step = np.clip(gradient / curvature, -1, 1)
        bias -= step
        if np.abs(step).max() < 1e-9:
            break
    return bias


def _loss(counts: Counts, slope: float, bias: NDArray[np.float64]) -> float:
    x = slope * CENTRES[None, :] + bias[:, None]
    loss = counts[:, 0] * np.logaddexp(0, x) + counts[:, 1] * np.logaddexp(0, -x)
    return float(loss.sum() / counts.sum())


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

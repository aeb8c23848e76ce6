"""Temperature: the paper's grid by macro F1, or a continuous one by likelihood."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from enteron.calibration.counts import CENTRES
from enteron.calibration.thresholds import GRID, f1_of_counts

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

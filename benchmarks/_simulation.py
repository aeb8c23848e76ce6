"""Simulated scores of an imperfect classifier for a given truth, to compare decoders with.

The assumptions are:

1. Behind each label's score is a Gaussian variable: mean 0 and variance 1 where the label is
   absent, mean `shift` and standard deviation `spread` where it is present. Both are solved from
   the AUC and the AP that the paper's table gives for its own validation set and base rates.
   Labels for which it has no positives (z-line, ulcer) get the median of their group.
2. The noise of a label is a sum of three independent parts: one that is constant over a study,
   one with exponential correlation (AR(1)) whose length is stated in original frames, and white
   noise. Landmarks and findings err independently of each other. The constant and the slow part
   of the five regions are the same but for their sign, which alternates along the gut: what makes
   a region look unlike itself makes it look like its neighbours.
3. Log-odds are a linear function of the variable: the best one for a classifier that was trained
   with the square root of each label's true odds (the paper's sampler weighs by 1 / sqrt(f)), then
   multiplied by `overconfidence` (the paper finds a temperature of 1.5).
4. The classifier sees region borders at other frames than the annotators: each border is the
   annotated one moved by a Gaussian, by at most a third of the shorter region beside it.

The simulation leaves out confusions of one finding with another, findings whose visibility differs
from lesion to lesion, and domain shift. Real scores are likely worse in all three respects.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import expit, ndtr, ndtri

from enteron.labels import FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.options import Options

Level = Literal["weaker", "paper", "stronger"]

PAPER_FRAMES: Final = 57_774
PAPER_TABLE: Final = {
    # label: (AP, AUC, positive frames of 57,774), the paper's validation table
    "mouth": (0.543, 0.947, 19),
    "esophagus": (0.054, 0.996, 3),
    "stomach": (0.894, 0.985, 2920),
    "small intestine": (0.893, 0.970, 14689),
    "colon": (0.991, 0.978, 40143),
    "pylorus": (0.001, 0.454, 52),
    "ileocecal valve": (0.014, 0.638, 13),
    "active bleeding": (0.003, 0.811, 42),
    "angiectasia": (0.014, 0.913, 75),
    "blood": (0.222, 0.737, 2211),
    "erosion": (0.447, 0.898, 1513),
    "erythema": (0.002, 0.662, 59),
    "hematin": (0.028, 0.973, 75),
    "lymphangioectasis": (0.040, 0.957, 114),
    "polyp": (0.001, 0.892, 7),
}
LEVELS: Final = {"weaker": 0.7, "paper": 1.0, "stronger": 1.4}
"""Factor on the distance of positives from negatives."""

_SPREAD_RANGE: Final = (0.4, 4.0)  # in which `separability` searches


class SimulationOptions(Options):
    """The classifier to simulate."""

    level: Level = "paper"

    correlation: float = Field(default=500.0, gt=0)
    """Length of the slow noise in original frames: its autocorrelation falls to 1/e."""

    slow: float = Field(default=0.6, ge=0, le=1)
    """Share of the noise variance that is slow."""

    constant: float = Field(default=0.1, ge=0, le=1)
    """Share of the noise variance that is constant over a study."""

    border: float = Field(default=60.0, ge=0)
    """Standard deviation of the classifier's borders around the annotated ones, in original
    frames."""

    overconfidence: float = Field(default=1.5, gt=0)
    """Factor on the log-odds."""


@dataclass(frozen=True)
class Separability:
    """Where positives lie, in standard deviations of the negatives."""

    shift: float
    spread: float

    @property
    def auc(self) -> float:
        return float(ndtr(self.shift / np.hypot(1, self.spread)))


def separability(auc: float, ap: float, base_rate: float) -> Separability:
    """Solve for the two Gaussians with this AUC whose AP at the base rate is nearest to `ap`."""

    def with_spread(spread: float) -> Separability:
        return Separability(float(ndtri(auc)) * float(np.hypot(1, spread)), spread)

    def ap_error(spread: float) -> float:
        return average_precision(with_spread(spread), base_rate) - ap

    low, high = _SPREAD_RANGE
    if ap_error(low) >= 0:
        return with_spread(low)
    if ap_error(high) <= 0:
        return with_spread(high)
    return with_spread(float(brentq(ap_error, low, high, xtol=1e-4)))  # type: ignore[arg-type]


def average_precision(positives: Separability, base_rate: float) -> float:
    """AP of the two Gaussians at a base rate: the integral of precision over recall."""
    shift, spread = positives.shift, positives.spread
    z = np.linspace(max(8.0, shift + 8 * spread), min(-8.0, shift - 8 * spread), 4001)
    recall = ndtr((shift - z) / spread)
    true_positives = base_rate * recall
    false_positives = (1 - base_rate) * ndtr(-z)
    precision = true_positives / np.maximum(true_positives + false_positives, 1e-300)
    return float(np.trapezoid(precision, recall))


@cache
def separabilities(level: Level) -> dict[str, Separability]:
    """Separability of every label at one level of quality."""
    by_label = {
        label: separability(auc, ap, count / PAPER_FRAMES)
        for label, (ap, auc, count) in PAPER_TABLE.items()
    }
    for label, group in (("z-line", LANDMARKS), ("ulcer", FINDINGS)):
        aucs = [PAPER_TABLE[member][1] for member in group if member in PAPER_TABLE]
        by_label[label] = Separability(float(ndtri(np.median(aucs))) * 2**0.5, 1.0)
    factor = LEVELS[level]
    return {
        label: Separability(factor * by_label[label].shift, by_label[label].spread)
        for label in LABELS
    }


def simulate(
    truth: NDArray[np.bool_],
    stride: int,
    base_rates: NDArray[np.float64],
    seed: int | np.random.SeedSequence,
    options: SimulationOptions | None = None,
) -> NDArray[np.float32]:
    """Simulate (rows, 17) scores for (rows, 17) truth; the same seed gives the same scores.

    `stride` is the number of original frames per row. `base_rates` (17,) are the shares of each
    label's frames in the classifier's training data.
    """
    options = SimulationOptions() if options is None else options
    rng = np.random.default_rng(seed)
    rows = truth.shape[0]
    seen = truth.copy()
    seen[:, : len(REGIONS)] = _moved_borders(truth[:, : len(REGIONS)], options.border / stride, rng)
    region_noise = _lasting_noise(rows, stride, options, rng)
    white = np.float32(max(0.0, 1 - options.slow - options.constant) ** 0.5)
    scores = np.empty((rows, len(LABELS)), dtype=np.float32)
    for column, label in enumerate(LABELS):
        positives = separabilities(options.level)[label]
        if label in REGIONS:
            lasting = region_noise if column % 2 else -region_noise
        else:
            lasting = _lasting_noise(rows, stride, options, rng)
        noise = lasting + white * rng.standard_normal(rows, dtype=np.float32)
        positive = np.float32(positives.shift) + np.float32(positives.spread) * noise
        latent = np.where(seen[:, column], positive, noise)
        intercept, slope = _linear_log_odds(positives, float(base_rates[column]))
        scores[:, column] = expit(options.overconfidence * (intercept + slope * latent))
    return scores


def _lasting_noise(
    rows: int, stride: int, options: SimulationOptions, rng: np.random.Generator
) -> NDArray[np.float32]:
    """(rows,) sum of the slow and the constant part of the noise."""
    decay = np.exp(-stride / options.correlation)  # of the AR(1) process, per row
    innovations = rng.standard_normal(rows, dtype=np.float32)
    # Start in equilibrium: the first value has the variance of all others.
    innovations[0] /= np.sqrt(1 - decay**2)
    slow = np.asarray(lfilter([np.sqrt(1 - decay**2)], [1, -decay], innovations))
    constant = rng.standard_normal() * options.constant**0.5
    return (slow * options.slow**0.5 + constant).astype(np.float32)


def _moved_borders(
    regions: NDArray[np.bool_], deviation: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Move every change of region in a (rows, 5) matrix; `deviation` is in rows."""
    changes = np.flatnonzero((regions[1:] != regions[:-1]).any(axis=1)) + 1
    edges = np.concatenate(([0], changes, [len(regions)]))
    lengths = np.diff(edges)
    limit = np.minimum(lengths[:-1], lengths[1:]) / 3
    offsets = np.clip(rng.normal(0, 1, changes.size) * deviation, -limit, limit)
    edges[1:-1] += np.trunc(offsets).astype(np.int64)
    return np.repeat(regions[np.concatenate(([0], changes))], np.diff(edges), axis=0)


@cache
def _linear_log_odds(positives: Separability, base_rate: float) -> tuple[float, float]:
    """Intercept and slope of a logistic regression on the two Gaussians at square-root odds."""
    odds = (base_rate / (1 - base_rate)) ** 0.5
    rate = odds / (1 + odds)
    z = np.linspace(-8, 8, 801)
    density = np.exp(-z * z / 2)
    density /= density.sum()
    x = np.concatenate([z, positives.shift + positives.spread * z])
    y = np.concatenate([np.zeros(z.size), np.ones(z.size)])
    weight = np.concatenate([(1 - rate) * density, rate * density])
    beta = np.array([np.log(odds), 0.5])
    design = np.column_stack([np.ones(x.size), x])
    for _ in range(50):
        p = expit(design @ beta)
        gradient = design.T @ (weight * (y - p))
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        beta = beta + np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    # A classifier below chance stays below chance: its scores still rise with the variable.
    return float(beta[0]), float(max(beta[1], 0.3))

"""A figure with its interval over studies, and Wilson's interval of a proportion."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Interval = tuple[float, float]


class StudyIntervals(Protocol):
    """Intervals over studies: `enteron.metrics.evaluation.StudyBootstrap`, or one like it.

    Its resamples are the same for every figure, so that differences between figures are paired.
    """

    def mean(self, values: NDArray[np.floating]) -> Interval | None: ...

    def ratio(
        self, numerator: NDArray[np.generic], denominator: NDArray[np.generic]
    ) -> Interval | None: ...


@dataclass(frozen=True)
class Estimate:
    """A figure and its interval over studies. None: undefined, or no spread."""

    value: float | None
    interval: Interval | None = None


def ratio_of(
    above: NDArray[np.generic], below: NDArray[np.generic], intervals: StudyIntervals | None
) -> Estimate:
    """Sum over studies divided by sum over studies."""
    total = float(below.sum(dtype=np.float64))
    if total == 0:
        return Estimate(None)
    value = float(above.sum(dtype=np.float64)) / total
    return Estimate(value, None if intervals is None else intervals.ratio(above, below))


def mean_of(values: NDArray[np.float64], intervals: StudyIntervals | None) -> Estimate:
    """Mean over the studies where the value is defined."""
    if np.isnan(values).all():
        return Estimate(None)
    interval = None if intervals is None else intervals.mean(values)
    return Estimate(float(np.nanmean(values)), interval)


def proportion(successes: int, trials: int, level: float) -> Estimate:
    """A share with Wilson's interval; undefined without trials."""
    if trials == 0:
        return Estimate(None)
    return Estimate(successes / trials, wilson_interval(successes, trials, level))


def wilson_interval(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    z = float(ndtri((1 + level) / 2))
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, float((centre - half) / scale)), min(1.0, float((centre + half) / scale))

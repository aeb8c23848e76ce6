"""Intervals by resampling studies: frames of one study are no independent witnesses."""

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]


class StudyBootstrap:
    """The same resamples of studies for every figure, so that differences are paired."""

    def __init__(
        self, studies: int, resamples: int = 2000, level: float = 0.95, seed: int = 0
    ) -> None:
        self.studies = studies
        self.resamples = resamples
        self.level = level
        self._drawn = np.random.default_rng(seed).integers(studies, size=(resamples, studies))

    def mean(self, values: NDArray[np.floating]) -> Interval | None:
        """Interval of a mean of per-study values; studies where it is undefined are left out."""
        defined = ~np.isnan(values)
        return self.ratio(np.where(defined, values, 0.0), defined)

    def ratio(self, above: NDArray[np.generic], below: NDArray[np.generic]) -> Interval | None:
        """Interval of sum(above) / sum(below) over studies. None for a single study: no spread."""
        if self.studies < 2:
            return None
        total = below[self._drawn].sum(axis=1, dtype=np.float64)
        part = above[self._drawn].sum(axis=1, dtype=np.float64)
        ratios = part[total > 0] / total[total > 0]
        if ratios.size == 0:
            return None
        tail = (1 - self.level) / 2
        low, high = np.quantile(ratios, (tail, 1 - tail))
        return float(low), float(high)

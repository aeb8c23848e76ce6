"""Distribution of a positive whole number: run lengths, gaps, counts."""

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from enteron.config import Options

LEVELS: Final = (
    *(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    *(0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0),
)
"""Levels of the stored quantiles; denser above, where sizes differ by orders of magnitude."""


class Sizes(Options):
    """Sizes of n things: the share that is exactly 1, and the distribution of the others.

    The log-normal figures describe the others for a model that wants two numbers. `draw` uses the
    quantiles, since real sizes have heavier tails than a log-normal.
    """

    n: int = Field(ge=0)
    single: float = Field(ge=0, le=1)  # share of sizes that are exactly 1
    log_mean: float  # mean of the natural log of the sizes above 1
    log_sd: float = Field(ge=0)  # its standard deviation
    quantiles: tuple[float, ...]  # of the sizes above 1 at LEVELS; k is spread over k-.5 to k+.5

    @model_validator(mode="after")
    def _check(self) -> "Sizes":
        if len(self.quantiles) != len(LEVELS):
            raise ValueError(f"quantiles must be {len(LEVELS)} numbers")
        if any(b < a for a, b in zip(self.quantiles, self.quantiles[1:], strict=False)):
            raise ValueError("quantiles must not fall")
        if self.quantiles[0] < 1.5:
            raise ValueError("quantiles are of sizes above 1, so none is below 1.5")
        return self

    def draw(self, count: int, rng: np.random.Generator, factor: float = 1.0) -> NDArray[np.int64]:
        """`count` sizes times the factor, each at least 1."""
        # One uniform number decides both: below `single` it is a 1, above it is the level.
        u = rng.random(count)
        level = (u - self.single) / max(1 - self.single, 1e-12)
        above = np.exp(np.interp(level, LEVELS, np.log(self.quantiles)))
        # Clipped since rounding 1.5 itself goes either way.
        above = np.maximum(np.rint(above), 2)
        return shrunk(np.where(u < self.single, 1, above), factor)

    def quantile(self, level: float) -> float:
        """The size below which the share `level` of all sizes lies, those of 1 included."""
        if level <= self.single:
            return 1.0
        rest = (level - self.single) / (1 - self.single)
        return float(np.exp(np.interp(rest, LEVELS, np.log(self.quantiles))))


def shrunk(sizes: ArrayLike, factor: float) -> NDArray[np.int64]:
    """Sizes times the factor; what was one row stays one, and what was more stays more."""
    scaled = np.maximum(np.rint(np.asarray(sizes) * factor), 2)
    return np.where(np.asarray(sizes) == 1, 1, scaled).astype(np.int64)


def fit_sizes(values: ArrayLike, weights: ArrayLike | None = None) -> Sizes:
    """The distribution of the values, which are whole numbers from 1; equal weights by default."""
    sizes = np.asarray(values, dtype=np.int64)
    weight = np.ones(sizes.size) if weights is None else np.asarray(weights, dtype=np.float64)
    more = sizes > 1
    if not more.any():
        # Nothing above 1 was seen: 2 is the nearest size that could have been.
        two = tuple(1.5 + level for level in LEVELS)
        single = 1.0 if sizes.size else 0.0
        return Sizes(n=sizes.size, single=single, log_mean=math.log(2), log_sd=0, quantiles=two)
    above, share = sizes[more], weight[more] / weight[more].sum()
    logs = np.log(above)
    mean = float(share @ logs)
    # Unbiased for equal weights: one minus the sum of squares is then (n - 1) / n.
    freedom = 1 - float(share @ share)
    spread = math.sqrt(float(share @ (logs - mean) ** 2) / freedom) if above.size > 1 else 0.0
    return Sizes(
        n=sizes.size,
        single=round(float(weight[~more].sum() / weight.sum()), 4),
        log_mean=round(mean, 4),
        log_sd=round(spread, 4),
        quantiles=tuple(significant(q) for q in _spread_quantiles(above, share)),
    )


def _spread_quantiles(values: NDArray[np.int64], share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles with each whole number k spread evenly over [k - 0.5, k + 0.5).

    So that rounding a value interpolated between two quantiles returns k as often as it was seen.
    """
    whole, which = np.unique(values, return_inverse=True)
    each = np.bincount(which, weights=share)
    reached = np.cumsum(each)
    level = np.column_stack([reached - each, reached]).ravel()
    edge = np.column_stack([whole - 0.5, whole + 0.5]).ravel()
    # Between two values nothing was seen, so the level stands still; `interp` wants it to rise.
    return np.interp(LEVELS, level + 1e-12 * np.arange(level.size), edge)


def significant(value: float, digits: int = 4) -> float:
    """The value with so many significant digits: enough, and the file stays readable."""
    return float(f"{value:.{digits}g}")

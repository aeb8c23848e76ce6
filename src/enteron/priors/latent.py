"""Presence of several labels at once, as Gaussian variables above thresholds (a copula).

A label is present where its Gaussian variable lies below the quantile of its share, so that every
share is kept exactly, whatever the correlations.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

STRONGEST: Final = 0.98
"""Bound of a correlation: 1 would make two labels one."""

NOTICEABLE: Final = 2.0
"""A correlation counts from so many standard errors; weaker ones cannot be told from none."""

_NORMAL: Final = NormalDist()
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)


def threshold(share: float) -> float:
    """The value below which a standard Gaussian lies with probability `share`."""
    if share <= 0:
        return -np.inf
    return np.inf if share >= 1 else _NORMAL.inv_cdf(share)


def both(share_a: float, share_b: float, correlation: float) -> float:
    """Probability that both of two labels are present."""
    if min(share_a, share_b) <= 0:
        return 0.0
    if max(share_a, share_b) >= 1:
        return min(share_a, share_b)
    h, k = threshold(share_a), threshold(share_b)
    # Plackett: d/dr of the bivariate normal integral is its density; substituted r = sin(angle).
    half = np.arcsin(correlation) / 2
    angle = half * (_NODES + 1)
    density = np.exp(-(h * h + k * k - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2))
    return share_a * share_b + float(half * (_WEIGHTS @ density) / (2 * np.pi))


def latent_correlation(share_a: float, share_b: float, together: float) -> float:
    """The correlation at which both are present with probability `together`."""
    low, high = -STRONGEST, STRONGEST
    for _ in range(40):
        middle = (low + high) / 2
        if both(share_a, share_b, middle) < together:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def fit_latent(present: NDArray[np.bool_], possible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Correlations (k, k) behind the presences (studies, k), over studies where both can be."""
    k = present.shape[1]
    matrix = np.eye(k)
    for a in range(k):
        for b in range(a):
            seen = possible[:, a] & possible[:, b]
            first, second = present[seen, a], present[seen, b]
            spread = float(first.std() * second.std()) if seen.any() else 0.0
            if spread == 0:
                continue
            together = float(np.mean(first & second))
            phi = (together - first.mean() * second.mean()) / spread
            if abs(phi) * np.sqrt(seen.sum()) >= NOTICEABLE:
                found = latent_correlation(float(first.mean()), float(second.mean()), together)
                matrix[a, b] = matrix[b, a] = found
    return proper_correlation(matrix)


def proper_correlation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with negative eigenvalues raised: pairs fitted one by one may contradict."""
    values, vectors = np.linalg.eigh(matrix)
    # Above 0 by enough to survive rounding to three decimals.
    mended = (vectors * np.maximum(values, 0.015)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(mended))
    return mended * scale * scale[:, None]


def to_table(matrix: NDArray[np.float64], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The part below the diagonal, without what rounds to 0."""
    table: dict[str, dict[str, float]] = {}
    for a, name in enumerate(names):
        row = {names[b]: round(float(matrix[a, b]), 3) for b in range(a)}
        row = {other: value for other, value in row.items() if value != 0}
        if row:
            table[name] = row
    return table


def from_table(table: dict[str, dict[str, float]], names: Sequence[str]) -> NDArray[np.float64]:
    """The symmetric matrix (k, k) of a table, with ones on the diagonal."""
    place = {name: i for i, name in enumerate(names)}
    matrix = np.eye(len(names))
    for a, row in table.items():
        for b, value in row.items():
            if a in place and b in place:
                matrix[place[a], place[b]] = matrix[place[b], place[a]] = value
    return matrix

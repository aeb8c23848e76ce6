"""Do scores of 0.8 come true eight times in ten?"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.value import Bin, Reliability

BINS = 15


def reliability(
    pairs: Iterable[tuple[NDArray[np.floating], NDArray[np.bool_]]], bins: int = BINS
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

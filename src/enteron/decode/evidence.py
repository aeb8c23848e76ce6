"""Evidence of a row for a label: log-odds relative to the label's base rate."""

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.logits import logit
from enteron.labels import LABELS, REGIONS
from enteron.priors import Priors


def base_rates(priors: Priors) -> NDArray[np.float64]:
    """(17,) share of frames that show each label, in the studies behind the priors."""
    frames = np.array([priors.given_region.frames[region] for region in REGIONS], dtype=float)
    of_regions = frames / frames.sum()
    shares = priors.given_region.shares
    rates = [
        of_regions[REGIONS.index(label)]
        if label in REGIONS
        else sum(
            part * shares[region].get(label, 0.0)
            for part, region in zip(of_regions, REGIONS, strict=True)
        )
        for label in LABELS
    ]
    return np.clip(rates, 1e-6, 1 - 1e-6)


def evidence(
    p: NDArray[np.floating], rates: NDArray[np.float64] | np.float64, clip: float
) -> NDArray[np.float32]:
    """L = logit(p) - logit(base rate), clipped: for calibrated p a log-likelihood ratio.

    The difference is clipped, not logit(p) alone: otherwise p = 0 of a rare label, which is
    clipped to log-odds above its base rate, would speak for the label.
    """
    return np.clip(logit(p) - np.log(rates / (1 - rates)).astype(np.float32), -clip, clip)

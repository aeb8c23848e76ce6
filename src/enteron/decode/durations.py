"""How long a capsule stays in each region, as a table of log probabilities."""

import math

import numpy as np
from numpy.typing import NDArray

from enteron.labels import REGIONS
from enteron.priors import Priors


def log_durations(rows: int, stride: float, priors: Priors) -> NDArray[np.float64]:
    """(5, rows + 2): log D_k(length) for 0 to `rows` rows, and -inf at the end.

    D_k(0) = 1 - pi_k, the region is missing; D_k(n) = pi_k times the log-normal density of
    n * stride original frames times stride, the probability of a row's worth of frames. The last
    entry is what a length of -1 finds: an end before its beginning.
    """
    frames = np.arange(1, rows + 1, dtype=np.float64) * stride
    logs = np.log(frames)
    table = np.full((len(REGIONS), rows + 2), -np.inf)
    for k, region in enumerate(REGIONS):
        presence = priors.presence.labels[region].used.smoothed
        fitted = priors.regions.durations[region].fitted
        table[k, 0] = math.log1p(-presence)
        z = (logs - fitted.log_mean) / fitted.log_sd
        constant = math.log(presence * stride / (fitted.log_sd * math.sqrt(2 * math.pi)))
        table[k, 1:-1] = constant - z * z / 2 - logs
    return table

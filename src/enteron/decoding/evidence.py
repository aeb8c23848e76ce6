"""Evidence of a row for a label (log-odds relative to a base rate), and smoothing along time."""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter, uniform_filter1d

from enteron.calibration import Calibration, logit, sigmoid
from enteron.labels import LABELS, REGIONS
from enteron.priors import Priors


def base_rates(priors: Priors) -> NDArray[np.float64]:
    """(17,) share of frames that show each label, in the studies behind the priors."""
    frames = np.array([priors.given_region.frames[region] for region in REGIONS], dtype=float)
    region_shares = frames / max(frames.sum(), 1.0)
    shares = priors.given_region.shares
    rates = [
        region_shares[REGIONS.index(label)]
        if label in REGIONS
        else sum(
            region_share * shares[region].get(label, 0.0)
            for region_share, region in zip(region_shares, REGIONS, strict=True)
        )
        for label in LABELS
    ]
    return np.clip(rates, 1e-6, 1 - 1e-6)


def score_base_rates(calibration: Calibration, priors: Priors) -> NDArray[np.float64]:
    """(17,) the base rates that scores contain, which evidence subtracts.

    Calibrated probabilities contain the base rates of the studies that the calibration was fitted
    on; labels that those studies never show take the priors' rates. Uncalibrated scores need not
    follow any base rate (balanced training raises rare labels a thousandfold): one half for all.
    """
    if calibration.studies == 0 and not calibration.rates:
        return np.full(len(LABELS), 0.5)
    rates = base_rates(priors)
    for column, label in enumerate(LABELS):
        rates[column] = calibration.rates.get(label, rates[column])
    return np.clip(rates, 1e-6, 1 - 1e-6)


def evidence(
    p: NDArray[np.floating], rates: NDArray[np.float64] | np.float64, clip: float
) -> NDArray[np.float32]:
    """L = logit(p) - logit(base rate), clipped: for calibrated p a log-likelihood ratio.

    The difference is clipped, not logit(p) alone. Otherwise p = 0 of a rare label, whose log-odds
    are clipped to a value above its base rate, would be evidence for the label.
    """
    return np.clip(logit(p) - np.log(rates / (1 - rates)).astype(np.float32), -clip, clip)


def running_median(p: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    """Running median of each column, edges held (paper stage 1, decision 22); window in rows.

    Column by column, which is ten times faster than one call on the matrix.
    """
    smoothed = np.empty_like(p, order="F")
    for column in range(p.shape[1]):
        median_filter(
            np.ascontiguousarray(p[:, column]),
            size=window,
            mode="nearest",
            output=smoothed[:, column],
        )
    return smoothed


def running_mean_log_odds(p: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    """Running mean of one column's log-odds, as probabilities; window in rows.

    For white noise it is the matched filter of a run of `window` rows. A median of the same
    window would erase every run shorter than half of it.
    """
    if window == 1:
        return p
    return sigmoid(uniform_filter1d(logit(p), window, mode="nearest"))

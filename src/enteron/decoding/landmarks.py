"""Landmarks: by the paper's hysteresis, or by the evidence around a change of region."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import probability
from enteron.decoding.events import DecodedRun
from enteron.decoding.options import LandmarkOptions
from enteron.labels import LANDMARK_BETWEEN
from enteron.priors import Priors
from enteron.runs import Runs, hysteresis


def rows_near_regions(
    rows: int, label: str, regions: Sequence[DecodedRun], near: int
) -> NDArray[np.bool_]:
    """(rows,): rows within `near` rows of a region that the landmark separates (decision 26)."""
    allowed = np.zeros(rows, dtype=bool)
    for region in regions:
        if region.label in LANDMARK_BETWEEN[label]:
            allowed[max(0, region.start - near) : region.stop + near] = True
    return allowed


def landmark_spans(
    p: NDArray[np.float32], threshold: float, low: float, allowed: NDArray[np.bool_]
) -> Runs:
    """Runs of one smoothed and gated column by hysteresis, as for findings (decision 26)."""
    return hysteresis(np.where(allowed, p, 0), threshold, low * threshold)


def landmark_at_transition(
    label: str,
    evidence: NDArray[np.float32],
    regions: Sequence[DecodedRun],
    kappa: float,
    priors: Priors,
    options: LandmarkOptions,
    row_scale: float = 1.0,
) -> DecodedRun | None:
    """The landmark at its change of region, or None where its probability is too low.

    Two hypotheses are compared on the rows within `near` of the change: no landmark, or one run
    whose length and position are distributed as in the priors. `evidence` is the label's evidence
    per row. The score is the posterior probability of the second hypothesis; the run is the most
    probable one.
    """
    change = _change_row(label, regions)
    if change is None:
        return None
    first = max(0, change - options.near)
    window = evidence[first : change + options.near]
    log_prior = _log_prior(label, window.size, change - first, priors, row_scale)
    total = np.concatenate(([0.0], np.cumsum(window, dtype=np.float64))) * kappa
    weight = log_prior + total[None, :] - total[:, None]  # (start, stop)
    top = float(weight.max())
    if top == -math.inf:  # the window holds no length that the priors allow
        return None
    mass = np.exp(weight - top)
    presence = priors.presence.labels[label].used.smoothed
    log_odds = math.log(presence / (1 - presence)) + top + math.log(float(mass.sum()))
    posterior = probability(log_odds)
    start, stop = (int(i) for i in np.unravel_index(int(weight.argmax()), weight.shape))
    if posterior < options.believed or total[stop] <= total[start]:
        return None
    share = mass / mass.sum()
    return DecodedRun(
        label,
        first + start,
        first + stop,
        posterior,
        _probability_near(share.sum(axis=1), start),
        _probability_near(share.sum(axis=0), stop),
    )


def _change_row(label: str, regions: Sequence[DecodedRun]) -> int | None:
    """The row at which the region before the landmark is followed by the one after it."""
    before, after = LANDMARK_BETWEEN[label]
    for first, second in itertools.pairwise(regions):
        if (first.label, second.label) == (before, after) and first.stop == second.start:
            return second.start
    return None


def _log_prior(
    label: str, rows: int, change: int, priors: Priors, row_scale: float
) -> NDArray[np.float64]:
    """(rows + 1, rows + 1) log probability of a run [start, stop), given that there is one."""
    prior = priors.landmarks.labels[label]
    lengths = np.arange(2, rows + 1)
    full_lengths = lengths * row_scale  # rows of a full-length study
    z = (np.log(full_lengths) - prior.lengths.log_mean) / prior.lengths.spread
    log_tail = -(z**2) / 2 - np.log(lengths)
    # Relative to the largest: lengths far from the prior's would all round to 0.
    tail = np.exp(log_tail - log_tail.max(initial=-np.inf))
    of_length = np.concatenate(
        ([0.0, prior.lengths.single], (1 - prior.lengths.single) * tail / tail.sum())
    )[: rows + 1]
    start, stop = np.indices((rows + 1, rows + 1))
    length = np.maximum(stop - start, 0)
    ends, starts = prior.main["ends"].smoothed, prior.main["starts"].smoothed
    elsewhere = max(1 - ends - starts, 0.0)
    position = (
        elsewhere / (rows + 1 - length) + ends * (stop == change) + starts * (start == change)
    )
    with np.errstate(divide="ignore"):
        return np.where(length > 0, np.log(of_length[length]) + np.log(position), -np.inf)


def _probability_near(share: NDArray[np.float64], row: int, margin: int = 2) -> float:
    """Posterior probability that an end lies within `margin` rows of its decoded row."""
    return float(min(1.0, share[max(0, row - margin) : row + margin + 1].sum()))

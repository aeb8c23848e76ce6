"""Landmarks: as the paper's hysteresis finds them, or weighed around a change of region."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.decode.options import LandmarkOptions
from enteron.decode.regions import RegionStay
from enteron.labels import LANDMARK_BETWEEN, REGIONS
from enteron.priors import Priors
from enteron.runs import Runs, hysteresis


@dataclass(frozen=True)
class LandmarkRun:
    """Runs [start, stop) of a landmark, and how sure that is."""

    start: int
    stop: int
    score: float
    onset: float | None = None
    end: float | None = None


def near_regions(rows: int, label: str, stays: list[RegionStay], near: int) -> NDArray[np.bool_]:
    """Runs within `near` rows of a region that the landmark separates (decision 26)."""
    allowed = np.zeros(rows, dtype=bool)
    for stay in stays:
        if REGIONS[stay.region] in LANDMARK_BETWEEN[label]:
            allowed[max(0, stay.start - near) : stay.stop + near] = True
    return allowed


def by_hysteresis(
    p: NDArray[np.float32], threshold: float, low: float, allowed: NDArray[np.bool_]
) -> Runs:
    """Runs of one smoothed and gated column, like those of findings (decision 26)."""
    return hysteresis(np.where(allowed, p, 0), threshold, low * threshold)


def by_transition(
    label: str,
    known: NDArray[np.float32],
    stays: list[RegionStay],
    kappa: float,
    priors: Priors,
    options: LandmarkOptions,
    shortening: float = 1.0,
) -> LandmarkRun | None:
    """The landmark at its change of region, or None where it is not believed.

    Two hypotheses are weighed on the rows within `near` of the change: no landmark, or one run
    whose length and place are distributed as in the priors. `known` is the label's evidence per
    row. The score is the posterior probability of the run, the place its most probable one.
    """
    change = _change(label, stays)
    if change is None:
        return None
    first = max(0, change - options.near)
    window = known[first : change + options.near]
    log_prior = _log_prior(label, window.size, change - first, priors, shortening)
    total = np.concatenate(([0.0], np.cumsum(window, dtype=np.float64))) * kappa
    weight = log_prior + total[None, :] - total[:, None]  # (start, stop)
    top = float(weight.max())
    mass = np.exp(weight - top)
    presence = priors.presence.labels[label].used.smoothed
    log_odds = math.log(presence / (1 - presence)) + top + math.log(float(mass.sum()))
    believed = 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else 0.0
    start, stop = (int(i) for i in np.unravel_index(int(weight.argmax()), weight.shape))
    if believed < options.believed or total[stop] <= total[start]:
        return None
    share = mass / mass.sum()
    return LandmarkRun(
        first + start,
        first + stop,
        believed,
        _within(share.sum(axis=1), start),
        _within(share.sum(axis=0), stop),
    )


def _change(label: str, stays: list[RegionStay]) -> int | None:
    """The row at which the region before the landmark gives way to the one behind it."""
    before, behind = (REGIONS.index(region) for region in LANDMARK_BETWEEN[label])
    for a, b in itertools.pairwise(stays):
        if a.region == before and b.region == behind and a.stop == b.start:
            return b.start
    return None


def _log_prior(
    label: str, rows: int, change: int, priors: Priors, shortening: float
) -> NDArray[np.float64]:
    """(rows + 1, rows + 1) log probability of a run [start, stop), given that there is one."""
    prior = priors.landmarks.labels[label]
    lengths = np.arange(2, rows + 1)
    full = lengths * shortening  # rows of a full-length study
    tail = np.exp(-(((np.log(full) - prior.lengths.log_mean) / prior.lengths.log_sd) ** 2) / 2)
    tail /= lengths
    of_length = np.concatenate(
        ([0.0, prior.lengths.single], (1 - prior.lengths.single) * tail / tail.sum())
    )[: rows + 1]
    start, stop = np.indices((rows + 1, rows + 1))
    length = np.maximum(stop - start, 0)
    ends, starts = prior.main["ends"].smoothed, prior.main["starts"].smoothed
    elsewhere = max(1 - ends - starts, 0.0)
    place = elsewhere / (rows + 1 - length) + ends * (stop == change) + starts * (start == change)
    with np.errstate(divide="ignore"):
        return np.where(length > 0, np.log(of_length[length]) + np.log(place), -np.inf)


def _within(share: NDArray[np.float64], at: int, margin: int = 2) -> float:
    """Posterior of an end within two rows of the place that was chosen."""
    return float(min(1.0, share[max(0, at - margin) : at + margin + 1].sum()))

"""A landmark at its change of region, against a sum over all runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.decoding.events import DecodedRun
from enteron.decoding.landmarks import landmark_at_transition
from enteron.decoding.options import LandmarkOptions
from enteron.priors import Priors, load_priors

# stomach [0, 6), small intestine [6, 12): the pylorus lies within `near` of row 6
REGIONS = (
    DecodedRun("stomach", 0, 6, 0.9, 0.9, 0.9),
    DecodedRun("small intestine", 6, 12, 0.9, 0.9, 0.9),
)


def priors_with(single: float, log_mean: float, log_sd: float) -> Priors:
    table = load_priors().model_dump()
    lengths = table["landmarks"]["labels"]["pylorus"]["lengths"]
    lengths.update(single=single, log_mean=log_mean, log_sd=log_sd)
    return Priors.model_validate(table)


def brute_force(evidence: np.ndarray, near: int, kappa: float, priors: Priors) -> float:
    """Posterior probability that there is a landmark, by adding up every run; logarithms only."""
    first, change = max(0, 6 - near), min(6, near)
    window = [kappa * float(e) for e in evidence[first : 6 + near]]
    rows = len(window)
    prior = priors.landmarks.labels["pylorus"]
    lengths = prior.lengths

    def log_length(length: int) -> float:
        return -(((math.log(length) - lengths.log_mean) / lengths.spread) ** 2) / 2 - math.log(
            length
        )

    log_all = np.logaddexp.reduce([log_length(n) for n in range(2, rows + 1)])
    ends, starts = prior.main["ends"].smoothed, prior.main["starts"].smoothed
    terms = []
    for start in range(rows):
        for stop in range(start + 1, rows + 1):
            length = stop - start
            if length == 1:
                share = math.log(lengths.single) if lengths.single else -math.inf
            elif lengths.single == 1:
                share = -math.inf
            else:
                share = math.log(1 - lengths.single) + log_length(length) - log_all
            place = max(1 - ends - starts, 0) / (rows + 1 - length)
            place += ends * (stop == change) + starts * (start == change)
            terms.append(share + math.log(place) + sum(window[start:stop]))
    presence = priors.presence.labels["pylorus"].used.smoothed
    log_odds = math.log(presence / (1 - presence)) + np.logaddexp.reduce(terms)
    return 1 / (1 + math.exp(-log_odds))


@given(
    evidence=st.lists(st.floats(-3, 3), min_size=12, max_size=12),
    single=st.sampled_from([0.0, 0.2, 1.0]),
    log_mean=st.sampled_from([0.7, 2.0, 12.0]),  # 12: 160,000 rows, far from all here
    log_sd=st.sampled_from([0.0, 0.8]),
    near=st.integers(2, 8),
)
def test_the_posterior_adds_up_all_runs(evidence, single, log_mean, log_sd, near):
    priors = priors_with(single, log_mean, log_sd)
    options = LandmarkOptions(near=near, believed=0.0)
    column = np.array(evidence, np.float32)
    decoded = landmark_at_transition("pylorus", column, REGIONS, 0.5, priors, options)
    if decoded is not None:  # None: the most probable run has evidence against it
        assert decoded.score == pytest.approx(brute_force(column, near, 0.5, priors), rel=1e-6)
        assert math.isfinite(decoded.score)


def test_a_window_that_holds_no_allowed_length_has_no_landmark():
    regions = (DecodedRun("stomach", 0, 1, 1, 1, 1), DecodedRun("small intestine", 1, 2, 1, 1, 1))
    priors = priors_with(0.0, 2.0, 0.8)  # never a single row
    options = LandmarkOptions(near=1, believed=0.0)
    evidence = np.ones(1, np.float32)
    assert landmark_at_transition("pylorus", evidence, regions, 1.0, priors, options) is None

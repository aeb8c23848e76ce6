"""A promised recall: hand arithmetic, MAPIE's numbers, and simulated studies that keep it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.confidence import Guarantee, conformal_p_value
from enteron.errors import EnteronError
from enteron.fitting.guarantee import (
    bounds,
    guarantee_recall,
    monotone,
    studies_needed,
    thresholds_of,
)
from enteron.options import parse_json_options
from tests.golden import make_mapie

GOLDEN = json.loads(make_mapie.GOLDEN.read_text())["risk"]


def missed_shares(studies: list[list[float]], thresholds: np.ndarray) -> np.ndarray:
    """(studies, thresholds) shares of lesions found at a lower confidence only."""
    return np.array([(np.array(study)[:, None] < thresholds).mean(axis=0) for study in studies])


# Four studies; the third has no lesions. Share of missed lesions by threshold:
#
#   threshold   0.1   0.3   0.5   0.7
#   a           0     0     0.5   1
#   b           0     0.2   0.2   0.6
#   d           0     0     0.1   1
#   mean        0     1/15  4/15  13/15
#   bound       1/4   0.3   0.45  0.9      3/4 of the mean + 1/4
THRESHOLDS = [0.1, 0.3, 0.5, 0.7]
LOSSES = [[0, 0, 0.5, 1], [0, 0.2, 0.2, 0.6], [math.nan] * 4, [0, 0, 0.1, 1]]
EVENTS = [[9, 5, 3, 1], [7, 4, 2, 0], [4, 2, 1, 0], [8, 5, 2, 2]]


def test_hand_arithmetic():
    result = guarantee_recall(
        0.35,
        THRESHOLDS,
        LOSSES,
        ["a", "b", "c", "d"],
        events=EVENTS,
        minutes=np.array(EVENTS) / 10,
        devices=["olympus", None, "olympus", "pillcam"],
    )
    assert result.threshold == 0.3
    assert result.bound == pytest.approx(0.3)
    assert result.missed == pytest.approx(1 / 15)
    assert result.studies == 3
    assert result.without_lesions == 1
    assert result.events_per_study == 4  # all four studies: without lesions there are alarms too
    assert result.minutes_per_study == pytest.approx(0.4)
    assert result.devices == {"olympus": 2, "pillcam": 1}
    # A bound that is met exactly is met.
    assert guarantee_recall(0.3, THRESHOLDS, LOSSES, ["a", "b", "c", "d"]).threshold == 0.3
    assert guarantee_recall(0.9, THRESHOLDS, LOSSES, ["a", "b", "c", "d"]).threshold == 0.7


def test_it_is_stored_and_read_again():
    result = guarantee_recall(0.45, THRESHOLDS, LOSSES, ["a", "b", "c", "d"])
    assert parse_json_options(Guarantee, result.model_dump_json(), "x", "y") == result


def test_too_few_studies_are_refused_with_the_number_that_would_do():
    assert [studies_needed(alpha) for alpha in (0.5, 0.3, 0.2, 0.1, 0.05, 0.01)] == [
        1,
        3,
        4,
        9,
        19,
        99,
    ]
    with pytest.raises(EnteronError, match=r"3 studies .* at least 9 studies .* or allow 0\.25"):
        guarantee_recall(0.1, THRESHOLDS, LOSSES, ["a", "b", "c", "d"])
    nine = np.zeros((9, 4))
    names = [str(i) for i in range(9)]
    assert guarantee_recall(0.1, THRESHOLDS, nine, names).threshold == 0.7
    for alpha in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(EnteronError, match="cannot be promised"):
            studies_needed(alpha)


def test_a_model_that_misses_too_much_is_refused():
    losses = np.full((20, 2), 0.4)
    names = [str(i) for i in range(20)]
    with pytest.raises(EnteronError, match=r"0\.4 of the lesions are missed .* allow 0\.429"):
        guarantee_recall(0.2, [0.1, 0.2], losses, names)


def test_losses_that_fall_are_made_monotone():
    losses = np.array([[0.2, 0.0, 0.5, 0.4]])
    assert monotone(losses).tolist() == [[0.2, 0.2, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("thresholds", "losses", "message"),
    [
        ([0.2, 0.1], [[0, 0]], "do not rise"),
        ([], np.zeros((1, 0)), "do not rise"),
        ([0.1, 0.2], [[0, 0, 0]], "shape"),
        ([0.1, 0.2], [[0, math.nan]], "some thresholds only"),
        ([0.1, 0.2], [[0, 1.5]], "outside 0 to 1"),
    ],
)
def test_malformed_losses(thresholds, losses, message):
    with pytest.raises(EnteronError, match=message):
        guarantee_recall(0.5, thresholds, losses, ["a"])
    with pytest.raises(EnteronError, match="the events have shape"):
        guarantee_recall(0.5, [0.1], [[0.0]], ["a"], events=[[1, 2]])


@pytest.mark.parametrize("case", make_mapie.RISK_CASES)
def test_the_same_thresholds_as_mapie(case):
    studies = make_mapie.studies(*make_mapie.RISK_CASES[case])
    thresholds = np.array(make_mapie.PARAMETERS)
    losses = missed_shares(studies, thresholds)
    assert bounds(losses)[::20] == pytest.approx(GOLDEN[case]["bounds"], abs=1e-9)
    names = [str(i) for i in range(len(studies))]
    for alpha, expected in zip(make_mapie.ALPHAS, GOLDEN[case]["thresholds"], strict=True):
        if expected is None:
            with pytest.raises(EnteronError):
                guarantee_recall(alpha, thresholds, losses, names)
        else:
            result = guarantee_recall(alpha, thresholds, losses, names)
            assert result.threshold == pytest.approx(expected)


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5), min_size=9, max_size=15),
    st.floats(0.11, 0.9),
)
def test_no_higher_threshold_would_do(studies, alpha):
    """Thresholds between the confidences of lesions gain nothing."""
    found_at = [[c / 20 for c in study] for study in studies]
    tried = thresholds_of(np.concatenate(found_at))
    names = [str(i) for i in range(len(studies))]
    result = guarantee_recall(alpha, tried, missed_shares(found_at, tried), names)
    assert result.bound <= alpha + 1e-9
    fine = np.linspace(0, 1, 161)
    feasible = fine[bounds(missed_shares(found_at, fine)) <= alpha]
    assert feasible.size == 0 or feasible.max() <= result.threshold + 1e-12


@pytest.mark.parametrize("alpha", [0.1, 0.2])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_promise_is_kept_over_random_halvings(alpha, seed):
    """Simulated studies of unequal difficulty: 30 choose the threshold, the other 30 are read.

    Given the 60 studies, halvings are independent and each is exchangeable, so that the mean over
    halvings has an honest standard error.
    """
    rng = np.random.default_rng(seed)
    pool = []
    for _ in range(60):
        difficulty = rng.normal(0, 1.2)
        confidence = 1 / (1 + np.exp(-rng.normal(1 - difficulty, 1.5, size=rng.integers(1, 25))))
        pool.append(np.where(rng.random(confidence.size) < 0.005, -math.inf, confidence))
    missed = []
    for _ in range(300):
        order = rng.permutation(60)
        fitted, new = [pool[i] for i in order[:30]], [pool[i] for i in order[30:]]
        tried = thresholds_of(np.concatenate(fitted))
        losses = np.array([np.searchsorted(np.sort(s), tried) / s.size for s in fitted])
        threshold = guarantee_recall(alpha, tried, losses, [str(i) for i in range(30)]).threshold
        missed.append(np.mean([(s < threshold).mean() for s in new]))
    mean, error = np.mean(missed), np.std(missed, ddof=1) / np.sqrt(len(missed))
    assert mean <= alpha + 2 * error
    assert mean >= alpha - 2 / 31 - 2 * error


def test_p_values_of_exchangeable_studies_are_valid():
    assert conformal_p_value([1.0, 2.0, 3.0], 5.0) == 0.25
    assert conformal_p_value([1.0, 2.0, 3.0], 2.0) == 0.75
    assert conformal_p_value([], 0.0) == 1
    rng = np.random.default_rng(0)
    p = np.array([conformal_p_value(rng.normal(size=19), rng.normal()) for _ in range(4000)])
    for level in (0.05, 0.1, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=3 * np.sqrt(level / 4000))

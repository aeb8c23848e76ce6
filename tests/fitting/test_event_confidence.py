"""Event confidences: reliability by hand, calibrators against scikit-learn, MAPIE and loops."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from enteron.errors import EnteronError
from enteron.fitting.event_confidence import (
    FIT,
    ConfidenceFit,
    ConfidenceOptions,
    choose_calibrator,
    choose_calibrators,
    fit_isotonic_calibrator,
    fit_logistic_calibrator,
    fit_venn_abers_calibrator,
    held_out_probabilities,
    isotonic_regression,
    log_losses,
    reliability,
)
from enteron.labels import FINDINGS
from enteron.metrics.intervals import wilson_interval
from enteron.options import parse_json_options
from tests.golden import make_mapie
from tests.literal.lesions import isotonic_at, venn_abers

GOLDEN = json.loads(make_mapie.GOLDEN.read_text())["venn_abers"]


def test_hand_arithmetic_of_reliability():
    #  bin          [0.0, 0.1)      [0.8, 0.9)                [0.9, 1.0]
    #  confidence   0.05            0.8  0.8  0.8  0.8  0.85  1.0
    #  true         no              yes  yes  yes  no   yes   yes
    confidence = [0.05, 0.8, 0.8, 0.8, 0.8, 0.85, 1.0]
    is_true = [0, 1, 1, 1, 0, 1, 1]
    table = reliability(confidence, is_true)
    low, middle, high = table.bins
    assert (low.low, low.high, low.events, low.true_share) == (0.0, 0.1, 1, 0.0)
    assert (middle.events, middle.true_share) == (5, 0.8)
    assert middle.confidence == pytest.approx(0.81)
    assert middle.interval == wilson_interval(4, 5)
    assert (high.high, high.events, high.true_share) == (1.0, 1, 1.0)
    assert table.ece == pytest.approx((0.05 + 5 * 0.01 + 0) / 7)
    assert table.log_loss == pytest.approx(log_losses(confidence, is_true).mean())
    # 0.1 starts a bin, also when it was computed as 0.09999999999999998.
    assert [b.low for b in reliability([1 - 0.9, 0.09, 0.3], [1, 1, 1]).bins] == pytest.approx(
        [0.0, 0.1, 0.3]
    )
    empty = reliability([], [])
    assert (empty.events, empty.ece, empty.bins) == (0, 0, ())


def test_calibrated_confidences_have_a_small_error():
    rng = np.random.default_rng(0)
    confidence = rng.random(20_000)
    table = reliability(confidence, rng.random(20_000) < confidence)
    assert table.ece < 0.02
    assert sum(b.interval[0] <= b.confidence <= b.interval[1] for b in table.bins) >= 8
    overconfident = reliability(confidence, rng.random(20_000) < confidence**2)
    assert overconfident.ece == pytest.approx(1 / 6, abs=0.01)  # the integral of x - x**2


points = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=25)


@given(points)
def test_isotonic_regression_equals_scikit_learn_and_the_formula(data):
    x = np.array([a / 12 for a, _ in data])
    y = np.array([float(b) for _, b in data])
    knots, values = isotonic_regression(x, y)
    expected = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    assert values == pytest.approx(expected.predict(knots), abs=1e-12)
    by_formula = [isotonic_at(x.tolist(), y.tolist(), knot) for knot in knots.tolist()]
    assert values == pytest.approx(by_formula, abs=1e-12)
    # Dropping knots changes nothing between them either.
    calibrator = fit_isotonic_calibrator(x, y)
    between = np.linspace(-0.1, 1.1, 37)
    lowest = 1 / (len(data) + 2)
    assert calibrator.probability(between) == pytest.approx(
        np.clip(expected.predict(between), lowest, 1 - lowest), abs=1e-12
    )


@given(points)
def test_venn_abers_equals_two_isotonic_fits(data):
    x = [a / 12 for a, _ in data]
    y = [int(b) for _, b in data]
    calibrator = fit_venn_abers_calibrator(x, y)
    for at in (*np.arange(13) / 12, 0.04, 0.46, 0.96):
        p0, p1 = calibrator.bracket([at])
        assert (p0[0], p1[0]) == pytest.approx(venn_abers(x, y, float(at)), abs=1e-12)
        assert p0[0] < p1[0]


@pytest.mark.parametrize("case", make_mapie.VENN_ABERS_CASES)
def test_venn_abers_equals_mapie(case):
    confidence, is_true = make_mapie.events(*make_mapie.VENN_ABERS_CASES[case])
    calibrator = fit_venn_abers_calibrator(confidence, is_true)
    p0, p1 = calibrator.bracket(make_mapie.TEST_CONFIDENCES)
    assert p0 == pytest.approx(GOLDEN[case]["p0"], abs=1e-9)
    assert p1 == pytest.approx(GOLDEN[case]["p1"], abs=1e-9)
    merged = calibrator.probability(make_mapie.TEST_CONFIDENCES)
    assert merged == pytest.approx(GOLDEN[case]["p"], abs=1e-9)


def test_venn_abers_is_valid():
    """The probability that fits what happened (p1 if it was true, else p0) is calibrated."""
    rng = np.random.default_rng(1)
    selected, outcomes = [], []
    for _ in range(6000):
        confidence = rng.random(31)
        is_true = rng.random(31) < confidence**3
        p0, p1 = fit_venn_abers_calibrator(confidence[:30], is_true[:30]).bracket(confidence[30:])
        outcomes.append(bool(is_true[30]))
        selected.append(float(p1[0] if is_true[30] else p0[0]))
    p, y = np.array(selected), np.array(outcomes)
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.01)):
        inside = (p >= low) & (p < high)
        error = np.sqrt(p[inside].mean() * (1 - p[inside].mean()) / inside.sum())
        assert y[inside].mean() == pytest.approx(p[inside].mean(), abs=3 * error)


@pytest.mark.parametrize("method", FIT)
def test_every_calibrator_mends_overconfident_events(method):
    rng = np.random.default_rng(2)
    confidence = rng.random(4000)
    is_true = rng.random(4000) < confidence**2
    calibrator = FIT[method](confidence, is_true)
    new = rng.random(4000)
    after = reliability(calibrator.probability(new), rng.random(4000) < new**2)
    assert after.ece < 0.04
    rising = calibrator.probability(np.linspace(0, 1, 101))
    assert (np.diff(rising) >= 0).all()
    assert rising.min() > 0
    assert rising.max() < 1


@pytest.mark.parametrize("method", FIT)
def test_one_event_is_enough_to_fit(method):
    for outcome in (True, False):
        p = FIT[method]([0.7], [outcome]).probability([0.1, 0.7, 0.9])
        assert ((p > 0) & (p < 1)).all()


def events(shape, count: int, studies: int, seed: int = 0):
    """Confidences, outcomes with probability `shape(confidence)`, and their studies."""
    rng = np.random.default_rng(seed)
    confidence = rng.random(count)
    return confidence, rng.random(count) < shape(confidence), rng.integers(studies, size=count)


def test_logistic_stays_where_it_fits():
    chosen = choose_calibrator(*events(lambda c: c, 2000, 30))
    assert chosen.calibrator.method == "logistic"
    assert set(chosen.log_loss) == set(FIT)
    assert (chosen.events, chosen.studies) == (2000, 30)


def test_a_step_needs_more_than_a_logistic_curve():
    # Nothing below 0.5 is true, half of what lies above 0.5 is.
    data = events(lambda c: np.where(c > 0.5, 0.5, 0.02), 2000, 30)
    chosen = choose_calibrator(*data)
    assert chosen.calibrator.method in ("isotonic", "venn-abers")
    assert chosen.log_loss[chosen.calibrator.method] == min(chosen.log_loss.values())
    assert chosen.after is not None
    assert chosen.after.ece < chosen.before.ece / 2


def test_few_events_or_one_study_get_the_logistic_calibrator():
    for data in (events(lambda c: c, 49, 10), events(lambda c: c, 500, 1)):
        chosen = choose_calibrator(*data)
        assert chosen.calibrator.method == "logistic"
        assert chosen.log_loss == {}
        assert chosen.after is None
    few = choose_calibrator(
        *events(lambda c: np.where(c > 0.5, 0.5, 0.02), 49, 10),
        ConfidenceOptions(least_events=10, folds=2),
    )
    assert few.log_loss


def test_folds_are_made_of_studies():
    """Each study has its own rate of truth; a probability never comes from its own outcomes."""
    study = np.repeat(np.arange(4), [40, 30, 20, 10])
    is_true = study == 0
    confidence = np.full(100, 0.5)
    p = held_out_probabilities("isotonic", confidence, is_true, study, folds=4)
    # Without study 0 nothing is true (but Laplace: 1 of 62); without another, 40 of the rest is.
    assert p[study == 0] == pytest.approx(1 / 62)
    assert p[study == 1] == pytest.approx(40 / 70)
    assert p[study == 3] == pytest.approx(40 / 90)
    # More folds than studies: each study is a fold.
    again = held_out_probabilities("isotonic", confidence, is_true, study, folds=9)
    assert (again == p).all()


def test_one_calibrator_per_finding_which_can_be_stored():
    good = events(lambda c: c, 600, 12, seed=1)
    step = events(lambda c: np.where(c > 0.5, 0.5, 0.02), 1500, 12, seed=2)
    confidence, is_true, study = (np.concatenate(parts) for parts in zip(good, step, strict=True))
    finding = np.repeat([FINDINGS.index("polyp"), FINDINGS.index("ulcer")], [600, 1500])
    fits = choose_calibrators(confidence, is_true, finding, study)
    assert list(fits) == ["polyp", "ulcer"]
    assert fits["polyp"].calibrator.method == "logistic"
    assert fits["ulcer"].calibrator.method != "logistic"
    for fit in fits.values():
        again = parse_json_options(ConfidenceFit, fit.model_dump_json(), "x", "y")
        assert again == fit
    assert choose_calibrators([], [], [], []) == {}


def test_what_cannot_be_fitted():
    with pytest.raises(EnteronError, match="no events"):
        fit_venn_abers_calibrator([], [])
    with pytest.raises(EnteronError, match="do not fit outcomes"):
        fit_logistic_calibrator([0.1], [True, False])
    with pytest.raises(EnteronError, match="outside 0 to 1"):
        reliability([1.2], [True])
    with pytest.raises(EnteronError, match="2 events have 3 studies"):
        choose_calibrator([0.1, 0.2], [True, False], [1, 2, 3])

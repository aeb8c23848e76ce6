"""The simulated classifier is as good as specified, and the same for the same seed."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks._simulation import (
    PAPER_FRAMES,
    PAPER_TABLE,
    SimulationOptions,
    average_precision,
    separabilities,
    separability,
    simulate,
)
from enteron.labels import COLUMN, LABELS, REGIONS

RATES = np.full(len(LABELS), 0.05)
INDEPENDENT = SimulationOptions(slow=0, constant=0, border=0)


def truth_of(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    truth = np.zeros((rows, len(LABELS)), dtype=bool)
    truth[np.arange(rows), np.sort(rng.integers(0, 5, rows))] = True
    truth[:, 5:] = np.repeat(rng.random((rows // 10 + 1, 12)) < 0.1, 10, axis=0)[:rows]
    return truth


@pytest.mark.parametrize("level", ["weaker", "paper", "stronger"])
def test_auc_is_as_specified_within_sampling_error(level):
    truth = truth_of(40_000)
    options = INDEPENDENT.model_copy(update={"level": level})
    scores = simulate(truth, 5, RATES, 1, options)
    for column, label in enumerate(LABELS):
        expected = separabilities(level)[label].auc
        y = truth[:, column]
        # Hanley and McNeil's bound on the variance of an AUC: a(1 - a) / min(positives, negatives)
        error = (max(expected * (1 - expected), 1e-3) / min(y.sum(), (~y).sum())) ** 0.5
        assert roc_auc_score(y, scores[:, column]) == pytest.approx(expected, abs=4 * error)


def test_the_level_of_the_paper_is_its_table():
    for label, (ap, auc, count) in PAPER_TABLE.items():
        two = separabilities("paper")[label]
        assert two.auc == pytest.approx(auc, abs=1e-6)
        assert average_precision(two, count / PAPER_FRAMES) == pytest.approx(ap, abs=0.005)
    assert set(separabilities("paper")) == set(LABELS)


def test_average_precision_is_that_of_a_large_sample():
    rng = np.random.default_rng(0)
    two = separability(0.9, 0.45, 0.03)
    y = rng.random(400_000) < 0.03
    z = rng.standard_normal(y.size)
    z = np.where(y, two.shift + two.spread * z, z)
    assert average_precision_score(y, z) == pytest.approx(0.45, abs=0.01)
    assert roc_auc_score(y, z) == pytest.approx(0.9, abs=0.005)


def test_separability_at_its_limits():
    assert separability(0.9, 0.999, 0.001).spread == 4.0  # cannot be reached
    assert separability(0.9, 0.0, 0.001).spread == 0.4


def test_noise_has_the_length_that_is_stated():
    rows, stride, length = 60_000, 5, 500.0
    options = SimulationOptions(slow=1, constant=0, border=0, correlation=length, overconfidence=1)
    scores = simulate(np.zeros((rows, 17), bool), stride, RATES, 3, options)
    for label in ("blood", "stomach"):
        x = np.log(scores[:, COLUMN[label]] / (1 - scores[:, COLUMN[label]])).astype(float)
        x = (x - x.mean()) / x.std()
        lag = int(length / stride)
        assert (x[lag:] * x[:-lag]).mean() == pytest.approx(np.exp(-1), abs=0.12)


def test_neighbouring_regions_err_together_and_findings_alone():
    scores = simulate(np.zeros((20_000, 17), bool), 5, RATES, 3, SimulationOptions(constant=0))
    x = np.corrcoef(np.log(scores / (1 - scores)).T)
    assert x[COLUMN["stomach"], COLUMN["small intestine"]] < -0.4
    assert abs(x[COLUMN["blood"], COLUMN["ulcer"]]) < 0.2


def test_borders_move_but_regions_stay_in_order():
    truth = np.zeros((3000, 17), dtype=bool)
    for k, (start, stop) in enumerate(((0, 10), (10, 30), (30, 500), (500, 2000), (2000, 3000))):
        truth[start:stop, k] = True
    options = SimulationOptions(level="stronger", slow=0, constant=0, border=300)
    regions = [
        simulate(truth, 5, RATES, seed, options)[:, : len(REGIONS)].argmax(axis=1)
        for seed in range(8)
    ]
    starts = [int(np.argmax(np.convolve(f == 4, np.ones(9), "same") > 5)) for f in regions]
    assert 5 < np.std(starts) < 200
    assert all((f[2500:] == 4).mean() > 0.9 for f in regions)


def test_the_same_seed_gives_the_same_scores():
    truth = truth_of(500)
    first, again, other = (simulate(truth, 5, RATES, seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9
    assert first.dtype == np.float32
    assert ((first >= 0) & (first <= 1)).all()

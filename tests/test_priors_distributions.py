"""Distributions behind the priors: sizes, and presence of several labels at once."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from enteron.priors.statistics import (
    LEVELS,
    Sizes,
    correlation_from_table,
    correlation_to_table,
    fit_latent,
    fit_sizes,
    joint_probability,
    latent_correlation,
    positive_definite,
)


def test_sizes_by_hand():
    sizes = fit_sizes([4, 1, 2, 1])
    assert (sizes.n, sizes.single) == (4, 0.5)
    assert sizes.log_mean == pytest.approx(np.log([2, 4]).mean(), abs=1e-4)
    assert sizes.log_sd == pytest.approx(np.log([2, 4]).std(ddof=1), abs=1e-4)
    # 2 fills the levels to one half, spread over 1.5 to 2.5; 4 the others, over 3.5 to 4.5.
    quantile = dict(zip(LEVELS, sizes.quantiles, strict=True))
    assert quantile[0.0] == 1.5
    assert quantile[0.25] == pytest.approx(2.0)
    assert quantile[0.75] == pytest.approx(4.0)
    assert quantile[1.0] == 4.5
    assert sizes.quantile(0.3) == 1
    assert sizes.quantile(0.875) == pytest.approx(4.0)


def test_weights_count_like_repetitions():
    repeated = fit_sizes([1, 3, 3, 3, 8, 8])
    weighted = fit_sizes([1, 3, 8], weights=[1, 3, 2])
    assert weighted.single == repeated.single
    assert weighted.log_mean == repeated.log_mean
    assert weighted.quantiles == repeated.quantiles


@pytest.mark.parametrize(("values", "single"), [([], 0.0), ([1, 1, 1], 1.0)])
def test_sizes_without_anything_above_one(values: list[int], single: float):
    sizes = fit_sizes(values)
    assert sizes.single == single
    drawn = sizes.draw(50, np.random.default_rng(1))
    assert set(drawn.tolist()) == {1 if single else 2}


def test_drawn_sizes_come_as_often_as_they_were_seen():
    seen = np.random.default_rng(5).lognormal(1.5, 1.2, size=4000).astype(int) + 1
    n = 40_000
    drawn = fit_sizes(seen).draw(n, np.random.default_rng(6))
    assert drawn.min() == 1
    assert drawn.max() <= seen.max()
    for size in (1, 2, 3, 5, 8, 20, 60):
        share = float(np.mean(seen <= size))
        # Sampling error at four standard errors, and half a level for what lies between two.
        bound = 4 * np.sqrt(share * (1 - share) / n) + 0.01
        assert float(np.mean(drawn <= size)) == pytest.approx(share, abs=bound)


def test_quantiles_below_two_are_refused():
    with pytest.raises(ValueError, match="above 1"):
        Sizes(n=1, single=0, log_mean=0, log_sd=0, quantiles=tuple([1.0] * len(LEVELS)))


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.4, 0.8, 0.97])
@pytest.mark.parametrize(("a", "b"), [(0.1625, 0.6375), (0.5, 0.5), (0.9, 0.2)])
def test_both_present_equals_the_bivariate_normal_integral(a: float, b: float, correlation: float):
    covariance: Any = [[1, correlation], [correlation, 1]]
    expected = multivariate_normal.cdf([norm.ppf(a), norm.ppf(b)], cov=covariance)
    assert joint_probability(a, b, correlation) == pytest.approx(float(expected), abs=1e-5)
    # Compared by what it gives: where both is all but the rarer one, the correlation hardly counts.
    found = latent_correlation(a, b, joint_probability(a, b, correlation))
    assert joint_probability(a, b, found) == pytest.approx(
        joint_probability(a, b, correlation), abs=1e-9
    )


def test_a_label_that_is_always_or_never_there():
    assert joint_probability(1.0, 0.3, 0.5) == 0.3
    assert joint_probability(0.0, 0.3, 0.5) == 0


def test_latent_correlation_is_found_again_and_noise_is_not():
    rng = np.random.default_rng(2)
    truth = np.eye(3)
    truth[0, 1] = truth[1, 0] = 0.7
    gaussians = rng.standard_normal((4000, 3)) @ np.linalg.cholesky(truth).T
    present = gaussians < norm.ppf([0.3, 0.6, 0.5])
    found = fit_latent(present, np.ones_like(present))
    assert found[0, 1] == pytest.approx(0.7, abs=0.08)
    assert found[0, 2] == 0
    assert found[1, 2] == 0


def test_studies_in_which_a_label_cannot_be_do_not_count():
    # Two labels that never meet, but only because one of them was impossible half of the time.
    present = np.array([[True, False], [False, True]] * 30)
    possible = np.array([[True, False], [True, True]] * 30)
    assert fit_latent(present, np.ones_like(present))[0, 1] < -0.9
    assert fit_latent(present, possible)[0, 1] == 0


def test_contradicting_pairs_become_a_proper_correlation():
    impossible = np.array([[1, 0.98, 0], [0.98, 1, 0.9], [0, 0.9, 1]])
    mended = positive_definite(impossible)
    assert np.allclose(np.diag(mended), 1)
    assert np.linalg.eigvalsh(mended).min() > 0
    names = ("blood", "erosion", "polyp")
    again = correlation_from_table(correlation_to_table(mended, names), names)
    assert np.allclose(again, mended, atol=6e-4)
    assert np.linalg.eigvalsh(again).min() > 0

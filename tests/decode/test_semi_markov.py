"""The semi-Markov transit against brute force, its grid against every row, and by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.decoding.options import SemiMarkovOptions
from enteron.decoding.regions import (
    best_borders,
    best_borders_on,
    border_posterior,
    log_durations,
    make_problem,
    semi_markov_regions,
)
from enteron.labels import REGIONS
from enteron.priors import load_priors
from tests.decode.making import regions_drawn

PRIORS = load_priors()


def every_path(rows: int):
    for inner in itertools.combinations_with_replacement(range(rows + 1), 4):
        yield (0, *inner, rows)


def value(borders, evidence, durations, kappa) -> float:
    """The objective as the specification writes it, region by region, row by row."""
    total = 0.0
    for k in range(5):
        for t in range(borders[k], borders[k + 1]):
            total += kappa * float(evidence[t, k])
        total += float(durations[k, borders[k + 1] - borders[k]])
    return total


def objective(problem, borders) -> float:
    """The same from the sums along time that the solver uses, for borders b_0 to b_5."""
    k = np.arange(problem.regions)
    gained = problem.total[k, borders[1:]] - problem.total[k, borders[:-1]]
    return float((gained + problem.durations[k, np.diff(borders)]).sum())


def drawn_problem(seed: int, rows: int, strength: float = 2.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, strength, (rows, 5)), log_durations(
        rows, int(rng.integers(1, 3000)), PRIORS
    )


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([0.1, 0.3, 1.0]))
def test_optimum_equals_brute_force(seed, rows, kappa):
    evidence, durations = drawn_problem(seed, rows)
    problem = make_problem(evidence, durations, kappa)
    best = max(value(path, evidence, durations, kappa) for path in every_path(rows))
    borders = best_borders(problem, cells=160, dense=400)
    assert value(borders.tolist(), evidence, durations, kappa) == pytest.approx(best, abs=1e-9)
    assert objective(problem, borders) == pytest.approx(best, abs=1e-9)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_posterior_equals_brute_force(seed, rows):
    evidence, durations = drawn_problem(seed, rows)
    posterior = border_posterior(make_problem(evidence, durations, 0.3), np.arange(rows + 1))
    paths = list(every_path(rows))
    weights = np.array([math.exp(value(path, evidence, durations, 0.3)) for path in paths])
    weights /= weights.sum()
    for border in range(6):
        wanted = np.bincount([p[border] for p in paths], weights=weights, minlength=rows + 1)
        np.testing.assert_allclose(posterior.borders[border], wanted, atol=1e-9)
    for k in range(5):
        rows_in = sum(w * (p[k + 1] - p[k]) for p, w in zip(paths, weights, strict=True))
        assert posterior.region_mean(k, 0, rows) * rows == pytest.approx(rows_in, abs=1e-9)


def study(seed: int, lengths=(8, 12, 300, 1200, 600), noise: float = 1.5) -> np.ndarray:
    """Evidence of a study with correlated noise."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(5), lengths)
    drift = np.cumsum(rng.normal(0, 0.15, (truth.size, 5)), axis=0)
    drift -= drift.mean(axis=0)
    return (
        np.where(truth[:, None] == np.arange(5), 1.5, -1.5)
        + drift
        + rng.normal(0, noise, drift.shape)
    )


@pytest.mark.parametrize("seed", range(12))
def test_adaptive_grid_finds_the_optimum_of_every_row(seed):
    evidence = study(seed)
    problem = make_problem(evidence, log_durations(len(evidence), 5, PRIORS), 0.3)
    everything = best_borders_on(problem, np.arange(problem.rows + 1))
    coarse = best_borders(problem, cells=40, dense=60)
    assert objective(problem, coarse) == pytest.approx(objective(problem, everything), abs=1e-6)


def test_posterior_on_a_grid_is_near_that_of_every_row():
    evidence = study(3)
    problem = make_problem(evidence, log_durations(len(evidence), 5, PRIORS), 0.05)
    exact = border_posterior(problem, np.arange(problem.rows + 1))
    edges = np.unique(
        np.concatenate([np.arange(60), np.arange(0, problem.rows, 20), [problem.rows]])
    )
    rough = border_posterior(problem, edges)
    for border in range(1, 5):
        by_cell = np.add.reduceat(exact.borders[border], edges)
        np.testing.assert_allclose(rough.borders[border], by_cell, atol=0.02)


def transit(line: str, stride: int = 1000, kappa: float = 0.3, right=0.9, wrong=0.05):
    p = regions_drawn(line, right, wrong)
    runs = semi_markov_regions(p, np.full(5, 0.5), stride, SemiMarkovOptions(), kappa, PRIORS)
    return "".join("mesic"[REGIONS.index(run.label)] * (run.stop - run.start) for run in runs)


@pytest.mark.parametrize(
    "line",
    [
        "i" * 40 + "c" * 20,  # mouth, esophagus and stomach missing
        "sss" + "i" * 40 + "c" * 20,
        "sss" + "i" * 40,  # open at the end: the colon was never reached
        "i" * 40,
    ],
)
def test_missing_regions(line):
    assert transit(line) == line


def test_one_frame():
    #  a single row of 40,000 frames is an intestine; one of 50 frames can hardly be one
    assert transit("i", stride=40_000) == "i"
    assert transit("i", stride=50, right=0.51) != "i"


def test_short_regions_are_found_at_their_own_scale():
    #  stride 5: ten rows of mouth are 50 frames, as usual
    line = "m" * 10 + "e" * 10 + "s" * 300 + "i" * 900
    assert transit(line, stride=5) == line


def test_back_steps_are_noise():
    #  colon, two rows back in the intestine, colon again: one stay of each
    assert transit("i" * 40 + "cccc" + "ii" + "c" * 30) == "i" * 40 + "c" * 36
    assert transit("sss" + "i" * 20 + "s" + "i" * 20) == "sss" + "i" * 41


def test_a_wrong_stretch_does_not_commit():
    #  the state machine with tau 5 takes six rows of colon in the middle for the colon
    line = "i" * 30 + "c" * 6 + "i" * 30 + "c" * 10
    assert transit(line) == "i" * 66 + "c" * 10


def test_confidence_falls_with_the_evidence():
    line = "s" * 5 + "i" * 40 + "c" * 30
    sure = semi_markov_regions(
        regions_drawn(line), np.full(5, 0.5), 1000, SemiMarkovOptions(margin=1), 0.3, PRIORS
    )
    unsure = semi_markov_regions(
        regions_drawn(line, 0.55, 0.45),
        np.full(5, 0.5),
        1000,
        SemiMarkovOptions(margin=1),
        0.3,
        PRIORS,
    )
    assert sure[-1].score > 0.99 > 0.9 > unsure[-1].score
    assert sure[-1].onset is not None
    assert unsure[-1].onset is not None
    assert sure[-1].onset > 0.9 > 0.5 > unsure[-1].onset
    assert sure[0].onset is None  # the study begins there
    assert sure[-1].end is None


def test_durations_are_probabilities():
    table = log_durations(1_000_000, 1, PRIORS)
    assert np.exp(table[:, :-1]).sum(axis=1) == pytest.approx(np.ones(5), abs=0.01)
    assert np.isneginf(table[:, -1]).all()

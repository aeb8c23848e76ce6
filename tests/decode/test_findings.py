"""Hysteresis, persistence, limits and gating against the paper's loops, and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from enteron.decoding.events import DecodedRun
from enteron.decoding.evidence import running_mean_log_odds, running_median
from enteron.decoding.findings import (
    find_candidates,
    median_run_length,
    persistence,
    select_candidates,
)
from enteron.decoding.options import PAPER, TRANSIT, FindingOptions
from enteron.decoding.pipeline import gate
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors import load_priors
from enteron.runs import hysteresis, means, runs_of
from tests.decode.making import drawn
from tests.literal import decoding as literal

PRIORS = load_priors()
columns = hnp.arrays(
    np.float32, st.integers(1, 60), elements=st.sampled_from([0.0, 0.3, 0.35, 0.5, 0.7, 1.0])
)


@settings(max_examples=500)
@given(columns, st.sampled_from([0.3, 0.5, 0.7, 1.0]), st.sampled_from([0.5, 0.7, 1.0]))
def test_hysteresis_equals_the_loop(p, high, share):
    low = share * high
    exact = [float(np.float32(v)) for v in (high, low)]
    assert [tuple(s) for s in hysteresis(p, high, low).tolist()] == literal.hysteresis(
        p.tolist(), *exact
    )


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("#", [(0, 1)]),  # one frame
        (".", []),
        ("#####", [(0, 5)]),  # all on
        (".....", []),  # all off
        ("..5##", [(2, 5)]),  # open at the end, grown to the left
        ("##5..", [(0, 3)]),
        ("555555", []),  # never reaches the upper threshold
        ("#5.5#", [(0, 2), (3, 5)]),  # a row below both parts two events
        ("#555#", [(0, 5)]),  # rows between the thresholds join them
    ],
)
def test_hysteresis_by_hand(line, spans):
    assert hysteresis(drawn(line), 0.7, 0.49).tolist() == [list(s) for s in spans]


def test_a_threshold_is_reached_by_a_score_equal_to_it():
    p = np.array([0.55, 0.1, 0.7], dtype=np.float32)
    assert hysteresis(p, 0.55, 0.55).tolist() == [[0, 1], [2, 3]]


@given(hnp.arrays(np.bool_, st.integers(0, 30)))
def test_runs_are_the_mask(mask):
    again = np.zeros(mask.size, dtype=bool)
    for start, stop in runs_of(mask):
        assert not again[max(0, start - 1) : stop].any()
        again[start:stop] = True
    np.testing.assert_array_equal(again, mask)


@settings(max_examples=200)
@given(columns)
def test_persistence_equals_the_loop(p):
    spans = hysteresis(p, 0.5, 0.35)
    wanted = [literal.persistence(p.tolist(), tuple(span)) for span in spans.tolist()]
    np.testing.assert_allclose(persistence(means(p, spans), spans), wanted, rtol=1e-6)
    candidates = find_candidates("blood", p, 0.5, 0.7)
    np.testing.assert_allclose([c.persistence for c in candidates], wanted, rtol=1e-6)
    assert [c.peak for c in candidates] == [p[a:b].max() for a, b in spans]


def test_persistence_by_hand():
    #  ####  d = t_e - t_s = 3 - 0 = 3,  S = 1 x ln 4;  a single row has d = 0 and S = 0
    (four,) = find_candidates("blood", drawn(".####."), 0.5, 0.7)
    (one,) = find_candidates("blood", drawn("#"), 0.5, 0.7)
    assert four.persistence == pytest.approx(math.log(4))
    assert (four.duration, one.duration, one.persistence) == (3, 0, 0)


def kept(lengths, options, label="blood", p=1.0):
    line = np.zeros(sum(lengths) + len(lengths), dtype=np.float32)
    start = 0
    for length in lengths:
        line[start : start + length] = p
        start += length + 1
    selected = select_candidates(find_candidates(label, line, 0.5, 0.7), options, PRIORS)
    return [c.stop - c.start for c in selected]


def test_limits_of_the_paper():
    #  S >= 2 at p = 1 needs ln(1 + d) >= 2, so d >= 6.39: seven rows give d = 6 and go, eight stay
    assert kept([7, 8], PAPER.findings) == [8]
    #  d = 3,000 stays and d = 3,001 goes
    assert kept([3001, 3002], PAPER.findings) == [3001]
    assert kept([9] * 45, PAPER.findings) == [9] * 40
    assert kept([9, 30, 20], PAPER.findings) == [30, 20, 9]


def test_no_limit_is_not_a_limit_of_zero():
    everything = FindingOptions(persistence=None, longest=None, most=None)
    assert sorted(kept([1, 4000], everything)) == [1, 4000]
    assert kept([5, 5], FindingOptions(persistence=0.0, most=0)) == []
    assert kept([1, 5], FindingOptions(persistence=0.0, longest=0)) == [1]


def test_floors_from_run_lengths_let_short_lesions_live():
    for label in FINDINGS:
        shortest = int(PRIORS.run_lengths(label).quantile(0.1))
        assert kept([shortest], TRANSIT.findings, label) == [shortest]
        if shortest > 1:
            assert kept([shortest - 1], TRANSIT.findings, label) == []


@settings(max_examples=60)
@given(
    hnp.arrays(np.float32, st.integers(1, 80), elements=st.floats(0, 1, width=32)),
    st.sampled_from([1, 3, 25, 51]),
)
def test_median_equals_the_loop(p, window):
    smoothed = running_median(np.stack([p, p[::-1]], axis=1), window)
    assert smoothed[:, 0].tolist() == literal.median_filter(p.tolist(), window)
    assert smoothed[:, 1].tolist() == literal.median_filter(p[::-1].tolist(), window)


def test_mean_of_log_odds_keeps_what_a_median_erases():
    p = np.full(41, 0.1, dtype=np.float32)
    p[20:22] = 0.99
    assert running_median(p[:, None], 5)[:, 0].max() == np.float32(0.1)
    #  log-odds -2.2 three times and 4.6 twice: their mean is 0.52, a probability of 0.63
    assert running_mean_log_odds(p, 5).max() == pytest.approx(0.627, abs=0.001)
    np.testing.assert_allclose(running_mean_log_odds(p[:10], 5), 0.1, rtol=1e-5)


def test_windows_are_odd_and_no_longer_than_the_median_run():
    for label in FINDINGS:
        window = median_run_length(label, PRIORS)
        assert window % 2 == 1
        assert 1 <= window <= PRIORS.run_lengths(label).quantile(0.5)


def test_gating_equals_the_loop():
    rng = np.random.default_rng(0)
    p = rng.random((50, len(LABELS))).astype(np.float32)
    regions = [  # rows 0 to 5 have no region
        DecodedRun("esophagus", 5, 12, 1.0),
        DecodedRun("stomach", 12, 30, 1.0),
        DecodedRun("colon", 30, 50, 1.0),
    ]
    names = [None] * 5 + ["esophagus"] * 7 + ["stomach"] * 18 + ["colon"] * 20
    result = gate(p, regions, PRIORS)
    for label in LABELS:
        column = COLUMN[label]
        wanted = literal.gate(p[:, column].tolist(), names, PRIORS.given_region.shares, label)
        if label in REGIONS:
            wanted = p[:, column].tolist()
        np.testing.assert_allclose(result[:, column], wanted, rtol=1e-6)
    assert set(LANDMARKS) | set(FINDINGS) | set(REGIONS) == set(LABELS)
    np.testing.assert_array_equal(gate(p, regions, PRIORS, factor=1), p)

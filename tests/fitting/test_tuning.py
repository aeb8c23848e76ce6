"""Fitting on small studies: curves by hand, budgets kept, nothing fitted on what is reported."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from benchmarks._simulation import Level, SimulationOptions, simulate
from enteron.decoding import PRESETS, decode
from enteron.decoding.evidence import base_rates
from enteron.errors import LabelError
from enteron.fitting.decoder import FitOptions, cross_validate, fit_decoder, mean_overlap
from enteron.fitting.events import (
    FALSE_STRETCH,
    THRESHOLDS,
    EventCurve,
    FindingColumn,
    count_overlapped,
    event_curve,
    fit_logistic,
    match_spans,
    true_rows_before,
    within_budget,
)
from enteron.fitting.frames import LabelledStudy
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.phantom.timeline import TimelineOptions, draw_timeline
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores
from tests.decode.making import drawn

PRIORS = load_priors()
QUICK = FitOptions(kappas=(0.1, 0.3), lows=(0.7,), windows=(25,), folds=2)


def studies(count: int, rows: int = 2500, level: Level = "stronger") -> list[LabelledStudy]:
    labelled = []
    for seed in range(count):
        truth = draw_timeline(rows, seed, PRIORS, TimelineOptions(rarity=0.3)).labels
        options = SimulationOptions(level=level)
        values = simulate(truth, 20, base_rates(PRIORS), seed, options)
        scores = Scores(str(seed), FrameAxis(20 * np.arange(rows)), values)
        labelled.append(LabelledStudy(scores, truth))
    return labelled


def test_a_curve_by_hand():
    #  truth      .##....##.......
    #  scores     .9.....55..9....    at 0.9 two events, one of them right; at 0.5 three, two right
    truth = drawn(".##....##.......") > 0
    column = FindingColumn(drawn(".9.....55..9...."), truth, row_frames=1)
    counted = event_curve(column, low=1.0, shortest=1)
    high, middle = (int(np.searchsorted(THRESHOLDS, level)) for level in (0.85, 0.45))
    assert THRESHOLDS[high] <= 0.9
    assert (counted.truths, counted.found[high], counted.right[high]) == (2, 1, 1)
    assert counted.alarms[high] == 1
    assert (counted.found[middle], counted.right[middle], counted.alarms[middle]) == (2, 2, 1)
    assert counted.found[-1] == 0  # above the highest score


def test_a_long_event_costs_its_false_minutes():
    truth = np.zeros(1000, dtype=bool)
    truth[500:510] = True
    right, cost = match_spans(np.array([[0, 1000]]), true_rows_before(truth), row_frames=2)
    assert right.tolist() == [True]
    assert cost == pytest.approx(990 * 2 / FALSE_STRETCH)
    assert match_spans(np.array([[0, 3]]), true_rows_before(truth), row_frames=1)[1] == 1.0
    assert match_spans(np.empty((0, 2), int), true_rows_before(truth), row_frames=1)[1] == 0.0


@given(st.lists(st.integers(1, 6), max_size=10), st.lists(st.integers(1, 6), max_size=10))
def test_overlapped_is_any_overlap(first, second):
    def spans(steps):
        edges = np.cumsum(steps)
        return edges[: 2 * (len(edges) // 2)].reshape(-1, 2)

    a, b = spans(first), spans(second)
    wanted = sum(any(x[0] < y[1] and y[0] < x[1] for y in b.tolist()) for x in a.tolist())
    assert count_overlapped(a, b) == wanted


def a_curve(found, alarms) -> EventCurve:
    size = THRESHOLDS.size
    full = [np.zeros(size), np.zeros(size), np.zeros(size)]
    full[0][: len(found)] = found
    full[2][: len(alarms)] = alarms
    return EventCurve(100, *full)


def test_the_budget_goes_where_it_finds_most():
    #  blood finds 10 for 2 alarms or 12 for 20; polyp finds 3 for 2; ulcer 1 for 50
    curves = {
        "blood": {5: a_curve([12, 10], [20, 2]), 25: a_curve([11], [3])},
        "polyp": {5: a_curve([3], [2])},
        "ulcer": {5: a_curve([1], [50])},
    }
    assert within_budget(curves, 4) == {
        "blood": (5, pytest.approx(THRESHOLDS[1])),
        "polyp": (5, pytest.approx(THRESHOLDS[0])),
        "ulcer": None,
    }
    assert within_budget(curves, 0) == {"blood": None, "polyp": None, "ulcer": None}
    everything = within_budget(curves, 1000)
    assert everything["ulcer"] is not None
    assert everything["blood"] == (5, pytest.approx(THRESHOLDS[0]))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0, 60))
def test_the_budget_is_kept(seed, alarms):
    rng = np.random.default_rng(seed)
    curves = {
        label: {
            window: EventCurve(
                50,
                np.sort(rng.integers(0, 50, THRESHOLDS.size))[::-1],
                np.zeros(THRESHOLDS.size),
                np.sort(rng.random(THRESHOLDS.size) * 40)[::-1],
            )
            for window in (3, 25)
        }
        for label in FINDINGS
    }
    chosen = within_budget(curves, alarms)
    spent = sum(
        curves[label][choice[0]].alarms[int(np.argmin(np.abs(THRESHOLDS - choice[1])))]
        for label, choice in chosen.items()
        if choice is not None
    )
    assert spent <= alarms + 1e-9


def test_logistic_equals_a_direct_minimisation():
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, 60)
    y = rng.random(60) < 1 / (1 + np.exp(-(0.5 * x - 1)))
    mean = x.mean()

    def loss(b) -> float:
        z = b[0] + b[1] * (x - mean)
        fit = np.where(y, np.logaddexp(0, -z), np.logaddexp(0, z)).sum()
        return fit + 0.5 * (np.logaddexp(0, b[0]) + np.logaddexp(0, -b[0])) + b[1] ** 2 / 2

    direct = minimize(loss, np.zeros(2)).x
    intercept, slope = fit_logistic(x, y)
    assert slope == pytest.approx(direct[1], abs=1e-4)
    assert intercept + slope * mean == pytest.approx(direct[0], abs=1e-4)


def test_logistic_of_nothing_and_of_one_outcome():
    assert fit_logistic(np.array([]), np.array([], bool)) == (0.0, 0.0)
    intercept, slope = fit_logistic(np.zeros(30), np.ones(30, bool))
    assert slope == 0
    assert 1 / (1 + np.exp(-intercept)) == pytest.approx(30.5 / 31)
    #  higher scores for the absent: no slope rather than a negative one
    assert fit_logistic(np.array([0.0, 1, 2, 3]), np.array([True, True, False, False]))[1] == 0


def test_mean_overlap_by_hand():
    truth = np.zeros((10, 5), dtype=bool)
    truth[:5, 2] = truth[5:, 3] = True
    assert mean_overlap(np.array([0, 0, 0, 5, 10, 10]), truth) == 1.0
    #  stomach [0, 4): 4 of 5; intestine [4, 8): 3 of 6; colon [8, 10): invented, 0
    assert mean_overlap(np.array([0, 0, 0, 4, 8, 10]), truth) == pytest.approx((0.8 + 0.5 + 0) / 3)


@pytest.fixture(scope="module")
def simulated() -> list[LabelledStudy]:
    return studies(6)


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit_decoder(simulated[:4], PRIORS, QUICK)


def test_everything_is_fitted(fitted):
    assert set(fitted.events) == set(FINDINGS)
    assert set(fitted.silence) == set(LABELS)
    assert fitted.studies == 4
    assert fitted.kappa in QUICK.kappas
    assert fitted.low in QUICK.lows
    assert fitted.budget == QUICK.budget


def test_every_preset_decodes_with_it(simulated, fitted):
    for name, options in PRESETS.items():
        for study in simulated[4:]:
            events = decode(study.scores, options, PRIORS, fitted)
            for event in events:
                assert event.score is not None
                assert 0 <= event.score <= 1
            if name == "challenge":
                emitted = {event.label for event in events}
                everything = {
                    e.label for e in decode(study.scores, PRESETS["transit"], PRIORS, fitted)
                }
                assert emitted <= everything


def test_a_finding_that_no_study_shows_is_never_emitted(simulated):
    blind = []
    for study in simulated[:3]:
        truth = study.truth.copy()
        truth[:, COLUMN["blood"]] = False
        blind.append(LabelledStudy(study.scores, truth))
    fitted = fit_decoder(blind, PRIORS, QUICK)
    assert fitted.events["blood"].threshold is None
    assert fitted.events["blood"].clinical is None
    for name in ("transit", "clinical"):
        events = decode(simulated[4].scores, PRESETS[name], PRIORS, fitted)
        assert "blood" not in {event.label for event in events}


def test_no_study_is_evaluated_with_what_was_fitted_on_it():
    simulated = studies(4, rows=900)
    quick = QUICK.model_copy(update={"kappas": (0.3,), "windows": ()})
    folds = list(cross_validate(simulated, PRIORS, 2, quick))
    evaluated = [study for fold in folds for study in fold.studies]
    assert sorted(evaluated) == sorted(study.scores.study for study in simulated)
    for fold in folds:
        assert not set(fold.studies) & set(fold.fitted_on)
        assert fold.calibration.studies == len(fold.fitted_on)
        assert all(len(p) == len(fold.studies) for p in fold.predictions.values())
    #  changing the truth of a study changes nothing in its own fold
    other = [*simulated[:3], LabelledStudy(simulated[3].scores, ~simulated[3].truth)]
    again = list(cross_validate(other, PRIORS, 2, quick))
    assert again[1].predictions == folds[1].predictions
    assert again[0].calibration != folds[0].calibration


def test_folds_that_cannot_be(simulated):
    for folds in (1, 7):
        with pytest.raises(LabelError, match=f"6 studies cannot be divided into {folds} folds"):
            list(cross_validate(simulated, PRIORS, folds, QUICK))

"""The drift watch: statistics against scipy and by hand, and made-up shifts."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from enteron.confidence import DIMENSIONS, Reference, StudyStatistics
from enteron.fleet.catalogue import COLUMN_NAMES, study_schema
from enteron.fleet.drift import (
    LARGE,
    cliffs_delta,
    compare_group,
    drift_report,
    energy_test,
    holm,
    load_reference,
    mann_whitney,
)
from enteron.labels import LABELS


def studies(
    rng, count, *, brightness=80.0, shift=0.0, ulcer=0.02, encoder="weights"
) -> list[StudyStatistics]:
    """Studies that differ as real ones do: by a spread of their own."""
    made = []
    for _ in range(count):
        scores = {label: float(np.clip(rng.gamma(4, 0.01), 0, 1)) for label in LABELS}
        scores["ulcer"] = float(np.clip(rng.normal(ulcer, 0.004), 0, 1))
        made.append(
            StudyStatistics(
                brightness=float(np.clip(rng.normal(brightness, 8), 0, 255)),
                scores=scores,
                signature=tuple((rng.normal(size=DIMENSIONS) * 0.05 + shift).tolist()),
                encoder=encoder,
            )
        )
    return made


def moved(group):
    return {shift.name for shift in group.moved}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, set()),
        ({"brightness": 110.0}, {"brightness"}),
        ({"ulcer": 0.06}, {"scores of ulcer"}),
        ({"shift": 0.08}, {"appearance"}),
        ({"brightness": 50.0, "shift": 0.08}, {"brightness", "appearance"}),
    ],
)
def test_what_moved_is_named_and_nothing_else(changes, names):
    rng = np.random.default_rng(1)
    group = compare_group("olympus", "2026-11", studies(rng, 20, **changes), studies(rng, 25))
    assert moved(group) == names


def test_the_direction_is_told():
    rng = np.random.default_rng(2)
    group = compare_group("a", "b", studies(rng, 20, brightness=50.0), studies(rng, 25))
    assert "brightness: lower, 4" in group.moved[0].sentence
    assert "where the calibration has 8" in group.moved[0].sentence


def test_without_drift_hardly_any_group_is_named():
    """Of 60 groups without drift, at most a few at alpha = .01."""
    rng = np.random.default_rng(3)
    reference = studies(rng, 30)
    named = sum(
        bool(moved(compare_group("a", "b", studies(rng, 12), reference))) for _ in range(60)
    )
    assert named <= 3


def test_a_small_shift_of_many_studies_is_not_named():
    rng = np.random.default_rng(4)
    group = compare_group("a", "b", studies(rng, 400, brightness=83.0), studies(rng, 400))
    shift = next(shift for shift in group.shifts if shift.name == "brightness")
    assert shift.p < 0.01
    assert abs(shift.size) < LARGE
    assert not shift.moved


def test_few_studies_tell_nothing():
    rng = np.random.default_rng(5)
    group = compare_group("a", "b", studies(rng, 4, brightness=200.0), studies(rng, 25))
    assert group.shifts == ()
    assert "too few to tell" in group.note


# ---- the statistics


def test_cliffs_delta_by_hand():
    assert cliffs_delta(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert cliffs_delta(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == 0.0
    assert cliffs_delta(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == -0.75


def test_equal_values_have_no_p_value_below_one():
    assert mann_whitney(np.ones(6), np.ones(7)) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_against_its_definition(p_values):
    """Sorted p times the number of hypotheses left, made monotone."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    expected = {}
    for rank, index in enumerate(order):
        terms = [(len(p_values) - k) * p_values[order[k]] for k in range(rank + 1)]
        expected[index] = min(1.0, max(terms))
    assert holm(p_values) == pytest.approx([expected[i] for i in range(len(p_values))])


def test_the_energy_distance_against_its_definition():
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(9, 5)), rng.normal(size=(13, 5)) + 0.7
    across = cdist(first, second).mean()
    energy = 2 * across - cdist(first, first).mean() - cdist(second, second).mean()
    share, p = energy_test(first, second)
    assert share == pytest.approx(energy / (2 * across))
    assert p < 0.01
    distances = cdist(np.concatenate([first, second]), np.concatenate([first, second]))

    def energy_of(rows):
        other = np.setdiff1d(np.arange(22), rows)
        means = [
            distances[np.ix_(a, b)].mean() for a, b in ((rows, other), (rows, rows), (other, other))
        ]
        return 2 * means[0] - means[1] - means[2]

    larger = sum(energy_of(rng.permutation(22)[:9]) >= energy for _ in range(1000))
    assert larger <= 10


def test_the_permutation_test_is_valid():
    """Without a difference, p-values are uniform: their mean is near one half."""
    rng = np.random.default_rng(7)
    p_values = [
        energy_test(rng.normal(size=(8, 4)), rng.normal(size=(10, 4)), seed)[1]
        for seed in range(60)
    ]
    assert 0.35 < np.mean(p_values) < 0.65
    assert min(p_values) > 0.001


# ---- over the catalogue


def catalogue_rows(group, device, month):
    return [
        {
            "study": f"{device}-{number}",
            "state": "finished",
            "device": device,
            "month": month,
            "brightness": study.brightness,
            "encoder": study.encoder,
            "signature": list(study.signature),
            **{f"{COLUMN_NAMES[label]}_mean": value for label, value in study.scores.items()},
        }
        for number, study in enumerate(group)
    ]


def test_devices_and_months_are_compared_apart(tmp_path):
    rng = np.random.default_rng(8)
    rows = catalogue_rows(studies(rng, 15), "olympus", "2026-10")
    rows += catalogue_rows(studies(rng, 15, brightness=120.0), "olympus", "2026-11")
    rows += catalogue_rows(studies(rng, 15), None, "2026-11")
    rows += catalogue_rows(studies(rng, 2, encoder="other"), "pillcam", "2026-11")
    table = pl.DataFrame(rows, schema=study_schema())
    report = drift_report(table, Reference(studies=tuple(studies(rng, 25))))
    found = {(group.device, group.month): moved(group) for group in report.groups}
    assert found == {
        ("olympus", "2026-10"): set(),
        ("olympus", "2026-11"): {"brightness"},
        ("unknown device", "2026-11"): set(),
    }
    assert "2 studies were read with another encoder" in report.note
    assert "calibrate it again" in drift_report(table, None).note
    assert load_reference(tmp_path) is None

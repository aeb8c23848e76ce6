"""Findings measured on studies that did not train, and what becomes of those that are not."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from enteron.calibration import Calibration, EventRule, Measured
from enteron.fitting.decoder import fit_decoder
from enteron.fitting.events import fit_logistic
from enteron.fitting.frames import (
    LabelledStudy,
    absent_weights,
    count_log_odds,
    fit_calibration,
    real_outrank_drawn,
)
from enteron.fitting.measuring import (
    frame_auc,
    measure_frames,
    measure_studies,
    with_measured,
    without_lonely_findings,
)
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

ULCER, POLYP = COLUMN["ulcer"], COLUMN["polyp"]


def study(
    name: str,
    seed: int,
    *,
    shows: int | None = ULCER,
    rows: int = 120,
    partial: bool = False,
    drawn: bool = False,
    recording_frames: int | None = None,
) -> LabelledStudy:
    """A third of the rows show a finding, with higher scores; all of them the small intestine."""
    generator = np.random.default_rng(seed)
    truth = np.zeros((rows, len(LABELS)), np.bool_)
    values = generator.uniform(0.01, 0.4, size=truth.shape).astype(np.float32)
    truth[:, COLUMN["small intestine"]] = True
    values[:, COLUMN["small intestine"]] = 0.9
    if shows is not None:
        truth[40:80, shows] = True
        values[40:80, shows] += 0.3
    known = None
    if partial:
        known = np.zeros_like(truth)
        known[:, [COLUMN[f] for f in FINDINGS]] = True
        truth &= known
    scores = Scores(name, FrameAxis(np.arange(rows)), values)
    return LabelledStudy(scores, truth, known, drawn, recording_frames)


def test_auc_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    present, absent = generator.integers(0, 9, 50) / 9, generator.integers(0, 7, 80) / 9
    truth = np.repeat([1, 0], [50, 80])
    expected = roc_auc_score(truth, np.concatenate([present, absent]))
    assert frame_auc(present, absent) == pytest.approx(expected)


def test_studies_count_alike_and_one_is_not_enough():
    studies = [study("a", 1), study("b", 2, rows=90), study("c", 3, shows=POLYP)]
    measured = measure_studies(studies, "Kvasir-Capsule")
    assert set(measured) == {"ulcer"}  # the polyp has one study
    expected = np.mean(
        [roc_auc_score(s.truth[:, ULCER], s.scores.values[:, ULCER]) for s in studies[:2]]
    )
    assert measured["ulcer"].auc == pytest.approx(expected)
    assert (measured["ulcer"].studies, measured["ulcer"].data) == (2, "Kvasir-Capsule")
    pooled = measure_frames(studies, "pictures")
    truth = np.concatenate([s.truth[:, ULCER] for s in studies])
    values = np.concatenate([s.scores.values[:, ULCER] for s in studies])
    assert pooled["ulcer"].auc == pytest.approx(roc_auc_score(truth, values))
    assert set(pooled) == {"ulcer", "polyp"}


def test_findings_without_proof_are_switched_off():
    rule = EventRule(threshold=0.3, clinical=0.4, window=1, intercept=0, slope=1)
    fitted = Calibration(events=dict.fromkeys(FINDINGS, rule))
    assert fitted.unproven == {}
    measured = {
        "ulcer": Measured(auc=0.8, studies=2, data="x"),
        "polyp": Measured(auc=0.55, studies=3, data="x"),
    }
    calibration = with_measured(fitted, measured)
    assert calibration.events["ulcer"] == rule
    assert calibration.likelihood.thresholds["ulcer"] == 0.5
    for finding in ("polyp", "blood"):
        assert calibration.events[finding].threshold is None
        assert calibration.events[finding].clinical is None
        assert calibration.likelihood.thresholds[finding] is None
        assert calibration.paper.thresholds[finding] is None
    assert calibration.unproven["polyp"] == "no better than chance on real frames (AUC 0.55)"
    assert "never tested" in calibration.unproven["blood"]
    assert "ulcer" not in calibration.unproven


def test_the_only_study_of_a_finding_says_nothing_where_it_shows_it():
    alone, others = study("a", 1, partial=True), [study("b", 2, partial=True, shows=POLYP)]
    changed = without_lonely_findings([alone, *others, study("c", 3, partial=True, shows=POLYP)])
    assert not changed[0].truth[:, ULCER].any()
    np.testing.assert_array_equal(
        changed[0].labels.known[:, ULCER], alone.labels.known[:, ULCER] & ~alone.truth[:, ULCER]
    )
    assert changed[1].truth[:, POLYP].sum() == 40  # two studies show the polyp


def test_drawn_studies_do_not_speak_for_what_two_real_ones_show():
    drawn = study("d", 4, drawn=True)
    one = real_outrank_drawn([study("a", 1), drawn])
    assert one[1].labels.known[:, ULCER].all()
    two = real_outrank_drawn([study("a", 1), study("b", 2), drawn])
    assert not two[2].labels.known[:, ULCER].any()
    assert two[2].labels.known[:, POLYP].all()
    assert two[0].labels.is_complete


def test_a_frame_of_an_excerpt_stands_for_many_of_its_recording():
    """80 of 120 rows lack the ulcer; two recordings of 8,000 frames: each row stands for 100."""
    excerpts = [study(n, s, partial=True, recording_frames=8000) for n, s in (("a", 1), ("b", 2))]
    weights = absent_weights(excerpts)
    assert weights[ULCER] == 100
    plain = count_log_odds([study(n, s, partial=True) for n, s in (("a", 1), ("b", 2))])
    weighted = count_log_odds(excerpts)
    np.testing.assert_array_equal(weighted[ULCER, 0], plain[ULCER, 0] * 100)
    np.testing.assert_array_equal(weighted[ULCER, 1], plain[ULCER, 1])
    assert fit_calibration(excerpts).rates["ulcer"] == pytest.approx(80 / (80 + 16_000))
    assert (absent_weights([study("a", 1)]) == 1).all()


def test_rules_of_findings_come_from_excerpts_where_they_show_them():
    complete = [study(str(n), n, drawn=True, shows=POLYP) for n in range(3)]
    excerpts = [study(n, s, partial=True, recording_frames=8000) for n, s in (("a", 7), ("b", 8))]
    calibration = fit_decoder([*complete, *excerpts], load_priors())
    assert calibration.events["ulcer"].intercept != calibration.events["blood"].intercept
    whole = fit_decoder([*complete, *(study(n, s) for n, s in (("a", 7), ("b", 8)))], load_priors())
    # The same rows are less convincing where they are an excerpt.
    lower = calibration.events["ulcer"]
    higher = whole.events["ulcer"]
    assert lower.intercept + lower.slope < higher.intercept + higher.slope


def test_that_no_false_alarm_was_seen_is_weak_proof_where_one_stands_for_many():
    peaks, matches = np.zeros(10), np.ones(10, np.bool_)
    plain = fit_logistic(peaks, matches)[0]
    weighted = fit_logistic(peaks, matches, false_weight=100.0)[0]
    assert plain == pytest.approx(np.log(10.5 / 0.5), rel=1e-3)
    assert weighted == pytest.approx(np.log(10.5 / 50), rel=1e-3)

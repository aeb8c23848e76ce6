"""Temperature, bias, thresholds and reliability against direct computation and known truth."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import f1_score

from enteron.calibration import (
    LARGEST_BIAS,
    Calibration,
    FrameCalibration,
    calibrated,
    logit,
    sigmoid,
)
from enteron.errors import ConfigError, LabelError
from enteron.fitting.frames import (
    CENTRES,
    PAPER_TEMPERATURES,
    THRESHOLD_GRID,
    LabelledStudy,
    count_log_odds,
    fit_calibration,
    fit_thresholds,
    label_rows,
    macro_f1,
    reliability,
    temperature_by_f1,
    temperature_by_likelihood,
)
from enteron.folders.model import load_calibration, save_calibration
from enteron.labels import ANATOMY, COLUMN, LABELS
from enteron.types import Annotation, FrameAxis, Scores, Segment, Unit


def study(
    seed: int, rows: int = 3000, temperature: float = 1.0, bias: float = 0.0
) -> LabelledStudy:
    """Truth drawn from probabilities; the scores distort those by temperature and bias."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-2, 2, (rows, len(LABELS)))
    truth = rng.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    shown = 1 / (1 + np.exp(-temperature * (log_odds - bias)))
    return LabelledStudy(
        Scores(str(seed), FrameAxis(np.arange(rows)), shown.astype(np.float32)), truth
    )


def test_likelihood_finds_what_was_distorted():
    temperature, bias = temperature_by_likelihood(
        count_log_odds([study(seed, temperature=1.7, bias=0.8) for seed in range(4)])
    )
    assert temperature == pytest.approx(1.7, rel=0.03)
    np.testing.assert_allclose(bias, 0.8, atol=0.15)


def test_likelihood_equals_a_direct_minimisation():
    one = study(1, rows=800, temperature=0.6)
    x, y = logit(one.scores.values).astype(float), one.truth

    def loss(parameters) -> float:
        z = x / math.exp(parameters[0]) + parameters[1:]
        total = np.where(y, np.logaddexp(0, -z), np.logaddexp(0, z)).sum()
        return total + (parameters[1:] ** 2).sum() / 50  # the prior on biases

    direct = minimize(loss, np.zeros(1 + len(LABELS)), method="L-BFGS-B").x
    temperature, bias = temperature_by_likelihood(count_log_odds([one]))
    assert temperature == pytest.approx(math.exp(direct[0]), rel=0.01)
    np.testing.assert_allclose(bias, direct[1:], atol=0.02)


def test_anatomy_may_have_a_temperature_of_its_own():
    # Scores of anatomy are five times too flat, those of findings somewhat too steep.
    def two_sources(seed: int) -> LabelledStudy:
        flat, steep = study(seed, temperature=0.2), study(seed, temperature=1.5)
        values = flat.scores.values.copy()
        values[:, len(ANATOMY) :] = steep.scores.values[:, len(ANATOMY) :]
        return LabelledStudy(replace(flat.scores, values=values), flat.truth)

    studies = [two_sources(seed) for seed in range(4)]
    apart = fit_calibration(studies, anatomy_apart=True).likelihood
    assert apart.anatomy_temperature == pytest.approx(0.2, rel=0.05)
    assert apart.temperature == pytest.approx(1.5, rel=0.05)
    together = fit_calibration(studies).likelihood
    assert together.anatomy_temperature is None
    assert 0.25 < together.temperature < 1.4  # wrong for both
    assert apart.after is not None
    assert together.after is not None
    assert apart.after.ece < together.after.ece / 3

    expected = logit(studies[0].scores.values)
    expected[:, : len(ANATOMY)] /= apart.temperature_of("colon")
    expected[:, len(ANATOMY) :] /= apart.temperature
    expected += np.array([apart.bias[label] for label in LABELS])
    np.testing.assert_allclose(calibrated(studies[0].scores, apart), sigmoid(expected), atol=1e-5)


def test_a_temperature_of_anatomy_is_kept_by_the_file(tmp_path):
    frames = FrameCalibration(temperature=0.9, anatomy_temperature=0.1)
    save_calibration(Calibration(likelihood=frames), tmp_path / "calibration.json")
    loaded = load_calibration(tmp_path / "calibration.json").likelihood
    assert loaded.temperature_of("ulcer") == 0.9
    assert loaded.temperature_of("colon") == loaded.temperature_of("pylorus") == 0.1
    assert "anatomy_temperature" not in FrameCalibration().model_dump()


def test_log_odds_of_any_size_have_a_probability():
    # The lowest temperature makes log-odds of 276 of the surest score.
    x = np.array([-1e4, -276, -80, -5, 0, 5, 276, 1e4], np.float32)
    np.testing.assert_allclose(sigmoid(x), expit(x.astype(np.float64)), rtol=1e-5, atol=1e-34)


def test_scores_that_separate_a_label_have_a_bias_within_bounds():
    rng = np.random.default_rng(0)
    truth = rng.random((500, len(LABELS))) < 0.3
    values = np.where(truth, 0.001, 0.0005).astype(np.float32)
    one = LabelledStudy(Scores("s", FrameAxis(np.arange(500)), values), truth)
    fitted = fit_calibration([one]).likelihood
    assert max(abs(b) for b in fitted.bias.values()) <= LARGEST_BIAS
    p = calibrated(one.scores, fitted)
    assert p[truth].min() > p[~truth].max()


def test_a_label_without_positives_keeps_its_scores_and_is_never_emitted():
    one = study(2)
    truth = one.truth.copy()
    truth[:, COLUMN["ulcer"]] = False
    calibration = fit_calibration([LabelledStudy(one.scores, truth)])
    assert calibration.likelihood.bias["ulcer"] == 0
    for part in (calibration.paper, calibration.likelihood):
        assert part.thresholds["ulcer"] is None
        assert part.thresholds["blood"] is not None


def test_at_a_threshold_of_one_half_every_temperature_has_the_same_f1():
    counts = count_log_odds([study(3)])
    scores = {t: macro_f1(counts, expit(CENTRES / t), np.array([0.5])) for t in PAPER_TEMPERATURES}
    assert max(scores.values()) - min(scores.values()) < 1e-12
    assert temperature_by_f1(counts) in PAPER_TEMPERATURES


def test_ties_of_temperature_are_broken_by_the_reach_of_the_threshold_grid():
    #  Scores of 0.002 for positives and 0.001 for negatives are all below the grid's 0.01 at
    #  T = 1; at T = 2 the square roots of their odds are 0.045 and 0.032, which 0.04 tells apart.
    truth = np.tile(np.arange(400)[:, None] % 2 == 0, (1, len(LABELS)))
    values = np.where(truth, 0.002, 0.001).astype(np.float32)
    one = LabelledStudy(Scores("x", FrameAxis(np.arange(400)), values), truth)
    calibration = fit_calibration([one])
    assert calibration.paper.temperature > 1
    threshold = calibration.paper.thresholds["blood"]
    assert threshold is not None
    p = calibrated(one.scores, calibration.paper)
    np.testing.assert_array_equal(p >= np.float32(threshold), truth)


def test_thresholds_are_the_best_of_the_grid():
    one = study(4, rows=500)
    thresholds = fit_thresholds([one], FrameCalibration())
    for label in ("blood", "mouth", "pylorus"):
        y, p = one.truth[:, COLUMN[label]], one.scores.column(label)
        positive = [p >= np.float32(t) for t in THRESHOLD_GRID]
        scores = [f1_score(y, rows) if rows.any() else 0.0 for rows in positive]
        if label == "pylorus":
            scores = [s if t >= 0.55 else -1 for s, t in zip(scores, THRESHOLD_GRID, strict=True)]
        assert thresholds[label] == THRESHOLD_GRID[int(np.argmax(scores))]
    assert min(thresholds[name] or 0 for name in ("z-line", "pylorus", "ileocecal valve")) >= 0.55
    assert (THRESHOLD_GRID[0], THRESHOLD_GRID[-1]) == (0.01, 0.95)


def test_reliability_by_hand():
    #  scores 0.1, 0.1, 0.9, 0.9 with truth 0, 1, 1, 1: |0.2 - 1| + |1.8 - 2| = 1.0 over 4 rows
    p = np.array([[0.1], [0.1], [0.9], [0.9]])
    result = reliability([(p, np.array([[False], [True], [True], [True]]), None)], bins=5)
    assert result.ece == pytest.approx(0.25)
    assert [b.count for b in result.bins] == [2, 0, 0, 0, 2]
    assert result.bins[0].share == pytest.approx(0.5)
    assert reliability([(np.ones((3, 1)), np.ones((3, 1), bool), None)]).ece == 0


def test_calibration_makes_scores_more_reliable_on_other_studies():
    fitted = fit_calibration([study(seed, temperature=2.0, bias=1.0) for seed in range(3)])
    other = study(9, temperature=2.0, bias=1.0)
    before = reliability([(other.scores.values, other.truth, None)]).ece
    after = reliability([(calibrated(other.scores, fitted.likelihood), other.truth, None)]).ece
    assert after < before / 5
    assert fitted.likelihood.before is not None
    assert fitted.likelihood.after is not None
    assert fitted.likelihood.after.ece < fitted.likelihood.before.ece


def test_the_empty_table_of_devices_in_old_files_is_dropped(tmp_path):
    path = tmp_path / "calibration.json"
    save_calibration(Calibration(), path)
    current = json.loads(path.read_text())
    old = copy.deepcopy(current)
    for part in ("paper", "likelihood"):
        old[part]["devices"] = {}
    path.write_text(json.dumps(old))
    assert load_calibration(path) == Calibration()
    assert "devices" not in current["paper"]
    old["likelihood"]["devices"] = {"NaviCam": 1.3}
    path.write_text(json.dumps(old))
    with pytest.raises(ConfigError, match=r"temperatures by capsule system \('devices'\)"):
        load_calibration(path)


def test_scores_that_need_nothing_are_not_touched():
    scores = study(1).scores
    assert calibrated(scores, FrameCalibration()) is scores.values


def test_thresholded_scores_have_finite_log_odds():
    x = logit(np.array([0.0, 0.5, 1.0]))
    assert np.isfinite(x).all()
    np.testing.assert_allclose(sigmoid(x), [0, 0.5, 1], atol=2e-6)


def test_truth_of_scored_frames():
    scores = Scores("x", FrameAxis(np.array([10, 15, 20, 30])), np.zeros((4, 17), np.float32))
    truth = Annotation("x", Unit.FRAME, (Segment(15, 21, ("blood", "colon")),))
    rows = label_rows(scores, truth)
    assert rows[:, COLUMN["blood"]].tolist() == [False, True, True, False]
    assert rows.sum() == 4


def test_refusals(tmp_path):
    one = study(1, rows=5)
    with pytest.raises(LabelError, match="does not fit scores"):
        LabelledStudy(one.scores, one.truth[:3])
    with pytest.raises(LabelError, match="no studies to calibrate on"):
        fit_calibration([])
    with pytest.raises(ConfigError, match=r"calibration\.json cannot be read"):
        load_calibration(tmp_path)
    (tmp_path / "calibration.json").write_text('{"events": {"blood": null}}')
    with pytest.raises(ConfigError, match=r"\[events\] blood"):
        load_calibration(tmp_path)


def test_saved_and_loaded_is_the_same(tmp_path):
    fitted = fit_calibration([study(1, rows=200)])
    save_calibration(fitted, tmp_path / "calibration.json")
    assert load_calibration(tmp_path) == fitted
    assert load_calibration(tmp_path / "calibration.json") == fitted
    first = (tmp_path / "calibration.json").read_bytes()
    save_calibration(load_calibration(tmp_path), tmp_path / "calibration.json")
    assert (tmp_path / "calibration.json").read_bytes() == first
    save_calibration(Calibration(), tmp_path / "empty.json")
    assert load_calibration(tmp_path / "empty.json") == Calibration()

"""Evidence subtracts the base rates that calibrated probabilities contain, and no others."""

import numpy as np

from enteron.calibration import Calibration
from enteron.decoding import PRESETS, decode
from enteron.decoding.evidence import base_rates, score_base_rates
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

PRIORS = load_priors()


def labelled(seed, rows=300):
    """A study with a mouth in a tenth of its rows, as shortened studies have; noisy scores."""
    random = np.random.default_rng(seed)
    truth = np.zeros((rows, len(LABELS)), dtype=bool)
    edges = (0, rows // 10, rows // 5, rows // 2, 4 * rows // 5, rows)
    for region, start, stop in zip(REGIONS, edges, edges[1:], strict=False):
        truth[start:stop, COLUMN[region]] = True
    log_odds = np.where(truth, 0.7, -0.7) + random.normal(0, 1, truth.shape)
    values = (1 / (1 + np.exp(-log_odds))).astype(np.float32)
    scores = Scores(str(seed), FrameAxis(np.arange(rows) * 5), values, None, 250.0)
    return LabelledStudy(scores, truth)


def test_rates_are_those_of_the_fitted_studies_where_they_show_the_label():
    calibration = fit_calibration([labelled(0), labelled(1)])
    rates = score_base_rates(calibration, PRIORS)
    assert np.isclose(rates[COLUMN["mouth"]], 0.1)
    assert np.isclose(rates[COLUMN["colon"]], 0.2)
    assert rates[COLUMN["ulcer"]] == base_rates(PRIORS)[COLUMN["ulcer"]]  # in none of them
    assert base_rates(PRIORS)[COLUMN["mouth"]] < 0.01


def test_uncalibrated_scores_have_no_base_rate():
    assert (score_base_rates(Calibration(), PRIORS) == 0.5).all()


def test_a_common_mouth_does_not_swallow_the_study():
    # With the priors' rate of the mouth, one in some thousand, every row of a calibrated score
    # of a few percent would speak for the mouth, and the whole study would be one.
    calibration = fit_calibration([labelled(seed) for seed in range(4)])
    events = decode(labelled(9).scores, PRESETS["transit"], PRIORS, calibration)
    borders = {e.label: e.start // 5 for e in events if e.label in REGIONS}
    assert set(borders) == set(REGIONS)
    for region, true in zip(REGIONS, (0, 30, 60, 150, 240), strict=True):
        assert abs(borders[region] - true) <= 3

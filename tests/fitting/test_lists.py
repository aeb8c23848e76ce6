"""Lists of fitted studies, the confidence of their pictures, and a promise made from them."""

import numpy as np
import pytest

from enteron.calibration import Calibration
from enteron.decoding import DecodedEvent
from enteron.decoding.suspicious import SuspicionOptions
from enteron.errors import EnteronError
from enteron.fitting.decoder import held_out_reliability
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.fitting.guarantee import fit_lists, list_study, promise_recall
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores
from tests.fitting.test_tuning import studies

PRIORS = load_priors()


@pytest.fixture(scope="module")
def fitted():
    labelled = studies(10, rows=700)
    calibration = fit_calibration(labelled)
    return labelled, calibration, [list_study(s, calibration, PRIORS) for s in labelled]


def test_a_study_by_hand():
    #  Blood in rows 100 to 109 and 400; a false alarm in row 700, the most suspicious of all.
    values = np.full((900, len(LABELS)), 0.001, np.float32)
    values[:, COLUMN["colon"]] = 0.99
    values[[100, 400, 700], COLUMN["blood"]] = (0.9, 0.5, 0.95)
    truth = np.zeros((900, len(LABELS)), dtype=bool)
    truth[100:110, COLUMN["blood"]] = truth[400, COLUMN["blood"]] = True
    study = LabelledStudy(Scores("1", FrameAxis(5 * np.arange(900)), values), truth)
    listed = list_study(study, Calibration(), PRIORS, SuspicionOptions(window=1))
    assert listed.suspicion.size == 900  # to the end
    assert listed.finding[:3].tolist() == [FINDINGS.index("blood")] * 3
    assert listed.probability[:3] == pytest.approx([0.95, 0.9, 0.5])
    assert listed.is_true[:3].tolist() == [False, True, True]
    assert listed.detected_at == pytest.approx(listed.suspicion[1:3])
    thresholds = listed.suspicion[[2, 1, 0]]
    assert listed.missed_share(thresholds).tolist() == [0.0, 0.5, 1.0]
    assert listed.pictures(thresholds).tolist() == [3, 2, 1]
    #  A list that ends early misses what comes later.
    short = list_study(study, Calibration(), PRIORS, SuspicionOptions(window=1), most=2)
    assert short.missed_share(np.array([0.0])).tolist() == [0.5]


def test_a_promise_is_kept_on_the_fitted_studies(fitted):
    labelled, calibration, lists = fitted
    result = fit_lists(labelled, calibration, PRIORS, lesion_recall=0.7, devices=["olympus"] * 10)
    promise = result.guarantee
    assert promise is not None
    assert promise.alpha == pytest.approx(0.3)
    assert promise.bound <= 0.3
    threshold = np.array([promise.threshold])
    missed = [float(listed.missed_share(threshold)[0]) for listed in lists]
    assert promise.missed == pytest.approx(np.nanmean(missed))
    assert promise.events_per_study == np.mean([listed.pictures(threshold)[0] for listed in lists])
    assert promise.devices == {"olympus": 10}
    assert promise.studies + promise.without_lesions == 10
    #  Names of studies may name patients: only a hash of them is stored.
    assert '"0"' not in promise.model_dump_json()
    assert len(promise.fingerprint) == 16
    assert Calibration.model_validate_json(result.model_dump_json()) == result


def test_confidence_of_pictures(fitted):
    labelled, calibration, lists = fitted
    result = fit_lists(labelled, calibration, PRIORS)
    assert result.guarantee is None
    assert set(result.pictures) == {FINDINGS[f] for listed in lists for f in listed.finding}
    probability = np.concatenate([listed.probability for listed in lists])
    finding = np.concatenate([listed.finding for listed in lists])
    is_true = np.concatenate([listed.is_true for listed in lists])
    #  Calibrated on these pictures, they are as often right as they say.
    for column in np.unique(finding).tolist():
        chosen = finding == column
        p = result.pictures[FINDINGS[column]].probability(probability[chosen])
        assert p.mean() == pytest.approx(is_true[chosen].mean(), abs=0.1)


def test_a_promise_needs_lesions(fitted):
    labelled, calibration, lists = fitted
    with pytest.raises(EnteronError, match=r"9 studies with lesions, or allow|at least 19 studies"):
        promise_recall(0.05, lists)
    bare = [LabelledStudy(s.scores, np.zeros_like(s.truth)) for s in labelled[:2]]
    with pytest.raises(EnteronError, match="at least 9 studies with annotated findings"):
        promise_recall(0.1, [list_study(s, calibration, PRIORS, most=5) for s in bare])


def test_reliability_of_events_on_held_out_studies():
    study = studies(1, rows=300)[0]
    truth = np.zeros_like(study.truth)
    truth[50:60, COLUMN["polyp"]] = True
    labelled = LabelledStudy(study.scores, truth)
    step = study.scores.axis.step
    events = [
        DecodedEvent(59 * step, 70 * step, "polyp", 0.9),  # touches the last row of the lesion
        DecodedEvent(60 * step, 70 * step, "polyp", 0.8),
        DecodedEvent(0, 10 * step, "colon", 0.9),
    ]
    result = held_out_reliability([labelled], [events])
    assert set(result) == {"polyp"}
    assert [(b.confidence, b.true_share) for b in result["polyp"].bins] == [(0.8, 0.0), (0.9, 1.0)]

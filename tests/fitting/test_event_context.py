"""Fitting event contexts on studies where what surrounds an event says whether it is true."""

from itertools import pairwise

import numpy as np
from sklearn.linear_model import LogisticRegression

from enteron.calibration import Calibration
from enteron.context import EVENT_SCALES
from enteron.decoding import PRESETS, decode
from enteron.fitting import event_context as fitting
from enteron.fitting.context import LEAST_STUDIES
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.event_context import StudyEvents, fit_event_context, study_events
from enteron.fitting.frames import LabelledStudy
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

ROWS = 6000
PRIORS = load_priors()
THRESHOLDS = {"blood": 0.5, "polyp": 0.4}


def drawn_study(seed: int) -> LabelledStudy:
    """Lesions in one stretch whose scores are raised, and as many false peaks anywhere."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((ROWS, len(LABELS)), np.bool_)
    borders = [0, 40, 80, *(np.array([400, 5600]) + rng.integers(-90, 90, 2)), ROWS]
    for column, (start, stop) in enumerate(pairwise(borders)):
        truth[start:stop, column] = True
    odds = np.where(truth, 2.0, -2.0) + rng.normal(size=truth.shape)
    odds[:, COLUMN["blood"]] = -4 + rng.normal(size=ROWS)
    odds[:, COLUMN["polyp"]] = -6  # never a candidate
    stretch = int(rng.integers(500, ROWS - 1500))
    odds[stretch : stretch + 1000, COLUMN["blood"]] += 1.5
    for start in rng.integers(stretch, stretch + 990, 8):
        truth[start : start + 5, COLUMN["blood"]] = True
        odds[start : start + 5, COLUMN["blood"]] = 3 + rng.normal(size=5)
    for start in rng.integers(0, ROWS - 10, 8):
        odds[start : start + 5, COLUMN["blood"]] = 3 + rng.normal(size=5)
    axis = FrameAxis(5 * np.arange(ROWS))
    return LabelledStudy(Scores(f"s{seed}", axis, (1 / (1 + np.exp(-odds))).astype("f")), truth)


STUDIES = [drawn_study(seed) for seed in range(6)]


def drawn_events(seed: int, count: int = 60) -> StudyEvents:
    """Candidates of two findings, whose second term says whether they are true."""
    rng = np.random.default_rng(seed)
    terms = rng.normal(size=(count, 3 + len(EVENT_SCALES)))
    right = terms[:, 1] + 0.5 * terms[:, 0] + 0.5 * rng.normal(size=count) > 0
    touched = np.column_stack([np.flatnonzero(right), np.arange(right.sum())])
    finding = rng.integers(2, size=count) + FINDINGS.index("blood")
    return StudyEvents(finding, terms, right, (~right).astype(float), int(right.sum()), touched)


def test_the_regression_is_that_of_scikit_learn():
    studies = [drawn_events(seed) for seed in range(3)]
    weights, constants = fitting._fitted(studies)
    terms = np.concatenate([study.terms for study in studies])
    finding = np.concatenate([study.finding for study in studies])
    right = np.concatenate([study.right for study in studies])
    # Constants are columns of their own, scaled so that one ridge serves both.
    spread = terms.std(axis=0)
    columns = np.eye(len(FINDINGS))[finding] / np.sqrt(fitting._CONSTANTS)
    design = np.column_stack([(terms - terms.mean(axis=0)) / spread, columns])
    other = LogisticRegression(C=1 / fitting._RIDGE, fit_intercept=False, tol=1e-8)
    coefficients = other.fit(design, right).coef_[0]
    size = terms.shape[1]
    assert coefficients[0] > 0  # the bound on the peak's weight is not in force
    np.testing.assert_allclose(weights, coefficients[:size] / spread, atol=2e-4)
    own = coefficients[size:] / np.sqrt(fitting._CONSTANTS)
    np.testing.assert_allclose(constants, own - weights @ terms.mean(axis=0), atol=2e-4)


def test_a_higher_peak_never_makes_an_event_less_likely():
    studies = [drawn_events(seed) for seed in range(3)]
    for study in studies:
        study.terms[:, 0] = -study.terms[:, 1]
    weights, _ = fitting._fitted(studies)
    assert weights[0] == 0


def test_thresholds_are_the_best_of_all_and_the_last_that_can_be_afforded():
    #  confidence   .9  .8  .7  .6  .5      three true events; the last is never found
    #  right         x   x       x
    #  alarms                1       2
    study = StudyEvents(
        np.zeros(5, np.int64),
        np.zeros((5, 7)),
        np.array([True, True, False, True, False]),
        np.array([0, 0, 1.0, 0, 2.0]),
        3,
        np.array([[0, 0], [1, 1], [3, 1]]),
    )
    own = [np.array([0.9, 0.8, 0.7, 0.6, 0.5])]
    # Down to .8: precision 1, recall 2/3. What follows finds nothing new.
    assert fitting._thresholds([study], own, budget=1.0, least_precision=0.2) == (0.8, 0.6)
    assert fitting._thresholds([study], own, budget=0.5, least_precision=0.2) == (0.8, 0.8)
    assert fitting._thresholds([study], own, budget=3.0, least_precision=0.2) == (0.8, 0.5)


def test_nothing_within_the_budget_reports_nothing():
    study = StudyEvents(
        np.zeros(2, np.int64),
        np.zeros((2, 7)),
        np.array([False, True]),
        np.array([5.0, 0.0]),
        1,
        np.array([[1, 0]]),
    )
    own = [np.array([0.9, 0.8])]
    assert fitting._thresholds([study], own, budget=1.0, least_precision=0.1)[1] is None


def test_few_studies_and_few_true_events_fit_nothing():
    def fitted(studies: list[StudyEvents]) -> object:
        return fit_event_context(studies, THRESHOLDS, budget=1.0, least_precision=0.2)

    events = [drawn_events(seed) for seed in range(LEAST_STUDIES)]
    assert fitted(events) is not None
    assert fitted(events[:-1]) is None
    few = [drawn_events(seed, count=3) for seed in range(LEAST_STUDIES)]
    assert sum(study.right.sum() for study in few) < fitting.LEAST_TRUE
    assert fitted(few) is None


def test_candidates_know_what_they_touch():
    study = STUDIES[0]
    events = study_events(study, Calibration(low=0.7), PRIORS, THRESHOLDS)
    truth = study.truth[:, COLUMN["blood"]]
    runs = np.flatnonzero(np.diff(truth.astype(int), prepend=0) == 1).size
    assert events.truths == runs
    assert set(events.finding.tolist()) == {FINDINGS.index("blood")}
    assert np.unique(events.touched[:, 0]).tolist() == np.flatnonzero(events.right).tolist()
    assert np.unique(events.touched[:, 1]).size == runs  # scores of 3 are all found
    assert (events.alarms[~events.right] >= 1).all()


def test_findings_that_are_unknown_somewhere_give_no_candidates():
    known = np.ones((ROWS, len(LABELS)), np.bool_)
    known[5:9, COLUMN["blood"]] = False
    study = STUDIES[0]
    partial = LabelledStudy(study.scores, study.truth & known, known)
    events = study_events(partial, Calibration(low=0.7), PRIORS, THRESHOLDS)
    assert events.finding.size == 0
    assert events.truths == 0


def test_context_tells_lesions_from_peaks_in_a_study_that_was_left_out():
    """Both peak alike; only the hour around them differs."""
    fitted = {
        use: fit_decoder(STUDIES, PRIORS, FitOptions(context=use)) for use in ("none", "events")
    }
    assert fitted["none"].event_context is None
    assert fitted["events"].event_context is not None
    assert fitted["events"].uses_context
    hits, alarms = (dict.fromkeys(fitted, 0) for _ in range(2))
    for seed in range(100, 104):
        study = drawn_study(seed)
        truth = study.truth[:, COLUMN["blood"]]
        for use, calibration in fitted.items():
            for event in decode(study.scores, PRESETS["transit"], PRIORS, calibration):
                if event.label in FINDINGS:
                    touches = truth[event.start // 5 : -(-event.stop // 5)].any()
                    hits[use] += bool(touches)
                    alarms[use] += not touches
    assert alarms["none"] >= 20
    assert alarms["events"] < alarms["none"] / 2
    assert hits["events"] > 0.8 * hits["none"]

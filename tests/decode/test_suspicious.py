"""The list of suspicious frames: by hand, against brute force, and with a promised recall."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.calibration import Calibration
from enteron.confidence import Guarantee, LogisticCalibrator
from enteron.decoding import PRESETS, DecodedEvent, decode
from enteron.decoding.pipeline import decision_thresholds
from enteron.decoding.suspicious import (
    SuspicionOptions,
    finding_probabilities,
    picture_runs,
    rank_rows,
    rank_suspicious,
)
from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.types import FrameAxis, Scores

BLOOD, POLYP = FINDINGS.index("blood"), FINDINGS.index("polyp")


def scores_of(rows: int, step: int = 1, frames_per_row: float | None = None) -> Scores:
    values = np.full((rows, len(LABELS)), 0.001, np.float32)
    return Scores("s", FrameAxis(step * np.arange(rows)), values, frames_per_row=frames_per_row)


def probabilities(rows: int, *peaks: tuple[int, int, float]) -> np.ndarray:
    """(rows, 9) zeros with (row, finding, probability)."""
    p = np.zeros((rows, len(FINDINGS)))
    for row, finding, value in peaks:
        p[row, finding] = value
    return p


def test_a_list_by_hand():
    #  row          0    100   110   400
    #  blood              .8    .7
    #  polyp       .6           .3   .5
    #  With a reach of 100 frames row 110 sees what row 100 shows with probability exp(-0.1).
    p = probabilities(
        500,
        (100, BLOOD, 0.8),
        (110, BLOOD, 0.7),
        (0, POLYP, 0.6),
        (110, POLYP, 0.3),
        (400, POLYP, 0.5),
    )
    ranking = rank_rows(p, scores_of(500), SuspicionOptions(reach=100.0))
    #  Row 110 is first, with both findings. Then rows 0 (110 away), 400 (290 away), and 100.
    assert ranking.rows.tolist() == [110, 400, 0, 100]
    after_110 = [0.5 * -np.expm1(-2.9), 0.6 * -np.expm1(-1.1), 0.8 * -np.expm1(-0.1)]
    after_400 = [1.0, 1 - np.exp(-4.0), 1 - np.exp(-3.0)]
    expected = np.array([1.0, *after_110]) * [1.0, *after_400]
    expected[3] *= 1 - np.exp(-1.0)  # row 0 is 100 frames away from row 100
    assert ranking.suspicion == pytest.approx(expected)


def literal_ranking(p, frames, reach, most):
    """The definition, word for word."""
    left = p.sum(axis=1).astype(float)
    rows = []
    while len(rows) < most:
        row = max(range(len(left)), key=lambda r: (left[r], -r))
        if left[row] <= 0:
            break
        rows.append((row, left[row]))
        for other in range(len(left)):
            distance = abs(frames[other] - frames[row])
            if distance <= 5 * reach:
                left[other] *= 1 - np.exp(-distance / reach)
        left[row] = -1.0
    return rows


@given(st.integers(0, 10_000), st.sampled_from([3.0, 20.0]), st.booleans())
def test_it_equals_the_literal_ranking(seed, reach, gaps):
    rng = np.random.default_rng(seed)
    frames = np.cumsum(rng.integers(1, 30, 60)) if gaps else 5 * np.arange(60)
    p = rng.random((60, len(FINDINGS))) ** 4
    values = np.full((60, len(LABELS)), 0.5, np.float32)
    scores = Scores("s", FrameAxis(frames), values)
    ranking = rank_rows(p, scores, SuspicionOptions(reach=reach, most=25))
    wanted = literal_ranking(p, frames, reach, 25)
    assert ranking.rows.tolist() == [row for row, _ in wanted]
    assert ranking.suspicion == pytest.approx([value for _, value in wanted], rel=1e-6)
    assert (np.diff(ranking.suspicion) <= 1e-12).all()


def test_a_threshold_shows_the_beginning_of_the_list():
    p = np.random.default_rng(0).random((3000, len(FINDINGS))) ** 6
    scores = scores_of(3000)
    whole = rank_rows(p, scores, SuspicionOptions(), most=3000)
    assert sorted(whole.rows.tolist()) == list(range(3000))  # in the end everything is shown
    for least in (1.0, 0.3, 0.01):
        part = rank_rows(p, scores, SuspicionOptions(), most=3000, least=least)
        assert part.rows.tolist() == whole.rows[: part.rows.size].tolist()
        assert (part.suspicion >= least).all()
        assert whole.suspicion[part.rows.size] < least


def test_weights_choose_between_findings():
    p = probabilities(900, (100, BLOOD, 0.8), (800, POLYP, 0.3))
    first = rank_rows(p, scores_of(900), SuspicionOptions(weights={"polyp": 5.0}))
    assert first.rows.tolist() == [800, 100]
    without = rank_rows(p, scores_of(900), SuspicionOptions(weights={"blood": 0.0}))
    assert without.rows.tolist() == [800]
    with pytest.raises(ValueError, match="'cat' is not a finding"):
        SuspicionOptions(weights={"cat": 1.0})


def test_distances_are_in_original_frames():
    """A shortened study is ranked as the full one: a row of it stands for many frames."""
    p = probabilities(40, (10, BLOOD, 0.9), (11, BLOOD, 0.8), (30, BLOOD, 0.5))
    near = rank_rows(p, scores_of(40), SuspicionOptions(reach=100.0))
    assert near.rows.tolist() == [10, 30, 11]
    far = rank_rows(p, scores_of(40, frames_per_row=500.0), SuspicionOptions(reach=100.0))
    assert far.rows.tolist() == [10, 11, 30]


def test_a_stall_does_not_fill_the_list():
    rng = np.random.default_rng(0)
    rows = 2000
    features = rng.normal(size=(rows, 16))
    #  From row 500 to 1500 the capsule lies still; frames differ by less than usual.
    features[500:1500] = features[500] + 0.01 * rng.normal(size=(1000, 16))
    features[:500] = np.cumsum(rng.normal(size=(500, 16)), axis=0)
    p = probabilities(rows, *((row, BLOOD, 0.9) for row in range(500, 1500)))
    p[1700, POLYP] = 0.2
    by_time = rank_rows(p, scores_of(rows), SuspicionOptions(most=5, reach=20.0))
    assert 1700 not in by_time.rows
    folded = rank_rows(p, scores_of(rows), SuspicionOptions(most=5, reach=20.0), features=features)
    assert folded.rows[1] == 1700
    assert folded.similar[0] > 900
    with pytest.raises(EnteronError, match="embeddings of 3 frames and scores of 2000"):
        rank_rows(p, scores_of(rows), SuspicionOptions(), features=features[:3])


def test_what_a_picture_shows():
    scores = scores_of(600)
    values = scores.values.copy()
    values[300:320, COLUMN["polyp"]] = 0.9
    scores = Scores("s", scores.axis, values)
    events = [
        DecodedEvent(0, 600, "colon", 0.9),
        DecodedEvent(250, 290, "polyp", 0.5),
        DecodedEvent(295, 325, "polyp", 0.8),
    ]
    calibration = Calibration(pictures={"polyp": LogisticCalibrator(intercept=0.0, slope=0.0)})
    first = rank_suspicious(scores, events, calibration=calibration)[0]
    assert 300 <= first.frame < 320
    assert (first.label, first.region, first.event) == ("polyp", "colon", 2)
    assert first.confidence == 0.5  # of the fitted curve
    assert rank_suspicious(scores, events)[0].confidence == pytest.approx(0.9, abs=0.01)


# ---- A promised recall


def promised(threshold: float) -> Calibration:
    guarantee = Guarantee(alpha=0.1, threshold=threshold, studies=9, bound=0.1, missed=0.05)
    return Calibration(guarantee=guarantee)


@pytest.fixture(scope="module")
def noisy() -> Scores:
    rng = np.random.default_rng(0)
    values = (rng.random((1500, len(LABELS))) ** 5).astype(np.float32)
    values[:, COLUMN["colon"]] = 0.99
    return Scores("s", FrameAxis(5 * np.arange(1500)), values)


def test_clinical_emits_an_event_around_every_promised_picture(noisy):
    few, many = (decode(noisy, PRESETS["clinical"], None, promised(t)) for t in (1.5, 0.5))
    assert 0 < len(few) < len(many)
    for events in (few, many):
        findings = [event for event in events if event.label in FINDINGS]
        for label in FINDINGS:
            spans = sorted((e.start, e.stop) for e in findings if e.label == label)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
    thresholds = decision_thresholds(PRESETS["clinical"], promised(0.5))
    assert set(thresholds) == set(LABELS) - set(FINDINGS)
    #  Another preset does not know of the promise.
    assert decode(noisy, PRESETS["transit"], None, promised(0.5)) == decode(noisy)


def test_every_promised_picture_lies_in_its_event(noisy):
    options = SuspicionOptions()
    p = finding_probabilities(noisy, [], _priors(), Calibration())
    ranking = rank_rows(p, noisy, options, least=0.5, most=1500)
    runs = picture_runs(ranking, p, 0.7, Calibration(), options)
    assert len(runs) == ranking.rows.size
    for row, run in zip(ranking.rows.tolist(), runs, strict=True):
        assert run.start <= row < run.stop
        column = FINDINGS.index(run.label)
        assert (p[run.start : run.stop, column] >= 0.7 * p[row, column]).all()


def _priors():
    from enteron.priors import load_priors

    return load_priors()

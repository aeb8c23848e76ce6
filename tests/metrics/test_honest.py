"""Recall, false alarms, borders, intervals: hand arithmetic and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.errors import SubmissionError, UnitError
from enteron.labels import COLUMN
from enteron.metrics.evaluation import EvaluationOptions, StudyBootstrap, evaluate, summarise
from enteron.metrics.honest import detect_by_overlap
from enteron.metrics.official import flatten, merge_touching
from enteron.types import Annotation, Event, Segment, Unit


def study(name: str, *events: tuple[int, int, str]) -> Annotation:
    return Annotation.from_events(name, Unit.FRAME, [Event(*event) for event in events])


#             0    100       500                      4000      7200
#  truth      [mouth)[stomach )[small intestine        )[colon   )
#             blood      [200 210)    [1000 1050)
#             polyp                               [3000 3004)
#  predicted  (no mouth)[90 stomach 520)[520 small      4100)[4100 7200)
#             blood      [205 300)                       ulcer [6000 6010)
TRUTH = study(
    "a",
    (0, 100, "mouth"),
    (100, 500, "stomach"),
    (500, 4000, "small intestine"),
    (4000, 7200, "colon"),
    (200, 210, "blood"),
    (1000, 1050, "blood"),
    (3000, 3004, "polyp"),
)
PREDICTION = study(
    "a",
    (90, 520, "stomach"),
    (520, 4100, "small intestine"),
    (4100, 7200, "colon"),
    (205, 300, "blood"),
    (6000, 6010, "ulcer"),
)


def test_hand_arithmetic():
    figures = summarise(evaluate([TRUTH], [PREDICTION], EvaluationOptions(rate=2.0)))
    findings = figures["findings"]
    # 7200 frames at 2 a second are an hour. Found: one blood of three lesions; false: the ulcer.
    assert findings["hours"] == 1.0
    assert findings["recall"] == pytest.approx(1 / 3)
    assert findings["precision"] == 0.5
    assert findings["false_alarms_per_hour"] == 1.0
    # At tIoU 0.5 the blood is not found: 5 frames of 100.
    assert findings["tiou_0.5"]["recall"] == 0
    assert findings["tiou_0.5"]["false_alarms_per_hour"] == 2.0
    assert findings["timed_studies"] == 1
    assert findings["false_alarms_per_study"] == 1.0
    borders = figures["boundaries"]
    # Onsets: stomach 10 early, small intestine 20 late, colon 100 late; mouth is missed.
    assert figures["videos"]["a"]["onset_error"] == {
        "mouth": None,
        "esophagus": None,
        "stomach": -10,
        "small intestine": 20,
        "colon": 100,
    }
    assert borders["median"] == 20
    assert borders["p90"] == pytest.approx(20 + 0.8 * 80)
    assert (borders["missed"], borders["invented"], borders["n"]) == (1, 0, 3)
    # Six labels present: mouth 0, stomach 400/430, small 3480/3600, colon 3100/3200, others 0
    assert figures["present"]["0.5"] == pytest.approx(3 / 6)
    assert figures["present"]["0.95"] == pytest.approx(2 / 6)
    # Eleven absent labels, one of them predicted: 10 + 3 right ones of 17
    assert figures["map"]["0.5"] == pytest.approx(13 / 17)
    assert figures["empty"]["0.5"] == pytest.approx(11 / 17)
    assert figures["counts"] == {"studies": 1, "truth_events": 7, "predicted_events": 5}
    assert figures["labels"]["blood"]["found"] == 1
    assert figures["labels"]["ulcer"]["precision"] == 0
    assert figures["labels"]["polyp"]["recall"] == 0
    assert figures["labels"]["erosion"]["recall"] is None
    assert figures["intervals"]["map"]["0.5"] is None  # one study has no spread


def test_merged_truth_forgives_cuts_and_the_official_score_does_not():
    cut = Annotation(
        "a",
        Unit.FRAME,
        (
            Segment(0, 100, ("colon",)),
            Segment(100, 110, ("colon", "blood")),
            Segment(110, 200, ("colon",)),
        ),
    )
    uncut = study("a", (0, 200, "colon"), (100, 110, "blood"))
    figures = summarise(evaluate([cut], [uncut]))
    # the first of three colon pieces matches at exactly 0.5: AP 1/3; blood 1
    assert figures["present"]["0.5"] == pytest.approx((1 / 3 + 1) / 2)
    assert figures["present_merged"]["0.5"] == 1
    assert figures["whole_truth"]["0.5"] == pytest.approx((15 + 1 / 3 + 1) / 17)
    # and a prediction that is cut at other frames is one event again when merged
    other = study("a", (0, 50, "colon"), (50, 200, "colon"), (100, 110, "blood"))
    assert summarise(evaluate([cut], [other]))["present_merged"]["0.95"] == 1


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 10), st.sampled_from(["blood", "ulcer"])),
    max_size=10,
)


@given(intervals, intervals)
def test_overlap_detection_equals_brute_force(true, predicted):
    sides = [
        merge_touching(flatten([[Segment(a, a + n, (name,)) for a, n, name in side]]))
        for side in (true, predicted)
    ]
    detection = detect_by_overlap(sides[0], sides[1], 1)

    def touching(these, those):
        return sum(
            any(
                g == h and a < d and c < b
                for h, c, d in zip(those.group, those.start, those.stop, strict=True)
            )
            for g, a, b in zip(these.group, these.start, these.stop, strict=True)
        )

    assert detection.detected.sum() == touching(sides[0], sides[1])
    assert detection.correct.sum() == touching(sides[1], sides[0])
    assert detection.true_events.sum() == len(sides[0])
    assert (detection.false_alarms == detection.predicted - detection.correct).all()


def test_the_first_region_s_onset_says_nothing():
    figures = summarise(
        evaluate([study("a", (50, 100, "stomach"))], [study("a", (0, 100, "stomach"))])
    )
    assert figures["boundaries"]["n"] == 0
    assert figures["boundaries"]["median"] is None


def test_an_empty_prediction_scores_as_the_empty_file():
    figures = summarise(evaluate([TRUTH], [study("a")], EvaluationOptions(rate=2.0)))
    assert figures["map"] == figures["empty"]
    assert figures["present"] == {"0.5": 0.0, "0.95": 0.0}
    assert figures["findings"]["precision"] is None
    assert figures["findings"]["false_alarms_per_hour"] == 0


def test_an_empty_truth_is_worth_its_stated_value():
    figures = summarise(evaluate([study("a")], [study("a")]))
    assert figures["map"] == {"0.5": 1.0, "0.95": 1.0}
    assert figures["present"] == {"0.5": None, "0.95": None}
    assert figures["findings"]["false_alarms_per_hour"] is None


def test_what_cannot_be_compared():
    rows = Annotation("a", Unit.INDEX, ())
    with pytest.raises(UnitError, match="index or frame"):
        evaluate([TRUTH], [rows])
    with pytest.raises(SubmissionError, match="lacks 1 of the truth's 1 studies, the first is a"):
        evaluate([TRUTH], [])
    with pytest.raises(SubmissionError, match="holds no study"):
        evaluate([], [])
    with pytest.raises(SubmissionError, match="prediction lists a study twice"):
        evaluate([TRUTH], [TRUTH, TRUTH])


def test_rows_mistaken_for_frames_are_noticed():
    by_row = study("a", *((e.start // 5, e.stop // 5 + 1, e.labels[0]) for e in TRUTH.segments))
    (warning,) = evaluate([TRUTH], [by_row]).warnings
    assert "0.2 times the end of the truth: index or frame?" in warning
    assert evaluate([TRUTH], [PREDICTION]).warnings == ()


def test_studies_are_aligned_by_id_not_by_position():
    other = study("b", (0, 10, "colon"))
    figures = summarise(evaluate([TRUTH, other], [other, TRUTH]))
    assert figures["map"]["0.95"] == 1
    assert list(figures["videos"]) == ["a", "b"]


def test_bootstrap_intervals_cover_as_they_should():
    """Of 400 samples of 40 studies, the 95 % interval of the mean covers the truth in 90-98 %."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        values = rng.normal(0.3, 1, size=40)
        interval = StudyBootstrap(40, 500).mean(values)
        assert interval is not None
        covered += interval[0] <= 0.3 <= interval[1]
    assert 0.90 <= covered / 400 <= 0.98


def test_bootstrap_leaves_out_undefined_studies_and_pairs_differences():
    draw = StudyBootstrap(4, 1000)
    assert draw.mean(np.array([0.5, math.nan, 0.5, 0.5])) == (0.5, 0.5)
    assert draw.mean(np.full(4, math.nan)) is None
    values = np.array([0.1, 0.5, 0.7, 0.9])
    difference = draw.mean((values + 0.01) - values)
    assert difference == pytest.approx((0.01, 0.01))
    again = StudyBootstrap(4, 1000)
    assert again.mean(values) == draw.mean(values)


def test_a_label_column_is_where_it_should_be():
    detection = detect_by_overlap(flatten([[Segment(0, 1, ("ulcer",))]]), flatten([[]]), 1)
    assert detection.true_events[0, COLUMN["ulcer"]] == 1

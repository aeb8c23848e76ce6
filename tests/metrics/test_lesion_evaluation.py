"""What `evaluate` says of lesions: hand arithmetic, files without confidence, odd cases."""

import json

import numpy as np
import pytest

from enteron.metrics.evaluation import StudyBootstrap
from enteron.metrics.lesion_evaluation import ShownStudy, evaluate_lesions, summarise_lesions
from enteron.metrics.lesions import LesionOptions, Recording
from enteron.types import Annotation, Event, Unit

#  frames   0         100        200        300        400
#  blood       |=====|     |==|                |===|           three lesions (10, 130 and 310)
#  polyp                          |==|                         one
#  events      [ x  ]              [x]          [        x ]   x: the picture
TRUTH = Annotation.from_events(
    "a",
    Unit.FRAME,
    [
        Event(0, 500, "colon"),
        Event(10, 60, "blood"),
        Event(130, 150, "blood"),
        Event(230, 250, "polyp"),
        Event(310, 340, "blood"),
    ],
)
EVENTS = (
    Event(0, 500, "colon", 0.9),
    Event(10, 70, "blood", 0.8),
    Event(225, 255, "polyp", 0.6),
    Event(300, 400, "blood", 0.4),
)
FRAMES = (250, 30, 240, 390)


def shown(**fields) -> ShownStudy:
    annotation = Annotation.from_events("a", Unit.FRAME, EVENTS)
    return ShownStudy(annotation, EVENTS, FRAMES, Recording("a", Unit.FRAME, 500, 250.0), **fields)


def test_hand_arithmetic():
    ranked = np.array([35, 390, 140, 240])
    result = evaluate_lesions([TRUTH], [shown(ranked=ranked, promised=2)])
    figures = summarise_lesions(result)
    assert (figures["lesions"], figures["found"]) == (4, 2)
    assert (figures["events"], figures["false_events"]) == (3, 1)
    assert figures["recall"]["value"] == 0.5
    assert figures["findings"]["blood"]["recall"]["value"] == pytest.approx(1 / 3)
    assert figures["findings"]["polyp"]["false_events"] == 0
    assert figures["false_per_hour"]["value"] == pytest.approx(3600 / 250)
    assert figures["flagged_share"]["value"] == pytest.approx((60 + 30 + 100) / 500)
    assert figures["still_seconds"]["value"] == 3 * 1.5
    assert figures["clip_seconds"]["value"] == pytest.approx(19.0)
    #  Two of four lesions before the false event of 0.4 is shown, which finds nothing.
    assert figures["froc"]["recall"] == [0, 0.25, 0.5, 0.5]
    assert figures["froc"]["false_per_study"] == [0, 0, 0, 1]
    #  All four pictures are within the first ten; of the first two one lies in a lesion.
    assert figures["top"]["10"]["value"] == 0.75
    assert figures["promised"] == {"pictures_per_study": 2.0, "mean_recall": 0.25}
    assert figures["detection"]["polyp"]["sensitivity"]["value"] == 1.0
    assert figures["detection"]["ulcer"]["specificity"]["value"] == 1.0
    assert figures["studies"]["a"]["top"]["10"] == 0.75
    json.dumps(figures, allow_nan=False)


def test_an_official_file_has_one_operating_point():
    prediction = Annotation.from_events("a", Unit.FRAME, EVENTS)
    result = evaluate_lesions([TRUTH], [ShownStudy(prediction)])
    figures = summarise_lesions(result)
    assert figures["froc"] is None
    assert figures["froc_points"] == []
    assert figures["top"] == {}
    assert figures["promised"] is None
    assert figures["false_per_hour"] is None  # nobody knows the time
    #  The middle frames represent events: 39, 239 and 349.
    assert figures["found"] == 2
    timed = evaluate_lesions([TRUTH], [ShownStudy(prediction)], rates={"a": 2.0})
    assert timed.shown.overall.false_per_hour is not None
    assert timed.shown.overall.false_per_hour.value == pytest.approx(3600 / 250)


def test_the_gap_that_joins_lesions_follows_the_time():
    joined = evaluate_lesions([TRUTH], [shown()], options=LesionOptions(gap_seconds=40.0))
    assert len(joined.detection.lesions) == 3  # 70 frames at 2 a second are 35 s


def test_a_prediction_beyond_the_truth_is_no_error():
    nothing = Annotation("a", Unit.FRAME)
    result = evaluate_lesions(
        [nothing], [ShownStudy(Annotation.from_events("a", Unit.FRAME, EVENTS))]
    )
    figures = summarise_lesions(result)
    assert (figures["lesions"], figures["false_events"]) == (0, 3)
    assert figures["recall"]["value"] is None
    assert figures["psds"] is None
    empty = summarise_lesions(evaluate_lesions([nothing], [ShownStudy(nothing)]))
    assert empty["flagged_share"]["value"] == 0.0
    json.dumps([figures, empty], allow_nan=False)


def test_intervals_over_studies():
    other = Annotation.from_events("b", Unit.FRAME, [Event(0, 10, "blood")])
    blind = ShownStudy(Annotation("b", Unit.FRAME), (), ())
    result = evaluate_lesions([TRUTH, other], [shown(), blind], StudyBootstrap(2))
    assert result.shown.overall.recall.value == pytest.approx(2 / 5)
    assert result.shown.overall.recall.interval == (0.0, 0.5)
    assert [study.recall for study in result.shown.studies] == [0.5, 0.0]

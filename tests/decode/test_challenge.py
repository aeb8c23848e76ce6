"""The rule of silence and the official form of events, by hand."""

import math

import pytest

from enteron.calibration import Calibration, Silence
from enteron.decoding.events import DecodedEvent, cut_at_changes, to_annotation
from enteron.decoding.options import PRESETS, require_fitted
from enteron.decoding.pipeline import drop_silent, is_worth_emitting, presence_probability
from enteron.errors import ConfigError
from enteron.labels import LABELS
from enteron.types import Segment, Unit


def test_cut_at_every_change_of_the_label_set():
    #  intestine  [0                    100)  0.9
    #  blood            [20   40)             0.5
    #  pieces     [0 20)      [40      100)   0.9 each, in time
    #                   [20 40)               0.9 x 0.5
    events = [
        DecodedEvent(0, 100, "small intestine", 0.9),
        DecodedEvent(20, 40, "blood", 0.5),
    ]
    assert cut_at_changes(events) == [
        Segment(0, 20, ("small intestine",)),
        Segment(40, 100, ("small intestine",)),
        Segment(20, 40, ("small intestine", "blood")),
    ]


def test_touching_events_of_one_label_are_not_cut():
    events = [DecodedEvent(0, 10, "blood", 0.5), DecodedEvent(10, 20, "blood", 0.4)]
    assert cut_at_changes(events) == [Segment(0, 20, ("blood",))]
    assert cut_at_changes([]) == []


def test_nothing_between_events_is_nothing():
    events = [DecodedEvent(0, 10, "blood", 0.5), DecodedEvent(15, 20, "polyp", 0.0)]
    assert cut_at_changes(events) == [Segment(0, 10, ("blood",)), Segment(15, 20, ("polyp",))]


def test_uncut_events_keep_their_order():
    events = [DecodedEvent(50, 60, "blood", 0.9), DecodedEvent(0, 10, "blood", 0.5)]
    annotation = to_annotation("7", Unit.FRAME, events)
    assert [s.start for s in annotation.segments] == [50, 0]


def statistics(presence: float, ap: float, slope: float = 0.0) -> Silence:
    intercept = math.log(presence / (1 - presence))
    return Silence(presence=presence, expected_ap=ap, intercept=intercept, slope=slope)


@pytest.mark.parametrize(
    ("pi", "bar"),
    # the bars that the specification names at base rates
    [(75 / 80, 0.067), (71 / 80, 0.127), (65 / 80, 0.231), (58 / 80, 0.379), (51 / 80, 0.569)],
)
def test_the_bar_of_silence(pi, bar):
    assert is_worth_emitting(statistics(pi, bar + 0.002), 0.5)
    assert not is_worth_emitting(statistics(pi, bar - 0.002), 0.5)


def test_evidence_in_this_study_moves_presence():
    rare = statistics(0.2, 0.5, slope=1.0)
    assert presence_probability(rare, 0.5) == pytest.approx(0.2)
    assert presence_probability(rare, 0.99) > 0.95
    assert not is_worth_emitting(rare, 0.5)
    assert is_worth_emitting(rare, 0.99)


def test_silence_removes_whole_labels():
    table = {label: statistics(0.9, 0.5) for label in LABELS} | {"polyp": statistics(0.3, 0.5)}
    events = [
        DecodedEvent(0, 100, "colon", 0.9),
        DecodedEvent(5, 9, "polyp", 0.5),
        DecodedEvent(15, 19, "polyp", 0.4),
    ]
    kept = drop_silent(events, Calibration(studies=9, silence=table))
    assert [event.label for event in kept] == ["colon"]


def test_silence_without_statistics_is_refused_before_decoding():
    with pytest.raises(ConfigError, match="expected AP of labels, for silence, were never fitted"):
        require_fitted(PRESETS["challenge"], Calibration(studies=9))
    require_fitted(PRESETS["transit"], Calibration())

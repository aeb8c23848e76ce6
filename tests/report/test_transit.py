"""Transit times, on drawn studies: a letter is ten frames, '.' no region, '_' a gap."""

from itertools import groupby

import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.folders.reading import RunRecord
from enteron.labels import REGIONS
from enteron.report.clock import Clock
from enteron.report.transit import Outcome, transit_panel
from enteron.types import FrameAxis, Scores, gaps_of

LETTERS = dict(zip("mesic", REGIONS, strict=True))


def panel(
    line: str,
    rate: float | None = 2.0,
    score: float | None = 0.9,
    onset: float | None = 0.8,
    cut_off: bool = False,
):
    """The panel of a drawn study."""
    frames = [10 * index + n for index, c in enumerate(line) if c != "_" for n in range(10)]
    scores = Scores("x", FrameAxis(np.array(frames)), np.zeros((len(frames), 17), np.float32))
    events, start = [], 0
    for letter, group in groupby(line):
        stop = start + 10 * len(list(group))
        if letter in LETTERS:
            name = LETTERS[letter]
            events.append(DecodedEvent(start, stop, name, score, name, onset, 0.8))
        start = stop
    clock = Clock.of(scores, RunRecord(rate=rate))
    return transit_panel(events, clock, gaps_of(scores.axis), cut_off=cut_off)


@pytest.mark.parametrize(
    ("line", "gastric", "small_bowel", "colon"),
    [
        #                                    gastric          small bowel      colon
        ("messsiiiiiiiiiiiiiiicccc", ("reached", "15 s"), ("reached", "1 min 15 s"), "reached"),
        ("mesiccc", ("reached", "5.0 s"), ("reached", "5.0 s"), "reached"),
        ("messsiiii", ("reached", "15 s"), ("not reached", "not reached"), "not reached"),
        ("messs", ("not reached", "not reached"), ("not reached", "not reached"), "not reached"),
        ("mmm", ("not reached", "not reached"), ("not reached", "not reached"), "not reached"),
        # The recording ends where nothing was recognised: what follows is unknown.
        ("messsii..", ("reached", "15 s"), ("unknown", "unknown"), "unknown"),
        # A region is skipped.
        ("messcc", ("unknown", "unknown"), ("unknown", "unknown"), "reached"),
        ("meiicc", ("unknown", "unknown"), ("reached", "10 s"), "reached"),
        # The recording begins inside the stage: a lower bound only.
        ("sssicc", ("unknown", "at least 15 s"), ("reached", "5.0 s"), "reached"),
        # The border lies in a gap: thirty frames are too many, ten are not.
        ("mess___iicc", ("unknown", "unknown"), ("unknown", "unknown"), "reached"),
        ("mess_iicc", ("reached", "15 s"), ("reached", "10 s"), "reached"),
        # A gap elsewhere does not matter: frames keep their numbers.
        ("mess_siicc", ("reached", "20 s"), ("reached", "10 s"), "reached"),
        ("......", ("unknown", "unknown"), ("unknown", "unknown"), "unknown"),
        # A step back: the first entry counts.
        ("messisiicc", ("reached", "10 s"), ("reached", "20 s"), "reached"),
    ],
)
def test_outcomes(line, gastric, small_bowel, colon):
    stages = panel(line).stages
    assert (stages[0].outcome, stages[0].value) == gastric
    assert (stages[1].outcome, stages[1].value) == small_bowel
    assert stages[2].outcome == colon


def test_what_a_cut_off_recording_did_not_reach_is_unknown():
    whole, cut = panel("messsiiii").stages, panel("messsiiii", cut_off=True).stages
    assert cut[0] == whole[0]  # both borders were seen
    assert [stage.outcome for stage in cut[1:]] == [Outcome.UNKNOWN] * 2
    assert "The file ends in the small intestine" in cut[1].detail
    for stage in cut[1:]:
        assert "The end of the recording is missing." in stage.detail
        assert "The recording ends" not in stage.detail


def test_not_reached_and_unknown_say_why():
    ended = panel("messsiiii").stages[1]
    assert ended.outcome is Outcome.NOT_REACHED
    assert "ends in the small intestine, 20 s after entry" in ended.detail
    gap = panel("mess___iicc").stages[0]
    assert "30 frames are missing just before the small intestine begins" in gap.detail


def test_without_a_rate_frames_are_counted():
    stages = panel("messsiiicc", rate=None).stages
    assert stages[0].value == "30 frames"
    assert stages[0].detail == "From frame 20 to frame 50."
    assert "frame 80," in stages[2].detail


def test_intervals_add_up():
    intervals = panel("messsiiiiiiiiiiiiiiicccc").intervals
    assert [interval.region for interval in intervals] == list(REGIONS)
    assert sum(interval.share for interval in intervals) == pytest.approx(1)
    assert intervals[2].entered == "frame 20 (0:00:10)"


@pytest.mark.parametrize(
    ("score", "value"),
    [
        (0.97, "reached"),
        (0.9, "reached"),
        (0.6, "probably reached"),
        (0.5, "probably reached"),
        (0.3, "possibly reached"),
        (None, "reached"),
    ],
)
def test_the_wording_agrees_with_the_confidence(score, value):
    colon = panel("messsiiicc", score=score).stages[2]
    assert colon.value == value
    shown = "" if score is None else f", confidence {score:.2f}"
    assert colon.detail == f"First recognised at frame 80 (0:00:40){shown}."


def test_confidence_in_a_region_and_in_its_border_are_kept_apart():
    stages = panel("messsiiicc", score=0.98, onset=0.4).stages
    assert stages[0].value == "about 15 s"
    expected = "Confidence in the position of these borders: 0.40 (the lower of the two)."
    assert stages[0].confidence == expected
    assert stages[2].value == "reached"
    assert stages[2].confidence == "Confidence in the position of this border: 0.40."
    assert panel("messsiiicc", onset=None).stages[0].confidence == ""

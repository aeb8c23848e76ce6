"""Transit times, on drawn studies: a letter is ten frames, '.' no region, '_' a gap."""

from itertools import groupby

import numpy as np
import pytest

from enteron.decode.events import DecodedEvent
from enteron.folders.reading import RunRecord
from enteron.labels import REGIONS
from enteron.report.clock import Clock
from enteron.report.transit import Outcome, transit_panel
from enteron.types import FrameAxis, Scores, Unit, gaps_of

LETTERS = dict(zip("mesic", REGIONS, strict=True))


def panel(line: str, rate: float | None = 2.0):
    """The panel of a drawn study."""
    frames = [10 * place + n for place, c in enumerate(line) if c != "_" for n in range(10)]
    scores = Scores("x", FrameAxis(np.array(frames)), np.zeros((len(frames), 17), np.float32))
    events, place = [], 0
    for letter, run in ((k, len(list(g))) for k, g in groupby(line)):
        if letter in LETTERS:
            name = LETTERS[letter]
            events.append(DecodedEvent(10 * place, 10 * (place + run), name, 0.9, name, 0.8, 0.8))
        place += run
    clock = Clock.of(scores, Unit.FRAME, RunRecord(rate=rate))
    return transit_panel(events, clock, gaps_of(scores.axis))


@pytest.mark.parametrize(
    ("line", "gastric", "small_bowel", "colon"),
    [
        #                                    gastric          small bowel      colon
        ("messsiiiiiiiiiiiiiiicccc", ("reached", "15 s"), ("reached", "1 min 15 s"), "reached"),
        ("mesiccc", ("reached", "5.0 s"), ("reached", "5.0 s"), "reached"),
        ("messsiiii", ("reached", "15 s"), ("not reached", "not reached"), "not reached"),
        ("messs", ("not reached", "not reached"), ("not reached", "not reached"), "not reached"),
        ("mmm", ("not reached", "not reached"), ("not reached", "not reached"), "not reached"),
        # The recording ends where nothing was recognised: who knows what follows.
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
    assert "frame 80." in stages[2].detail


def test_stays_add_up():
    made = panel("messsiiiiiiiiiiiiiiicccc")
    assert [stay.region for stay in made.stays] == list(REGIONS)
    assert sum(stay.share for stay in made.stays) == pytest.approx(1)
    assert made.stays[2].entered == "frame 20 (0:00:10)"

"""Frames and times in words."""

import numpy as np
import pytest

from enteron.folders.reading import RunRecord
from enteron.report.clock import Clock, counted, duration, stamp
from enteron.types import FrameAxis, Scores, Unit


def clock(frames, times=None, unit=Unit.FRAME, **run):
    axis = FrameAxis(np.asarray(frames))
    values = np.zeros((len(axis), 17), np.float32)
    return Clock.of(Scores("x", axis, values, times), unit, RunRecord(**run))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"), (4.25, "4.2 s"), (9.96, "10.0 s"), (12.4, "12 s"), (59.4, "59 s"),
        (60, "1 min"), (80, "1 min 20 s"), (599, "9 min 59 s"), (601, "10 min"),
        (3599, "60 min"), (3600, "1 h 00 min"), (18_750, "5 h 12 min"), (7_195, "2 h 00 min"),
    ],
)  # fmt: skip
def test_durations(seconds, said):
    assert duration(seconds) == said


def test_stamps_and_counts():
    assert (stamp(0), stamp(3_771.9), stamp(36_000)) == ("0:00:00", "1:02:51", "10:00:00")
    assert (counted(1, "frame"), counted(1200, "frame")) == ("1 frame", "1,200 frames")


def test_a_rate_counts_from_the_first_frame():
    known = clock([100, 105, 110], rate=2.5)
    assert known.at(110) == "frame 110 (0:00:04)"
    assert known.lasting(100, 115) == "6.0 s"


def test_times_of_the_study_win_over_a_rate():
    known = clock([0, 1, 2, 3], times=np.array([0.0, 10.0, 40.0, 60.0]), rate=1.0)
    assert known.seconds(2) == 40.0
    assert known.seconds(1.5) == 25.0
    # The last frame holds for a frame's mean time.
    assert known.seconds(4) == pytest.approx(80.0)


def test_no_time_is_invented():
    assert clock([0, 1]).seconds(1) is None
    assert clock([0, 1]).at(1) == "frame 1"
    assert clock([0, 1]).lasting(0, 2) == "2 frames"
    # A rate of frames says nothing about rows.
    rows = clock([0, 1], unit=Unit.INDEX, rate=2.0)
    assert (rows.known, rows.at(1)) == (False, "row 1")


@pytest.mark.parametrize(
    ("note", "assumed"), [("measured", False), ("Assumed: 2 a second", True), (None, False)]
)
def test_an_assumption_is_known_as_one(note, assumed):
    assert clock([0, 1], rate=2.0, rate_note=note).assumed is assumed

"""Frames and times in words."""

import numpy as np
import pytest

from enteron.errors import EnteronError
from enteron.folders.reading import RunRecord
from enteron.report.clock import Clock, counted, format_duration, format_timestamp
from enteron.report.timeline import time_knots
from enteron.types import FrameAxis, Scores, Unit


def clock(frames, times=None, unit=Unit.FRAME, **run):
    axis = FrameAxis(np.asarray(frames), unit)
    values = np.zeros((len(axis), 17), np.float32)
    return Clock.of(Scores("x", axis, values, times), RunRecord(**run))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"), (4.25, "4.2 s"), (9.96, "10.0 s"), (12.4, "12 s"), (59.4, "59 s"),
        (60, "1 min"), (80, "1 min 20 s"), (599, "9 min 59 s"), (601, "10 min"),
        (3599, "60 min"), (3600, "1 h 00 min"), (18_750, "5 h 12 min"), (7_195, "2 h 00 min"),
    ],
)  # fmt: skip
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_stamps_and_counts():
    stamps = [format_timestamp(seconds) for seconds in (0, 3_771.9, 36_000)]
    assert stamps == ["0:00:00", "1:02:51", "10:00:00"]
    assert (counted(1, "frame"), counted(1200, "frame")) == ("1 frame", "1,200 frames")


def test_a_rate_counts_from_the_first_frame():
    rated = clock([100, 105, 110], rate=2.5)
    assert rated.at(110) == "frame 110 (0:00:04)"
    assert rated.duration(100, 115) == "6.0 s"


def test_times_of_the_study_win_over_a_rate():
    timed = clock([0, 1, 2, 3], times=np.array([0.0, 10.0, 40.0, 60.0]), rate=1.0)
    assert timed.seconds(2) == 40.0
    assert timed.seconds(1.5) == 25.0
    # The last frame holds for one median period.
    assert timed.end_seconds(4) == pytest.approx(80.0)


def test_an_event_up_to_the_last_frame_ends_with_the_recording():
    """600 frames at 2 per second are a recording of 300 s, though the last one begins at 299.5."""
    times = np.arange(600) / 2
    for timed in (clock(range(600), times=times), clock(range(600), rate=2.0)):
        assert timed.end_seconds(600) == pytest.approx(300.0)
        assert timed.duration(0, 600) == "5 min"


def test_an_event_before_a_gap_ends_one_period_after_its_last_frame():
    """Frames 0 to 9, then 100 to 109; the recorder's clock ran on in between.

    frame   0 ... 9 |  gap  | 100 ... 109
    time    0 ... 4.5       | 500 ... 504.5
    """
    frames = np.r_[0:10, 100:110]
    times = np.r_[np.arange(10) / 2, 500 + np.arange(10) / 2]
    timed = clock(frames, times=times)
    assert timed.end_seconds(10) == pytest.approx(5.0)
    assert timed.duration(0, 10) == "5.0 s"
    assert timed.end_seconds(5) == pytest.approx(2.5)  # the next frame begins here
    assert timed.end_seconds(110) == pytest.approx(505.0)
    # From the first frame to the first one after the gap, the gap counts.
    assert timed.interval(0, 100) == "8 min 20 s"


def test_a_single_frame_has_no_period():
    assert clock([7], times=np.array([0.0])).end_seconds(8) == 0.0


def test_no_time_is_invented():
    assert clock([0, 1]).seconds(1) is None
    assert clock([0, 1]).at(1) == "frame 1"
    assert clock([0, 1]).duration(0, 2) == "2 frames"
    # A rate of frames says nothing about rows.
    rows = clock([0, 1], unit=Unit.INDEX, rate=2.0)
    assert (rows.has_times, rows.at(1)) == (False, "row 1")


@pytest.mark.parametrize(
    ("note", "assumed"), [("measured", False), ("Assumed: 2 a second", True), (None, False)]
)
def test_an_assumption_is_known_as_one(note, assumed):
    assert clock([0, 1], rate=2.0, rate_note=note).rate_assumed is assumed


def test_frames_that_the_last_row_before_a_gap_stands_for_are_timed_before_it():
    """Every fifth frame is stored, two per second; the recorder paused for 1,000 s.

    frame   0   5   10  15 | gap | 100  105
    time    0   .5  1   1.5|     | 1000 1000.5
    """
    timed = clock([0, 5, 10, 15, 100, 105], times=np.array([0, 0.5, 1, 1.5, 1000, 1000.5]))
    assert timed.seconds(17.5) == pytest.approx(1.75)
    assert timed.at(19) == "frame 19 (0:00:01)"  # an event [0, 20) is left here
    assert timed.end_seconds(20) == pytest.approx(2.0)
    assert timed.seconds(60) == pytest.approx((2 + 1000) / 2)  # in the gap: between its ends
    knots = time_knots(timed)
    assert knots is not None
    assert (20.0, 2.0) in knots
    assert (100.0, 1000.0) in knots


def test_a_pause_that_the_numbering_does_not_show_is_a_gap():
    """Rows follow each other, and the times do not.

    row     0  1  2  3 |      | 4   5
    time    0  1  2  3 | 400 s| 403 404
    """
    timed = clock(range(6), times=np.array([0.0, 1, 2, 3, 403, 404]))
    assert timed.end_seconds(4) == pytest.approx(4.0)
    assert timed.duration(0, 4) == "4.0 s"
    assert timed.at(3) == "frame 3 (0:00:03)"
    assert timed.interval(0, 4) == "6 min 43 s"  # the pause lies between the two frames
    # Within ten periods the rate varies, as adaptive capsules do, and nothing is missing.
    adaptive = clock(range(4), times=np.array([0.0, 1, 2, 9]))
    assert adaptive.end_seconds(3) == pytest.approx(9.0)


def test_an_event_before_a_gap_of_a_study_with_a_rate_alone():
    """Frames 0 to 9 and 100 to 109 at 2 per second: a stop inside the gap ends at frame 10."""
    rated = clock(np.r_[0:10, 100:110], rate=2.0)
    assert rated.end_seconds(10) == rated.end_seconds(50) == pytest.approx(5.0)
    assert rated.end_seconds(110) == pytest.approx(55.0)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([0, np.nan, 2], "the time of frame 1 is nan"),
        ([0, 1, np.inf], "the time of frame 2 is inf"),
        ([0, 2, 1], "times go back at frame 2"),
        ([0, 1], "2 times for 3 frames"),
    ],
)
def test_times_that_are_none_are_refused(times, said):
    with pytest.raises(EnteronError, match=said):
        clock([0, 1, 2], times=np.array(times, dtype=np.float64))

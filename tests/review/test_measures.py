"""Transit, completeness and shares, by hand."""

import numpy as np
import pytest

from enteron.report.clock import Clock
from enteron.review.actions import ClearLandmark, ConfirmLandmark, MoveLandmark, Time, Viewed
from enteron.review.measures import measures, place, tertiles
from enteron.review.state import Entry, derive
from enteron.types import FrameAxis
from tests.review.test_store import OPENING


def clock_of(frames, times=None, rate=None):
    axis = FrameAxis(np.asarray(frames))
    times = None if times is None else np.asarray(times, dtype=np.float64)
    return Clock(axis, times, times, rate, rate_assumed=False)


def state_of(*actions):
    entries = [Entry(1, "anna", "t", OPENING)]
    entries += [Entry(number, "anna", "t", action) for number, action in enumerate(actions, 2)]
    return derive("s1", entries)


HALF_A_SECOND = clock_of(range(60), rate=2.0)


def test_transit_follows_the_landmarks_at_once():
    before = measures(state_of(), HALF_A_SECOND)
    assert before.small_bowel_transit.seconds == (42 - 11) / 2
    assert before.small_bowel_transit.text == "16 s"
    assert not before.small_bowel_transit.confirmed
    assert before.gastric_transit.seconds == 11 / 2
    moved = state_of(
        ConfirmLandmark(landmark="first duodenal image"),
        MoveLandmark(landmark="first caecal image", frame=51),
    )
    after = measures(moved, HALF_A_SECOND)
    assert after.small_bowel_transit.seconds == 20
    assert after.small_bowel_transit.confirmed
    assert after.completeness == "caecum reached"
    assert after.completeness_confirmed


def test_landmarks_in_the_wrong_order_say_so():
    wrong = state_of(MoveLandmark(landmark="first duodenal image", frame=42))
    passage = measures(wrong, HALF_A_SECOND).small_bowel_transit
    assert passage.seconds is None
    assert passage.text == ("unknown: the first caecal image is not after the first duodenal image")


def test_a_caecum_that_was_not_reached():
    found = measures(state_of(ClearLandmark(landmark="first caecal image")), HALF_A_SECOND)
    assert found.complete is False
    assert found.small_bowel_transit.text == "not reached"
    assert found.small_bowel_transit.seconds is None
    assert found.small_bowel_viewed == 0  # of the frames up to the end


def test_without_times_frames_are_counted():
    found = measures(state_of(), clock_of(range(60)))
    assert found.small_bowel_transit.seconds is None
    assert found.small_bowel_transit.text == "31 frames"


def test_share_of_the_small_bowel_that_was_viewed():
    # Small bowel: 31 frames, 11 to 41. Viewed: 0 to 19 (9 of them), 30 to 34 fast (5 of them).
    state = state_of(Viewed(intervals=((0, 20),), rate=8), Viewed(intervals=((30, 35),), rate=40))
    found = measures(state, HALF_A_SECOND)
    assert found.small_bowel_viewed == pytest.approx(14 / 31, abs=1e-4)
    assert found.small_bowel_viewed_slowly == pytest.approx(9 / 31, abs=1e-4)
    assert found.study_viewed == pytest.approx(25 / 60, abs=1e-4)


def test_shares_count_stored_frames_only():
    # Every fifth frame is stored: of 15, 20 ... 40 in the small bowel, 15 and 20 are viewed.
    state = state_of(Viewed(intervals=((15, 25),)))
    found = measures(state, clock_of(range(0, 60, 5)))
    assert found.small_bowel_viewed == pytest.approx(2 / 6, abs=1e-4)


def test_tertiles_are_parts_of_equal_time_not_of_equal_frames():
    # 30 frames from 11 on; ten take 10 s each, the others 1 s: 120 s, so tertiles of 40 s.
    state = state_of(MoveLandmark(landmark="first caecal image", frame=41))
    steps = np.ones(60)
    steps[11:21] = 10
    times = np.concatenate(([0], np.cumsum(steps)[:-1]))
    assert tertiles(state, clock_of(range(60), times)) == ((11, 15), (15, 19), (19, 41))
    assert tertiles(state, HALF_A_SECOND) == ((11, 21), (21, 31), (31, 41))
    assert tertiles(state_of(ClearLandmark(landmark="first caecal image")), HALF_A_SECOND) is None


def test_place_of_a_finding():
    state = state_of()
    assert place(state, HALF_A_SECOND, 5) == ("stomach", None)
    assert place(state, HALF_A_SECOND, 11) == ("small intestine", 0)
    assert place(state, HALF_A_SECOND, 26) == ("small intestine", round(15 / 31, 4))
    assert place(state, HALF_A_SECOND, 50) == ("colon", None)


def test_minutes_of_all_people_are_summed():
    found = measures(state_of(Time(active=30, idle=5), Time(active=12)), HALF_A_SECOND)
    assert (found.active_seconds, found.idle_seconds) == (42, 5)

"""Times in events.json: an event ends when its last row stops holding."""

import csv
import json

import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from tests.report.making import scores_for, write_folder


def stored_times(folder, frames, times, *spans):
    """The times that events of these [start, stop) have in events.json, and in events.csv."""
    events = [DecodedEvent(start, stop, "blood", 0.9) for start, stop in spans]
    scores = scores_for(events, frames, times=np.asarray(times))
    write_folder(folder, events, scores, run=None)
    stored = [
        event["times"] for event in json.loads((folder / "events.json").read_text())["events"]
    ]
    with (folder / "events.csv").open() as file:
        rows = [[float(row["start_time"]), float(row["stop_time"])] for row in csv.DictReader(file)]
    assert rows == stored
    return stored


def test_the_last_row_holds_for_one_frame_period(tmp_path):
    """600 frames at 2 per second: a recording of 300 s, whose last frame begins at 299.5 s."""
    times = stored_times(tmp_path, range(600), np.arange(600) / 2, (0, 600), (599, 600), (10, 20))
    assert times == [[0.0, 300.0], [299.5, 300.0], [5.0, 10.0]]


def test_an_event_before_a_gap_does_not_reach_across_it(tmp_path):
    """Frames 0 to 9, a gap, frames 100 to 109, at 2 per second."""
    frames = np.r_[0:10, 100:110]
    times = stored_times(tmp_path, frames, frames / 2, (5, 10), (5, 105), (100, 110))
    assert times == [[2.5, 5.0], [2.5, 52.5], [50.0, 55.0]]


def test_uneven_times_and_steps(tmp_path):
    """Rows of five frames; the median period of 2 s holds only where no row follows directly."""
    times = stored_times(
        tmp_path, [0, 5, 10, 15, 40], [0, 2, 4, 9, 30], (0, 15), (10, 20), (40, 45)
    )
    assert times == [[0.0, 9.0], [4.0, 11.0], [30.0, 32.0]]


@pytest.mark.parametrize("time", [0.0, 3.5])
def test_a_single_frame_has_no_period(tmp_path, time):
    assert stored_times(tmp_path, [7], [time], (7, 8)) == [[time, time]]

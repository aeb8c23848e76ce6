"""The gap merge by hand."""

import numpy as np

from enteron.calibration import Calibration
from enteron.decoding.pipeline import gap_merge
from enteron.labels import COLUMN, LABELS
from enteron.types import FrameAxis, Scores


def scores(runs, rows=100, frames_per_row=None):
    values = np.zeros((rows, len(LABELS)), np.float32)
    for start, stop in runs:
        values[start:stop, COLUMN["blood"]] = 0.9
    return Scores("s", FrameAxis(np.arange(rows)), values, None, frames_per_row)


def spans(events):
    return [(e.label, e.start, e.stop) for e in events]


def test_gaps_of_up_to_15_rows_are_closed():
    #   10-20 .. 15 rows .. 35-40 .. 16 rows .. 56-60
    events = gap_merge(scores([(10, 20), (35, 40), (56, 60)]), Calibration())
    assert sorted(spans(events)) == [("blood", 10, 40), ("blood", 56, 60)]


def test_the_gap_shrinks_with_a_shortened_study():
    events = gap_merge(scores([(10, 20), (23, 30), (34, 40)], frames_per_row=25.0), Calibration())
    assert sorted(spans(events)) == [("blood", 10, 30), ("blood", 34, 40)]  # 15 / 5 = 3 rows


def test_nothing_above_its_threshold_is_nothing():
    assert gap_merge(scores([]), Calibration()) == []


def test_an_event_open_at_the_end_is_kept():
    assert spans(gap_merge(scores([(90, 100)]), Calibration())) == [("blood", 90, 100)]

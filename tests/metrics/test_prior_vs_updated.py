"""What the benchmark `prior_vs_updated` counts."""

import numpy as np

from benchmarks.prior_vs_updated import Cell, count_regions, true_region_count, true_stays
from enteron.labels import COLUMN, LABELS
from enteron.types import Annotation, Segment, Unit


def test_region_events_are_those_of_the_official_file():
    #  stomach cut by blood into three events; blood alone is no region event
    segments = (
        Segment(0, 10, ("stomach",)),
        Segment(10, 12, ("stomach", "blood")),
        Segment(12, 20, ("stomach",)),
        Segment(30, 40, ("blood",)),
    )
    assert count_regions(Annotation("s", Unit.FRAME, segments)) == 3


def test_the_truth_has_regions_and_stays_in_them():
    truth = np.zeros((30, len(LABELS)), dtype=bool)
    for label, start, stop in (("stomach", 0, 10), ("colon", 10, 12), ("stomach", 12, 15)):
        truth[start:stop, COLUMN[label]] = True
    truth[15:, COLUMN["colon"]] = True
    assert true_region_count(truth) == 2
    assert true_stays(truth) == 4


def test_a_cell_keeps_one_evaluation_and_one_count_per_seed():
    truth = Annotation("s", Unit.FRAME, (Segment(0, 20, ("stomach",)), Segment(20, 30, ("colon",))))
    cell = Cell("model", "decoder")
    for _ in range(2):
        cell.add([truth], [truth])
    assert [counts.tolist() for counts in cell.region_events] == [[2.0], [2.0]]
    assert [float(e.official[0].studies[0]) for e in cell.evaluations] == [1.0, 1.0]

"""Synthetic studies have fewer rows; constants counted in rows shrink with them, once."""

import numpy as np
import pytest

from enteron.calibration import Calibration
from enteron.decoding import PRESETS, decode
from enteron.decoding.findings import Candidate, persistence, select_candidates
from enteron.decoding.options import (
    PAPER,
    TRANSIT,
    DecodeOptions,
    FindingOptions,
    scaled_for,
)
from enteron.decoding.pipeline import Decoder
from enteron.errors import EnteronError
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.runs import scaled_rows, scaled_window
from enteron.types import FrameAxis, Scores


def transit(borders, rows, frames_per_row=None, seed=0):
    """Noisy scores of a study whose regions change at these rows."""
    random = np.random.default_rng(seed)
    values = random.uniform(0, 0.3, (rows, len(LABELS))).astype(np.float32)
    edges = [0, *borders, rows]
    for region, start, stop in zip(REGIONS, edges, edges[1:], strict=False):
        values[start:stop, COLUMN[region]] = random.uniform(0.5, 1, stop - start)
    return Scores("s", FrameAxis(np.arange(rows) * 5), values, None, frames_per_row)


def regions(events):
    return [(e.label, e.start, e.stop) for e in events if e.label in REGIONS]


@pytest.mark.parametrize(
    ("rows", "row_scale", "scaled", "window"),
    [
        (200, 1, 200, 199),
        (51, 1, 51, 51),
        (51, 10, 5, 5),
        (25, 10, 2, 1),
        (3, 50, 1, 1),
        (0, 9, 0, 1),
    ],
)
def test_rows_of_a_shortened_study(rows, row_scale, scaled, window):
    assert scaled_rows(rows, row_scale) == scaled
    assert scaled_window(rows, row_scale) == window


def test_every_option_counted_in_rows_is_scaled_and_no_other():
    short = transit((10, 20, 60, 200), 300, frames_per_row=50.0)  # a row stands for ten
    paper = PAPER.model_dump()
    paper["state_machine"] |= {"window": 5, "tau": 20}
    paper["semi_markov"]["margin"] = 2  # 2.5 rounds to the even number
    paper["landmarks"]["near"] = 5
    paper["findings"] |= {"window": 1, "longest": 300}
    assert scaled_for(PAPER, short).model_dump() == paper
    assert scaled_for(TRANSIT, short).findings == TRANSIT.findings  # nothing in it counts rows
    assert scaled_for(PAPER, transit((10, 20, 60, 200), 300)) is PAPER


@pytest.mark.parametrize("frames_per_row", [5.7, 12.5, 73.217, 61.0, 5 * 3000 / 49])
def test_the_scaled_limit_is_the_longest_that_stands_for_no_more(frames_per_row):
    scores = transit((1, 2, 3, 4), 5, frames_per_row=frames_per_row)
    longest = scaled_for(PAPER, scores).findings.longest
    assert longest is not None
    assert longest * scores.shortening <= 3000 < (longest + 1) * scores.shortening


def test_scaling_happens_once_at_the_entry():
    short = transit((10, 20, 60, 200), 300, frames_per_row=50.0)
    decoder = Decoder(short, PAPER, load_priors(), Calibration())
    assert decoder.options == scaled_for(PAPER, short)
    assert decoder.row_scale == 10


def test_the_state_machine_shrinks_with_the_study():
    #  10 rows a region: far below tau = 200, so nothing is ever confirmed at full length
    borders = (10, 20, 60, 200)
    assert regions(decode(transit(borders, 300), PRESETS["paper"])) != []
    scaled = regions(decode(transit(borders, 300, frames_per_row=250.0), PRESETS["paper"]))
    by_hand = PRESETS["paper"].model_copy(
        update={
            "state_machine": PRESETS["paper"].state_machine.model_copy(
                update={"window": 1, "tau": 4}  # 51 / 50 and 200 / 50
            )
        }
    )
    assert scaled == regions(decode(transit(borders, 300), by_hand))
    assert [label for label, _, _ in scaled][-3:] == list(REGIONS[2:])


def test_durations_of_the_transit_model_count_original_frames():
    borders = (10, 20, 60, 200)
    options = PRESETS["transit"]
    by_hand = options.model_copy(
        update={"semi_markov": options.semi_markov.model_copy(update={"stride": 250})}
    )
    scaled = regions(decode(transit(borders, 300, frames_per_row=250.0), options))
    assert scaled == regions(decode(transit(borders, 300), by_hand))
    assert [start // 5 for _, start, _ in scaled] == [0, 10, 20, 60, 200]


def test_persistence_counts_rows_of_the_full_length():
    spans = np.array([[0, 9]])
    mean = np.array([0.5])
    assert persistence(mean, spans, 10.0)[0] == pytest.approx(0.5 * np.log1p(80))
    assert persistence(mean, spans)[0] == pytest.approx(0.5 * np.log1p(8))


def test_the_longest_event_and_the_floor_shrink():
    priors = load_priors()
    scores = transit((10, 20, 60, 200), 500, frames_per_row=50.0)
    scaled = scaled_for(DecodeOptions(findings=FindingOptions()), scores).findings
    long = [Candidate("blood", 0, 400, 0.9, 0.9, 5.0)]
    assert select_candidates(long, FindingOptions(), priors) == long
    assert select_candidates(long, scaled, priors, 10.0) == []  # 3,990 rows at full length
    short = [Candidate("blood", 0, 1, 0.9, 0.9, 5.0)]
    options = FindingOptions(floor=0.5, persistence=None)
    assert select_candidates(short, options, priors) == []
    assert select_candidates(short, options, priors, 1000.0) == short


def test_a_study_without_a_scale_is_decoded_as_ever():
    scores = transit((10, 20, 60, 200), 300)
    assert scores.shortening == 1.0
    assert scores.row_frames == 5
    same = Scores(scores.study, scores.axis, scores.values, None, 5.0)
    for name in ("paper", "transit"):  # the others need a fitted model
        assert decode(same, PRESETS[name]) == decode(scores, PRESETS[name])


def test_a_row_stands_for_some_frames():
    with pytest.raises(EnteronError, match="cannot stand for 0"):
        transit((1, 2, 3, 4), 5, frames_per_row=0.0)

"""The preset `gap-merge`: by hand, and against a literal implementation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.calibration import Calibration, FrameCalibration, unfitted_thresholds
from enteron.decoding import PRESETS, DecodeOptions, decode
from enteron.decoding.events import to_annotation
from enteron.decoding.gap_merge import merged_spans
from enteron.decoding.options import GapMergeOptions
from enteron.errors import ConfigError
from enteron.labels import COLUMN, LABELS
from enteron.options import load_options
from enteron.types import FrameAxis, Scores, Unit
from tests.decode.making import drawn, scores_of
from tests.literal import gap_merge as literal

PRESET = PRESETS["gap-merge"]


def spans(line, **options):
    merged = merged_spans(drawn(line) > 0, GapMergeOptions(**options))
    return [tuple(span) for span in merged.tolist()]


def test_the_constants_are_those_of_v31():
    assert PRESET.gap_merge == GapMergeOptions(window=7, shortest=3, gap=5)
    assert (PRESET.calibration, PRESET.cut, PRESET.order) == ("paper", True, "time")


def test_gaps_of_up_to_five_rows_are_closed():
    #        2-8       5 rows  13-19    6 rows   25-31
    line = "..######.....######......######......"
    assert spans(line, window=1) == [(2, 19), (25, 31)]
    assert spans(line, window=1, gap=15) == [(2, 31)]  # as the paper's text has it
    assert spans(line, window=1, gap=0) == [(2, 8), (13, 19), (25, 31)]


def test_short_runs_go_before_gaps_are_closed():
    #  the two single rows would bridge the gap if gaps were closed first
    line = "..####...#...#...####.."
    assert spans(line, window=1, shortest=3, gap=5) == [(2, 6), (17, 21)]
    assert spans(line, window=1, shortest=1, gap=5) == [(2, 21)]


def test_the_median_removes_what_is_shorter_than_half_of_it():
    assert spans(".........###..........", shortest=1) == []
    assert spans("........####..........", shortest=1) == [(8, 12)]
    #  the edge is mirrored: two rows at the start count twice
    assert spans("##...................", shortest=1) == [(0, 2)]


@pytest.mark.parametrize("line", ["#", ".", "#" * 40, "." * 40, "." * 30 + "#" * 10])
def test_one_row_all_on_all_off_and_open_at_the_end(line):
    expected = literal.close_gaps(
        literal.drop_short(literal.smooth([int(c == "#") for c in line], 7), 3), 5
    )
    found = np.zeros(len(line), dtype=int)
    for start, stop in spans(line):
        found[start:stop] = 1
    assert found.tolist() == expected


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 160),
    window=st.sampled_from([1, 3, 7, 25]),
    shortest=st.integers(1, 6),
    gap=st.integers(0, 16),
)
def test_events_equal_those_of_the_literal_implementation(seed, rows, window, shortest, gap):
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, 1, (rows, len(LABELS))).cumsum(axis=0) / 3
    values = (1 / (1 + np.exp(-steps))).astype(np.float32)
    scores = Scores("s", FrameAxis(10 + np.arange(rows)), values)
    merging = GapMergeOptions(window=window, shortest=shortest, gap=gap)
    options = PRESET.model_copy(update={"gap_merge": merging})
    thresholds = unfitted_thresholds()
    official = to_annotation("s", Unit.FRAME, decode(scores, options), options)
    columns = {label: values[:, COLUMN[label]].tolist() for label in LABELS}
    float_thresholds = {label: float(np.float32(t)) for label, t in thresholds.items() if t}
    expected = literal.decode(columns, float_thresholds, window, shortest, gap)
    assert [(s.start - 10, s.stop - 10, s.labels) for s in official.segments] == expected


def test_the_calibration_s_thresholds_are_used():
    scores = scores_of(blood=np.where((np.arange(60) >= 20) & (np.arange(60) < 40), 0.6, 0.1))
    assert [(e.label, e.start, e.stop) for e in decode(scores, PRESET)] == [("blood", 20, 40)]
    for threshold in (0.7, None):
        thresholds = unfitted_thresholds() | {"blood": threshold}
        calibration = Calibration(paper=FrameCalibration(thresholds=thresholds))
        assert decode(scores, PRESET, calibration=calibration) == []


def test_events_are_scored_by_their_mean_and_lie_in_the_region_of_most_rows():
    rows = np.arange(100)
    events = decode(
        scores_of(
            stomach=np.where(rows < 55, 0.9, 0.1),
            colon=np.where(rows >= 45, 0.8, 0.1),
            blood=np.where((rows >= 50) & (rows < 70), 0.75, 0.2),
        ),
        PRESET,
    )
    assert [(e.label, e.start, e.stop, e.region) for e in events] == [
        ("stomach", 0, 55, "stomach"),
        ("colon", 45, 100, "colon"),
        ("blood", 50, 70, "colon"),
    ]
    assert events[2].score == pytest.approx(0.75)


def test_constants_shrink_with_a_shortened_study():
    values = np.zeros((100, len(LABELS)), np.float32)
    for start, stop in ((10, 20), (22, 30), (35, 40)):
        values[start:stop, COLUMN["blood"]] = 0.9
    options = PRESET.model_copy(update={"gap_merge": GapMergeOptions(gap=15)})
    scores = Scores("s", FrameAxis(np.arange(100)), values, None, 25.0)  # a fifth of the rows
    assert [(e.start, e.stop) for e in decode(scores, options)] == [(10, 30), (35, 40)]


def test_the_paper_s_gap_is_an_option_of_a_file(tmp_path):
    path = tmp_path / "gap15.toml"
    path.write_text('calibration = "paper"\ncut = true\norder = "time"\n[gap_merge]\ngap = 15\n')
    options = load_options(DecodeOptions, path)
    assert options == PRESET.model_copy(update={"gap_merge": GapMergeOptions(gap=15)})
    path.write_text("[gap_merge]\ngaps = 15\n")
    with pytest.raises(
        ConfigError, match=r"\[gap_merge\] gaps is not an option; did you mean 'gap'"
    ):
        load_options(DecodeOptions, path)


def test_silence_needs_the_confidence_that_a_gap_merge_lacks():
    with pytest.raises(ConfigError, match="silence = true needs the confidence of events"):
        DecodeOptions(gap_merge=GapMergeOptions(), silence=True)

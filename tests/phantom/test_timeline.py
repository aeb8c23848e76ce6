"""Timelines one by one: always valid, always the same from the same seed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from enteron.errors import EnteronError
from enteron.labels import COLUMN, FINDINGS, LANDMARKS, REGIONS
from enteron.phantom.timeline import Timeline, TimelineOptions, draw_timeline, study_seed
from enteron.priors import load_priors, save_priors
from enteron.priors.fit import fit_observed, study_from_labels
from enteron.priors.statistics import scale_sizes
from enteron.runs import runs_of

PRIORS = load_priors()
ALWAYS = TimelineOptions(rarity=0, complete=True)


def check(timeline: Timeline, rows: int) -> None:
    labels = timeline.labels
    assert labels.shape == (rows, 17)
    assert labels.dtype == np.bool_
    regions = labels[:, : len(REGIONS)].sum(axis=1)
    assert regions.max() <= 1
    # A row without a region, one in two million, has no label at all.
    assert not labels[regions == 0].any()
    edges = [0]
    for region, start, stop in timeline.region_intervals:
        assert start == edges[-1]
        assert stop > start
        assert (labels[start:stop, COLUMN[region]] | (regions[start:stop] == 0)).all()
        edges.append(stop)
    assert edges[-1] == rows


@given(
    rows=st.integers(1, 400),
    seed=st.integers(0, 2**64),
    rarity=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    stride=st.sampled_from([1, 5, 100_000]),
    exponent=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=150, deadline=None)
def test_any_rows_and_any_seed_give_a_valid_timeline(
    rows: int, seed: int, rarity: float, stride: int, exponent: float
):
    options = TimelineOptions(rarity=rarity, stride=stride, run_scale_exponent=exponent)
    timeline = draw_timeline(rows, seed, PRIORS, options)
    check(timeline, rows)
    again = draw_timeline(rows, seed, PRIORS, options)
    assert np.array_equal(timeline.labels, again.labels)
    assert timeline.region_intervals == again.region_intervals


def test_one_row_shows_one_region():
    assert draw_timeline(1, 3, PRIORS).labels[:, :5].sum() == 1


def test_no_rows_and_no_seed_below_zero():
    with pytest.raises(EnteronError, match="at least 1"):
        draw_timeline(0, 1, PRIORS)
    with pytest.raises(EnteronError, match="whole numbers from 0"):
        study_seed(1, -1)
    with pytest.raises(ValidationError, match="rarity"):
        TimelineOptions(rarity=-0.1)


def test_a_study_does_not_depend_on_the_others():
    alone = draw_timeline(300, study_seed(4, 7), PRIORS)
    among = [draw_timeline(300, study_seed(4, study), PRIORS) for study in range(9)]
    assert np.array_equal(alone.labels, among[7].labels)
    assert len({t.labels.tobytes() for t in among}) == len(among)
    other = draw_timeline(300, study_seed(5, 7), PRIORS)
    assert not np.array_equal(alone.labels, other.labels)


def test_without_rarity_every_label_is_in_every_study():
    for study in range(60):
        labels = draw_timeline(2000, study_seed(2, study), PRIORS, ALWAYS).labels
        assert labels.any(axis=0).all(), study


def test_without_rarity_a_landmark_still_needs_its_regions():
    drawn = [
        draw_timeline(2000, study_seed(3, study), PRIORS, TimelineOptions(rarity=0))
        for study in range(150)
    ]
    lacking = dict.fromkeys(LANDMARKS, 0)
    for timeline in drawn:
        shown = {name for name in COLUMN if timeline.labels[:, COLUMN[name]].any()}
        for label in LANDMARKS:
            needs = set(PRIORS.landmarks.labels[label].needs)
            assert (label in shown) == (needs <= shown)
            lacking[label] += not needs <= shown
        assert set(FINDINGS) <= shown
    assert lacking["z-line"] > 10
    assert lacking["ileocecal valve"] > 5


def test_findings_and_landmarks_stay_in_their_regions():
    for study in range(150):
        labels = draw_timeline(1500, study_seed(6, study), PRIORS, ALWAYS).labels
        assert not (labels[:, COLUMN["z-line"]] & ~labels[:, COLUMN["esophagus"]]).any()
        for finding in FINDINGS:
            for region, odds in PRIORS.findings.labels[finding].region.items():
                if odds == 0:
                    assert not (labels[:, COLUMN[finding]] & labels[:, COLUMN[region]]).any()


def test_one_row_stays_one_and_more_stays_more():
    assert scale_sizes(np.array([1, 2, 3, 10, 100]), 0.2).tolist() == [1, 2, 2, 2, 20]
    assert scale_sizes(np.array([1, 2, 7]), 1.0).tolist() == [1, 2, 7]


def test_a_compressed_study_knows_its_compression():
    long = draw_timeline(None, 11, PRIORS)
    short = draw_timeline(2000, 11, PRIORS)
    assert long.run_scale == pytest.approx(1, abs=1e-3)
    assert long.frames_per_row == pytest.approx(5, rel=1e-3)
    assert short.frames_per_row == pytest.approx(long.labels.shape[0] * 5 / 2000, rel=1e-3)
    assert [interval.region for interval in short.region_intervals] == [
        interval.region for interval in long.region_intervals
    ]


def test_priors_of_a_single_poor_study_can_be_drawn_from():
    labels = np.zeros((30, 17), dtype=np.bool_)
    labels[:10, COLUMN["stomach"]] = labels[10:, COLUMN["small intestine"]] = True
    labels[12:14, COLUMN["polyp"]] = True
    poor = fit_observed([study_from_labels("poor", 5, labels)], "one study")
    plain = draw_timeline(200, 1, poor)
    check(plain, 200)
    shown = {name for name in COLUMN if plain.labels[:, COLUMN[name]].any()}
    assert shown == {"stomach", "small intestine", "polyp"}
    check(draw_timeline(200, 1, poor, ALWAYS), 200)


def test_priors_from_a_file_draw_what_fresh_ones_draw(tmp_path: Path):
    studies = [
        study_from_labels(str(i), 5, draw_timeline(800, study_seed(8, i), PRIORS).labels)
        for i in range(30)
    ]
    fresh = fit_observed(studies, "drawn")
    save_priors(fresh, tmp_path / "priors.json")
    stored = load_priors(tmp_path / "priors.json")
    for study in range(30):
        one, other = (draw_timeline(500, study_seed(9, study), p, ALWAYS) for p in (fresh, stored))
        assert np.array_equal(one.labels, other.labels)


def test_runs_of_finds_runs_at_both_ends():
    assert runs_of(np.array([1, 0, 1, 1], dtype=bool)).tolist() == [[0, 1], [2, 4]]
    assert runs_of(np.zeros(3, dtype=bool)).tolist() == []

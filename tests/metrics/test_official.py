"""The official score against its literal text, hand-drawn cases, and the published figures."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.datasets.submission import read_events
from enteron.errors import EnteronError
from enteron.labels import LABELS, REGIONS
from enteron.metrics.official import (
    Spans,
    flatten,
    merge_touching,
    overlapping_pairs,
    temporal_scores,
)
from enteron.types import Annotation, Segment, Unit
from tests.literal import temporal as literal

labels = st.lists(st.sampled_from(LABELS[:4]), min_size=0, max_size=3, unique=True)


def events(longest: int):
    """Events in any order, overlapping as they like; short, so that ties and hits are common."""
    return st.lists(
        st.builds(
            lambda start, length, names: {"start": start, "end": start + length, "label": names},
            st.integers(0, longest),
            st.integers(0, longest),
            labels,
        ),
        max_size=12,
    )


def official(studies) -> dict:
    return {"videos": [{"video_id": str(n), "events": e} for n, e in enumerate(studies)]}


def spans(studies) -> Spans:
    return flatten(
        [Segment(e["start"], e["end"] + 1, tuple(e["label"])) for e in study] for study in studies
    )


thresholds = st.sampled_from([0.5, 0.95, 0.1, 1 / 3, 0.3, 0.75, 1.0])


@settings(max_examples=3000)
@given(st.lists(st.tuples(events(12), events(12)), min_size=1, max_size=3), thresholds)
def test_equals_the_literal_score(studies, threshold):
    truth, predicted = zip(*studies, strict=True)
    (score,) = temporal_scores(spans(truth), spans(predicted), len(truth), [threshold])
    overall, per_study = literal.temporal_map(official(truth), official(predicted), threshold)
    assert score.map == pytest.approx(overall, abs=1e-12)
    np.testing.assert_allclose(score.studies, list(per_study.values()), rtol=0, atol=1e-12)


@settings(max_examples=500)
@given(st.tuples(events(400), events(400)))
def test_equals_the_literal_score_on_long_events(study):
    truth, predicted = study
    scores = temporal_scores(spans([truth]), spans([predicted]), 1)
    for score in scores:
        expected, _ = literal.temporal_map(
            official([truth]), official([predicted]), score.threshold
        )
        assert score.map == pytest.approx(expected, abs=1e-12)


def ap_of(truth, predicted, threshold=0.5, label="blood") -> float:
    """AP of one label; spans are [start, stop)."""
    true_spans, predicted_spans = (
        flatten([[Segment(start, stop, (label,)) for start, stop in side]])
        for side in (truth, predicted)
    )
    (score,) = temporal_scores(true_spans, predicted_spans, 1, [threshold])
    return float(score.ap[0, LABELS.index(label)])


def test_first_free_match_not_the_best_one():
    #  truth      [0    6)[6    12)        (file order: left, right)
    #  predicted  [0         12)           tIoU 0.5 with both: takes the left one
    #  predicted  [0    6)                 its true partner is taken -> false positive
    #  precision 1, 1/2; recall 1/2, 1/2 -> AP = 1/2
    assert ap_of([(0, 6), (6, 12)], [(0, 12), (0, 6)]) == 0.5
    #  the same with the second prediction on the right: 1 * 1/2 + 1 * 1/2
    assert ap_of([(0, 6), (6, 12)], [(0, 12), (6, 12)]) == 1.0
    #  truth listed right to left: the long one takes the right, the left stays free
    assert ap_of([(6, 12), (0, 6)], [(0, 12), (0, 6)]) == 1.0


def test_file_order_is_the_ranking():
    #  truth      [0 10)      [20 30)
    truth = [(0, 10), (20, 30)]
    hits, miss = [(0, 10), (20, 30)], (50, 60)
    assert ap_of(truth, [*hits, miss]) == 1.0  # a false positive at the end is free
    assert ap_of(truth, [miss, *hits]) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_the_threshold_is_inclusive_and_counts_frames():
    #  truth [0 10), predicted [0 5): 5 / 10
    assert ap_of([(0, 10)], [(0, 5)], 0.5) == 1
    assert ap_of([(0, 10)], [(0, 4)], 0.5) == 0
    assert ap_of([(0, 20)], [(0, 19)], 0.95) == 1
    assert ap_of([(0, 1)], [(0, 1)], 0.95) == 1
    assert ap_of([(0, 1)], [(1, 2)], 0.5) == 0


def test_a_label_that_is_absent_rewards_silence():
    assert ap_of([], []) == 1
    assert ap_of([], [(0, 1)]) == 0
    assert ap_of([(0, 1)], []) == 0


@given(events(30), st.randoms())
def test_invariants(study, random):
    truth = [study]
    perfect = temporal_scores(spans(truth), spans(truth), 1)
    # Identical spans may take each other's partner, but each has one.
    assert all(score.map == 1 for score in perfect)
    moved = [[{**e, "start": e["start"] + 1000, "end": e["end"] + 1000} for e in study]]
    shifted = temporal_scores(spans(moved), spans(moved), 1)
    assert [s.map for s in shifted] == [1, 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 20)), max_size=25))
def test_merging_equals_painting(rows):
    group, start, length = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    pieces = Spans(group, start, start + length)
    merged = merge_touching(pieces)
    for group in range(4):
        painted = np.zeros(100, dtype=bool)
        for g, start, stop in zip(pieces.group, pieces.start, pieces.stop, strict=True):
            if g == group:
                painted[start:stop] = True
        edges = np.flatnonzero(np.diff(np.concatenate(([0], painted.astype(int), [0]))))
        expected = sorted(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        spans_of_group = merged.where(merged.group == group)
        starts, stops = spans_of_group.start.tolist(), spans_of_group.stop.tolist()
        assert sorted(zip(starts, stops, strict=True)) == expected


def test_a_merged_event_ranks_where_its_first_part_did():
    #  file order: [50 60) [0 10) [10 20): the merged [0 20) stays second
    merged = merge_touching(
        flatten([[Segment(a, b, ("colon",)) for a, b in [(50, 60), (0, 10), (10, 20)]]])
    )
    assert list(zip(merged.start.tolist(), merged.stop.tolist(), strict=True)) == [
        (50, 60),
        (0, 20),
    ]


def test_pairs_are_found_in_blocks_too(monkeypatch):
    rng = np.random.default_rng(0)
    start = rng.integers(0, 500, size=(2, 400))
    stop = start + rng.integers(1, 100, size=(2, 400))
    group = rng.integers(0, 5, size=(2, 400))
    truth, predicted = (Spans(group[i], start[i], stop[i]) for i in range(2))
    at_once = overlapping_pairs(truth, predicted, 0.3)
    monkeypatch.setattr("enteron.metrics.official._MAX_PAIRS_AT_ONCE", 1000)
    blocks = overlapping_pairs(truth, predicted, 0.3)
    for a, b in zip(vars(at_once).values(), vars(blocks).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(at_once.predicted) > 1000


# --- the published figures, on real annotation ---


def merge_per_label(study: Annotation) -> Annotation:
    """The same study with every label's touching segments merged."""
    merged = merge_touching(flatten([study.segments]))
    segments = (
        Segment(int(start), int(stop), (LABELS[column],))
        for column, start, stop in zip(merged.column, merged.start, merged.stop, strict=True)
    )
    return Annotation(study.study, study.unit, tuple(segments))


def hulls(study: Annotation) -> Annotation:
    """Each region once, from its first frame to its last."""
    spans_of = study.spans()
    parts = [
        Segment(int(spans_of[r][:, 0].min()), int(spans_of[r][:, 1].max()), (r,))
        for r in REGIONS
        if r in spans_of
    ]
    return Annotation(study.study, study.unit, tuple(parts))


def region_runs(study: Annotation) -> Annotation:
    parts = (s for s in merge_per_label(study).segments if s.labels[0] in REGIONS)
    return Annotation(study.study, study.unit, tuple(parts))


def reverse(study: Annotation) -> Annotation:
    return Annotation(study.study, study.unit, merge_per_label(study).segments[::-1])


PUBLISHED = {
    "empty": (lambda study: Annotation(study.study, study.unit), 0.43529, 0.43529),
    "hulls": (hulls, 0.55579, 0.54141),
    "region runs": (region_runs, 0.55654, 0.54185),
    "merged": (merge_per_label, 0.83211, 0.79891),
    "merged, reverse order": (reverse, 0.83195, 0.79987),
    "cut": (lambda study: study, 1.0, 1.0),
}


@pytest.mark.parametrize("prediction", PUBLISHED)
def test_published_figures(real_events, prediction):
    make, at_half, at_nineteen = PUBLISHED[prediction]
    truth = read_events(real_events, Unit.INDEX)
    assert len(truth) == 60
    scores = temporal_scores(
        flatten(study.segments for study in truth),
        flatten(make(study).segments for study in truth),
        len(truth),
    )
    assert [s.map for s in scores] == pytest.approx([at_half, at_nineteen], abs=1e-5)


def test_real_truth_equals_the_literal_score(real_events):
    truth = read_events(real_events, Unit.INDEX)[:12]
    shaken = [
        Annotation(s.study, s.unit, tuple(Segment(p.start, p.stop + 3, p.labels) for p in parts))
        for s in truth
        for parts in [s.segments[::2]]
    ]

    def plain(studies):
        return {
            "videos": [
                {
                    "video_id": s.study,
                    "events": [
                        {"start": p.start, "end": p.stop - 1, "label": list(p.labels)}
                        for p in s.segments
                    ],
                }
                for s in studies
            ]
        }

    true, predicted = (flatten(s.segments for s in side) for side in (truth, shaken))
    scores = temporal_scores(true, predicted, 12)
    for score in scores:
        expected, _ = literal.temporal_map(plain(truth), plain(shaken), score.threshold)
        assert score.map == pytest.approx(expected, abs=1e-12)
        assert 0.05 < score.present_map < 0.95


def test_thresholds_may_come_in_any_order():
    truth = flatten([[Segment(0, 10, ("colon",))]])
    predicted = flatten([[Segment(0, 6, ("colon",))]])
    for order in itertools.permutations([0.5, 0.95, 0.6]):
        scores = temporal_scores(truth, predicted, 1, order)
        assert {s.threshold: s.present_map for s in scores} == {0.5: 1.0, 0.6: 1.0, 0.95: 0.0}


def test_refuses_what_cannot_be_scored():
    first, second = (
        flatten([[Segment(0, 10, ("colon",))]]),
        flatten([[], [Segment(0, 10, ("colon",))]]),
    )
    with pytest.raises(EnteronError, match="did you supply percent"):
        temporal_scores(first, first, 1, [50, 95])
    with pytest.raises(EnteronError, match="did you supply percent"):
        temporal_scores(first, first, 1, [0.0])
    with pytest.raises(EnteronError, match="the prediction has spans of study number 1, but 1 "):
        temporal_scores(first, second, 1)

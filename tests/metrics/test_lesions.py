"""Lesions, FROC, ranked frames, studies: hand arithmetic, literal loops, invariants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from enteron.errors import EnteronError, UnitError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.metrics.evaluation import StudyBootstrap
from enteron.metrics.froc import detect_studies, froc, froc_points, operating_point
from enteron.metrics.intervals import wilson_interval
from enteron.metrics.lesions import (
    LesionDetection,
    LesionOptions,
    Lesions,
    ReadingSpeed,
    Recording,
    ShownEvents,
    detect_lesions,
    lesions_of,
)
from enteron.metrics.top_frames import TOP_FRAMES, fold_near_duplicates, rank_frames, top_recall
from enteron.types import Annotation, Event, FrameAxis, Scores, Segment, Unit
from tests.literal import lesions as literal

NO_GAP = LesionOptions(gap_frames=0, gap_seconds=0)


def study(name: str, *events: tuple[int, int, str]) -> Annotation:
    return Annotation.from_events(name, Unit.FRAME, [Event(*event) for event in events])


def spans(lesions: Lesions) -> list[tuple[str, str, int, int]]:
    rows = zip(lesions.study, lesions.finding, lesions.start, lesions.stop, strict=True)
    return [(lesions.studies[s], FINDINGS[f], int(a), int(b)) for s, f, a, b in rows]


# Two studies of 100 and 200 frames; only the first has real time: 50 s, two frames a second.
#
#   study a   0        20        40        60        80        100
#   blood     ....[5 15)...[19 25)..................[70 72)......    gap 4: one lesion [5, 25)
#   ulcer     ..........[12 30)...................................
#   events    blood 0.9 over [0, 20), shown by 10: in the blood and not in the ulcer
#             blood 0.8 over [20, 69), shown by 44: false
#             ulcer 0.7 over [28, 90), shown by 29: in the ulcer
#             blood 0.6 over [21, 23), shown by 22: in a lesion that was found before
#
#   study b   no lesion
#   events    polyp 0.75 over [100, 110), shown by 105: false
TRUTH = [
    study("a", (5, 15, "blood"), (19, 25, "blood"), (70, 72, "blood"), (12, 30, "ulcer")),
    study("b", (0, 200, "colon")),
]
RECORDINGS = [Recording("a", Unit.FRAME, 100, 50.0), Recording("b", Unit.FRAME, 200)]
EVENTS = {
    "a": [
        Event(0, 20, "blood", 0.9),
        Event(20, 69, "blood", 0.8),
        Event(28, 90, "ulcer", 0.7),
        Event(21, 23, "blood", 0.6),
        Event(0, 100, "stomach", 0.99),
    ],
    "b": [Event(100, 110, "polyp", 0.75)],
}
FRAMES = {"a": [10, 44, 29, 22, 0], "b": [105]}
GAP_4 = LesionOptions(gap_seconds=2.0, gap_frames=0)  # 2 s are 4 frames


def drawn(options: LesionOptions = GAP_4) -> LesionDetection:
    lesions = lesions_of(TRUTH, RECORDINGS, options)
    events = ShownEvents.from_events(EVENTS, Unit.FRAME, FRAMES)
    return detect_lesions(lesions, events, RECORDINGS, options)


def test_lesions_join_short_gaps():
    assert spans(lesions_of(TRUTH, RECORDINGS, GAP_4)) == [
        ("a", "blood", 5, 25),
        ("a", "blood", 70, 72),
        ("a", "ulcer", 12, 30),
    ]
    shorter = LesionOptions(gap_seconds=1.5)  # 3 frames: one too few
    assert spans(lesions_of(TRUTH, RECORDINGS, shorter))[:2] == [
        ("a", "blood", 5, 15),
        ("a", "blood", 19, 25),
    ]
    # Without real times the default is 20 original frames, which are 4 rows of most studies.
    assert len(lesions_of(TRUTH)) == 3
    in_rows = [Annotation(t.study, Unit.INDEX, t.segments) for t in TRUTH]
    assert len(lesions_of(in_rows)) == 3
    assert len(lesions_of(in_rows, options=LesionOptions(gap_frames=19))) == 4


def test_hand_arithmetic_of_detection():
    detection = drawn()
    assert detection.detected_at.tolist() == [0.9, -math.inf, 0.7]
    assert detection.is_true.tolist() == [True, False, True, True, False]
    curve = froc(detection)
    # Thresholds: nothing, 0.9 (1 of 3), 0.8 (a false one), 0.75 (another, in b), 0.7 (2 of 3), 0.6
    assert curve.thresholds.tolist() == [math.inf, 0.9, 0.8, 0.75, 0.7, 0.6]
    assert curve.recall == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert curve.false_per_study.tolist() == [0, 0, 0.5, 1, 1, 1]
    # Hours of study a only: 50 s, with one false event.
    assert curve.false_per_hour == pytest.approx([0, 0, 72, 72, 72, 72])
    assert curve.recall_at(0.6) == pytest.approx(1 / 3)
    assert curve.recall_at(1.0) == pytest.approx(2 / 3)
    blood = froc(detection, "blood")
    assert blood.recall.tolist() == [0, 0.5, 0.5, 0.5]
    assert blood.false_per_study.tolist() == [0, 0, 0.5, 0.5]
    assert np.isnan(froc(detection, "polyp").recall).all()


def test_an_event_of_another_finding_finds_a_lesion_if_so_asked():
    detection = drawn(GAP_4.model_copy(update={"any_finding": True}))
    # Frame 10 lies in the blood only; 22 in blood and ulcer; 29 in the ulcer.
    assert detection.detected_at.tolist() == [0.9, -math.inf, 0.7]
    only_blood = ShownEvents.from_events(
        {"a": [Event(21, 23, "blood", 0.6)], "b": []}, Unit.FRAME, {"a": [22], "b": []}
    )
    options = LesionOptions(gap_seconds=2.0, any_finding=True)
    lesions = lesions_of(TRUTH, RECORDINGS, options)
    crossed = detect_lesions(lesions, only_blood, RECORDINGS, options)
    assert crossed.detected_at.tolist() == [0.6, -math.inf, 0.6]


def test_hand_arithmetic_of_an_operating_point():
    speed = ReadingSpeed(frames_per_second=8, seconds_per_still=2)
    point = operating_point(drawn(), 0.7, speed=speed)
    overall = point.overall
    assert (overall.lesions, overall.found, overall.events, overall.false_events) == (3, 2, 4, 2)
    assert overall.recall.value == pytest.approx(2 / 3)
    assert overall.precision.value == 0.5
    assert overall.false_per_study.value == 1
    assert overall.false_per_hour is not None
    assert overall.false_per_hour.value == pytest.approx(3600 / 50)
    assert point.findings["blood"].recall.value == 0.5
    assert point.findings["polyp"].recall.value is None
    assert point.findings["polyp"].false_events == 1
    a, b = point.studies
    assert (a.study, a.lesions, a.found, a.events, a.false_events) == ("a", 3, 2, 3, 1)
    # [0, 20), [20, 69), [28, 90): 90 of 100 frames; three stills of 2 s; 90 frames at 8 a second
    assert (a.flagged_share, a.still_seconds, a.clip_seconds) == (0.9, 6.0, 11.25)
    assert (b.flagged_share, b.still_seconds, b.clip_seconds) == (0.05, 2.0, 1.25)
    assert a.hours == pytest.approx(50 / 3600)
    assert b.hours is None
    assert (a.recall, b.recall) == (pytest.approx(2 / 3), None)
    assert point.flagged_share.value == pytest.approx(0.475)


def test_no_hours_without_real_time():
    recordings = [Recording("a", Unit.FRAME, 100), Recording("b", Unit.FRAME, 200)]
    lesions = lesions_of(TRUTH, recordings)
    events = ShownEvents.from_events(EVENTS, Unit.FRAME, FRAMES)
    detection = detect_lesions(lesions, events, recordings)
    assert froc(detection).false_per_hour is None
    assert operating_point(detection, 0.0).overall.false_per_hour is None


def test_a_shortened_study_has_no_real_time():
    values = np.zeros((4, len(LABELS)), dtype=np.float32)
    times = np.array([0.0, 0.5, 1.0, 1.5])
    axis = FrameAxis(np.array([0, 5, 10, 20]))
    real = Recording.from_scores(Scores("a", axis, values, times))
    assert real == Recording("a", Unit.FRAME, 25, 2.0, 1.0)
    shortened = Recording.from_scores(Scores("a", axis, values, times, frames_per_row=200.0))
    assert shortened == Recording("a", Unit.FRAME, 25, None, 40.0)
    # 20 original frames are half a frame of the shortened study: nothing is joined.
    assert shortened.gap(LesionOptions()) == 0
    by_row = Scores("a", FrameAxis(np.arange(4), Unit.INDEX), values)
    assert Recording.from_scores(by_row) == Recording("a", Unit.INDEX, 4, None, 5.0)


def test_points_of_a_froc_curve():
    low, high = froc_points(drawn(), (0.5, 4.0))
    assert (low.threshold, high.threshold) == (0.8, 0.6)
    assert low.figures.recall.value == pytest.approx(1 / 3)
    assert high.figures.recall.value == pytest.approx(2 / 3)
    none = froc_points(drawn(), (0.5,), finding="polyp")[0]
    assert none.threshold == 0.75  # one false event in two studies
    assert none.figures.recall.value is None
    never = froc_points(drawn(), (0.1,), finding="polyp")[0]
    assert never.threshold == math.inf
    assert never.figures.events == 0


def test_intervals_come_from_the_same_resamples():
    rng = np.random.default_rng(3)
    truth, events = [], {}
    for number in range(20):
        truth.append(study(str(number), *((50 * i, 50 * i + 5, "ulcer") for i in range(4))))
        events[str(number)] = [
            Event(50 * i, 50 * i + 5, "ulcer", float(rng.random())) for i in range(4)
        ]
    recordings = [Recording(t.study, Unit.FRAME, 250, 100.0) for t in truth]
    lesions = lesions_of(truth, recordings, NO_GAP)
    shown = ShownEvents.from_events(events, Unit.FRAME)
    detection = detect_lesions(lesions, shown, recordings, NO_GAP)
    bootstrap = StudyBootstrap(20, 500)
    point = operating_point(detection, 0.5, bootstrap)
    found = detection.counts(0.5).found.sum(axis=1)
    assert point.overall.recall.interval == bootstrap.ratio(found, np.full(20, 4))
    assert point.overall.recall.interval is not None
    low, high = point.overall.recall.interval
    assert point.overall.recall.value is not None
    assert low < point.overall.recall.value < high
    assert point.overall.false_per_hour is not None
    assert point.overall.false_per_hour.interval == (0, 0)
    assert point.still_seconds.interval is not None


def test_studies_with_and_without_a_finding():
    answers = {answer.name: answer for answer in detect_studies(drawn(), 0.7)}
    blood, polyp, ulcer = answers["blood"], answers["polyp"], answers["ulcer"]
    assert blood.sensitivity.value == ulcer.sensitivity.value == 1
    assert blood.specificity.value == 1
    assert polyp.sensitivity.value is None
    assert polyp.specificity.value == 0.5
    assert answers["bleeding"].sensitivity.value == 1
    assert answers["any finding"].specificity.value == 0
    strict = {answer.name: answer for answer in detect_studies(drawn(), 0.95)}
    assert strict["bleeding"].sensitivity.value == 0
    assert strict["bleeding"].sensitivity.interval == pytest.approx(wilson_interval(0, 1))


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 7), (7, 7), (50, 200)])
def test_wilson_equals_scipy(successes, trials):
    expected = binomtest(successes, trials).proportion_ci(0.9, "wilson")
    assert wilson_interval(successes, trials, 0.9) == pytest.approx((expected.low, expected.high))
    assert wilson_interval(0, 0) == (0, 1)


#   ranked    40  41  10  90  42  11        folded within 1: 40, 10, 90, 42; within 2: 40, 10, 90
#   lesions   ulcer [41, 44)   blood [8, 12) and [88, 91)   polyp [60, 70)
RANKED = [40, 41, 10, 90, 42, 11]
TOP_TRUTH = [
    study("a", (41, 44, "ulcer"), (8, 12, "blood"), (88, 91, "blood"), (60, 70, "polyp")),
]


def test_near_duplicates_are_folded():
    assert fold_near_duplicates(RANKED).tolist() == RANKED
    assert fold_near_duplicates(RANKED, 1).tolist() == [40, 10, 90, 42]
    assert fold_near_duplicates(RANKED, 2).tolist() == [40, 10, 90]
    assert fold_near_duplicates(RANKED, 1, most=2).tolist() == [40, 10]
    sources = [7, 7, 1, 9, 7, 1]
    assert fold_near_duplicates(RANKED, source=sources).tolist() == [40, 10, 90]
    assert fold_near_duplicates([], 3).tolist() == []
    with pytest.raises(EnteronError, match="6 ranked frames have 2 sources"):
        fold_near_duplicates(RANKED, source=[1, 2])


def test_hand_arithmetic_of_ranked_lists():
    lesions = lesions_of(TOP_TRUTH, options=NO_GAP)
    plain = top_recall(lesions, {"a": RANKED})
    # In order: blood [8, 12) by the third frame, blood [88, 91) by the fourth, polyp never,
    # ulcer by the second.
    assert plain.first_rank.tolist() == [3, 4, 0, 2]
    assert [plain.recall(n).value for n in (1, 2, 3, 10)] == [0, 0.25, 0.5, 0.75]
    assert plain.recall(4, finding="blood").value == 1
    assert plain.recall(4, finding="erosion").value is None
    assert plain.study_recall(3).tolist() == [0.5]
    assert plain.reading_seconds(10).tolist() == [9.0]  # six frames of 1.5 s
    folded = top_recall(lesions, {"a": fold_near_duplicates(RANKED, 1)})
    assert folded.recall(2).value == 0.25
    assert folded.recall(4).value == 0.75
    with pytest.raises(EnteronError, match="the ranked lists have b"):
        top_recall(lesions, {"b": RANKED})


def test_frames_are_ranked_by_their_most_likely_finding():
    values = np.zeros((4, len(LABELS)), dtype=np.float32)
    values[:, COLUMN["colon"]] = [0.9, 1.0, 0.9, 0.9]
    values[0, COLUMN["ulcer"]] = 0.3
    values[2, COLUMN["blood"]] = 0.8
    values[3, COLUMN["polyp"]] = 0.3
    scores = Scores("a", FrameAxis(np.array([0, 5, 10, 15])), values)
    assert rank_frames(scores).tolist() == [10, 0, 15, 5]


segments = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 9),
        st.lists(st.sampled_from(["blood", "ulcer", "colon"]), unique=True, max_size=3),
    ),
    max_size=10,
)
events = st.lists(
    st.tuples(
        st.sampled_from(["blood", "ulcer", "polyp"]),
        st.integers(0, 60),
        st.integers(1, 9),
        st.integers(0, 8),
        st.integers(0, 5),
    ),
    max_size=12,
)


def annotation(name, segments) -> Annotation:
    return Annotation(
        name, Unit.FRAME, tuple(Segment(a, a + n, tuple(labels)) for a, n, labels in segments)
    )


@given(st.lists(segments, min_size=1, max_size=3), st.integers(0, 6), st.randoms())
def test_lesions_equal_frame_by_frame_and_ignore_the_order_of_the_truth(studies, gap, random):
    options = LesionOptions(gap_frames=gap)
    ours = lesions_of([annotation(str(i), s) for i, s in enumerate(studies)], options=options)
    expected = [
        (str(number), finding, *lesion)
        for number, truth in enumerate(studies)
        for finding in FINDINGS
        for lesion in literal.lesions([(a, a + n, ls) for a, n, ls in truth], finding, gap)
    ]
    assert spans(ours) == expected
    shuffled = [random.sample(truth, len(truth)) for truth in studies]
    again = lesions_of([annotation(str(i), s) for i, s in enumerate(shuffled)], options=options)
    assert spans(again) == expected
    more = lesions_of(
        [annotation(str(i), s) for i, s in enumerate(studies)],
        options=LesionOptions(gap_frames=gap + 1),
    )
    assert len(more) <= len(ours)


def detected(studies, shown, any_finding=False) -> LesionDetection:
    """Of drawn studies; an event's frame is its start plus an offset, kept inside."""
    truth = [annotation(str(i), s) for i, s in enumerate(studies)]
    options = LesionOptions(gap_frames=2, any_finding=any_finding)
    names = [t.study for t in truth]
    table = ShownEvents.from_events(
        {
            name: [Event(a, a + n, label, c / 5) for label, a, n, _, c in study_events]
            for name, study_events in zip(names, shown, strict=True)
        },
        Unit.FRAME,
        {
            name: [a + min(offset, n - 1) for _, a, n, offset, _ in study_events]
            for name, study_events in zip(names, shown, strict=True)
        },
    )
    recordings = [Recording(name, Unit.FRAME, 100) for name in names]
    return detect_lesions(lesions_of(truth, recordings, options), table, recordings, options)


several = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.lists(segments, min_size=n, max_size=n), st.lists(events, min_size=n, max_size=n)
    )
)


@given(several, st.booleans())
def test_detection_equals_literal_loops(drawn_studies, any_finding):
    studies, shown = drawn_studies
    detection = detected(studies, shown, any_finding)
    curve = froc(detection)
    for point, threshold in enumerate(curve.thresholds):
        counts = detection.counts(float(threshold))
        flagged = detection.flagged_frames(float(threshold))
        false_total = found_total = lesion_total = 0
        for number, (truth, study_events) in enumerate(zip(studies, shown, strict=True)):
            by_finding = {
                f: literal.lesions([(a, a + n, ls) for a, n, ls in truth], f, 2) for f in FINDINGS
            }
            found, visible, false = literal.detection(
                by_finding,
                [(f, a + min(o, n - 1), c / 5) for f, a, n, o, c in study_events],
                threshold,
                any_finding,
            )
            assert counts.found[number].sum() == len(found)
            assert counts.events[number].sum() == len(visible)
            assert counts.false_events[number].sum() == len(false)
            assert flagged[number] == literal.flagged(
                [(a, a + n) for _, a, n, _, c in study_events if c / 5 >= threshold]
            )
            false_total, found_total = false_total + len(false), found_total + len(found)
            lesion_total += sum(len(lesions) for lesions in by_finding.values())
            share = detection.missed_share([threshold])[number, 0]
            if counts.lesions[number].sum():
                assert share == pytest.approx(1 - len(found) / counts.lesions[number].sum())
            else:
                assert np.isnan(share)
            assert detection.shown_events([threshold])[number, 0] == len(visible)
        assert curve.false_per_study[point] == pytest.approx(false_total / len(studies))
        if lesion_total:
            assert curve.recall[point] == pytest.approx(found_total / lesion_total)


@given(several)
def test_recall_never_falls_as_the_threshold_does(drawn_studies):
    detection = detected(*drawn_studies)
    for finding in (None, "blood", "ulcer"):
        curve = froc(detection, finding)
        assert (np.diff(curve.false_per_study) >= 0).all()
        if curve.lesions:
            assert (np.diff(curve.recall) >= 0).all()
            assert curve.recall[0] == curve.false_per_study[0] == 0
    shares = detection.missed_share(np.linspace(0, 1, 11))
    assert (np.diff(shares[~np.isnan(shares[:, 0])], axis=1) >= 0).all()


@given(st.lists(segments, min_size=1, max_size=3))
def test_the_truth_as_a_prediction_is_perfect_and_silence_finds_nothing(studies):
    truth = [annotation(str(i), s) for i, s in enumerate(studies)]
    recordings = [Recording.from_annotation(t) for t in truth]
    lesions = lesions_of(truth, recordings, NO_GAP)
    perfect = detect_lesions(lesions, ShownEvents.from_annotations(truth), recordings, NO_GAP)
    assert (perfect.detected_at == 1).all()
    assert perfect.is_true.all()
    for answer in detect_studies(perfect, 1.0):
        assert answer.sensitivity.value in (None, 1)
        assert answer.specificity.value in (None, 1)
    nothing = [Annotation(t.study, Unit.FRAME) for t in truth]
    silent = detect_lesions(lesions, ShownEvents.from_annotations(nothing), recordings, NO_GAP)
    figures = operating_point(silent, 0.0).overall
    assert figures.recall.value == (0 if len(lesions) else None)
    assert figures.false_per_study.value == 0


@given(
    st.lists(st.integers(0, 60), unique=True, max_size=30),
    st.integers(0, 6),
    st.integers(0, 40),
    st.booleans(),
)
def test_folding_equals_literal_loops(ranked, distance, most, by_source):
    source = [frame % 7 for frame in ranked] if by_source else None
    folded = fold_near_duplicates(ranked, distance, source, most)
    assert folded.tolist() == literal.fold(ranked, distance, source, most)


@given(
    several,
    st.lists(st.lists(st.integers(0, 70), unique=True, max_size=30), min_size=3, max_size=3),
)
def test_ranked_lists_equal_literal_loops_and_grow_with_their_length(drawn_studies, lists):
    studies, _ = drawn_studies
    truth = [annotation(str(i), s) for i, s in enumerate(studies)]
    lesions = lesions_of(truth, options=NO_GAP)
    ranked = {t.study: frames for t, frames in zip(truth, lists, strict=False)}
    result = top_recall(lesions, ranked)
    for (name, _, start, stop), rank in zip(spans(lesions), result.first_rank, strict=True):
        inside = [place for place, f in enumerate(ranked[name], 1) if start <= f < stop]
        assert rank == (min(inside) if inside else 0)
    recalls = [result.recall(n).value or 0.0 for n in range(40)]
    assert recalls == sorted(recalls)
    assert recalls[0] == 0


def test_every_frame_in_order_finds_everything():
    lesions = lesions_of(TOP_TRUTH, options=NO_GAP)
    everything = top_recall(lesions, {"a": np.arange(100)})
    assert everything.recall(100).value == 1
    assert [everything.recall(n).value for n in TOP_FRAMES[:3]] == [0.25, 0.25, 1]


def test_what_cannot_be_compared():
    lesions = lesions_of(TRUTH, RECORDINGS)
    shown = ShownEvents.from_events(EVENTS, Unit.FRAME, FRAMES)
    with pytest.raises(EnteronError, match="the events have b, a"):
        detect_lesions(lesions, ShownEvents.from_events({"b": [], "a": []}, Unit.FRAME), RECORDINGS)
    rows = ShownEvents.from_events(EVENTS, Unit.INDEX, FRAMES)
    with pytest.raises(UnitError, match="index or frame"):
        detect_lesions(lesions, rows, RECORDINGS)
    with pytest.raises(EnteronError, match="frame 70 represents an event over"):
        ShownEvents.from_events({"a": [Event(0, 20, "blood", 0.9)]}, Unit.FRAME, {"a": [70]})
    with pytest.raises(EnteronError, match="1 events and 2 representative frames"):
        ShownEvents.from_events({"a": [Event(0, 20, "blood")]}, Unit.FRAME, {"a": [1, 2]})
    short = [Recording("a", Unit.FRAME, 20, 10.0), RECORDINGS[1]]
    with pytest.raises(EnteronError, match="has 20 frames and events over 90 of them"):
        operating_point(detect_lesions(lesions, shown, short), 0.0)
    annotated = [Recording("a", Unit.FRAME, 80, 40.0), RECORDINGS[1]]
    point = operating_point(detect_lesions(lesions, shown, annotated), 0.0)
    assert point.studies[0].flagged_share == 1
    with pytest.raises(EnteronError, match="no studies"):
        lesions_of([])
    with pytest.raises(EnteronError, match="cannot have 5 frames in 0"):
        Recording("a", Unit.FRAME, 5, 0)
    by_row = [Recording("a", Unit.INDEX, 100), RECORDINGS[1]]
    with pytest.raises(UnitError, match="'frame' where 'index' is needed"):
        lesions_of(TRUTH, by_row)
    with pytest.raises(EnteronError, match=r"truth has the studies 0, 1, 2, \.\.\. \(5 in all\)"):
        lesions_of([study(str(i)) for i in range(5)], RECORDINGS)

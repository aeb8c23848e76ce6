"""PSDS against golden numbers of sed_scores_eval, brute force, and cases drawn by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.errors import EnteronError
from enteron.labels import FINDINGS, LABELS
from enteron.metrics.lesions import LesionOptions, Lesions, Recording, ShownEvents, lesions_of
from enteron.metrics.psds import (
    PsdsOptions,
    ScoreSteps,
    event_steps,
    psds,
    score_steps,
)
from enteron.types import Annotation, Event, FrameAxis, Scores, Unit
from tests.golden import make_psds
from tests.literal.lesions import psd_counts
from tests.literal.lesions import runs as literal_runs

CASES = make_psds.cases()
GOLDEN = json.loads(make_psds.GOLDEN.read_text())


def inputs(studies: list[make_psds.Study]) -> tuple[Lesions, list[ScoreSteps], list[Recording]]:
    recordings, truth, steps = [], [], []
    for number, study in enumerate(studies):
        frames = len(next(iter(study.scores.values())))
        seconds = frames * make_psds.SECONDS_PER_FRAME
        recordings.append(Recording(str(number), Unit.FRAME, frames, seconds))
        events = [Event(a, b, f) for f, spans in study.truth.items() for a, b in spans]
        truth.append(Annotation.from_events(str(number), Unit.FRAME, events))
        at = np.arange(frames)
        steps += [
            ScoreSteps(number, FINDINGS.index(finding), at, at + 1, np.array(column))
            for finding, column in study.scores.items()
        ]
    return lesions_of(truth, recordings, LesionOptions(gap_seconds=0)), steps, recordings


@pytest.mark.parametrize("max_efpr", make_psds.MAX_EFPR)
@pytest.mark.parametrize("parameters", make_psds.PARAMETERS)
@pytest.mark.parametrize("case", CASES)
def test_golden_numbers(case, parameters, max_efpr):
    options = PsdsOptions.model_validate(make_psds.PARAMETERS[parameters] | {"max_efpr": max_efpr})
    result = psds(*inputs(CASES[case]), options)
    expected = GOLDEN[case][f"{parameters}, {max_efpr:g}"]
    assert result.value == pytest.approx(expected["psds"], abs=1e-9)
    assert result.findings == pytest.approx(expected["findings"], abs=1e-9)
    assert result.roc.tpr[-1] == pytest.approx(expected["last_tpr"], abs=1e-9)
    assert result.roc.efpr[-1] == pytest.approx(expected["last_efpr"], abs=1e-6)


#   frame     0         10        20        30        40
#   lesion    ..........####......................####..   [10, 14) and [36, 40)
#   score     ........aaaaaa....b...............ccc.......
#   a = 0.9 over [8, 14), b = 0.8 at [18, 19), c = 0.7 over [34, 37)
def drawn(dtc: float, gtc: float) -> tuple[float, ...]:
    truth = Annotation.from_events(
        "a", Unit.FRAME, [Event(10, 14, "ulcer"), Event(36, 40, "ulcer")]
    )
    events = ShownEvents.from_events(
        {
            "a": [
                Event(8, 14, "ulcer", 0.9),
                Event(18, 19, "ulcer", 0.8),
                Event(34, 37, "ulcer", 0.7),
            ]
        },
        Unit.FRAME,
    )
    recording = Recording("a", Unit.FRAME, 42, 3600.0)
    lesions = lesions_of([truth], [recording], LesionOptions(gap_seconds=0))
    options = PsdsOptions(dtc=dtc, gtc=gtc, alpha_st=0, max_efpr=10)
    result = psds(lesions, event_steps(events), [recording], options)
    return (result.value, *result.roc.efpr.tolist())


def test_a_case_drawn_by_hand():
    # a: 4 of 6 frames in the lesion, all of it covered. b is false. c: 1 of 3, 1 of 4 covered.
    # At dtc 0.6 a is relevant; c never is, so two false events in the hour and half of the lesions.
    assert drawn(0.6, 0.5) == pytest.approx((0.5, 0.0))
    # At dtc 0.3 c is relevant too, and at gtc 0.25 it is enough: tpr 0.5 up to 1 an hour, then 1.
    assert drawn(0.3, 0.25) == pytest.approx((0.5 * 0.1 + 0.9, 0.0, 1.0))
    # At dtc 0.7 even a is false.
    assert drawn(0.7, 0.1) == pytest.approx((0.0, 0.0))


spans = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=4)


def laid_out(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(gap, length) pairs one behind the other."""
    frame, intervals = 0, []
    for gap, length in pairs:
        intervals.append((frame + gap, frame + gap + length))
        frame += gap + length
    return intervals


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=40), min_size=1, max_size=3),
    st.lists(st.tuples(spans, spans), min_size=3, max_size=3),
    st.sampled_from([(0.5, 0.5, 0.5), (0.1, 0.2, 0.3), (1.0, 1.0, 1.0), (0.34, 0.67, 0.1)]),
)
def test_curves_equal_counting_at_every_threshold(columns, truths, criteria):
    """Every point of the literal counts lies on or below our staircase, and its corners are met."""
    dtc, gtc, cttc = criteria
    laid = [(laid_out(a), laid_out(b)) for a, b in truths[: len(columns)]]
    annotations, recordings, steps = [], [], []
    for number, (column, (ulcers, polyps)) in enumerate(zip(columns, laid, strict=True)):
        events = [Event(a, b, "ulcer") for a, b in ulcers] + [
            Event(a, b, "polyp") for a, b in polyps
        ]
        annotations.append(Annotation.from_events(str(number), Unit.FRAME, events))
        recordings.append(Recording(str(number), Unit.FRAME, 100, 3600.0))
        at = np.arange(len(column))
        steps.append(
            ScoreSteps(number, FINDINGS.index("ulcer"), at, at + 1, np.array(column, float))
        )
    lesions = lesions_of(annotations, recordings, LesionOptions(gap_seconds=0))
    options = PsdsOptions(dtc=dtc, gtc=gtc, cttc=cttc, alpha_ct=1, alpha_st=0, max_efpr=1e9)
    roc = psds(lesions, steps, recordings, options, ["ulcer", "polyp"]).finding_rocs["ulcer"]

    hours = float(len(columns))
    polyp_hours = sum(b - a for _, polyps in laid for a, b in polyps) / 100
    points = {(0.0, 0.0)}
    for threshold in range(5):
        true = false = crossed = 0
        for column, (ulcers, polyps) in zip(columns, laid, strict=True):
            detections = literal_runs(column, threshold)
            counts = psd_counts(detections, ulcers, {"polyp": polyps}, dtc, gtc, cttc)
            true, false, crossed = true + counts[0], false + counts[1], crossed + counts[2]["polyp"]
        ulcers = max(1, sum(len(a) for a, _ in laid))
        efpr = false / hours + (crossed / polyp_hours if polyp_hours else 0.0)
        points.add((round(efpr, 9), round(true / ulcers, 9)))
    corners = {(round(x, 9), round(y, 9)) for x, y in zip(roc.efpr, roc.tpr, strict=True)}
    assert corners <= points
    for efpr, tpr in points:
        reached = roc.tpr[roc.efpr <= efpr + 1e-9]
        assert reached.max() >= tpr - 1e-9


def test_scores_know_their_gaps():
    """Rows 0-3 and 10-13 are both above the threshold; no detection reaches across the gap."""
    values = np.zeros((8, len(LABELS)), dtype=np.float32)
    values[:, LABELS.index("ulcer")] = 0.9
    scores = Scores("a", FrameAxis(np.array([0, 1, 2, 3, 10, 11, 12, 13])), values)
    truth = Annotation.from_events("a", Unit.FRAME, [Event(0, 4, "ulcer")])
    recording = Recording("a", Unit.FRAME, 8)
    lesions = lesions_of([truth], [recording], LesionOptions(gap_frames=0))
    options = PsdsOptions(dtc=1.0, gtc=1.0, max_efpr=4)
    result = psds(lesions, score_steps([scores]), [recording], options, per="study")
    # One relevant and one false detection: tpr 1 from one false positive per study on.
    assert result.findings == {"ulcer": pytest.approx(0.75)}
    with pytest.raises(EnteronError, match="recording time of study a is unknown"):
        psds(lesions, score_steps([scores]), [recording], options)


def test_overlapping_events_count_once_at_the_higher_confidence():
    events = ShownEvents.from_events(
        {"a": [Event(0, 10, "ulcer", 0.5), Event(4, 6, "ulcer", 0.9), Event(20, 21, "ulcer", 0.2)]},
        Unit.FRAME,
    )
    (steps,) = event_steps(events)
    assert list(zip(steps.start, steps.stop, steps.value, strict=True)) == [
        (0, 4, 0.5),
        (4, 6, 0.9),
        (6, 10, 0.5),
        (10, 20, -math.inf),
        (20, 21, 0.2),
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    )
)
def test_painting_equals_painting_frame_by_frame(events):
    shown = ShownEvents.from_events(
        {"a": [Event(start, start + n, "ulcer", c / 10) for start, n, c in events]}, Unit.FRAME
    )
    (steps,) = event_steps(shown)
    canvas = [-math.inf] * 80
    for start, n, c in events:
        for frame in range(start, start + n):
            canvas[frame] = max(canvas[frame], c / 10)
    for start, stop, value in zip(steps.start, steps.stop, steps.value, strict=True):
        assert canvas[start:stop] == [value] * (stop - start)
    assert sum(value > -math.inf for value in canvas) == (
        (steps.stop - steps.start)[steps.value > -math.inf].sum()
    )


def test_perfect_and_empty_predictions():
    truth = Annotation.from_events("a", Unit.FRAME, [Event(5, 9, "ulcer"), Event(3, 4, "polyp")])
    recording = Recording("a", Unit.FRAME, 50, 600.0)
    lesions = lesions_of([truth], [recording])
    perfect = ShownEvents.from_annotations([truth])
    assert psds(lesions, event_steps(perfect), [recording]).value == pytest.approx(1)
    nothing = ShownEvents.from_annotations([Annotation("a", Unit.FRAME)])
    result = psds(lesions, event_steps(nothing), [recording])
    assert result.value == 0
    assert result.findings == {"ulcer": 0, "polyp": 0}


def test_what_cannot_be_scored():
    recording = Recording("a", Unit.FRAME, 50, 600.0)
    nothing = lesions_of([Annotation("a", Unit.FRAME)], [recording])
    with pytest.raises(EnteronError, match="no study has a lesion"):
        psds(nothing, [], [recording])
    with pytest.raises(ValueError, match="both, or neither"):
        PsdsOptions(cttc=0.3)
    with pytest.raises(ValueError, match="both, or neither"):
        PsdsOptions(alpha_ct=0.3)

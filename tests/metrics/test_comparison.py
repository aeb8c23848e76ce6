"""Two predictions compared: against scikit-learn's kappa, brute force, and by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from enteron.labels import FINDINGS, LABELS, REGIONS
from enteron.metrics.comparison import Judged, agree, compare, summarise_agreement
from enteron.metrics.evaluation import StudyBootstrap, evaluate
from enteron.metrics.lesion_evaluation import ShownStudy, evaluate_lesions
from enteron.types import Annotation, Event, Unit

FRAMES = 120


def reader(seed: int, study: str) -> Annotation:
    """Regions in order, and findings at random; the first frame and the last are annotated."""
    rng = np.random.default_rng([seed, int(study)])
    borders = np.sort(rng.choice(np.arange(5, FRAMES - 5), 2, replace=False)).tolist()
    edges = [0, *borders, FRAMES]
    events = [Event(edges[i], edges[i + 1], REGIONS[2 + i]) for i in range(3)]
    for _ in range(rng.integers(0, 6)):
        start = int(rng.integers(0, FRAMES - 10))
        label = FINDINGS[rng.integers(3)]
        events.append(Event(start, start + int(rng.integers(1, 10)), label))
    return Annotation.from_events(study, Unit.FRAME, events)


def frame_labels(annotation: Annotation, label: str) -> np.ndarray:
    values = np.zeros(FRAMES, dtype=bool)
    for segment in annotation.segments:
        if label in segment.labels:
            values[segment.start : segment.stop] = True
    return values


@given(st.integers(0, 1000))
def test_kappa_is_that_of_scikit_learn(seed):
    studies = ("1", "2", "3")
    a, b = ([reader(seed + side, s) for s in studies] for side in (0, 5000))
    result = agree(a, b, resamples=20)
    for label in LABELS:
        first, second = (np.concatenate([frame_labels(x, label) for x in side]) for side in (a, b))
        if not (first.any() or second.any()):
            assert label not in result.kappa
            continue
        kappa = result.kappa[label]
        assert (kappa.frames_a, kappa.frames_b) == (first.sum(), second.sum())
        assert kappa.value == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
    regions = [
        np.concatenate([np.argmax([frame_labels(x, r) for r in REGIONS], axis=0) for x in side])
        for side in (a, b)
    ]
    assert result.regions.value == pytest.approx(cohen_kappa_score(*regions), abs=1e-9)
    json.dumps(summarise_agreement(result), allow_nan=False)


def test_agreement_on_lesions_by_hand():
    #  A   |===|      |==|     |==|        blood
    #  B     |====|            |==| |==|   blood; gaps of up to 20 frames are joined
    #  A               |=|                 polyp
    a = [(10, 50, "blood"), (200, 230, "blood"), (400, 430, "blood"), (210, 220, "polyp")]
    b = [(40, 90, "blood"), (400, 430, "blood"), (440, 460, "blood")]
    sides = [
        Annotation.from_events("1", Unit.FRAME, [Event(*event) for event in side])
        for side in (a, b)
    ]
    result = agree([sides[0]], [sides[1]])
    blood = result.lesions["blood"]
    assert (blood.a, blood.b, blood.shared_a, blood.shared_b) == (3, 2, 2, 2)
    assert blood.agreement == pytest.approx(4 / 5)
    assert result.lesions["polyp"].agreement == 0.0
    assert result.lesions["all"].agreement == pytest.approx(4 / 6)
    assert set(result.lesions) == {"blood", "polyp", "all"}


def test_a_reader_agrees_with_itself():
    a = [reader(1, s) for s in ("1", "2")]
    result = agree(a, a)
    assert result.regions.value == 1.0
    assert all(kappa.value == 1.0 for kappa in result.kappa.values())
    assert result.lesions["all"].agreement == 1.0
    assert (np.nan_to_num(result.borders.error) == 0).all()
    empty = Annotation("1", Unit.FRAME)
    nothing = agree([empty], [empty])
    assert nothing.lesions["all"].agreement is None
    assert nothing.kappa == {}


def judged(truths: list[Annotation], predictions: list[Annotation]) -> Judged:
    evaluation = evaluate(truths, predictions)
    shown = [ShownStudy(p) for p in predictions]
    return Judged(evaluation, evaluate_lesions(truths, shown, evaluation.bootstrap))


def test_paired_differences():
    studies = [str(i) for i in range(6)]
    truths = [reader(1, s) for s in studies]
    silent = [
        Annotation(s, Unit.FRAME, t.segments[:3]) for s, t in zip(studies, truths, strict=True)
    ]
    same = {d.name: d for d in compare(judged(truths, truths), judged(truths, truths))}
    assert {d.difference for d in same.values()} == {0.0}
    assert {d.better for d in same.values()} == {""}
    against = {d.name: d for d in compare(judged(truths, silent), judged(truths, truths))}
    found = against["lesions found"]
    assert found.a == 0
    assert found.interval is not None
    assert found.interval[0] > 0
    assert found.better == "B"
    reverse = {d.name: d for d in compare(judged(truths, truths), judged(truths, silent))}
    assert reverse["lesions found"].better == "A"
    assert reverse["lesions found"].interval == pytest.approx(
        (-found.interval[1], -found.interval[0])
    )


def test_a_paired_interval_is_narrower_than_two_intervals():
    """What makes a study hard for both cancels out."""
    rng = np.random.default_rng(0)
    lesions = rng.integers(5, 40, 30)
    hard = rng.random(30)
    a = np.round(lesions * hard).astype(int)
    b = np.minimum(lesions, a + 1)
    bootstrap = StudyBootstrap(30)
    paired = bootstrap.ratio_difference(a, lesions, b, lesions)
    alone = bootstrap.ratio(b, lesions)
    assert paired is not None
    assert alone is not None
    assert 0 < paired[0] < paired[1]
    assert paired[1] - paired[0] < (alone[1] - alone[0]) / 3
    #  The same resamples, one by one.
    drawn = np.random.default_rng(0).integers(30, size=(2000, 30))
    gaps = [(b[d].sum() - a[d].sum()) / lesions[d].sum() for d in drawn]
    assert paired == pytest.approx(tuple(np.quantile(gaps, (0.025, 0.975))))
    assert bootstrap.ratio_difference(a, lesions * 0, b, lesions) is None
    assert StudyBootstrap(1).ratio_difference(a[:1], lesions[:1], b[:1], lesions[:1]) is None

"""Context against sums over all pairs of rows, in blocks, with gaps, at other spacings."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from enteron.calibration import (
    Calibration,
    EventRule,
    FrameCalibration,
    calibrated,
    with_or_without_context,
)
from enteron.context import (
    Context,
    EventContext,
    TimeMeans,
    event_terms,
    log_odds,
    means_at,
    positions,
    time_means,
)
from enteron.decoding import PRESETS, decode
from enteron.decoding.pipeline import decision_thresholds
from enteron.errors import ConfigError
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

SCALES = (3.0, 50.0, 1000.0)
CONTEXT = Context(
    scales=SCALES, regions=(0.5, 0, 1, 2), landmarks=(0, 0, 0, 0), findings=(0, 1, 0.25, 0)
)


def rows_at(where: NDArray[np.float64], channels: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(len(where)).normal(size=(len(where), channels)).astype("f")


def literal_means(
    rows: NDArray[np.float32], where: NDArray[np.float64], scales: tuple[float, ...]
) -> NDArray[np.float64]:
    """Every mean as its definition says: a weight for every pair of rows."""
    means = np.empty((len(rows), len(scales), rows.shape[1]))
    for number, scale in enumerate(scales):
        for row in range(len(rows)):
            weights = np.exp(-np.abs(where - where[row]) / scale)
            past, future = weights.copy(), weights
            past[row + 1 :] = 0
            future[:row] = 0
            means[row, number] = (past @ rows / past.sum() + future @ rows / future.sum()) / 2
    return means


def scores_of(
    values: NDArray[np.floating],
    frames: NDArray[np.int64] | None = None,
    frames_per_row: float | None = None,
) -> Scores:
    frames = np.arange(len(values)) if frames is None else frames
    return Scores("s", FrameAxis(frames), values.astype(np.float32), None, frames_per_row)


@given(steps=st.lists(st.integers(1, 5000), max_size=40), block=st.integers(1, 50))
def test_means_are_their_definition_whatever_the_blocks(steps: list[int], block: int):
    where = np.cumsum([0, *steps]).astype(np.float64)
    rows = rows_at(where)
    means = TimeMeans(rows, where, SCALES, block)
    blocks = np.concatenate([means.means(index) for index in range(len(means))])
    np.testing.assert_allclose(blocks, literal_means(rows, where, SCALES), atol=2e-6)
    np.testing.assert_array_equal(blocks, time_means(rows, where, SCALES))


@pytest.mark.parametrize("count", [1, 2, 10, 200])
def test_refined_scores_are_weighted_sums_of_log_odds(count: int):
    rng = np.random.default_rng(count)
    scores = scores_of(rng.random((count, len(LABELS))), np.cumsum(rng.integers(1, 90, count)))
    odds = log_odds(scores.values)
    means = literal_means(odds, scores.axis.frames.astype(float), SCALES)
    expected = odds.astype(np.float64)
    expected[:, :5] += 0.5 * odds[:, :5] + means[:, 1, :5] + 2 * means[:, 2, :5]
    expected[:, :5] /= 1 + 0.5 + 1 + 2
    expected[:, 8:] += means[:, 0, 8:] + 0.25 * means[:, 1, 8:]
    expected[:, 8:] /= 1 + 1 + 0.25
    np.testing.assert_allclose(CONTEXT.refined(scores), 1 / (1 + np.exp(-expected)), atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 10, 250])
def test_the_highest_hundredth_of_a_study_counts_for_its_findings(count: int):
    scores = scores_of(np.random.default_rng(count).random((count, len(LABELS))))
    context = CONTEXT.model_copy(update={"study": 3.0})
    odds = log_odds(CONTEXT.refined(scores)).astype(float)
    own = np.sort(log_odds(scores.values).astype(float), axis=0)
    # Between the two rows around the place 99 % up the sorted column.
    place = 0.99 * (count - 1)
    low, high = own[int(place)], own[min(int(place) + 1, count - 1)]
    highest = low + (place - int(place)) * (high - low)
    odds[:, 8:] = (odds[:, 8:] * 2.25 + 3 * highest[8:]) / (2.25 + 3)
    np.testing.assert_allclose(context.refined(scores), 1 / (1 + np.exp(-odds)), atol=1e-5)


def test_a_study_that_shows_a_finding_is_more_likely_to_show_it_elsewhere():
    context = CONTEXT.model_copy(update={"study": 2.0})
    values = np.full((1000, len(LABELS)), 0.2)
    values[:20, COLUMN["polyp"]] = 0.99
    refined = context.refined(scores_of(values))[-1]  # beyond the reach of most means
    assert refined[COLUMN["polyp"]] > 0.5
    assert refined[COLUMN["ulcer"]] == pytest.approx(0.2, abs=1e-3)
    assert refined[COLUMN["colon"]] == pytest.approx(0.2, abs=1e-3)


def test_groups_in_use_are_those_with_weights():
    assert CONTEXT.used_for == ("regions", "findings")
    of_study = CONTEXT.model_copy(update={"findings": (0.0,) * 4, "study": 1.0})
    assert of_study.used_for == ("regions", "findings")
    assert of_study.model_copy(update={"study": 0.0}).used_for == ("regions",)


@pytest.mark.parametrize("block", [1, 7, 100, 5000])
def test_blocks_of_any_size_give_the_same(block: int):
    rng = np.random.default_rng(0)
    values = rng.random((333, len(LABELS))).astype(np.float32)
    where = np.cumsum(rng.integers(1, 400, 333)).astype(np.float64)
    context = CONTEXT.model_copy(update={"study": 2.0})
    np.testing.assert_allclose(
        context.refine(values, where, block), context.refine(values, where), atol=1e-6
    )


def slow_scores(count: int) -> NDArray[np.float32]:
    """Scores that change over some hundred frames, as those of a moving capsule."""
    time = np.arange(count)[:, None] / np.linspace(150, 900, len(LABELS))
    return (0.5 + 0.45 * np.sin(time)).astype(np.float32)


def test_a_study_at_every_fifth_frame_gets_the_scores_of_every_frame():
    values = slow_scores(6000)
    context = CONTEXT.model_copy(update={"study": 2.0})
    every = context.refined(scores_of(values))[::5]
    fifth = context.refined(scores_of(values[::5], 5 * np.arange(1200)))
    shown = np.maximum(every, fifth) > 0.1
    assert np.quantile(np.abs(every - fifth)[shown], 0.95) < 0.01


@pytest.mark.parametrize("missing", [slice(1, None, 2), slice(2000, 2600)])
def test_missing_frames_hardly_move_the_others(missing: slice):
    values = slow_scores(6000)
    kept = np.ones(len(values), np.bool_)
    kept[missing] = False
    frames = np.flatnonzero(kept)
    whole = CONTEXT.refined(scores_of(values))[kept]
    rest = CONTEXT.refined(scores_of(values[kept], frames))
    far = np.abs(frames - 2300) > 1500  # a gap is seen near its borders only
    assert np.quantile(np.abs(whole - rest)[far], 0.95) < 0.02


def test_shortened_studies_count_original_frames():
    frames = np.array([5, 10, 20])
    values = np.full((3, len(LABELS)), 0.5)
    assert positions(scores_of(values, frames)).tolist() == [5, 10, 20]
    # Rows 1, 2 and 4, of 40 original frames each.
    assert positions(scores_of(values, frames, 40.0)).tolist() == [40, 80, 160]


def test_regions_see_beyond_twenty_thousand_frames():
    context = Context(regions=(0, 0, 0, 0, 0, 0, 3), landmarks=(0,) * 7, findings=(0,) * 7)
    values = np.full((2, len(LABELS)), 0.3)
    other = values.copy()
    other[1] = 0.9
    moved = [context.refined(scores_of(v, np.array([0, 20_000])))[0, 0] for v in (values, other)]
    assert moved[1] - moved[0] > 0.01


def test_means_at_some_rows_are_those_of_all_rows():
    values = log_odds(slow_scores(9000))  # more than two blocks
    where = np.cumsum(np.random.default_rng(0).integers(1, 9, len(values))).astype(float)
    wanted = np.array([8999, 0, 4095, 4096, 17, 4095])
    scales = (30.0, 5000.0)
    found = means_at(values, where, scales, wanted)
    for row, means in zip(wanted.tolist(), found, strict=True):
        for scale, mean in zip(scales, means, strict=True):
            # That of the past and that of the future, each with the row itself.
            past = np.exp(-np.abs(where - where[row]) / scale)
            future = past.copy()
            past[row + 1 :] = future[:row] = 0
            expected = (past @ values / past.sum() + future @ values / future.sum()) / 2
            np.testing.assert_allclose(mean, expected, atol=2e-5)
    assert means_at(values, where, scales, np.array([], np.int64)).shape == (0, 2, len(LABELS))


JUDGE = EventContext(
    scales=(100.0, 3000.0),
    peak=1.0,
    duration=0.5,
    region=2.0,
    around=(-1.0, 3.0),
    constants={"blood": 4.9},
    candidates={"blood": 0.5},
    threshold=0.4,
    clinical=None,
)


def test_the_confidence_of_an_event_is_a_logistic_sum():
    terms = event_terms(np.array([0.8]), np.array([9]), np.array([-0.7]), np.array([[0.25, 0.5]]))
    odds = np.log(4) + 0.5 * np.log(10) - 2 * 0.7 - 0.25 + 3 * 0.5 + 4.9
    assert JUDGE.confidence(["blood"], terms)[0] == pytest.approx(1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": (100.0, 50.0)}, "scales ascend"),
        ({"around": (1.0,)}, "around has 1 weights, not 2"),
        ({"candidates": {"polyp": 0.5}}, "name the same findings"),
        ({"constants": {"colon": 0.5}, "candidates": {"colon": 0.5}}, "name the same findings"),
        ({"threshold": 1.0}, "less than 1"),
        ({"peak": float("nan")}, "finite"),
    ],
)
def test_contradictions_of_an_event_context_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        EventContext(**{**JUDGE.model_dump(), **changes})


def lone_and_crowded() -> Scores:
    """Blood with the same peak twice: in silence, and in a stretch of raised scores.

    frames    0 ...... 1500-1509 ...... 5000 ~~~~ 6500-6509 ~~~~ 8000 ...... 9000
    """
    values = np.full((9000, len(LABELS)), 0.01)
    values[:, 2] = 0.9  # small intestine
    blood = COLUMN["blood"]
    values[5000:8000, blood] = 0.2
    values[1500:1510, blood] = values[6500:6510, blood] = 0.9
    return scores_of(values)


def decoded_blood(calibration: Calibration, name: str) -> list[tuple[int, float]]:
    events = decode(lone_and_crowded(), PRESETS[name], calibration=calibration)
    return [(e.start // 1000, e.score or 0.0) for e in events if e.label == "blood"]


def test_what_surrounds_an_event_decides_on_it():
    """Weights of -1 and 3: standing out from seconds, among others in minutes."""
    plain = Calibration(events=rules(), low=0.9)
    (first, confidence), (second, other) = sorted(decoded_blood(plain, "transit"))
    assert (first, second) == (1, 6)
    assert confidence == pytest.approx(other, abs=1e-6)  # by their peaks they are alike
    judged = plain.model_copy(update={"event_context": JUDGE})
    ((where, confidence),) = decoded_blood(judged, "transit")
    assert where == 6
    assert confidence >= 0.4
    lenient = JUDGE.model_copy(update={"threshold": 1e-6, "clinical": 0.4})
    judged = plain.model_copy(update={"event_context": lenient})
    assert [where for where, _ in decoded_blood(judged, "transit")] == [6, 1]
    assert [where for where, _ in decoded_blood(judged, "clinical")] == [6]


def test_the_region_of_an_event_speaks_for_it_or_against_it():
    """Blood is seen more often in the colon than in the small intestine (priors of Galar)."""
    shares = load_priors().given_region.shares
    assert shares["colon"]["blood"] > shares["small intestine"]["blood"]
    confidences: list[float] = []
    for region in ("small intestine", "colon"):
        values = lone_and_crowded().values.copy()
        values[:, :5] = 0.01
        values[:, COLUMN[region]] = 0.9
        lenient = JUDGE.model_copy(update={"threshold": 1e-6})
        calibration = Calibration(events=rules(), low=0.9, event_context=lenient)
        events = decode(scores_of(values), PRESETS["transit"], calibration=calibration)
        confidences += [e.score or 0.0 for e in events if e.label == "blood" and e.start > 6000]
    intestine, colon = (np.log(p / (1 - p)) for p in confidences)
    ratio = np.log((shares["colon"]["blood"] + 1e-4) / (shares["small intestine"]["blood"] + 1e-4))
    assert colon - intestine == pytest.approx(JUDGE.region * ratio, abs=1e-3)


def test_nothing_is_reported_where_everything_costs_more_than_the_budget():
    calibration = Calibration(events=rules(), event_context=JUDGE)
    assert decoded_blood(calibration, "clinical") == []


@pytest.mark.parametrize("name", ["paper", "gap-merge"])
def test_presets_of_frames_do_not_ask_what_surrounds_an_event(name: str):
    plain = Calibration(events=rules())
    judged = plain.model_copy(update={"event_context": JUDGE})
    assert decoded_blood(judged, name) == decoded_blood(plain, name)


def test_a_finding_that_the_context_does_not_name_is_not_reported():
    calibration = Calibration(
        events=rules(),
        event_context=JUDGE.model_copy(update={"constants": {}, "candidates": {}}),
    )
    assert decoded_blood(calibration, "transit") == []
    thresholds = decision_thresholds(PRESETS["transit"], calibration)
    assert thresholds["blood"] is None
    assert thresholds["colon"] == 0.5


def rules() -> dict[str, EventRule]:
    rule = EventRule(threshold=0.5, clinical=0.5, window=1, intercept=0.0, slope=1.0)
    return dict.fromkeys(FINDINGS, rule)


def test_large_weights_do_not_push_scores_to_their_limits():
    """A sum would: log-odds of -4 would become -40, and all frames would score the same 0."""
    heavy = Context(regions=(20.0,) * 7, landmarks=(20.0,) * 7, findings=(20.0,) * 7, study=20.0)
    values = np.full((50, len(LABELS)), 0.02)
    values[20:30] = 0.03
    refined = heavy.refined(scores_of(values))
    assert refined.min() >= 0.02 - 1e-6
    assert refined.max() <= 0.03 + 1e-6
    assert (np.diff(refined[:, 0])[:20] > 0).all()  # nearer to the ten frames, and all distinct


def test_scores_of_0_and_1_stay_finite():
    values = np.zeros((4, len(LABELS)))
    values[:, COLUMN["blood"]] = 1
    assert np.isfinite(CONTEXT.refined(scores_of(values))).all()
    assert log_odds(np.array([0.0, 1e-30, 0.5, 1.0])).tolist() == [-10, -10, 0, 10]


def test_calibration_refines_before_it_scales():
    scores = scores_of(slow_scores(50))
    plain = FrameCalibration(temperature=2.0)
    refined = Scores("s", scores.axis, CONTEXT.refined(scores))
    np.testing.assert_allclose(
        calibrated(scores, plain.model_copy(update={"context": CONTEXT})),
        calibrated(refined, plain),
        atol=1e-6,
    )


def test_leaving_context_out_takes_the_calibration_without_it():
    frames = FrameCalibration(context=CONTEXT)
    plain = Calibration(budget=3.0)
    fitted = Calibration(likelihood=frames, without_context=plain)
    assert with_or_without_context(fitted, context=True) is fitted
    assert with_or_without_context(fitted, context=False) is fitted.without_context
    assert with_or_without_context(plain, context=False) is plain
    with pytest.raises(ConfigError, match="fitted with context only; calibrate again"):
        with_or_without_context(Calibration(likelihood=frames), context=False)


def test_calibrations_without_context_are_stored_as_before():
    table = Calibration().model_dump(mode="json")
    assert "context" not in table["likelihood"]
    assert not {"context_gains", "without_context"} & set(table)
    with_context = Calibration(
        likelihood=FrameCalibration(context=CONTEXT), without_context=Calibration()
    )
    assert Calibration.model_validate(with_context.model_dump(mode="json")) == with_context


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": (3.0, 2.0, 9.0)}, "scales ascend"),
        ({"regions": (0.0, 1.0)}, "regions has 2 weights, not 4"),
        ({"findings": (0.0, -1.0, 0.0, 0.0)}, "weights of findings are not all from 0 to 20"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, tuple[float, ...]], message: str):
    with pytest.raises(ValueError, match=message):
        Context(**{**CONTEXT.model_dump(), **changes})


def test_a_reading_uses_the_context_and_leaves_it_out_on_request(tmp_path):
    """Two readings of one study: run.json and the page say what was done to the scores."""
    from enteron.calibration import FittedFor
    from enteron.folders.model import read_record, save_calibration, save_model
    from enteron.model.network import start_network
    from enteron.model.options import ModelOptions
    from enteron.priors import load_priors, priors_hash
    from enteron.reading import Reader, ReadOptions
    from tests.making import write_frames

    model = tmp_path / "model"
    save_model(model, start_network(ModelOptions(backbone="vit-tiny")))
    record = read_record(model)
    fitted_for = FittedFor(
        origin="model",
        weights=record.weights_hash,
        settings=record.settings_hash,
        priors=priors_hash(load_priors()),
    )
    plain = Calibration(fitted_for=fitted_for, studies=4)
    fitted = Calibration(
        fitted_for=fitted_for,
        studies=4,
        likelihood=FrameCalibration(context=CONTEXT),
        without_context=plain,
    )
    save_calibration(fitted, model / "calibration.json")
    study = write_frames(tmp_path / "77", range(10, 42, 2))
    readings = {
        use: Reader(model, ReadOptions(context=use, views="none")).read(study, tmp_path / str(use))
        for use in (True, False)
    }
    used, left_out = (readings[use].run.frame_calibration for use in (True, False))
    assert used is not None
    assert used.context == CONTEXT
    assert left_out is not None
    assert left_out.context is None
    pages = {use: (tmp_path / str(use) / "report.html").read_text() for use in readings}
    assert "Scores include those of the minutes around a frame" in pages[True]
    assert "Scores include those" not in pages[False]
    assert readings[False].run.settings["context"] is False
    assert "context" not in readings[True].run.settings

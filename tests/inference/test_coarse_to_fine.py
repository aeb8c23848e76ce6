"""Coarse to fine: the policy against a literal one, chunks, stores, and the estimate."""

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.calibration import Calibration, sigmoid
from enteron.context import Context
from enteron.decoding import preset
from enteron.decoding.pipeline import Decoder
from enteron.errors import ConfigError, ModelError, StudyError
from enteron.fitting.coarse import FullReading, fit_coarse
from enteron.inference.coarse_chunks import CoarseReading
from enteron.inference.coarse_to_fine import (
    CoarseEstimate,
    CoarseOptions,
    CoarsePolicy,
    Refinement,
    WatchedLabel,
    looked_at,
    nearest_rows,
    require_dense,
)
from enteron.inference.embed import EmbedOptions, StudyEmbedding, embed_study
from enteron.inference.glance import Glance, tensor_shapes
from enteron.inference.score import score_study
from enteron.inference.store import UNREADABLE, Embeddings, StoreKey, StoreRecord, open_embeddings
from enteron.inference.views import PLAIN
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.model.options import ModelOptions
from enteron.priors import load_priors
from enteron.study import open_study as open_by_content
from enteron.types import FrameAxis, Scores
from tests.inference.stub import StubEncoder
from tests.making import write_frames, write_video

open_study = partial(open_by_content, keep_name=True)


def estimate(**changes) -> CoarseEstimate:
    content = {
        "weights": "0" * 64,
        "glance": "0" * 64,
        "labels": {
            "polyp": WatchedLabel(level=0.5, floor=0.1, appears=0.3),
            "pylorus": WatchedLabel(level=-1.0, floor=-1.0, disappears=-0.4, tops=0.2, stake=0.6),
        },
        "appears": (-1.0, 0.9, 0.2, 0.4, 0.3, 0.5),
        "disappears": (-1.5, -0.3, -0.8, 0.4, 0.3, -0.6),
        "tops": (-2.0, 0.4, 0.2, 0.1, 0.2, 0.7),
        "studies": 3,
        "rows": 1000,
        "densest": 1,
        "sparsest": 5,
    }
    return CoarseEstimate(**content | changes)


def policy(stride=8, limit=0.1, border=2, row_frames=1.0, edge=1, **changes) -> CoarsePolicy:
    options = CoarseOptions(
        stride=stride, limit=limit, edge=edge, border=border, region_frames=0, landmark_rows=None
    )
    return CoarsePolicy(options, estimate(**changes), row_frames)


# ---- the policy against a literal one


def literal_expected(rows, odds, guesses, column) -> list[float]:
    """Of every row: its guess and what guesses are wrong by, interpolated between encoded rows."""
    wrong = {row: float(odds[row][column]) - float(guesses[row][column]) for row in rows}
    expected = []
    for row in range(len(odds)):
        before = max((r for r in rows if r <= row), default=rows[0])
        after = min((r for r in rows if r >= row), default=rows[-1])
        share = 0.0 if after == before else (row - before) / (after - before)
        mean = (1 - share) * wrong[before] + share * wrong[after]
        expected.append(float(guesses[row][column]) + mean)
    return expected


def literal_runs(rows, values, level, floor) -> dict[int, float]:
    """For encoded rows that lie in an event, the highest of its values."""
    runs: list[list[int]] = [[]]
    for row in rows:
        if values[row] >= floor:
            runs[-1].append(row)
        elif runs[-1]:
            runs.append([])
    events = [run for run in runs if run and max(values[row] for row in run) >= level]
    return {row: max(values[r] for r in run) for run in events for row in run}


def literal_chance(coefficients, own, ends, difference, frames, inside) -> float:
    ends, inside = [max(-12.0, min(12.0, end)) for end in ends], max(-12.0, min(12.0, inside))
    terms = (1.0, max(ends), min(ends), math.log(difference), math.log2(max(frames, 1)), inside)
    return 1 / (1 + math.exp(-own - sum(w * t for w, t in zip(coefficients, terms, strict=True))))


def literal_gaps(chosen: CoarsePolicy, rows, odds, vectors, guesses) -> list[tuple[float, int]]:
    """Risk and next row of every gap between encoded rows, label by label, with math only."""
    result = []
    fitted = chosen.estimate
    for a, b in pairwise(rows):
        if b - a == 1:
            continue
        dot = sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))
        lengths = [math.sqrt(sum(x * x for x in vectors[row])) for row in (a, b)]
        between = (max(1 - dot / (lengths[0] * lengths[1]), 1e-4), (b - a) * chosen.row_frames)
        nothing, worst, target = 1.0, 0.0, (a + b) // 2
        for label, watched in fitted.labels.items():
            column = COLUMN[label]
            values = {row: float(odds[row][column]) for row in rows}
            events = literal_runs(rows, values, watched.level, watched.floor)
            expected = literal_expected(rows, odds, guesses, column)
            whole, inside = expected[a : b + 1], expected[a + 1 : b]
            top = a + 1 + inside.index(max(inside))
            chances: list[tuple[float, int]] = []
            if not {a, b} & set(events):
                ends = [values[row] - watched.level for row in (a, b)]
                most = max(whole) - watched.level
                p = literal_chance(fitted.appears, watched.appears, ends, *between, most)
                chances = [(p, top)]
            elif {a, b} <= set(events):
                ends = [values[row] - watched.floor for row in (a, b)]
                least = min(whole) - watched.floor
                p = literal_chance(fitted.disappears, watched.disappears, ends, *between, least)
                chances = [(p, a + 1 + inside.index(min(inside)))]
            elif b - a > chosen.options.edge:
                chances = [(1.0, (a + b) // 2)]
            best = max((events[row] for row in (a, b) if row in events), default=None)
            if best is not None:
                ends = [values[row] - best for row in (a, b)]
                single = max(inside) - best
                p = literal_chance(fitted.tops, watched.tops, ends, *between, single)
                chances.append((p, top))
            chances += literal_doubts(watched, rows, a, b, values, expected)
            for p, row in chances:
                nothing *= 1 - watched.stake * p
                if watched.stake * p > worst:
                    worst, target = watched.stake * p, row
        regions = [max(range(len(REGIONS)), key=lambda k: odds[row][k]) for row in (a, b)]
        if regions[0] != regions[1] and b - a > chosen.options.border:
            nothing, target = 0.0, (a + b) // 2
        result.append((1 - nothing, target))
    return result


def literal_doubts(watched, rows, a, b, values, expected) -> list[tuple[float, int]]:
    """What else a gap is looked into for: an event near its threshold, without averaging."""
    if watched.threshold is None:
        return []
    count = len(expected)
    borrowed = [values[min(rows, key=lambda r: (abs(r - row), -r))] for row in range(count)]
    least = watched.threshold - 3 * math.sqrt(watched.doubt)
    near = [max(pair) >= least for pair in zip(expected, borrowed, strict=True)]
    found = []
    for start in range(count):
        if not near[start] or (start and near[start - 1]):
            continue
        run = [row for row in range(start, count) if all(near[start : row + 1])]
        seen = max(borrowed[row] for row in run) >= watched.threshold
        peaks = {max(run, key=lambda r: (of[r], -r)) for of in (expected, borrowed)}
        for peak in sorted(peaks):
            around = [min(max(row, 0), count - 1) for row in (peak - 1, peak, peak + 1)]
            share = sum(row not in rows for row in around) / 3
            inside = min(max(peak, a + 1), b - 1)
            if share and abs(inside - peak) <= 1:
                deviations = (expected[peak] - watched.threshold) / math.sqrt(watched.doubt * share)
                p = 0.5 * math.erfc((deviations if seen else -deviations) / math.sqrt(2))
                found.append((p, inside))
    return found


def literal_rows(
    chosen: CoarsePolicy, numbers, odds, vectors, guesses, clip
) -> tuple[list[int], float]:
    """The rows that are encoded: the grid, then round after round; and what is expected unseen.

    Each with those that lie `clip` rows before it.
    """
    rows: set[int] = set()
    pieces: list[list[int]] = []
    for row, number in enumerate(numbers):
        if row and number - numbers[row - 1] == 1:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    for piece in pieces:
        grid = {piece[0], piece[-1]} | set(piece[:: chosen.options.stride])
        rows |= {max(row - before, 0) for row in grid for before in clip}
    while True:
        gaps = literal_gaps(chosen, sorted(rows), odds, vectors, guesses)
        more = {row for risk, row in gaps if risk >= chosen.options.limit}
        if not more:
            return sorted(rows), sum(risk for risk, _ in gaps)
        rows |= {max(row - before, 0) for row in more for before in clip}


def table(seed: int, count: int):
    """Log-odds and embeddings that wander, with a finding and a border now and then; guesses."""
    random = np.random.default_rng(seed)
    odds = random.normal(size=(count, len(LABELS))).cumsum(axis=0) * 0.3 - 2
    vectors = np.abs(random.normal(size=(count, 4)).cumsum(axis=0) * 0.1 + 1) + 0.1
    return odds, vectors, 0.7 * odds + random.normal(size=odds.shape)


def look_at(chosen, numbers, odds, vectors, guesses=None, unreadable=(), step=1, clip=(0,)):
    asked: list[int] = []
    guesses = np.zeros(odds.shape) if guesses is None else guesses.copy()
    guesses[list(unreadable)] = np.nan
    result = looked_at(
        chosen, np.asarray(numbers), step, np.array(clip), guesses,
        lambda rows: asked.extend(rows.tolist()), lambda rows, _: (odds[rows], vectors[rows]),
    )  # fmt: skip
    assert len(asked) == len(set(asked))  # nothing is encoded twice
    assert sorted(asked) == result.rows.tolist()
    return result


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.sampled_from([0.0, 0.02, 0.2, 0.6, 1.0]),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.sampled_from([(0,), (2, 1, 0), (4, 2, 0)]),
)
def test_the_rows_are_those_of_a_literal_policy(seed, count, stride, limit, edge, doubt, clip):
    odds, vectors, guesses = table(seed, count)
    gaps = np.random.default_rng(seed).random(count) < 0.05
    numbers = np.cumsum(1 + 5 * gaps)
    labels = dict(estimate().labels)
    if doubt:
        labels["blood"] = WatchedLabel(level=0.2, floor=-0.3, threshold=0.6, doubt=0.5, stake=0.7)
    chosen = policy(stride, limit, row_frames=2.5, edge=edge, labels=labels)
    result = look_at(chosen, numbers, odds, vectors, guesses, clip=clip)
    rows, missed = literal_rows(chosen, numbers.tolist(), odds, vectors, guesses, clip)
    assert result.rows.tolist() == rows
    assert result.missed == pytest.approx(missed, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_a_limit_of_nothing_looks_at_every_frame_that_can_be_read(seed, count):
    odds, vectors, guesses = table(seed, count)
    bad = np.flatnonzero(np.random.default_rng(seed).random(count) < 0.2)
    readable = ~np.isin(np.arange(count), bad)
    result = look_at(policy(limit=0.0), np.arange(count), odds, vectors, guesses, bad)
    assert result.rows.tolist() == np.flatnonzero(readable).tolist()
    assert result.source.tolist() == np.where(readable, np.arange(count), -1).tolist()
    assert result.missed == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.sampled_from([2, 8, 16]))
def test_every_readable_row_borrows_from_the_nearest_of_its_own_piece(seed, count, stride):
    odds, vectors, guesses = table(seed, count)
    random = np.random.default_rng(seed)
    numbers = np.cumsum(1 + 7 * (random.random(count) < 0.08))
    bad = np.flatnonzero(random.random(count) < 0.1)
    readable = np.flatnonzero(~np.isin(np.arange(count), bad))
    result = look_at(policy(stride, 0.3), numbers, odds, vectors, guesses, bad)
    place = {int(row): index for index, row in enumerate(readable)}  # distances skip the others
    for row, source in enumerate(result.source.tolist()):
        if source < 0:
            assert row in bad
            continue
        assert source in result.rows
        distances = {int(r): abs(place[int(r)] - place[row]) for r in result.rows}
        nearest = min(distances.values())
        assert source == max(r for r, distance in distances.items() if distance == nearest)
        between = numbers[min(row, source) : max(row, source) + 1]
        if not bad.size:
            assert (np.diff(between) == 1).all()


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 41))
def test_nearest_rows_by_hand(rows, count):
    chosen = sorted(row for row in rows if row < count) or [0]
    expected = [max(chosen, key=lambda r: (-abs(r - row), r)) for row in range(count)]
    assert nearest_rows(np.array(chosen), count).tolist() == expected


def test_a_still_capsule_without_findings_is_looked_at_once_in_a_stride():
    odds = np.full((65, len(LABELS)), -10.0)
    vectors = np.ones((65, 4))
    result = look_at(policy(16), np.arange(65), odds, vectors)
    assert result.rows.tolist() == [0, 16, 32, 48, 64]
    assert 0 < result.missed < 0.1


def test_the_edges_of_a_finding_are_found_by_halving():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[21:40, COLUMN["polyp"]] = 10.0
    result = look_at(policy(16), np.arange(65), odds, np.ones((65, 4)))
    assert {20, 21, 39, 40} <= set(result.rows.tolist())
    assert result.rows.size < 16


def test_the_border_of_regions_is_found_up_to_the_rows_of_the_options():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[:27, 0], odds[27:, 1] = 5.0, 5.0
    for border in (1, 4):
        result = look_at(policy(16, border=border), np.arange(65), odds, np.ones((65, 4)))
        before, after = result.rows[result.rows < 27].max(), result.rows[result.rows >= 27].min()
        assert after - before <= border


def test_one_frame_that_points_to_another_region_is_no_border():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[:, 0], odds[32, 1] = 5.0, 8.0
    for frames, expected in ((0.0, {31, 32, 33}), (30.0, {16, 32, 48})):
        options = CoarseOptions(stride=16, limit=0.1, border=1, region_frames=frames)
        chosen = CoarsePolicy(options, estimate(labels={}))
        result = look_at(chosen, np.arange(65), odds, np.ones((65, 4)))
        assert expected <= set(result.rows.tolist())
        assert (result.rows.size == 5) == (frames > 0)


def test_landmarks_count_near_borders_only():
    odds = np.full((401, len(LABELS)), -10.0)
    odds[:200, 0], odds[200:, 1] = 5.0, 5.0
    odds[[56, 184], COLUMN["pylorus"]] = 10.0  # 144 rows from the border, and 16
    options = CoarseOptions(stride=8, limit=0.1, landmark_rows=50)
    result = look_at(CoarsePolicy(options, estimate()), np.arange(401), odds, np.ones((401, 4)))
    rows = set(result.rows.tolist())
    assert {182, 186} <= rows
    assert not {54, 58} & rows
    everywhere = CoarsePolicy(options.model_copy(update={"landmark_rows": None}), estimate())
    result = look_at(everywhere, np.arange(401), odds, np.ones((401, 4)))
    assert {54, 58, 182, 186} <= set(result.rows.tolist())


def test_what_context_smooths_is_not_looked_into():
    odds = np.full((129, len(LABELS)), -4.0)
    odds[64, COLUMN["polyp"]] = 3.0  # one frame above the level of .5, alone
    none = (0.0, 0.0)
    context = Context(scales=(30.0,), regions=none, landmarks=none, findings=(0.0, 10.0))
    plain = look_at(policy(16), np.arange(129), odds, np.ones((129, 4)))
    assert {63, 65} <= set(plain.rows.tolist())
    refined = policy(16, refinement=Refinement(context=context))
    smooth = look_at(refined, np.arange(129), odds, np.ones((129, 4)))
    assert not {63, 65} & set(smooth.rows.tolist())
    # Decoders see frames that are not encoded as their nearest; they are expected as guessed.
    rows, wanted = np.array([0, 3, 5]), np.arange(6.0)[:, None] * np.ones(len(LABELS))
    scored, where = wanted[rows] + 1.0, 2.0 * np.array([10, 11, 13, 14, 15, 17])
    chosen = policy(refinement=Refinement(context=context), row_frames=2.0)
    gaps = chosen.gaps(rows, scored, np.ones((3, 4)), wanted, where)
    np.testing.assert_allclose(gaps.expected, wanted + 1)
    column = COLUMN["polyp"]
    for values, found in (
        (scored[[0, 0, 1, 1, 2, 2], column], dict(zip(rows, gaps.seen[:, column], strict=True))),
        (wanted[:, column] + 1, dict(enumerate(gaps.refined[:, column]))),
    ):
        for row, refined in found.items():
            past, future = (
                np.average(values[side], weights=np.exp(-np.abs(where[side] - where[row]) / 30))
                for side in (slice(None, row + 1), slice(row, None))
            )
            expected = (values[row] + 10 * (past + future) / 2) / 11
            assert refined == pytest.approx(expected, abs=1e-4)


def test_findings_are_averaged_as_decoders_do_it():
    odds = np.random.default_rng(3).normal(size=(60, len(LABELS)))
    refinement = Refinement(windows={"blood": 9, "polyp": 1})
    where = np.arange(60.0)
    for row_frames, rows in ((1.0, 9), (5.0, 9), (15.0, 3), (100.0, 1)):
        refined = refinement.refined(odds, where * row_frames, row_frames)
        blood = odds[:, COLUMN["blood"]]
        held = np.concatenate([np.full(4, blood[0]), blood, np.full(4, blood[-1])])
        middle = slice(4 - rows // 2, 4 + rows // 2 + 1)
        expected = [held[row : row + 9][middle].mean() for row in range(60)]
        np.testing.assert_allclose(refined[:, COLUMN["blood"]], expected, atol=1e-9)
        others = [column for column in range(len(LABELS)) if column != COLUMN["blood"]]
        np.testing.assert_array_equal(refined[:, others], odds[:, others])
        scores = Scores("s", FrameAxis(np.arange(60)), sigmoid(odds), None, row_frames)
        decoder = Decoder(scores, preset("transit"), load_priors(), Calibration())
        p = decoder.smooth([], {label: refinement.windows.get(label, 1) for label in FINDINGS})
        np.testing.assert_allclose(p[:, COLUMN["blood"]], sigmoid(np.array(expected)), atol=1e-5)


def test_a_mean_over_frames_crosses_a_level_less_often_than_they_do():
    odds = np.full((129, len(LABELS)), -4.0)
    odds[64, COLUMN["polyp"]] = 3.0
    plain = look_at(policy(16), np.arange(129), odds, np.ones((129, 4)))
    averaged = policy(16, refinement=Refinement(windows={"polyp": 101}))
    mean = look_at(averaged, np.arange(129), odds, np.ones((129, 4)))
    assert {63, 65} <= set(plain.rows.tolist())
    assert not {63, 65} & set(mean.rows.tolist())


def test_a_study_of_one_frame_and_of_unreadable_ones():
    odds, vectors, guesses = table(1, 5)
    one = look_at(policy(), [7], odds[:1], vectors[:1], guesses[:1])
    assert (one.rows.tolist(), one.source.tolist(), one.missed) == ([0], [0], 0.0)
    none = look_at(policy(), range(5), odds, vectors, guesses, range(5))
    assert none.rows.size == 0
    assert none.source.tolist() == [-1] * 5
    # In the place of a frame of the grid that cannot be read, its neighbours.
    still = np.full((17, len(LABELS)), -10.0)
    beside = look_at(policy(), range(17), still, np.ones((17, 4)), unreadable=[8])
    assert beside.rows.tolist() == [0, 7, 9, 16]


def test_a_guess_decides_where_a_gap_is_looked_into():
    odds = np.full((17, len(LABELS)), -3.0)
    odds[5, COLUMN["polyp"]] = 2.0
    chosen = policy(16, 0.05, edge=16, appears=(2.0, 0.9, 0.2, 0.4, 0.3, 1.5))
    unaware = look_at(chosen, range(17), odds, np.ones((17, 4)))
    assert unaware.rows.tolist() == [0, 16]
    # Wrong by 4 everywhere, and right about what differs.
    guesses = odds + 4.0
    aware = look_at(chosen, range(17), odds, np.ones((17, 4)), guesses)
    assert aware.rows.tolist() == [0, 5, 16]


def test_the_picture_of_an_event_is_looked_for_inside_of_it():
    odds = np.full((17, len(LABELS)), 3.0)
    odds[:, : len(REGIONS)] = 0.0
    odds[6, COLUMN["polyp"]] = 9.0
    never = (-9.0,) + (0.0,) * 5
    watched = {"polyp": WatchedLabel(level=0.5, floor=0.1)}
    tops = (-6.0, 0.0, 0.0, 0.0, 0.0, 2.0)
    chosen = policy(16, 0.2, labels=watched, tops=tops, appears=never, disappears=never)
    assert 6 in look_at(chosen, range(17), odds, np.ones((17, 4)), odds.copy()).rows.tolist()
    assert look_at(chosen, range(17), odds, np.ones((17, 4))).rows.tolist() == [0, 16]


def test_sparse_studies_are_refused():
    require_dense(estimate(), 10)
    with pytest.raises(ConfigError, match="11 frames of the recording apart"):
        require_dense(estimate(), 11)


# ---- stores


class StubHead:
    """Log-odds are a few of the stub's features, averaged over the clip."""

    options = ModelOptions(backbone="lite")

    def probabilities(self, features, rows):
        mean = features[rows].mean(axis=1)[:, : len(LABELS)]
        return (1 / (1 + np.exp(-(mean - 1)))).astype(np.float32)


def stub_glance() -> Glance:
    random = np.random.default_rng(0)
    return Glance(
        {
            name: (0.2 * random.normal(size=shape)).astype(np.float32)
            for name, shape in tensor_shapes().items()
        }
    )


def reading(limit=0.2, stride=8) -> CoarseReading:
    return CoarseReading(policy(stride, limit), stub_glance(), StubHead())


def embed(study: Path, path: Path, coarse, advance=None, encoder=None, chunk=20):
    embedding = StudyEmbedding(
        open_study(study),
        encoder or StubEncoder(),
        path,
        EmbedOptions(chunk=chunk),
        views=(PLAIN,),
        coarse=coarse,
    )
    embedding.check()
    return embedding.run(advance)


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_frames(tmp_path / "s", [*range(30), *range(40, 75)])


def video_of(tmp_path) -> Path:
    return write_video(tmp_path / "v.mkv", 50, "ffv1")


@pytest.mark.parametrize("kind", ["folder", "video"])
def test_a_limit_of_nothing_gives_the_features_of_a_plain_reading(tmp_path, folder, kind):
    study = folder if kind == "folder" else video_of(tmp_path)
    plain = embed_study(open_study(study), StubEncoder(), tmp_path / "plain.npy", views=(PLAIN,))
    coarse = embed(study, tmp_path / "coarse.npy", reading(limit=0.0))
    assert coarse.features.tobytes() == plain.features.tobytes()
    assert coarse.source.tolist() == plain.source.tolist()
    assert coarse.record.content == plain.record.content
    assert coarse.record.missed == 0
    scores = [score_study(StubHead(), store, views="none").values for store in (plain, coarse)]
    assert scores[0].tobytes() == scores[1].tobytes()


def test_rows_that_are_looked_at_are_scored_as_in_a_plain_reading(tmp_path, folder):
    """With the rows of their clips: alone they would get another score."""
    plain = embed_study(open_study(folder), StubEncoder(), tmp_path / "plain.npy", views=(PLAIN,))
    coarse = embed(folder, tmp_path / "coarse.npy", reading(limit=1.0, stride=16), chunk=100)
    assert (coarse.source != np.arange(65)).any()
    scores = [score_study(StubHead(), store, views="none").values for store in (plain, coarse)]
    grid = [0, 16, 29, 30, 46, 62, 64]  # every 16th row of both pieces, and their ends
    np.testing.assert_array_equal(scores[1][grid], scores[0][grid])


@pytest.mark.parametrize("kind", ["folder", "video"])
def test_frames_that_are_not_looked_at_say_whose_features_they_have(tmp_path, folder, kind):
    study = folder if kind == "folder" else video_of(tmp_path)
    plain = embed_study(open_study(study), StubEncoder(), tmp_path / "p.npy", views=(PLAIN,))
    encoder = StubEncoder()
    coarse = embed(study, tmp_path / "c.npy", reading(limit=0.9), encoder=encoder)
    assert encoder.seen == coarse.encoded.sum() < len(plain)
    np.testing.assert_array_equal(coarse.features, plain.features[coarse.source])
    assert coarse.record.content == plain.record.content  # of all files, looked at or not
    again = open_embeddings(tmp_path / "c.npy")
    assert coarse.record.missed is not None
    assert again.record.missed == coarse.record.missed
    assert coarse.record.missed > 0


class KilledError(Exception):
    pass


@pytest.mark.parametrize("rows", [20, 40])
@pytest.mark.parametrize("kind", ["folder", "video"])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, folder, kind, rows):
    study = folder if kind == "folder" else video_of(tmp_path)
    done = 0

    def killed(count: int) -> None:
        nonlocal done
        done += count
        if done >= rows:
            raise KilledError

    embed(study, tmp_path / "whole.npy", reading())
    with pytest.raises(KilledError):
        embed(study, tmp_path / "killed.npy", reading(), killed)
    embed(study, tmp_path / "killed.npy", reading())
    assert (tmp_path / "killed.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_another_choice_of_frames_is_refused(tmp_path, folder):
    embed(folder, tmp_path / "s.npy", reading(limit=0.2))
    apart = replace(reading(limit=0.2), step=2)  # other clips, and other frames with them
    for other in (None, reading(limit=0.3), reading(stride=4), apart):
        with pytest.raises(ModelError, match="other choice of frames to encode"):
            embed(folder, tmp_path / "s.npy", other)


def test_every_unreadable_frame_is_told(tmp_path, folder):
    (folder / "frame_000008.PNG").write_bytes(b"no picture")  # on the grid
    (folder / "frame_000043.PNG").write_bytes(b"no picture")  # between
    coarse = embed(folder, tmp_path / "s.npy", reading(limit=1.0), chunk=40)
    rows = [8, 33]
    assert coarse.source[rows].tolist() == [UNREADABLE] * 2
    assert set(coarse.record.problems) == {8, 43}
    assert np.isnan(coarse.features[rows]).all()
    assert coarse.encoded[[7, 9]].all()  # in its place


def test_a_study_of_which_most_cannot_be_read_is_refused(tmp_path):
    folder = write_frames(tmp_path / "s", range(12))
    for number in range(8):
        (folder / f"frame_{number:06d}.PNG").write_bytes(b"")
    with pytest.raises(StudyError, match="more than half"):
        embed(folder, tmp_path / "s.npy", reading(limit=0.0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_short_studies(tmp_path, count):
    folder = write_frames(tmp_path / "s", range(count))
    coarse = embed(folder, tmp_path / "s.npy", reading())
    assert coarse.encoded[[0, -1]].all()
    assert len(score_study(StubHead(), coarse, views="none").axis) == count


# ---- the estimate


def full(seed: int, count: int = 4000) -> FullReading:
    """A reading whose scores wander slowly and whose features are the log-odds themselves."""
    random = np.random.default_rng(seed)
    odds = np.zeros((count, len(LABELS)), np.float32)
    for row in range(1, count):
        odds[row] = 0.97 * odds[row - 1] + 0.3 * random.normal(size=len(LABELS))
    odds -= 1.5
    features = np.zeros((count, 1, 512), np.float32)
    features[:, 0, : len(LABELS)] = odds
    key = StoreKey(
        backbone="b", preprocessing="p", runtime="r", views=("plain",), precision="float32",
        redundancy=None, study="s", samples="s",
    )  # fmt: skip
    record = StoreRecord(key=key, study="s", chunk=count, checksums=(0,))
    rows = np.arange(count)
    embeddings = Embeddings(record, rows, rows.astype(np.int32), features)
    guesses = odds + random.normal(size=odds.shape).astype(np.float32)
    return FullReading(embeddings, odds, 1.0, guesses)


class LastHead(StubHead):
    """The score of a clip is that of its last frame."""

    def probabilities(self, features, rows):
        return (1 / (1 + np.exp(-features[rows[:, -1], : len(LABELS)]))).astype(np.float32)


WATCHED = {
    "polyp": WatchedLabel(level=0.0, floor=-0.2, threshold=0.5),
    "erosion": WatchedLabel(level=0.3, floor=0.3),
}


def fitted_on(*readings: FullReading) -> CoarseEstimate:
    return fit_coarse(LastHead(), readings, WATCHED, weights="0" * 64, glance="1" * 64)


def literally_hidden(odds, rows, a, b) -> bool:
    """Whether the full reading has anything between two encoded rows that they do not show."""
    for label, watched in WATCHED.items():
        values = odds[:, COLUMN[label]].tolist()
        seen = {row: values[row] for row in rows}
        events = literal_runs(rows, seen, watched.level, watched.floor)
        whole, inside = values[a : b + 1], values[a + 1 : b]
        if not {a, b} & set(events):
            hidden = max(whole) >= watched.level
        else:
            hidden = {a, b} <= set(events) and min(whole) < watched.floor
            hidden |= max(inside) > max(events[row] for row in (a, b) if row in events)
        if hidden:
            return True
    return False


def test_what_is_expected_unseen_is_what_is_unseen_in_other_studies():
    fitted = fitted_on(full(1), full(2))
    expected = really = 0.0
    for seed in (3, 4, 5):
        other = full(seed, 2000)
        odds = other.log_odds.astype(np.float64)
        chosen = CoarsePolicy(CoarseOptions(stride=8, limit=0.2, border=64, edge=1), fitted)
        result = look_at(chosen, np.arange(len(odds)), odds, odds, other.guesses)
        expected += result.missed
        rows = result.rows.tolist()
        for a, b in pairwise(rows):
            really += b - a > 1 and literally_hidden(odds, rows, a, b)
        assert result.rows.size < 0.6 * len(odds)
    # A fit that is right up to the chance of so many gaps: 3 standard deviations of a count.
    assert really > 20
    assert abs(expected - really) < 3 * math.sqrt(really) + 0.3 * really


def test_doubt_is_what_expectations_near_the_threshold_are_wrong_by():
    reading = full(1, 300)
    column, threshold = COLUMN["polyp"], 0.5
    squares, shares = [1.0], [1.0]  # a broad error where nothing is known
    for stride in (2, 4, 8, 16):
        for offset in (0, stride // 2):
            odds = reading.log_odds[offset:].astype(float)
            count = len(odds)
            grid = {*range(0, count, stride), count - 1}
            rows = sorted({max(row - before, 0) for row in grid for before in (0, 1, 2)})
            expected = literal_expected(rows, odds, reading.guesses[offset:].astype(float), column)
            for row in range(count):
                around = [min(max(r, 0), count - 1) for r in (row - 1, row, row + 1)]
                share = sum(r not in rows for r in around) / 3
                if share and abs(expected[row] - threshold) < 2:
                    squares.append((expected[row] - float(odds[row, column])) ** 2)
                    shares.append(share)
    fitted = fitted_on(reading)
    assert len(shares) > 100
    assert fitted.labels["polyp"].doubt == pytest.approx(sum(squares) / sum(shares), rel=1e-3)
    assert fitted.labels["erosion"].doubt == 0.0  # there are no events of it


def test_a_doubtful_event_is_looked_at_until_nothing_borrowed_decides():
    """Means over nine rows of .45 or .55, thresholds of .5: one borrowed row would decide."""
    random = np.random.default_rng(0)
    odds = np.full((129, len(LABELS)), -4.0)
    column = COLUMN["polyp"]
    rows = np.arange(40, 60)
    for mean in (0.45, 0.55, 4.0):
        odds[rows, column] = mean + random.normal(scale=0.3, size=rows.size)
        guesses = odds + random.normal(scale=0.3, size=odds.shape)
        watched = {"polyp": WatchedLabel(level=0.5, floor=-1.0, threshold=0.5, doubt=0.1)}
        never = (-9.0,) + (0.0,) * 5
        chosen = policy(
            16, 0.02, edge=64, labels=watched, appears=never, disappears=never, tops=never,
            refinement=Refinement(windows={"polyp": 9}),
        )  # fmt: skip
        result = look_at(chosen, np.arange(129), odds, np.ones((129, 4)), guesses)
        refine = chosen.estimate.refinement.refined
        full_mean = refine(odds, np.arange(129.0), 1.0)[:, column]
        seen = refine(odds[result.source], np.arange(129.0), 1.0)[:, column]
        assert (seen.max() >= 0.5) == (full_mean.max() >= 0.5)
        assert (result.rows.size > 9) == (mean < 1)  # nobody doubts the last one
        assert result.rows.size < 40


def test_estimates_are_stored_and_read_again():
    fitted = fitted_on(full(1), full(2))
    assert CoarseEstimate.model_validate_json(fitted.model_dump_json()) == fitted
    assert fitted.appears[1] > 0  # the nearer to the level, the likelier
    assert fitted.appears[5] > 0  # and the higher the guess
    assert fitted.disappears[5] < 0
    assert fitted.tops[5] > 0
    assert fitted.labels["polyp"].floor == -0.2

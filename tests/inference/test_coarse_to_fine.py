"""Coarse to fine: the policy against a literal one, chunks, stores, and the estimate."""

import math
from functools import partial
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
        "labels": {
            "polyp": WatchedLabel(level=0.5, appears=0.3),
            "pylorus": WatchedLabel(level=-1.0, disappears=-0.4),
        },
        "appears": (-1.0, 0.9, 0.2, 0.4, 0.3),
        "disappears": (-1.5, -0.3, -0.8, 0.4, 0.3),
        "studies": 3,
        "rows": 1000,
        "densest": 1,
        "sparsest": 5,
    }
    return CoarseEstimate(**content | changes)


def policy(stride=8, limit=0.1, border=2, row_frames=1.0, **changes) -> CoarsePolicy:
    options = CoarseOptions(
        stride=stride, limit=limit, border=border, region_frames=0, landmark_rows=None
    )
    return CoarsePolicy(options, estimate(**changes), row_frames)


# ---- the policy against a literal one


def literal_risk(chosen: CoarsePolicy, a, b, odds, vectors) -> float:
    """Probability that something lies between rows a and b, label by label, with math only."""
    frames = (b - a) * chosen.row_frames
    dot = sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))
    lengths = [math.sqrt(sum(x * x for x in vectors[row])) for row in (a, b)]
    difference = max(1 - dot / (lengths[0] * lengths[1]), 1e-4)
    nothing = 1.0
    for label, watched in chosen.estimate.labels.items():
        ends = [float(odds[row][COLUMN[label]]) - watched.level for row in (a, b)]
        if (ends[0] >= 0) != (ends[1] >= 0):
            nothing = 0.0
            continue
        above = ends[0] >= 0
        weights = chosen.estimate.disappears if above else chosen.estimate.appears
        own = watched.disappears if above else watched.appears
        ends = [max(-12.0, min(12.0, end)) for end in ends]
        terms = (1.0, max(ends), min(ends), math.log(difference), math.log2(max(frames, 1)))
        z = own + sum(w * t for w, t in zip(weights, terms, strict=True))
        nothing *= 1 - 1 / (1 + math.exp(-z))
    regions = [max(range(len(REGIONS)), key=lambda k: odds[row][k]) for row in (a, b)]
    if regions[0] != regions[1] and b - a > chosen.options.border:
        nothing = 0.0
    return 1 - nothing


def literal_rows(chosen: CoarsePolicy, numbers, odds, vectors) -> set[int]:
    """The rows that are encoded: halve every gap by itself until its risk is low."""
    stride = chosen.options.stride
    rows: set[int] = set()
    pieces: list[list[int]] = []
    for row, number in enumerate(numbers):
        if row and number - numbers[row - 1] == 1:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    for piece in pieces:
        rows |= {piece[0], piece[-1]} | set(piece[::stride])
    todo = list(zip(sorted(rows)[:-1], sorted(rows)[1:], strict=True))
    while todo:
        a, b = todo.pop()
        if b - a > 1 and literal_risk(chosen, a, b, odds, vectors) >= chosen.options.limit:
            middle = (a + b) // 2
            rows.add(middle)
            todo += [(a, middle), (middle, b)]
    return rows


def table(seed: int, count: int):
    """Log-odds and embeddings that wander, with a finding and a border now and then."""
    random = np.random.default_rng(seed)
    odds = random.normal(size=(count, len(LABELS))).cumsum(axis=0) * 0.3 - 2
    vectors = np.abs(random.normal(size=(count, 4)).cumsum(axis=0) * 0.1 + 1) + 0.1
    return odds, vectors


def look_at(chosen, numbers, odds, vectors, readable=None, unreadable=(), step=1):
    asked: list[int] = []

    def look(rows):
        asked.extend(rows.tolist())
        return ~np.isin(rows, unreadable)

    result = looked_at(
        chosen, np.asarray(numbers), step, look, lambda rows, _: (odds[rows], vectors[rows]),
        readable,
    )  # fmt: skip
    assert len(asked) == len(set(asked))  # nothing is encoded twice
    return result, asked


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 80),
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.sampled_from([0.0, 0.02, 0.2, 0.6, 1.0]),
)
def test_the_rows_are_those_of_a_literal_policy(seed, count, stride, limit):
    odds, vectors = table(seed, count)
    gaps = np.random.default_rng(seed).random(count) < 0.05
    numbers = np.cumsum(1 + 5 * gaps)
    chosen = policy(stride, limit, row_frames=2.5)
    result, _ = look_at(chosen, numbers, odds, vectors)
    assert set(result.rows.tolist()) == literal_rows(chosen, numbers.tolist(), odds, vectors)
    left = [
        literal_risk(chosen, a, b, odds, vectors)
        for a, b in zip(result.rows[:-1].tolist(), result.rows[1:].tolist(), strict=True)
        if b - a > 1
    ]
    assert result.missed == pytest.approx(sum(left), abs=1e-9)
    assert all(risk < limit for risk in left)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans())
def test_a_limit_of_nothing_looks_at_every_frame_that_can_be_read(seed, count, known):
    odds, vectors = table(seed, count)
    bad = np.flatnonzero(np.random.default_rng(seed).random(count) < 0.2)
    readable = ~np.isin(np.arange(count), bad)
    result, asked = look_at(
        policy(limit=0.0),
        np.arange(count),
        odds,
        vectors,
        readable if known else None,
        unreadable=bad,
    )
    assert result.rows.tolist() == np.flatnonzero(readable).tolist()
    assert result.source.tolist() == np.where(readable, np.arange(count), -1).tolist()
    assert result.missed == 0
    if known:
        assert not set(asked) & set(bad.tolist())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 80), st.sampled_from([2, 8, 16]), st.booleans())
def test_every_readable_row_borrows_from_the_nearest_of_its_own_piece(seed, count, stride, known):
    odds, vectors = table(seed, count)
    random = np.random.default_rng(seed)
    numbers = np.cumsum(1 + 7 * (random.random(count) < 0.08))
    bad = np.flatnonzero(random.random(count) < 0.1)
    readable = ~np.isin(np.arange(count), bad)
    result, _ = look_at(
        policy(stride, 0.3), numbers, odds, vectors, readable if known else None, unreadable=bad
    )
    for row, source in enumerate(result.source.tolist()):
        if source < 0:
            assert row in bad
            continue
        assert source in result.rows
        distances = np.abs(result.rows - row)
        assert abs(source - row) == distances.min()
        later = [int(r) for r in result.rows if abs(r - row) == distances.min()]
        assert source == max(later)
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
    result, _ = look_at(policy(16), np.arange(65), odds, vectors)
    assert result.rows.tolist() == [0, 16, 32, 48, 64]
    assert 0 < result.missed < 0.1


def test_the_edges_of_a_finding_are_found_by_halving():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[21:40, COLUMN["polyp"]] = 10.0
    result, _ = look_at(policy(16), np.arange(65), odds, np.ones((65, 4)))
    assert {20, 21, 39, 40} <= set(result.rows.tolist())
    assert result.rows.size < 16


def test_the_border_of_regions_is_found_up_to_the_rows_of_the_options():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[:27, 0], odds[27:, 1] = 5.0, 5.0
    for border in (1, 4):
        result, _ = look_at(policy(16, border=border), np.arange(65), odds, np.ones((65, 4)))
        before, after = result.rows[result.rows < 27].max(), result.rows[result.rows >= 27].min()
        assert after - before <= border


def test_one_frame_that_points_to_another_region_is_no_border():
    odds = np.full((65, len(LABELS)), -10.0)
    odds[:, 0], odds[32, 1] = 5.0, 8.0
    for frames, expected in ((0.0, {31, 32, 33}), (30.0, {16, 32, 48})):
        options = CoarseOptions(stride=16, limit=0.1, border=1, region_frames=frames)
        chosen = CoarsePolicy(options, estimate(labels={}))
        result, _ = look_at(chosen, np.arange(65), odds, np.ones((65, 4)))
        assert expected <= set(result.rows.tolist())
        assert (result.rows.size == 5) == (frames > 0)


def test_landmarks_count_near_borders_only():
    odds = np.full((401, len(LABELS)), -10.0)
    odds[:200, 0], odds[200:, 1] = 5.0, 5.0
    odds[[56, 184], COLUMN["pylorus"]] = 10.0  # 144 rows from the border, and 16
    options = CoarseOptions(stride=8, limit=0.1, landmark_rows=50)
    result, _ = look_at(CoarsePolicy(options, estimate()), np.arange(401), odds, np.ones((401, 4)))
    rows = set(result.rows.tolist())
    assert {183, 185} <= rows
    assert not {55, 57} & rows
    everywhere = CoarsePolicy(options.model_copy(update={"landmark_rows": None}), estimate())
    result, _ = look_at(everywhere, np.arange(401), odds, np.ones((401, 4)))
    assert {55, 57, 183, 185} <= set(result.rows.tolist())


def test_what_context_smooths_is_not_looked_into():
    odds = np.full((129, len(LABELS)), -4.0)
    odds[64, COLUMN["polyp"]] = 3.0  # one frame above the level of .5, alone
    none = (0.0, 0.0)
    context = Context(scales=(30.0,), regions=none, landmarks=none, findings=(0.0, 10.0))
    plain, _ = look_at(policy(16), np.arange(129), odds, np.ones((129, 4)))
    assert {63, 65} <= set(plain.rows.tolist())
    refined = policy(16, refinement=Refinement(context=context))
    smooth, _ = look_at(refined, np.arange(129), odds, np.ones((129, 4)))
    assert not {63, 65} & set(smooth.rows.tolist())
    # The mean of frames that are not encoded is that of their nearest.
    rows = np.array([0, 3, 5])
    scored, source = odds[rows] + np.arange(3.0)[:, None], np.array([0, 0, -1, 3, 5, 5])
    chosen = policy(refinement=Refinement(context=context), row_frames=2.0)
    refined = chosen.refined(rows, scored, source, 10 + np.arange(6), 1)
    filled = scored[[0, 0, 1, 2, 2]][:, COLUMN["polyp"]]
    where = np.array([0, 2, 6, 8, 10])
    for position, place in enumerate([0, 2, 4]):
        past, future = (
            np.average(filled[side], weights=np.exp(-np.abs(where[side] - where[place]) / 30))
            for side in (slice(None, place + 1), slice(place, None))
        )
        expected = (filled[place] + 10 * (past + future) / 2) / 11
        assert refined[position, COLUMN["polyp"]] == pytest.approx(expected, abs=1e-4)


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
    plain, _ = look_at(policy(16), np.arange(129), odds, np.ones((129, 4)))
    averaged = policy(16, refinement=Refinement(windows={"polyp": 101}))
    mean, _ = look_at(averaged, np.arange(129), odds, np.ones((129, 4)))
    assert {63, 65} <= set(plain.rows.tolist())
    assert not {63, 65} & set(mean.rows.tolist())


def test_a_study_of_one_frame_and_of_unreadable_ones():
    odds, vectors = table(1, 5)
    one, _ = look_at(policy(), [7], odds[:1], vectors[:1])
    assert (one.rows.tolist(), one.source.tolist(), one.missed) == ([0], [0], 0.0)
    none, asked = look_at(policy(), range(5), odds, vectors, unreadable=range(5))
    assert none.rows.size == 0
    assert none.source.tolist() == [-1] * 5
    assert sorted(asked) == [0, 1, 2, 3, 4]


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


def reading(limit=0.2, stride=8) -> CoarseReading:
    return CoarseReading(policy(stride, limit), StubHead())


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
    for other in (None, reading(limit=0.3), reading(stride=4)):
        with pytest.raises(ModelError, match="other choice of frames to encode"):
            embed(folder, tmp_path / "s.npy", other)


def test_an_unreadable_frame_is_told_if_it_was_looked_at(tmp_path, folder):
    (folder / "frame_000008.PNG").write_bytes(b"no picture")  # on the grid
    coarse = embed(folder, tmp_path / "s.npy", reading(limit=1.0))
    assert coarse.source[8] == UNREADABLE
    assert set(coarse.record.problems) == {8}
    assert np.isnan(coarse.features[8]).all()
    assert coarse.encoded[[7, 9]].all()  # in its place
    lazy = write_frames(tmp_path / "lazy", range(30))
    (lazy / "frame_000003.PNG").write_bytes(b"no picture")  # between
    still = CoarseReading(policy(8, 1.0, labels={}), StillHead())
    unseen = embed(lazy, tmp_path / "lazy.npy", still, chunk=30)
    assert unseen.source[3] != UNREADABLE  # nobody has looked
    assert not unseen.record.problems


class StillHead(StubHead):
    def probabilities(self, features, rows):
        return np.full((len(rows), len(LABELS)), 0.01, np.float32)


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
    return FullReading(Embeddings(record, rows, rows.astype(np.int32), features), odds, 1.0)


class LastHead(StubHead):
    """The score of a clip is that of its last frame."""

    def probabilities(self, features, rows):
        return (1 / (1 + np.exp(-features[rows[:, -1], : len(LABELS)]))).astype(np.float32)


def test_what_is_expected_unseen_is_what_is_unseen_in_other_studies():
    levels = {"polyp": 0.0, "erosion": 0.3}
    fitted = fit_coarse(LastHead(), [full(1), full(2)], levels, weights="0" * 64)
    expected = really = 0.0
    for seed in (3, 4, 5):
        other = full(seed)
        odds = other.log_odds.astype(np.float64)
        chosen = CoarsePolicy(CoarseOptions(stride=8, limit=0.2, border=64), fitted)
        result, _ = look_at(chosen, np.arange(len(odds)), odds, odds)
        expected += result.missed
        for a, b in zip(result.rows[:-1].tolist(), result.rows[1:].tolist(), strict=True):
            crossed = [
                ((odds[a + 1 : b, COLUMN[label]] >= level) != (odds[a, COLUMN[label]] >= level))
                for label, level in levels.items()
            ]
            really += any(each.any() for each in crossed)
        assert result.rows.size < 0.6 * len(odds)
    # A fit that is right up to the chance of so many gaps: 3 standard deviations of a count.
    assert really > 30
    assert abs(expected - really) < 3 * math.sqrt(really) + 0.2 * really


def test_estimates_are_stored_and_read_again():
    fitted = fit_coarse(LastHead(), [full(1)], {"polyp": 0.0}, weights="0" * 64)
    assert CoarseEstimate.model_validate_json(fitted.model_dump_json()) == fitted
    assert fitted.appears[1] > 0  # the nearer to the level, the likelier
    assert fitted.disappears[2] < 0

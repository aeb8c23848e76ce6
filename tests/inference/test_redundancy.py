import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.inference.embed import (
    BLOCK,
    PATCH,
    EmbedOptions,
    RedundancyFilter,
    embed_study,
    patch_distance,
    thumbnail,
)
from enteron.study import open_study
from tests.inference.stub import StubEncoder
from tests.making import write_frames


def grey(value, size=64):
    return np.full((3, size, size), value, np.uint8)


def with_spot(value, top, left, spot=24, size=64):
    image = grey(40, size)
    image[:, top : top + spot, left : left + spot] = value
    return image


def slow_distance(first, second):
    """The largest mean over all patches that begin at every second value, edges repeated."""
    difference = np.abs(first - second).mean(axis=0)
    padded = np.pad(difference, PATCH // 2, mode="edge")
    side = difference.shape[0]
    means = [
        padded[y : y + PATCH, x : x + PATCH].mean()
        for y in range(PATCH // 2, side, PATCH // 2)
        for x in range(PATCH // 2, side, PATCH // 2)
    ]
    return max(means)


@given(st.integers(0, 2**32 - 1))
def test_the_distance_is_the_largest_mean_over_patches(seed):
    random = np.random.default_rng(seed)
    first, second = (random.integers(0, 256, (3, 64, 64), dtype=np.uint8) for _ in range(2))
    small = thumbnail(first), thumbnail(second)
    blocks = first.reshape(3, 8, BLOCK, 8, BLOCK).mean(axis=(2, 4))
    np.testing.assert_allclose(small[0], blocks, atol=0.51)  # rounded to whole grey levels
    assert patch_distance(*small) == pytest.approx(slow_distance(*small), rel=1e-4)
    assert patch_distance(small[0], small[0]) == 0


def test_a_small_spot_counts_as_much_as_a_change_of_everything():
    everywhere = patch_distance(thumbnail(grey(40)), thumbnail(grey(60)))
    spot = patch_distance(thumbnail(grey(40)), thumbnail(with_spot(130, 16, 24)))
    assert everywhere == pytest.approx(20, abs=1)
    assert spot > everywhere


def test_frames_are_compared_with_the_last_encoded_one_so_drift_cannot_add_up():
    redundancy = RedundancyFilter(limit=2.5)
    sources = [redundancy.source(row, grey(100 + row)) for row in range(9)]
    #         100  101  102  103 is 3 away from 100: encoded, and so on
    assert sources == [0, 0, 0, 3, 3, 3, 6, 6, 6]


def stationary_study(tmp_path, count=230):
    """A study that stands still: three pictures, each for a long time."""
    folder = write_frames(tmp_path / "s", range(3))
    contents = [(folder / f"frame_{n:06d}.PNG").read_bytes() for n in range(3)]
    for number in range(count):
        path = folder / f"frame_{number:06d}.PNG"
        path.write_bytes(contents[min(number * 3 // count, 2)])
    return open_study(folder)


def test_a_stationary_capsule_is_encoded_a_few_times(tmp_path):
    study = stationary_study(tmp_path)
    encoder = StubEncoder()
    options = EmbedOptions(chunk=50, redundancy=1.0)
    embeddings = embed_study(study, encoder, tmp_path / "s.npy", options)
    exact = embed_study(study, StubEncoder(), tmp_path / "exact.npy", EmbedOptions(chunk=50))
    np.testing.assert_array_equal(embeddings.features, exact.features)
    # Five chunks start with an encoded frame, and the picture changes twice within a chunk. Rows
    # 100 and 200 start chunks, and no other row is a multiple of 100.
    assert encoder.seen == 2 * (5 + 2)
    assert embeddings.redundant == 230 - 7
    np.testing.assert_array_equal(embeddings.frames, study.numbers)
    assert exact.redundant == 0


def test_one_in_a_hundred_redundant_frames_is_encoded_anyway(tmp_path):
    study = stationary_study(tmp_path)
    options = EmbedOptions(chunk=64, redundancy=1.0)
    embeddings = embed_study(study, StubEncoder(), tmp_path / "s.npy", options)
    assert [(p.row, p.twin) for p in embeddings.record.probes] == [(100, 77), (200, 192)]
    assert embeddings.source[100] == 100

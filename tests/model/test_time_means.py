"""Means over time against sums over all pairs of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from enteron.model.time_means import TimeMeans, mean_gradient, time_means

SCALES = (3.0, 50.0, 1000.0)


def rows_at(positions: NDArray[np.float64], channels: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(len(positions)).normal(size=(len(positions), channels)).astype("f")


def literal_means(
    rows: NDArray[np.float32], positions: NDArray[np.float64], scales: tuple[float, ...]
) -> NDArray[np.float64]:
    """Every mean as its definition says: a weight for every pair of rows."""
    count = len(rows)
    means = np.empty((count, 2 * len(scales), rows.shape[1]))
    for number, scale in enumerate(scales):
        for row in range(count):
            weights = np.exp(-np.abs(positions - positions[row]) / scale)
            past, future = weights.copy(), weights
            past[row + 1 :] = 0
            future[:row] = 0
            means[row, number] = past @ rows / past.sum()
            means[row, len(scales) + number] = future @ rows / future.sum()
    return means


@given(
    steps=st.lists(st.integers(1, 5000), min_size=0, max_size=40),
    block=st.integers(1, 50),
)
def test_means_are_their_definition_whatever_the_blocks(steps: list[int], block: int):
    positions = np.cumsum([0, *steps]).astype(np.float64)
    rows = rows_at(positions)
    means = TimeMeans(rows, positions, SCALES, block)
    blocks = np.concatenate([means.means(index) for index in range(len(means))])
    np.testing.assert_allclose(blocks, literal_means(rows, positions, SCALES), atol=2e-6)
    np.testing.assert_array_equal(blocks, time_means(rows, positions, SCALES))


def test_the_gradient_is_that_of_a_linear_map():
    positions = np.cumsum([3, 1, 1, 40, 7, 2000, 1, 1, 5]).astype(np.float64)
    rows = rows_at(positions, channels=1)
    above = np.random.default_rng(1).normal(size=(len(rows), 6, 1)).astype(np.float32)
    expected = [
        (literal_means(unit[:, None], positions, SCALES) * above).sum()
        for unit in np.eye(len(rows), dtype=np.float32)
    ]
    gradient = mean_gradient(above, positions, SCALES)
    np.testing.assert_allclose(gradient[:, 0], expected, atol=1e-5)


def test_a_slow_signal_has_the_same_means_at_every_frame_and_at_every_fifth():
    positions = np.arange(20_000, dtype=np.float64)
    signal = np.sin(positions / 700)[:, None].astype(np.float32)
    every = time_means(signal, positions, (100.0, 1000.0))[::5]
    fifth = time_means(signal[::5], positions[::5], (100.0, 1000.0))
    assert np.abs(every - fifth).max() < 0.004


@pytest.mark.parametrize("missing", [slice(1, None, 2), slice(3000, 6000)])
def test_missing_frames_hardly_move_the_means_of_the_others(missing: slice):
    positions = np.arange(10_000, dtype=np.float64)
    signal = np.sin(positions / 900)[:, None].astype(np.float32)
    kept = np.ones(len(positions), np.bool_)
    kept[missing] = False
    all_means = time_means(signal, positions, (300.0,))[kept]
    means = time_means(signal[kept], positions[kept], (300.0,))
    far = np.abs(positions[kept] - 4500) > 3000  # a gap is seen near its borders only
    assert np.abs(all_means - means)[far].max() < 0.01

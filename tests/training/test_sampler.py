"""The balanced sampler: weights by hand, drawn frequencies, shares of processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.labels import COLUMN, LABELS
from enteron.training.options import SamplerOptions
from enteron.training.sampling import Sampler, oversampling, process_share, sample_weights
from enteron.types import FrameLabels


def labels_of(*rows: tuple[str, ...]) -> FrameLabels:
    return FrameLabels.complete(np.array([[label in row for label in LABELS] for row in rows]))


def test_weights_by_hand():
    #  sample   labels                  counts: colon 3, polyp 1
    #  0        colon                   1 / sqrt(4 / 5)
    #  1        colon, polyp            the larger one, 1 / sqrt(2 / 5)
    #  2        colon                   1 / sqrt(4 / 5)
    #  3, 4     nothing                 1
    labels = labels_of(("colon",), ("colon", "polyp"), ("colon",), (), ())
    expected = [(5 / 4) ** 0.5, (5 / 2) ** 0.5, (5 / 4) ** 0.5, 1, 1]
    np.testing.assert_allclose(sample_weights(labels), expected, rtol=1e-14)


def test_oversampling_by_hand():
    labels = labels_of(("colon",), ("colon", "polyp"), ("colon",), ())
    factor = oversampling(labels, np.array([1.0, 5.0, 1.0, 1.0]))
    assert factor[COLUMN["polyp"]] == pytest.approx((5 / 8) / (1 / 4))
    assert factor[COLUMN["colon"]] == pytest.approx((7 / 8) / (3 / 4))
    assert np.isnan(factor[COLUMN["ulcer"]])


def test_drawn_frequencies_match_the_weights():
    rng = np.random.default_rng(0)
    present = np.zeros((400, len(LABELS)), dtype=bool)
    present[np.arange(400), rng.integers(3, 5, 400)] = True
    present[:4, COLUMN["z-line"]] = True
    present[10:40, COLUMN["blood"]] = True
    labels = FrameLabels.complete(present)
    sampler = Sampler(labels, SamplerOptions(samples=400_000), batch=100, group=1, seed=1)
    drawn = np.bincount(sampler.epoch(0).ravel(), minlength=400)
    expected = sample_weights(labels)
    expected *= drawn.sum() / expected.sum()
    # Each count is binomial: six standard deviations over 400 samples are never met by chance.
    assert (np.abs(drawn - expected) < 6 * np.sqrt(expected)).all()
    # And all of them together: Pearson's statistic has mean 399 and deviation 28.
    statistic = ((drawn - expected) ** 2 / expected).sum()
    assert abs(statistic - 399) < 5 * 28.3
    expected_factor = oversampling(labels, sample_weights(labels))[COLUMN["z-line"]]
    assert drawn[:4].sum() / drawn.sum() / (4 / 400) == pytest.approx(expected_factor, rel=0.05)


def test_without_balance_an_epoch_shows_every_sample_once():
    labels = labels_of(*[("colon",)] * 12)
    sampler = Sampler(labels, SamplerOptions(balanced=False), batch=4, group=1, seed=3)
    first, second = sampler.epoch(0), sampler.epoch(1)
    assert sorted(first.ravel()) == list(range(12))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("samples", "batch", "group", "steps"),
    [(12, 4, 1, 3), (13, 4, 1, 4), (3, 4, 1, 1), (40, 4, 3, 4)],
)
def test_the_last_batch_is_whole(samples, batch, group, steps):
    labels = labels_of(*[("colon",)] * samples)
    for balanced in (True, False):
        sampler = Sampler(labels, SamplerOptions(balanced=balanced), batch, group, seed=3)
        assert sampler.steps == steps
        assert sampler.epoch(0).shape == (steps * group, batch)


@given(size=st.integers(1, 4), batches=st.integers(1, 5), part=st.integers(1, 3))
def test_processes_share_every_batch(size, batches, part):
    whole = np.arange(batches * size * part).reshape(batches, size * part)
    parts = [process_share(whole, rank, size) for rank in range(size)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_epochs_follow_from_seed_and_number_alone():
    labels = labels_of(("colon",), ("colon", "polyp"), ("stomach",))
    one = Sampler(labels, SamplerOptions(), 2, 1, seed=5)
    other = Sampler(labels, SamplerOptions(), 2, 1, seed=5)
    one.epoch(0)
    np.testing.assert_array_equal(one.epoch(7), other.epoch(7))
    assert not np.array_equal(
        Sampler(labels, SamplerOptions(samples=50), 2, 1, seed=6).epoch(7),
        Sampler(labels, SamplerOptions(samples=50), 2, 1, seed=5).epoch(7),
    )

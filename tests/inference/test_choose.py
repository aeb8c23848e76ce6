"""Which runtime is chosen, with fake encoders of a given speed and drift: nothing is timed."""

import hashlib

import numpy as np
import pytest
import torch

from enteron.errors import EnteronError, ModelError
from enteron.inference import runtimes as choosing
from enteron.inference.runtimes import (
    Limits,
    choose,
    compare,
    drift,
    make_encoder,
    trial_images,
)
from enteron.model.backbones import tiny_backbone
from enteron.model.preprocessing import Preprocessing
from tests.inference.making import image_batch

IMAGES = image_batch(4)


class Clock:
    """Time that passes only when an encoder says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """Takes `seconds` for a call; embeddings are the exact ones plus noise of the given size."""

    batch = 4
    backbone_hash = "weights"
    width = 512
    preprocessing = Preprocessing()

    def __init__(self, clock, runtime, seconds, noise=0.0, mean=0.0):
        self.clock, self.runtime, self.noise, self.mean = clock, runtime, noise, mean
        self.seconds = list(seconds) if isinstance(seconds, tuple) else [seconds]
        self.calls = 0

    def encode(self, images):
        self.clock.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1
        rng = np.random.default_rng(0)
        exact = rng.normal(size=(len(images), 512)) + self.mean
        return (exact + self.noise * rng.normal(size=exact.shape)).astype(np.float32)


def trial(*rows, limits=None):
    """A choice among (runtime, seconds, noise), the first being exact."""
    clock = Clock()
    exact, *others = [Fake(clock, *row) for row in rows]
    choice = compare(exact, others, IMAGES, limits, clock)
    return choice, {t.runtime: t for t in choice.trials}, [exact, *others]


def test_the_fastest_within_the_limits_is_chosen():
    choice, trials, _ = trial(("torch", 4.0), ("fast", 1.0, 0.05), ("slow", 2.0, 0.05))
    assert choice.runtime == "fast"
    assert trials["fast"].verdict == "chosen"
    assert trials["slow"].verdict == trials["torch"].verdict == "slower"
    assert trials["fast"].rate == pytest.approx(4.0)
    assert trials["fast"].ratio == pytest.approx(4.0)
    assert choice.reason.startswith(
        "fast: 4.0 times as fast as torch on this machine, with a cosine"
    )


def test_drift_beyond_the_limit_is_refused_however_fast():
    # Noise 0.3: cosine about 1 / sqrt(1.09) = 0.958.
    choice, trials, _ = trial(("torch", 4.0), ("wild", 0.1, 0.3), ("tame", 2.0, 0.05))
    assert choice.runtime == "tame"
    assert trials["wild"].verdict == "refused: drift"
    assert trials["wild"].drift.cosine == pytest.approx(0.958, abs=0.01)


def test_a_drift_hidden_by_a_common_mean_is_refused():
    choice, trials, _ = trial(("torch", 4.0, 0.0, 100.0), ("blind", 1.0, 0.5, 100.0))
    assert trials["blind"].drift.cosine > 0.9999
    # Noise 0.5 against a spread of 1, of which a mean over four pictures takes a quarter away.
    assert trials["blind"].drift.of_spread == pytest.approx(0.5 / np.sqrt(0.75), abs=0.05)
    assert choice.runtime == "torch"


def test_embeddings_that_are_not_numbers_are_refused():
    choice, trials, _ = trial(("torch", 4.0), ("broken", 0.1, np.nan))
    assert choice.runtime == "torch"
    assert trials["broken"].verdict == "refused: drift"
    assert choice.reason == (
        "torch: exact; no faster runtime is close enough to it on this machine"
    )


def test_exact_stays_where_little_is_gained():
    choice, trials, _ = trial(("torch", 1.0), ("onnx-int8", 0.9, 0.05))
    assert choice.runtime == "torch"
    assert trials["onnx-int8"].verdict == "hardly faster"


def test_the_preferred_of_two_equals_is_chosen():
    """Otherwise chance would decide, and a study could resume with another runtime."""
    for openvino in (0.9, 1.0, 1.1):
        choice, trials, _ = trial(("torch", 8.0), ("onnx", 1.0), ("openvino", openvino))
        assert choice.runtime == "onnx"
        assert choice.reason == (
            "onnx: 8.0 times as fast as torch on this machine, and equal to it up to rounding"
        )
        assert trials["openvino"].verdict in ("slower", "hardly faster")


def test_the_first_call_is_not_timed_and_the_median_counts():
    choice, trials, _ = trial(("torch", 4.0), ("onnx", (50.0, 2.0, 2.0, 40.0)))
    assert choice.runtime == "onnx"
    assert trials["onnx"].ratio == pytest.approx(2.0)


def test_runtimes_that_are_too_slow_are_timed_once():
    _, trials, (torch_, onnx) = trial(("torch", 9.0), ("onnx", 1.0))
    assert torch_.calls == 2  # embeddings, and one timing
    assert onnx.calls == 4
    assert trials["onnx"].ratio == pytest.approx(9.0)


def test_limits_can_be_moved():
    choice, _, _ = trial(
        ("torch", 4.0), ("wild", 0.1, 0.3), limits=Limits(cosine=0.9, of_spread=0.5)
    )
    assert choice.runtime == "wild"


def test_the_table_has_a_row_for_each():
    choice, _, _ = trial(("torch", 4.0), ("fast", 1.0, 0.05))
    head, rule, first, second = choice.table().splitlines()
    assert "frames/s" in head
    assert rule.count("|") == head.count("|")
    assert first == "| torch | 1.0 | 1.00 | 1.00000 | 0.0e+00 | 0.0e+00 | slower |"
    assert second.startswith("| fast | 4.0 | 4.00 | 0.99")
    assert second.endswith("| chosen |")


def test_without_images_nothing_can_be_tried():
    with pytest.raises(EnteronError, match="no images to try runtimes on; give at least one"):
        compare(Fake(Clock(), "torch", 1.0), [], IMAGES[:0])


def test_drift_by_hand():
    exact = np.zeros((2, 512), np.float32)
    exact[0, :2], exact[1, :2] = (3, 0), (0, 4)
    features = exact.copy()
    features[0, 1] = 4  # length 5, cosine 3 / 5
    measured = drift(features, exact)
    assert measured.cosine == pytest.approx(0.6)
    assert measured.largest == 4
    # The mean is (1.5, 2): each lies sqrt(1.5^2 + 2^2) = 2.5 from it; the error is 4.
    assert measured.of_spread == pytest.approx(4 / np.sqrt(2 * 2.5**2))
    assert drift(exact * 0, exact * 0).cosine == 1
    assert drift(exact * 0, exact).cosine == 0
    with pytest.raises(ModelError, match="cannot be compared"):
        drift(features[:1], exact)


def test_auto_builds_the_candidates_and_tries_them_on_the_samples(monkeypatch):
    clock, built = Clock(), []
    backbone = tiny_backbone()
    fakes = {"torch": Fake(clock, "torch", 2.0), "onnx-int8": Fake(clock, "onnx-int8", 1.0, 0.05)}

    def build(backbone, name, threads):
        built.append((backbone, name, threads))
        return fakes[name]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(choosing, "build_encoder", build)
    monkeypatch.setattr(choosing, "compare", lambda *a: compare(*a, clock=clock))
    assert choose(backbone, threads=3, samples=image_batch(2)).runtime == "onnx-int8"
    assert built == [(backbone, "torch", 3), (backbone, "onnx-int8", 3)]
    assert make_encoder(backbone, samples=image_batch(2)) is fakes["onnx-int8"]


@pytest.mark.parametrize(("size", "count"), [(64, 4), (224, 8), (384, 1)])
def test_trial_images_are_different_from_each_other(size, count):
    images = trial_images(Preprocessing(size=size), count)
    assert images.shape == (count, 3, size, size)
    assert images.dtype == np.uint8
    for first in range(count):
        assert images[first].std() > 20  # a picture, not a plain colour
        for second in range(first):
            assert np.abs(images[first].astype(int) - images[second]).mean() > 5


def test_trial_images_are_the_stored_pictures_without_loss():
    """The int8 graph of a backbone depends on them: other pixels need another graph format."""
    digest = hashlib.sha256(trial_images(Preprocessing()).tobytes()).hexdigest()
    assert digest == "cefc11fa58112f74ffe18a0f7382700eeb22f42c29a8ae6cc4b3bcb23af8a5b1"

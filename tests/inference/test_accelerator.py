"""A CUDA card is used where there is one; what can be tried without one is."""

import numpy as np
import pytest
import torch

from enteron.errors import EnteronError
from enteron.inference import torch_runtime
from enteron.inference.accelerator import uses_cuda
from enteron.inference.runtimes import candidate_runtimes, default_runtime, make_encoder
from enteron.model.backbones import tiny_backbone
from enteron.training.distributed import training_device
from tests.inference.making import image_batch, small_vit


@pytest.fixture
def fake_card(monkeypatch):
    """Torch says that there is a card; what would run on it runs on the CPU, not compiled."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch_runtime, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda network: network)


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_without_a_card_everything_runs_on_the_cpu(no_card):
    assert not uses_cuda("auto")
    assert not uses_cuda("cpu")
    with pytest.raises(EnteronError, match=r"no CUDA card that torch can use; use --accelerator"):
        uses_cuda("cuda")
    assert default_runtime(tiny_backbone()) == "torch"
    assert training_device() == torch.device("cpu")


def test_a_card_is_used_unless_the_cpu_is_asked_for(fake_card, monkeypatch):
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    backbone = tiny_backbone()
    assert default_runtime(backbone) == default_runtime(backbone, "cuda") == "cuda"
    assert default_runtime(backbone, "cpu") == "torch"
    assert candidate_runtimes(backbone) == ("torch", "cuda", "cuda-fp16", "cuda-bf16")
    assert "cuda" not in candidate_runtimes(backbone, "cpu")
    assert training_device() == torch.device("cuda", 1)
    assert training_device("cpu") == torch.device("cpu")
    assert chosen == [1]


@pytest.mark.parametrize(("runtime", "limit"), [("cuda", 2e-5), ("cuda-bf16", 0.1)])
def test_embeddings_of_any_number_of_images(fake_card, runtime, limit):
    """Batches are padded to one shape; the padding must not show."""
    vit = small_vit()
    encoder = make_encoder(vit, runtime)
    encoder.batch = 4  # type: ignore[misc]
    images = image_batch(6)
    exact = make_encoder(vit, "exact").encode(images)
    features = encoder.encode(images)
    assert features.dtype == np.float32
    assert np.abs(features - exact).max() <= limit
    if runtime == "cuda-bf16":
        assert np.abs(features - exact).max() > 0  # half precision was used
    assert encoder.runtime == runtime


def test_auto_may_choose_the_card(fake_card):
    encoder = make_encoder(small_vit(), "auto", samples=image_batch(2))
    assert encoder.runtime in ("torch", "cuda", "cuda-fp16", "cuda-bf16")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
@pytest.mark.parametrize(("runtime", "limit"), [("cuda", 1e-3), ("cuda-fp16", 0.1)])
def test_a_real_card(runtime, limit):
    vit = small_vit()
    images = image_batch(3)
    exact = make_encoder(vit, "exact").encode(images)
    assert np.abs(make_encoder(vit, runtime).encode(images) - exact).max() <= limit

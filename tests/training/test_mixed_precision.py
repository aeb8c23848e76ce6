"""Mixed precision and scaled gradients, tried on the CPU: only CUDA's kernels are left untried."""

import numpy as np
import pytest
import torch

from enteron.training.distributed import Processes
from enteron.training.learner import Learner
from enteron.training.options import TrainingOptions
from tests.training.making import small_network, small_options


def learner(precision: str, *, mixed: bool | None = True) -> Learner:
    options: TrainingOptions = small_options(precision=precision)
    network = small_network(options)
    return Learner(
        network, options, torch.ones(17), Processes(), torch.device("cpu"), mixed_precision=mixed
    )


def batch(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(8, 3, 512)).astype(np.float32)) * scale
    targets = torch.from_numpy((rng.random((8, 17)) < 0.3).astype(np.float32))
    return inputs, targets, torch.ones(8, 17, dtype=torch.bool)


def weights(of: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in of.state_dict().items()}


def test_the_forward_pass_is_in_half_precision_and_the_losses_are_not():
    mixed, plain = learner("bf16"), learner("bf16", mixed=None)
    inputs, targets, known = batch()
    with mixed.autocast():
        assert mixed.network(inputs).logits.dtype == torch.bfloat16
    with plain.autocast():  # a CPU computes in fp32 unless told otherwise
        assert plain.network(inputs).logits.dtype == torch.float32
    assert mixed.forward(inputs, targets, known).total.dtype == torch.float32
    assert mixed.scaler_state() == {}  # bf16 has the range of fp32: nothing is scaled


def test_a_step_in_bf16_is_near_that_in_fp32():
    steps = {}
    for precision, mixed in (("bf16", True), ("fp32", None)):
        one = learner(precision, mixed=mixed)
        torch.manual_seed(0)
        losses = one.forward(*batch())
        one.backward(losses, 1.0)
        steps[precision] = (losses.total.item(), one.update(0, 1.0))
    assert steps["bf16"] == pytest.approx(steps["fp32"], rel=0.05)
    assert steps["bf16"] != steps["fp32"]


def test_a_step_whose_gradients_overflow_is_skipped_and_the_scale_falls():
    one = learner("fp16")
    before, average = weights(one.network), weights(one.average.network)
    scale = one.scaler_state()["scale"]
    losses = one.forward(*batch())
    one.backward(losses, 1.0)
    gradient = next(iter(one.network.head.parameters())).grad
    assert gradient is not None
    gradient.fill_(float("inf"))
    assert not np.isfinite(one.update(0, 1.0))
    after = weights(one.network)
    trained = [name for name, _ in one.network.named_parameters()]
    assert all(torch.equal(after[name], before[name]) for name in trained)
    assert all(
        torch.equal(tensor, average[name]) for name, tensor in weights(one.average.network).items()
    )
    assert one.scaler_state()["scale"] == scale / 2
    # The next step is taken.
    one.backward(one.forward(*batch()), 1.0)
    assert np.isfinite(one.update(1, 1.0))
    assert any(not torch.equal(weights(one.network)[name], before[name]) for name in trained)


def test_the_scale_survives_a_checkpoint():
    one, other = learner("fp16"), learner("fp16")
    one.load_scaler_state({**one.scaler_state(), "scale": 8.0, "_growth_tracker": 3})
    other.load_scaler_state(one.scaler_state())
    assert other.scaler_state()["scale"] == 8.0
    assert other.scaler_state()["_growth_tracker"] == 3

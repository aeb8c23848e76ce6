"""Each equation of the paper: the module against its text written out in numpy and loops."""

import math

import numpy as np
import pytest
import torch

from enteron.model.network import (
    AnatomyContextHead,
    Excitation,
    LocalDifferencing,
    Network,
    Pathology,
    Prototypes,
    TemporalFeatures,
    TextContrast,
    temporal_features,
)
from enteron.model.options import ModelOptions
from tests.literal import equations
from tests.model.making import FakeBackbone


@pytest.fixture(autouse=True)
def double():
    """Everything in float64, so that a wrong term cannot hide behind rounding."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def assert_same(result: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


def shake(module: torch.nn.Module) -> None:
    """Give zero or one starts (biases, norms, statistics) values that would show if forgotten."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand_like(tensor))


def literal_lda(module: LocalDifferencing, window: np.ndarray) -> np.ndarray:
    norm, attention = module.norm, module.attention
    assert attention.in_proj_weight is not None
    normed = np.array(
        [equations.layer_norm(row, array(norm.weight), array(norm.bias)) for row in window]
    )
    readout = equations.self_attention(
        normed,
        array(attention.in_proj_weight),
        array(attention.in_proj_bias),
        array(attention.out_proj.weight),
        array(attention.out_proj.bias),
        heads=8,
    )
    return window - min(max(module.raw_strength.item(), 0), 2) * readout


def literal_x(module: Excitation, current: np.ndarray) -> np.ndarray:
    norm = module.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    gated = equations.excitation(current, array(module.squeeze.weight), array(module.excite.weight))
    return equations.batch_norm(
        gated,
        array(norm.running_mean),
        array(norm.running_var),
        array(norm.weight),
        array(norm.bias),
    )


def test_equation_1_local_differencing():
    module = LocalDifferencing()
    shake(module)
    windows = torch.randn(2, 3, 512)
    fused = module(windows)
    for window, result in zip(array(windows), array(fused), strict=True):
        assert_same(result, literal_lda(module, window))
    current, delta = temporal_features(fused)
    np.testing.assert_array_equal(array(current), array(fused)[:, 2])
    np.testing.assert_array_equal(array(delta), array(fused)[:, 2] - array(fused)[:, 1])


def test_equation_2_excitation():
    module = Excitation(biases=False).eval()
    shake(module)
    assert module.squeeze.weight.shape == (32, 512)
    assert module.excite.weight.shape == (512, 32)
    current = torch.randn(3, 512)
    for row, result in zip(array(current), array(module(current)), strict=True):
        assert_same(result, literal_x(module, row))


def test_equation_2_normalises_over_the_batch_in_training():
    module = Excitation(biases=False).train()
    current = torch.randn(5, 512)
    gated = np.array(
        [
            equations.excitation(row, array(module.squeeze.weight), array(module.excite.weight))
            for row in array(current)
        ]
    )
    expected = (gated - gated.mean(axis=0)) / np.sqrt(gated.var(axis=0) + 1e-5)
    assert_same(array(module(current)), expected)


def test_equation_3_pathology():
    module = Pathology(dropout=0.4, biases=False, conditioned=True).eval()
    assert module.hidden.weight.shape == (256, 1032)
    assert module.out.weight.shape == (9, 256)
    x, delta, a = torch.randn(3, 512), torch.randn(3, 512), torch.randn(3, 8)
    for i, result in enumerate(array(module(x, delta, a))):
        expected = equations.pathology(
            array(x[i]),
            array(delta[i]),
            array(a[i]),
            array(module.hidden.weight),
            array(module.out.weight),
        )
        assert_same(result, expected)


@pytest.mark.parametrize("log_scale", [math.log(10), math.log(100) + 1])
def test_equation_4_prototypes(log_scale):
    module = Prototypes()
    assert module.scale.item() == pytest.approx(10)
    with torch.no_grad():
        module.log_scale.fill_(log_scale)
    current = torch.randn(3, 512)
    scale = min(math.exp(log_scale), 100)
    for row, result in zip(array(current), array(module(current)), strict=True):
        expected = equations.prototype_term(row, array(module.directions), scale)
        assert_same(result, expected)


@pytest.mark.parametrize("tau", [math.log(1 / 0.07), math.log(100) + 1])
def test_equation_5_contrastive(tau):
    module = TextContrast(torch.randn(17, 512) * 5)
    assert module.log_scale.item() == pytest.approx(math.log(1 / 0.07))
    with torch.no_grad():
        module.log_scale.fill_(tau)
        module.features.mul_(3)  # training changes lengths; only directions may count
    current = torch.randn(3, 512)
    for row, result in zip(array(current), array(module(current)), strict=True):
        expected = equations.contrastive(row, array(module.features), min(tau, math.log(100)))
        assert_same(result, expected)


def test_the_whole_network():
    """Equations 1 to 5 in their order, from windows of embeddings to both kinds of logits."""
    network = Network(FakeBackbone(), ModelOptions(backbone="vit-tiny")).eval()
    shake(network)
    windows = torch.randn(1, 3, 512)
    outputs = network(windows)
    assert outputs.contrastive is not None
    lda, head = network.differencing, network.head
    assert isinstance(head, AnatomyContextHead)
    assert isinstance(lda, LocalDifferencing)
    assert network.prototypes is not None
    assert network.contrast is not None
    for i, window in enumerate(array(windows)):
        fused = literal_lda(lda, window)
        current, delta = fused[2], fused[2] - fused[1]
        x = literal_x(head.excitation, current)
        a = equations.times(array(head.anatomy.weight), x)
        p = equations.pathology(
            x, delta, a, array(head.pathology.hidden.weight), array(head.pathology.out.weight)
        )
        term = equations.prototype_term(
            current, array(network.prototypes.directions), network.prototypes.scale.item()
        )
        assert_same(array(outputs.logits[i]), np.concatenate([a, p]) + term)
        contrast = equations.contrastive(
            current, array(network.contrast.features), network.contrast.log_scale.item()
        )
        assert_same(array(outputs.contrastive[i]), contrast)


def test_dropout_is_after_x_and_after_relu_and_off_when_reading():
    """With dropout near 1 nothing is left of x or of the hidden layer (decision 7)."""
    head = AnatomyContextHead(dropout=0.999999999)
    temporal = TemporalFeatures(torch.randn(4, 512), torch.randn(4, 512))
    assert not head.train()(temporal).any()
    head.pathology.dropout.p = 0.0  # now only x is dropped: delta still reaches the findings
    partly = head(temporal)
    assert not partly[:, :8].any()
    assert partly[:, 8:].all()
    assert head.eval()(temporal).all()

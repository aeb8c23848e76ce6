"""Differential attention: pretrained weights carried over, two halves of heads, lambda from 0.8."""

import math

import numpy as np
import pytest
import torch

from enteron.errors import ModelError
from enteron.model import torchvision_operators
from enteron.model.backbones import DifferentialAttention, make_differential, tiny_backbone
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.literal.equations import dot, times
from tests.model.making import smooth_images


@pytest.fixture
def attention():
    torchvision_operators.declare()
    from timm.layers.attention import Attention

    torch.manual_seed(0)
    return Attention(24, num_heads=4, qkv_bias=True).double()


def literal(layer: DifferentialAttention, tokens: np.ndarray) -> np.ndarray:
    """One head and one token at a time."""
    count, width = tokens.shape
    size = width // layer.heads
    weight, bias = layer.qkv.weight.detach().numpy(), layer.qkv.bias.detach().numpy()
    query, key, value = np.split(np.array([times(weight, row) + bias for row in tokens]), 3, axis=1)
    readout = np.zeros((layer.heads, count, size))
    for head in range(layer.heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(count):
            raised = [
                math.exp(dot(query[i, part], key[j, part]) / math.sqrt(size)) for j in range(count)
            ]
            for j in range(count):
                readout[head, i] += raised[j] / math.fsum(raised) * value[j, part]
    half = layer.heads // 2
    for head in range(half):
        readout[head] -= layer.strength.item() * readout[head + half]
    joined = readout.transpose(1, 0, 2).reshape(count, width)
    weight, bias = layer.proj.weight.detach().numpy(), layer.proj.bias.detach().numpy()
    return np.array([times(weight, row) + bias for row in joined])


def test_against_loops(attention):
    layer = DifferentialAttention(attention).double()
    assert layer.strength.item() == pytest.approx(0.8)
    tokens = torch.randn(2, 5, 24, dtype=torch.float64)
    for rows, result in zip(tokens.numpy(), layer(tokens).detach().numpy(), strict=True):
        np.testing.assert_allclose(result, literal(layer, rows), rtol=1e-6, atol=1e-7)


def test_without_lambda_it_is_the_pretrained_vit():
    torch.manual_seed(0)
    backbone = tiny_backbone().eval()
    images = smooth_images(2)
    with torch.inference_mode():
        plain = backbone(images)
    make_differential(backbone.trunk)
    layers = [m for m in backbone.modules() if isinstance(m, DifferentialAttention)]
    assert len(layers) == 12
    with torch.inference_mode():
        changed = backbone(images)
        for layer in layers:
            layer.strength.zero_()
        back = backbone(images)
    assert (changed - plain).abs().max() > 1e-3
    torch.testing.assert_close(back, plain, rtol=1e-4, atol=1e-5)


def test_it_learns_and_is_one_lambda_a_layer():
    network = start_network(ModelOptions(backbone="vit-tiny", differential=True)).train()
    network.encode(smooth_images(3)[None]).square().mean().backward()
    gradients = [p.grad for name, p in network.named_parameters() if name.endswith("strength")]
    names = [name for name, _ in network.backbone.named_parameters() if name.endswith("strength")]
    assert len(names) == 12
    assert all(g is not None and g != 0 for g in gradients if g is not None)
    assert sum(g is not None for g in gradients) == 12  # the head's lambda was not used


def test_an_odd_number_of_heads_is_refused(attention):
    attention.num_heads = 3
    with pytest.raises(ModelError, match="3 heads, which are not two halves"):
        DifferentialAttention(attention)

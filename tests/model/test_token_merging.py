"""Merged tokens: against a literal computation in loops, and only where they move little."""

from typing import Any

import numpy as np
import pytest
import torch

from enteron.errors import EnteronError, ModelError
from enteron.inference import runtimes
from enteron.inference.runtimes import Limits, make_encoder, trial_images
from enteron.model.backbones import Backbone, lite_backbone, tiny_backbone
from enteron.model.token_merging import merge_tokens, merging_backbone
from tests.model.making import smooth_images


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "differential"])
def vit(request) -> Backbone:
    torch.manual_seed(0)
    return tiny_backbone(differential=request.param).eval()


def literal_merge(tokens, sizes, keys, merged):
    """One image: lists of vectors, one pair after the other."""
    count = len(tokens)
    units = [key / np.linalg.norm(key) for key in keys]
    edges = []
    for even in range(2, count, 2):  # 0 is the class token
        best = max(range(1, count, 2), key=lambda odd: units[even] @ units[odd])
        edges.append((units[even] @ units[best], even, best))
    edges.sort(key=lambda edge: -edge[0])
    sums = [token * size for token, size in zip(tokens, sizes, strict=True)]
    counts = list(sizes)
    gone = set()
    for _, even, odd in edges[:merged]:
        sums[odd] = sums[odd] + tokens[even] * sizes[even]
        counts[odd] += sizes[even]
        gone.add(even)
    order = [p for p in range(0, count, 2) if p not in gone] + list(range(1, count, 2))
    return [sums[p] / counts[p] for p in order], [counts[p] for p in order]


def literal_features(backbone: Backbone, image: torch.Tensor, merged: int) -> np.ndarray:
    """One image through the whole ViT; attention in float64 with every token repeated."""
    trunk: Any = backbone.trunk
    tokens = trunk._pos_embed(trunk.patch_embed(image[None]))[0].double().numpy()
    tokens, sizes = list(tokens), [1] * len(tokens)
    for block in trunk.blocks:
        double = block.double()
        normed = double.norm1(torch.from_numpy(np.stack(tokens)))
        qkv = double.attn.qkv(normed).numpy()
        heads = 4
        query, key, value = (part.reshape(len(tokens), heads, -1) for part in np.split(qkv, 3, 1))
        outputs = []
        for head in range(heads):
            # A token of size s is there s times.
            many = np.repeat(np.arange(len(tokens)), sizes)
            logits = query[:, head] @ key[many, head].T / np.sqrt(query.shape[-1])
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            outputs.append(weights @ value[many, head])
        if backbone.spec.differential:
            strength = float(double.attn.strength)
            outputs = [
                outputs[0] - strength * outputs[2],
                outputs[1] - strength * outputs[3],
                *outputs[2:],
            ]
        attended = double.attn.proj(torch.from_numpy(np.concatenate(outputs, axis=1))).numpy()
        tokens = [token + more for token, more in zip(tokens, attended, strict=True)]
        tokens, sizes = literal_merge(tokens, sizes, key.mean(axis=1), merged)
        stacked = torch.from_numpy(np.stack(tokens))
        tokens = list((stacked + double.mlp(double.norm2(stacked))).numpy())
        block.float()
    last = trunk.norm(torch.from_numpy(np.stack(tokens[:1])).float())
    return backbone.projection(last)[0].numpy()


def test_features_are_those_of_the_literal_computation(vit):
    images = smooth_images(2)
    with torch.inference_mode():
        expected = np.stack([literal_features(vit, image, 5) for image in images])
        found = merging_backbone(vit, 5)(images).numpy()
        plain = vit(images).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())
    assert np.abs(found - plain).max() > 1e-3 * np.abs(plain).max()  # merging does something


def test_nothing_merged_is_the_same_network(vit):
    images = smooth_images(2)
    with torch.inference_mode():
        np.testing.assert_allclose(
            merging_backbone(vit, 0)(images).numpy(), vit(images).numpy(), atol=1e-5
        )


def test_sizes_add_up_and_the_class_token_stays():
    torch.manual_seed(1)
    tokens, keys = torch.randn(3, 30, 8), torch.randn(3, 30, 4)
    fewer, sizes = merge_tokens(tokens, torch.ones(3, 30, 1), keys, 9)
    assert fewer.shape == (3, 21, 8)
    torch.testing.assert_close(sizes.sum(dim=1), torch.full((3, 1), 30.0))
    torch.testing.assert_close(fewer[:, 0], tokens[:, 0])
    torch.testing.assert_close((fewer * sizes).sum(dim=1), tokens.sum(dim=1))
    # Of two tokens one is the class token: nothing is left to merge.
    assert merge_tokens(tokens[:, :2], torch.ones(3, 2, 1), keys[:, :2], 9)[0].shape == (3, 2, 8)


@pytest.fixture
def generous(monkeypatch):
    """Random weights move more than trained ones: limits at which they pass."""
    monkeypatch.setattr(runtimes, "TOKEN_LIMITS", Limits(cosine=0.5, of_spread=5.0))


@pytest.mark.parametrize("runtime", ["torch-tome", "onnx-tome"])
def test_both_runtimes_compute_the_same(generous, runtime):
    torch.manual_seed(0)
    vit = tiny_backbone().eval()
    images = trial_images(vit.spec.preprocessing, 2)
    encoder = make_encoder(vit, runtime)
    assert (encoder.runtime, encoder.backbone_hash) == (runtime, vit.hash())
    with torch.inference_mode():
        merging = merging_backbone(vit)
        expected = merging(vit.spec.preprocessing.normalise(torch.from_numpy(images))).numpy()
    np.testing.assert_allclose(encoder.encode(images), expected, atol=2e-4 * np.abs(expected).max())


def test_beyond_the_limits_it_is_refused(monkeypatch):
    monkeypatch.setattr(runtimes, "TOKEN_LIMITS", Limits(cosine=1.0, of_spread=1e-9))
    torch.manual_seed(0)
    with pytest.raises(ModelError, match="merging tokens moves this model's embeddings too far"):
        make_encoder(tiny_backbone(), "torch-tome")


def test_convolutions_have_no_tokens():
    with pytest.raises(EnteronError, match="'lite' has no tokens to merge"):
        make_encoder(lite_backbone(), "torch-tome")

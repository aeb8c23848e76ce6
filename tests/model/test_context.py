"""The context head without torch, against its layers in torch and against itself in blocks."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.labels import ANATOMY, LABELS
from enteron.model.context import Context, frame_positions, log_odds, tensor_shapes
from enteron.model.context_layers import ContextLayers
from enteron.model.options import FEATURES, ContextOptions

FULL = ContextOptions(features=5, hidden=7)
VARIANTS = [
    FULL,
    ContextOptions(features=0, hidden=0),
    ContextOptions(features=3, hidden=4, conditioned=False),
]


def layers_of(options: ContextOptions, spread: float = 0.3) -> ContextLayers:
    torch.manual_seed(3)
    layers = ContextLayers(options)
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    return layers.eval()


def context_of(layers: ContextLayers) -> Context:
    tensors = {name: tensor.numpy() for name, tensor in layers.state_dict().items()}
    return Context(layers.options, tensors)


def study(count: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    rng = np.random.default_rng(count)
    scores = rng.random((count, len(LABELS))).astype(np.float32)
    embeddings = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return scores, embeddings, np.cumsum(rng.integers(1, 400, count)).astype(np.float64)


@pytest.mark.parametrize("options", VARIANTS, ids=["full", "linear", "apart"])
@pytest.mark.parametrize("count", [1, 2, 10, 333])
def test_it_computes_what_torch_does(options: ContextOptions, count: int):
    layers = layers_of(options)
    scores, embeddings, positions = study(count)
    with torch.inference_mode():
        expected = layers(
            torch.from_numpy(log_odds(scores)), torch.from_numpy(embeddings), positions
        ).sigmoid()
    context = context_of(layers)
    refined = context.refine(scores, context.project(embeddings), positions)
    np.testing.assert_allclose(refined, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("block", [1, 7, 100, 5000])
def test_blocks_of_any_size_give_the_same(block: int):
    context = context_of(layers_of(FULL))
    scores, embeddings, positions = study(333)
    projected = context.project(embeddings)
    whole = context.refine(scores, projected, positions)
    np.testing.assert_allclose(
        context.refine(scores, projected, positions, block), whole, atol=1e-5
    )


def test_it_starts_as_no_change():
    context = context_of(ContextLayers(FULL).eval())
    scores, embeddings, positions = study(50)
    refined = context.refine(scores, context.project(embeddings), positions)
    np.testing.assert_allclose(refined, scores, atol=1e-4)


def test_anatomy_sees_beyond_twenty_thousand_frames_and_findings_hundreds():
    """The frame of interest is the first; another one is moved away from it step by step."""
    context = context_of(layers_of(ContextOptions(features=0, hidden=4)))
    scores, _, _ = study(2)
    other = scores.copy()
    other[1] = 1 - other[1]
    empty = np.empty((2, 0), np.float32)

    def moved(distance: float) -> NDArray[np.float32]:
        positions = np.array([0.0, distance])
        first, second = (context.refine(s, empty, positions)[0] for s in (scores, other))
        return np.abs(first - second)

    anatomy = slice(0, len(ANATOMY))
    findings = slice(len(ANATOMY), None)
    assert moved(20_000)[anatomy].max() > 1e-3
    assert moved(300)[findings].max() > 1e-3


def test_findings_depend_on_anatomy_only_where_they_are_conditioned():
    scores, embeddings, positions = study(20)
    changed = scores.copy()
    changed[:, : len(ANATOMY)] = 1 - changed[:, : len(ANATOMY)]
    for options, depends in ((VARIANTS[0], True), (VARIANTS[2], False)):
        context = context_of(layers_of(options))
        projected = context.project(embeddings)
        first, second = (context.refine(s, projected, positions) for s in (scores, changed))
        same = np.array_equal(first[:, len(ANATOMY) :], second[:, len(ANATOMY) :])
        assert same is not depends


def test_positions_are_original_frames():
    frames = np.array([5, 10, 20])
    assert frame_positions(frames, 5, None).tolist() == [5, 10, 20]
    assert frame_positions(frames, 5, 40.0).tolist() == [40, 80, 160]  # rows 1, 2 and 4


def test_scores_of_0_and_1_have_finite_log_odds():
    values = log_odds(np.array([0.0, 1e-30, 0.5, 1.0], np.float32))
    assert values.tolist() == [-10, -10, 0, 10]


def test_tensors_of_another_head_are_refused():
    tensors = {name: np.zeros(shape, "f") for name, shape in tensor_shapes(FULL).items()}
    with pytest.raises(ModelError, match="'project.weight' of the context head has shape None"):
        Context(FULL, {name: t for name, t in tensors.items() if name != "project.weight"})
    with pytest.raises(ModelError, match=r"'anatomy.out.bias' .* has shape \(9,\) where \(8,\)"):
        Context(FULL, tensors | {"anatomy.out.bias": np.zeros(9, "f")})


def test_the_shapes_are_those_of_the_layers():
    for options in VARIANTS:
        state = ContextLayers(options).state_dict()
        assert {name: tuple(t.shape) for name, t in state.items()} == tensor_shapes(options)

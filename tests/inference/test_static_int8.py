"""Convolutions in int8: integers as on paper, weights that AVX2 can add, and little drift."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from enteron.errors import ModelError
from enteron.inference.onnx_graph import export_graph
from enteron.inference.onnx_runtime import GRAPH_INPUT, GRAPH_OUTPUT, open_session
from enteron.inference.runtimes import drift
from enteron.inference.static_int8 import Int8Options, int8_graph, largest_pairs, weight_scales
from enteron.model.backbones import Backbone, lite_backbone
from enteron.model.options import BackboneSpec
from enteron.model.preprocessing import Preprocessing
from tests.model.making import smooth_images


class Small(nn.Module):
    """A strided convolution with ReLU6, one without, and their sum: what the trunk is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 1)
        self.third = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        stem = nn.functional.hardtanh(self.first(images), 0, 6)
        return (self.second(stem) + self.third(stem)).mean((2, 3))


@pytest.fixture(scope="module")
def small() -> Backbone:
    torch.manual_seed(0)
    spec = BackboneSpec(
        name="lite", trunk="tf_efficientnet_lite0", preprocessing=Preprocessing(size=16)
    )
    return Backbone(Small(), nn.Linear(8, 512, bias=False), spec).eval()


def images(count: int, size: int, seed: int = 0) -> np.ndarray:
    values = smooth_images(count, size, seed).numpy()
    low, high = values.min(), values.max()
    return (255 * (values - low) / (high - low)).astype(np.uint8)


def own_weights(backbone: Backbone) -> dict[str, np.ndarray]:
    tensors = backbone.state_dict(prefix="backbone.")
    return {name: tensor.numpy() for name, tensor in tensors.items() if tensor.ndim == 4}


def run(graph: bytes, batch: np.ndarray, output: str = GRAPH_OUTPUT) -> np.ndarray:
    session = open_session(graph)
    rows = [session.run([output], {GRAPH_INPUT: image[None]})[0] for image in batch]
    return np.concatenate([np.asarray(row) for row in rows])


def test_the_first_convolution_is_that_of_integers_on_paper(small):
    batch = images(6, 16)
    model = int8_graph(export_graph(small), own_weights(small), batch)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    name = "backbone.trunk.first.weight"
    quantise = next(
        n
        for n in model.graph.node
        if n.op_type == "QuantizeLinear" and n.input[0] == f"{name}.product"
    )
    scale, zero = (tensors[part] for part in quantise.input[1:])
    weight = np.rint(tensors[name] / tensors[f"{name}.scale"][:, None, None, None])
    assert zero == 0  # ReLU6: nothing below 0
    expected = np.empty((8, 8, 8), np.int64)
    padded = np.pad(batch[0].astype(np.int64) - 128, ((0, 0), (1, 1), (1, 1)))
    for row in range(8):
        for column in range(8):
            window = padded[:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            sums = (weight * window).sum((1, 2, 3)) + tensors[f"{name}.bias"]
            real = sums * tensors[f"{name}.bias_scale"].astype(np.float64)
            expected[:, row, column] = np.clip(np.rint(real / scale), 0, 255)
    value = quantise.output[0]
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(value, onnx.TensorProto.UINT8, None)
    )
    found = run(model.SerializeToString(), batch[:1], value)[0].astype(np.int64)
    assert expected.std() > 10
    assert np.abs(found - expected).max() <= 1  # halves
    assert (found == expected).mean() > 0.98


def test_a_small_network_keeps_its_features(small):
    batch, others = images(12, 16), images(8, 16, seed=1)
    graph = export_graph(small)
    corrected, plain = (
        int8_graph(graph, own_weights(small), batch, options).SerializeToString()
        for options in (Int8Options("seven"), Int8Options("seven", corrected=False))
    )
    assert drift(run(corrected, others), run(graph, others)).of_spread < 0.1
    # What all images have in common is gone.
    exact = run(graph, batch).mean(axis=0)
    errors = [np.abs(run(one, batch).mean(axis=0) - exact).max() for one in (corrected, plain)]
    assert errors[0] < errors[1] / 3


def saturating_sum(weights: np.ndarray, activations: np.ndarray) -> int:
    """As AVX2's vpmaddubsw adds: pairs of products in 16 bits, cut off at their limits."""
    products = weights.astype(np.int64) * activations
    pairs = products.reshape(-1, 2).sum(axis=1)
    return int(np.clip(pairs, -(2**15), 2**15 - 1).sum())


@pytest.mark.parametrize("levels", ["pairs", "seven"])
def test_weights_never_saturate_where_pairs_are_added_in_16_bits(levels):
    generator = np.random.default_rng(3)
    weight = (
        generator.standard_t(3, (40, 64, 1, 1)) * generator.uniform(0.1, 9, (40, 1, 1, 1))
    ).astype(np.float32)
    weight[0] = 1.0  # all at the limit
    scales = weight_scales(weight, levels)
    integers = np.clip(np.rint(weight / scales[:, None, None, None]), -127, 127).reshape(40, 64)
    for row in integers.astype(np.int64):
        for worst in (np.where(row > 0, 255, 0), np.where(row < 0, 255, 0)):
            assert saturating_sum(row, worst) == int((row * worst).sum())
    if levels == "pairs":
        assert np.median(np.abs(integers).max(axis=1)) > 80  # and use more than seven bits


def test_eight_bits_would_saturate():
    row = np.full(4, 127)
    assert saturating_sum(row, np.full(4, 255)) < 4 * 127 * 255
    assert largest_pairs(np.full((1, 4, 1, 1), 127.0)) == 254


def test_other_activations_are_refused(small):
    class Other(Small):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return nn.functional.hardtanh(self.first(images), -1, 1).mean((2, 3))

    other = Backbone(Other(), small.projection, small.spec).eval()
    with pytest.raises(ModelError, match="other limits than those of ReLU6"):
        int8_graph(export_graph(other), own_weights(other), images(1, 16))


def test_lite_drifts_little_and_runs_in_integers(tmp_path):
    lite = lite_backbone().eval()
    exported = export_graph(lite)
    batch, others = images(6, 224), images(3, 224, seed=1)
    graph = int8_graph(exported, own_weights(lite), batch).SerializeToString()
    measured = drift(run(graph, others), run(exported, others))
    assert measured.cosine > 0.99
    assert measured.of_spread < 0.25
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert (kinds.count("QLinearConv"), kinds.count("Conv")) == (49, 0)
    assert kinds.count("QuantizeLinear") == 0

"""Convolutions in int8: EfficientNet-Lite0 with scales that are measured once, on pictures.

Three things make the difference between useless embeddings and nearly equal ones. Outputs are
quantised after ReLU6, whose limits are then those of the integers, and not before it. Ranges are
those of the least squared error. And layer by layer, the mean error of every channel is measured
with all layers before it in int8, and taken from its bias.

Weights are not stored again: the graph takes those of the network, and ONNX Runtime rounds them to
integers when it loads the graph.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch.nn import functional

from enteron.errors import ModelError
from enteron.inference.encoder import ImageBatch
from enteron.inference.onnx_runtime import GRAPH_INPUT

_LARGEST = 127  # of an int8 weight
_SEVEN_BITS = 63
# AVX2 adds pairs of uint8 x int8 products in 16 bits with saturation: 255 * 128 fits.
_LARGEST_PAIR = 128
_LARGEST_BIAS = 2**30  # of 32 bits, with room for the products
_SAMPLED = 4096  # outputs of a layer per image, by which its range is chosen
_CUTS = np.linspace(0.3, 1.0, 29)  # shares of the largest outputs that a range may cover
_STEPS = np.linspace(0.5, 1.0, 41)  # shares of 127 that the largest weight may become

Weights = Literal["pairs", "eight", "seven"]
"""Levels of weights. `pairs`: as many as AVX2 can add in pairs; `eight` bits, which is right on
processors with VNNI only; `seven` bits, which is right everywhere."""


@dataclass(frozen=True)
class Int8Options:
    """How convolutions are quantised; other values than the defaults are for comparisons."""

    weights: Weights = "pairs"
    fitted_ranges: bool = True
    """Ranges of the least squared error; otherwise all outputs seen."""
    corrected: bool = True
    """Whether the mean error of every channel is taken from its bias."""


@dataclass(frozen=True)
class _Range:
    """A value as an integer: (integer - zero) * scale."""

    scale: float
    zero: int

    @classmethod
    def covering(cls, low: float, high: float) -> "_Range":
        low, high = min(low, 0.0), max(high, 0.0)  # 0 has to be an integer: borders are padded
        scale = (high - low) / 255 or 1.0
        return cls(float(np.float32(scale)), round(-low / scale))

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """What integers of eight bits leave of values."""
        levels = torch.clamp(torch.round(values / self.scale) + self.zero, 0, 255)
        return (levels - self.zero) * self.scale


@dataclass(frozen=True, eq=False)
class _Layer:
    """A convolution as it is computed: the scale of each output's weights, and its biases."""

    scales: NDArray[np.float32]
    bias: NDArray[np.float32]


# Images as they are are integers: (byte - 128) / 127.5 is the normalised value less half a step.
_IMAGE = _Range(1 / 127.5, 128)
_HALF_STEP = 0.5 / 127.5


def int8_graph(
    graph: bytes,
    weights: dict[str, NDArray[np.float32]],
    images: ImageBatch,
    options: Int8Options | None = None,
) -> onnx.ModelProto:
    """An encoder's exported graph with its convolutions in int8, calibrated on images (n, 3, s, s).

    `weights` are the convolutions' own by their names in the graph, of which the exported graph
    holds products with the scales of normalisation.
    """
    model = onnx.load_model_from_string(graph)
    options = options or Int8Options()
    trunk = _Trunk(model)
    ranges, layers = _calibrate(trunk, images, options)
    return _quantised(trunk, weights, ranges, layers)


class _Trunk:
    """The convolutions of an exported graph, with the additions between them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self.clipped: dict[str, str] = {}  # output of a convolution: the same after ReLU6
        values: set[str] = set()
        for node in model.graph.node:
            source = node.input[0] if node.input else ""
            if node.op_type == "Conv":
                self.nodes.append(node)
                values.add(node.output[0])
            elif node.op_type == "Clip" and source in values:
                limits = [float(self.tensors[name]) for name in node.input[1:]]
                if limits != [0.0, 6.0]:
                    raise ModelError(
                        "a convolution is followed by other limits than those of ReLU6",
                        "int8 is only for EfficientNet-Lite0: use --runtime onnx",
                    )
                self.clipped[source] = node.output[0]
                values.add(node.output[0])
            elif node.op_type == "Add" and {*node.input} <= values:
                self.nodes.append(node)
                values.add(node.output[0])
        self.values = values

    def value(self, node: onnx.NodeProto) -> str:
        """The value that a node gives, after ReLU6 where there is one."""
        return self.clipped.get(node.output[0], node.output[0])

    def folded(self, node: onnx.NodeProto) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights and biases of a convolution, normalisation included."""
        weight, bias = (self.tensors[name].astype(np.float32) for name in node.input[1:3])
        return weight, bias


# ---- calibration: the network in torch, once as it is and once as integers leave it


def _calibrate(
    trunk: _Trunk, images: ImageBatch, options: Int8Options
) -> tuple[dict[str, _Range], dict[str, _Layer]]:
    """Ranges of values, and the layers by the names of their weights."""
    first = trunk.nodes[0].input[0]
    pixels = torch.from_numpy(np.ascontiguousarray(images)).float()
    exact: dict[str, torch.Tensor] = {first: pixels / 127.5 - 1}
    rounded: dict[str, torch.Tensor] = {first: (pixels - _IMAGE.zero) * _IMAGE.scale}
    ranges: dict[str, _Range] = {first: _IMAGE}
    layers: dict[str, _Layer] = {}
    last_use = {name: node for node in trunk.nodes for name in node.input}
    generator = np.random.default_rng(0)
    with torch.inference_mode():
        for node in trunk.nodes:
            if node.op_type == "Conv":
                layer, here, there = _calibrated_layer(
                    trunk, node, exact, rounded, ranges[node.input[0]].scale, options
                )
                layers[node.input[1]] = layer
            else:
                here, there = (
                    side[node.input[0]] + side[node.input[1]] for side in (exact, rounded)
                )
            name = trunk.value(node)
            clipped = node.output[0] in trunk.clipped
            if clipped:
                here, there = here.clamp(0, 6), there.clamp(0, 6)
            ranges[name] = _range_of(here, generator, clipped, options)
            exact[name], rounded[name] = here, ranges[name].rounded(there)
            for used in node.input:
                if last_use[used] is node:
                    exact.pop(used, None)
                    rounded.pop(used, None)
    return ranges, layers


def _calibrated_layer(
    trunk: _Trunk,
    node: onnx.NodeProto,
    exact: dict[str, torch.Tensor],
    rounded: dict[str, torch.Tensor],
    input_scale: float,
    options: Int8Options,
) -> tuple[_Layer, torch.Tensor, torch.Tensor]:
    """A layer, its exact outputs, and those of integers."""
    weight, bias = trunk.folded(node)
    # Biases are integers of the same scale: where weights are next to nothing, they would overflow.
    least = np.abs(bias) / (_LARGEST_BIAS * input_scale)
    scales = np.maximum(weight_scales(weight, options.weights), least).astype(np.float32)
    column = scales[:, None, None, None]
    levels = np.clip(np.rint(weight / column), -_LARGEST, _LARGEST) * column
    shift = weight.sum((1, 2, 3)) * (_HALF_STEP if node is trunk.nodes[0] else 0.0)
    here = _convolution(node, exact[node.input[0]], weight, bias)
    there = _convolution(node, rounded[node.input[0]], levels, bias + shift)
    if options.corrected:
        error = (here.mean((0, 2, 3)) - there.mean((0, 2, 3))).numpy()
        there = there + torch.from_numpy(error)[:, None, None]
        shift = shift + error
    return _Layer(scales, (bias + shift).astype(np.float32)), here, there


def _convolution(
    node: onnx.NodeProto,
    images: torch.Tensor,
    weight: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> torch.Tensor:
    settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    top, left, bottom, right = settings.get("pads", (0, 0, 0, 0))
    return functional.conv2d(
        functional.pad(images, (left, right, top, bottom)),
        torch.from_numpy(weight),
        torch.from_numpy(bias),
        stride=tuple(settings.get("strides", (1, 1))),
        groups=settings.get("group", 1),
    )


def _range_of(
    values: torch.Tensor, generator: np.random.Generator, clipped: bool, options: Int8Options
) -> _Range:
    """The range of a layer's outputs; after ReLU6 from 0 on."""
    low, high = (0.0 if clipped else float(values.min())), float(values.max())
    if not options.fitted_ranges:
        return _Range.covering(low, high)
    flat = values.reshape(-1)
    sample = flat[torch.from_numpy(generator.integers(len(flat), size=_SAMPLED * len(values)))]
    candidates = [_Range.covering(cut * low, cut * high) for cut in _CUTS]
    errors = [
        float((candidate.rounded(sample) - sample).square().mean()) for candidate in candidates
    ]
    return candidates[int(np.argmin(errors))]


# ---- weights


def weight_scales(weight: NDArray[np.float32], levels: Weights) -> NDArray[np.float32]:
    """The scale of each output's weights (outputs, inputs, height, width), of the least error.

    Depthwise convolutions, of one input each, are added in 32 bits on every processor, and so may
    always have eight bits.
    """
    flat = weight.reshape(len(weight), -1)
    largest = np.abs(flat).max(axis=1)
    largest[largest == 0] = 1  # an output whose weights are all zero
    depthwise = weight.shape[1] == 1
    most = _SEVEN_BITS if levels == "seven" and not depthwise else _LARGEST
    scales, least = largest / _SEVEN_BITS, np.full(len(weight), np.inf)
    for step in _STEPS:
        candidate = largest / (step * most)
        integers = np.clip(np.rint(flat / candidate[:, None]), -most, most)
        error = np.square(integers * candidate[:, None] - flat).sum(axis=1)
        if levels == "pairs" and not depthwise:
            error[largest_pairs(integers.reshape(weight.shape)) > _LARGEST_PAIR] = np.inf
        scales, least = np.where(error < least, candidate, scales), np.minimum(error, least)
    return scales.astype(np.float32)


def largest_pairs(integers: NDArray[np.floating]) -> NDArray[np.floating]:
    """The largest sum of one sign over two neighbouring inputs of each output.

    Inputs of a larger kernel are taken in the order in which the runtime adds them, channels of a
    pixel after each other. Neighbours of both kinds of pairs are looked at: the runtime may begin
    at either.
    """
    ordered = np.moveaxis(integers, 1, -1).reshape(len(integers), -1)
    sums = [
        np.maximum(sign * ordered[:, :-1], 0) + np.maximum(sign * ordered[:, 1:], 0)
        for sign in (1, -1)
    ]
    return np.maximum(*(part.max(axis=1) for part in sums))


# ---- the graph


def _quantised(
    trunk: _Trunk,
    weights: dict[str, NDArray[np.float32]],
    ranges: dict[str, _Range],
    layers: dict[str, _Layer],
) -> onnx.ModelProto:
    writer = _GraphWriter(trunk, ranges)
    first = trunk.nodes[0].input[0]
    writer.dequantise(first, GRAPH_INPUT)
    own = {id(node) for node in trunk.nodes}
    for node in trunk.model.graph.node:
        if id(node) in own and node.op_type == "Conv":
            writer.convolution(node, weights[node.input[1]], layers[node.input[1]])
        elif id(node) in own:
            writer.addition(node)
        elif not {*node.output} & {*trunk.clipped.values()} and not writer.is_before(node):
            writer.other(node)
    graph = helper.make_graph(
        writer.nodes,
        "enteron",
        list(trunk.model.graph.input),
        list(trunk.model.graph.output),
        writer.used_tensors(),
    )
    model = helper.make_model(
        graph,
        opset_imports=list(trunk.model.opset_import),
        ir_version=trunk.model.ir_version,
    )
    model.producer_name = "enteron"
    return model


class _GraphWriter:
    """Nodes of the graph in int8: quantised and dequantised values, which the runtime joins."""

    def __init__(self, trunk: _Trunk, ranges: dict[str, _Range]) -> None:
        self._trunk, self._ranges = trunk, ranges
        self.nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, NDArray[np.generic]] = {}
        # Values before the first convolution: normalisation, which integers do not need.
        self._before: set[str] = {trunk.nodes[0].input[0]}
        for node in reversed(trunk.model.graph.node):
            if {*node.output} & self._before:
                self._before |= {*node.input}

    def is_before(self, node: onnx.NodeProto) -> bool:
        """Whether a node only normalises images."""
        return bool({*node.output} & self._before)

    def dequantise(self, value: str, integers: str) -> None:
        parts = self._range(value)
        self.nodes.append(
            helper.make_node("DequantizeLinear", [integers, *parts], [f"{value}.real"])
        )

    def convolution(self, node: onnx.NodeProto, weight: NDArray[np.float32], layer: _Layer) -> None:
        source, name = node.input[0], node.input[1]
        folded, _ = self._trunk.folded(node)
        # Normalisation multiplies every weight of an output by one number.
        shape = (len(weight), -1)
        squares = np.square(weight, dtype=np.float64).reshape(shape).sum(axis=1)
        products = (folded.astype(np.float64) * weight).reshape(shape).sum(axis=1)
        factor = np.divide(products, squares, out=np.ones_like(products), where=squares > 0)
        bias_scales = layer.scales * np.float32(self._ranges[source].scale)
        bias = np.rint(layer.bias.astype(np.float64) / bias_scales).astype(np.int32)
        self._tensors |= {
            name: weight,
            f"{name}.factor": factor.astype(np.float32)[:, None, None, None],
            f"{name}.scale": layer.scales,
            f"{name}.zero": np.zeros(len(weight), np.int8),
            f"{name}.bias": bias,
            f"{name}.bias_scale": bias_scales,
        }
        quantised = [f"{name}.{part}" for part in ("int8", "scale", "zero")]
        biases = [f"{name}.{part}" for part in ("bias", "bias_scale")]
        convolution = helper.make_node(
            "Conv", [f"{source}.real", f"{name}.real", f"{name}.bias_real"], [f"{name}.product"]
        )
        convolution.attribute.extend(node.attribute)
        self.nodes += [
            helper.make_node("Mul", [name, f"{name}.factor"], [f"{name}.folded"]),
            helper.make_node(
                "QuantizeLinear", [f"{name}.folded", *quantised[1:]], [quantised[0]], axis=0
            ),
            helper.make_node("DequantizeLinear", quantised, [f"{name}.real"], axis=0),
            helper.make_node("DequantizeLinear", biases, [f"{name}.bias_real"], axis=0),
            convolution,
        ]
        self._quantise(self._trunk.value(node), f"{name}.product")

    def addition(self, node: onnx.NodeProto) -> None:
        value = node.output[0]
        summands = [f"{name}.real" for name in node.input]
        self.nodes.append(helper.make_node("Add", summands, [f"{value}.sum"]))
        self._quantise(value, f"{value}.sum")

    def other(self, node: onnx.NodeProto) -> None:
        """A node after the convolutions, which stays as it is."""
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[:] = [
            f"{name}.real" if name in self._trunk.values else name for name in node.input
        ]
        copy.ClearField(
            "metadata_props"
        )  # where in the source it comes from, with this machine's path
        copy.ClearField("doc_string")
        self.nodes.append(copy)

    def used_tensors(self) -> list[onnx.TensorProto]:
        used = {name for node in self.nodes for name in node.input}
        tensors = {**self._trunk.tensors, **self._tensors}
        return [numpy_helper.from_array(a, name) for name, a in tensors.items() if name in used]

    def _quantise(self, value: str, source: str) -> None:
        parts = self._range(value)
        self.nodes.append(
            helper.make_node("QuantizeLinear", [source, *parts], [f"{value}.integers"])
        )
        self.dequantise(value, f"{value}.integers")

    def _range(self, value: str) -> list[str]:
        names = [f"{value}.scale", f"{value}.zero"]
        self._tensors |= {
            names[0]: np.array(self._ranges[value].scale, np.float32),
            names[1]: np.array(self._ranges[value].zero, np.uint8),
        }
        return names

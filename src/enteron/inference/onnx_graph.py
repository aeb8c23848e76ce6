"""A backbone as an ONNX graph of one image: export and int8 quantisation.

The graph takes uint8 images; normalisation is part of it.
"""

import warnings

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import nn

from enteron.inference.onnx_runtime import GRAPH_INPUT, GRAPH_MAPS, GRAPH_OUTPUT
from enteron.model.backbones import Backbone
from enteron.model.patches import patch_maps

OPSET = 20
"""The first version of ONNX's operators with GELU as a single one."""


# ---- export


class NormalisingBackbone(nn.Module):
    """A backbone that takes uint8 images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.backbone(self.backbone.spec.preprocessing.normalise(images))


class _Maps(nn.Module):
    """The maps that local evidence reads, and the features, of uint8 images."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.backbone.spec.preprocessing.normalise(images)
        maps, pooled = patch_maps(self.backbone.trunk, images)
        return maps, self.backbone.projection(pooled)


def export_graph(backbone: Backbone) -> bytes:
    """The graph of images (1, 3, size, size), uint8, to features (1, width), float32.

    The batch size is fixed at 1. Images run side by side on the cores and are never batched, so
    no embedding can depend on the other images.
    """
    size = backbone.spec.preprocessing.size
    return export_network(NormalisingBackbone(backbone), size, [GRAPH_OUTPUT])


def export_maps_graph(backbone: Backbone) -> bytes:
    """The graph of the same images to the maps of patches (1, 472, 7, 7) and features (1, 512)."""
    size = backbone.spec.preprocessing.size
    return export_network(_Maps(backbone), size, [GRAPH_MAPS, GRAPH_OUTPUT])


def export_network(network: nn.Module, size: int, outputs: list[str]) -> bytes:
    """The graph of a network of images (1, 3, size, size), uint8, with so many named outputs."""
    example = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.inference_mode():
        # The exporter uses functions that torch itself has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(
            network.eval(),
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[GRAPH_INPUT],
            output_names=outputs,
            verbose=False,
        )
    assert program is not None
    return program.model_proto.SerializeToString()


# ---- int8

_QUANTISED_DOMAIN = "com.microsoft"
# AVX2 adds pairs of uint8 x int8 products in 16 bits with saturation: 2 * 255 * 64 fits,
# 2 * 255 * 127 does not. Weights of seven bits cost some precision and are right everywhere.
_LARGEST_WEIGHT = 64


def quantise_graph(graph: bytes) -> bytes:
    """The same graph with every product of activations and stored weights in int8."""
    model = onnx.load_from_string(graph)
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    original_nodes = list(model.graph.node)
    consumers = _consumers(original_nodes)
    fused: set[int] = set()  # ids of additions that became part of a product
    nodes: list[onnx.NodeProto] = []
    for node in original_nodes:
        if id(node) in fused:
            continue
        weight = initializers.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2:
            nodes.append(node)
            continue
        values, scales = quantise_weight(numpy_helper.to_array(weight).astype(np.float32))
        names = [f"{weight.name}.{part}" for part in ("int8", "scale")]
        for name, array in zip(names, (values, scales), strict=True):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        inputs, output = [node.input[0], *names], node.output[0]
        bias = _bias(consumers.get(output, []), output, initializers)
        if bias is not None:
            addition, name = bias
            inputs += ["", name]  # weights are symmetric: no zero point
            output = addition.output[0]
            fused.add(id(addition))
        product = helper.make_node(
            "DynamicQuantizeMatMul", inputs, [output], node.name, domain=_QUANTISED_DOMAIN
        )
        nodes.append(product)
    return _replace_nodes(model, nodes)


def quantise_weight(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Weights (inputs, outputs) as int8 in [-64, 64], and the scale of each output."""
    scales = np.abs(weight).max(axis=0) / _LARGEST_WEIGHT
    scales[scales == 0] = 1  # an output whose weights are all zero
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)


def _bias(
    consumers: list[onnx.NodeProto], product: str, initializers: dict[str, onnx.TensorProto]
) -> tuple[onnx.NodeProto, str] | None:
    """The addition of a stored vector and the vector's name, if nothing else uses the product."""
    if len(consumers) != 1 or consumers[0].op_type != "Add":
        return None
    operands = [name for name in consumers[0].input if name != product]
    if len(operands) != 1 or operands[0] not in initializers:
        return None
    return (consumers[0], operands[0]) if len(initializers[operands[0]].dims) == 1 else None


def _consumers(nodes: list[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each value."""
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    return consumers


def _replace_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> bytes:
    """The model with these nodes, and only the tensors that they read."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    used = {name for node in copies for name in node.input}
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)
    del model.graph.value_info[:]  # shapes, also of values that no longer exist
    model.opset_import.append(helper.make_opsetid(_QUANTISED_DOMAIN, 1))
    return model.SerializeToString()


def shifted_graph(graph: bytes, shift: NDArray[np.float32]) -> bytes:
    """The same graph with a constant (width,) added to its output."""
    model = onnx.load_model_from_string(graph)
    unshifted = f"{GRAPH_OUTPUT}_before_shift"
    for node in model.graph.node:
        node.output[:] = [unshifted if name == GRAPH_OUTPUT else name for name in node.output]
    values = np.asarray(shift, np.float32)[None, :]
    constant = numpy_helper.from_array(values, f"{GRAPH_OUTPUT}_shift")
    model.graph.initializer.append(constant)
    model.graph.node.append(helper.make_node("Add", [unshifted, constant.name], [GRAPH_OUTPUT]))
    return model.SerializeToString()

"""Writing the graphs of a packed model folder: what torch computes, without its weights.

Every tensor of the network becomes a reference into the safetensors file. Nothing is folded into
the weights, which would make them other tensors than the file has; ONNX Runtime folds when it loads
a graph, and then runs as fast as with one that was exported with its weights.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from enteron.inference.encoder import ImageBatch
from enteron.inference.graph_model import HEAD_FEATURES, HEAD_LOGITS, HEAD_ROWS
from enteron.inference.graph_weights import ONNX_TYPES, WEIGHTS_FILE
from enteron.inference.onnx_graph import OPSET, NormalisingBackbone, export_graph
from enteron.inference.onnx_runtime import GRAPH_INPUT, GRAPH_OUTPUT
from enteron.inference.static_int8 import int8_graph
from enteron.model.network import Network
from enteron.model.tensor_table import TensorEntry

# Numbers of constants that are folded: arithmetic of shapes and limits, and no weights.
_FOLDED_INPUT, _FOLDED_OUTPUT = 64, 2048
_LARGEST_INLINE = 16_384  # bytes of a tensor that stays in the graph


class _Head(nn.Module):
    """Logits of a study's windows."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return self.network.classify_study(features, rows).logits


def packed_encoder(network: Network, table: Mapping[str, TensorEntry]) -> bytes:
    """The encoder's graph; `table` says where the network's tensors lie in the weights' file."""
    size = network.backbone.spec.preprocessing.size
    model = _export(
        NormalisingBackbone(network.backbone),
        {GRAPH_INPUT: torch.zeros(1, 3, size, size, dtype=torch.uint8)},
        GRAPH_OUTPUT,
        None,
    )
    return _without_weights(model, table, prefix="")


def packed_int8(network: Network, table: Mapping[str, TensorEntry], images: ImageBatch) -> bytes:
    """The encoder's graph with its convolutions in int8, calibrated on images."""
    tensors = network.backbone.state_dict(prefix="backbone.")
    weights = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.ndim == 4}
    model = int8_graph(export_graph(network.backbone), weights, images)
    return _without_weights(model, table, prefix="")


def packed_head(network: Network, table: Mapping[str, TensorEntry]) -> bytes:
    """The head's graph, for studies of any length."""
    frames, width = network.options.frames, network.backbone.spec.width
    examples = {
        HEAD_FEATURES: torch.zeros(7, width),
        HEAD_ROWS: torch.zeros(5, frames, dtype=torch.int64),
    }
    sizes = ({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    model = _export(_Head(network), examples, HEAD_LOGITS, sizes)
    return _without_weights(model, table, prefix="network.")


def _export(
    network: nn.Module,
    examples: Mapping[str, torch.Tensor],
    output: str,
    dynamic_shapes: tuple[dict[int, Any], ...] | None,
) -> onnx.ModelProto:
    from onnxscript import optimizer

    with warnings.catch_warnings(), torch.inference_mode():
        # The exporter uses functions that torch itself has deprecated.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network.eval(),
            tuple(examples.values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(examples),
            output_names=[output],
            dynamic_shapes=dynamic_shapes,
            optimize=False,  # it would fold normalisation into the weights
            verbose=False,
        )
        assert program is not None
        optimizer.fold_constants(
            program.model,
            input_size_limit=_FOLDED_INPUT,
            output_size_limit=_FOLDED_OUTPUT,
            should_fold=_may_fold,
        )
        optimizer.remove_unused_nodes(program.model)
    return program.model_proto


def _may_fold(node: Any) -> bool | None:
    """No for weights, which onnxscript would transpose whatever their size; else its own rule."""
    constants = [value.const_value for value in node.inputs if value is not None]
    weighs = any(tensor is not None and tensor.size > _FOLDED_INPUT for tensor in constants)
    return False if weighs else None


def _without_weights(
    model: onnx.ModelProto, table: Mapping[str, TensorEntry], prefix: str
) -> bytes:
    """The model with its initializers as references; `prefix` is before the tensors' names."""
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    conversions: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        if tensor.name not in used:
            continue
        entry = table.get(tensor.name.removeprefix(prefix))
        if entry is None:
            if tensor.ByteSize() > _LARGEST_INLINE:
                raise AssertionError(f"{tensor.name} is not in the table of the weights")
            initializers.append(tensor)
            continue
        assert tuple(tensor.dims) == entry.shape, tensor.name
        stored = tensor.name
        if ONNX_TYPES[entry.dtype] != tensor.data_type:
            stored = f"{tensor.name}.stored"
            conversions.append(
                helper.make_node("Cast", [stored], [tensor.name], to=tensor.data_type)
            )
        initializers.append(_reference(stored, entry))
    nodes = [*conversions, *graph.node]
    packed = helper.make_graph(
        [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes],
        "enteron",
        list(graph.input),
        list(graph.output),
        initializers,
    )
    for node in packed.node:  # where in the source an operator comes from, with this machine's path
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    result = helper.make_model(
        packed, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )
    result.producer_name = "enteron"
    return result.SerializeToString(deterministic=True)


def _reference(name: str, entry: TensorEntry) -> onnx.TensorProto:
    """A tensor that lies in the weights' file."""
    tensor = TensorProto(name=name, data_type=ONNX_TYPES[entry.dtype], dims=entry.shape)
    tensor.data_location = TensorProto.EXTERNAL
    place = {
        "location": WEIGHTS_FILE,
        "offset": str(entry.begin),
        "length": str(entry.end - entry.begin),
    }
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
    return tensor

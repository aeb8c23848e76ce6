"""A backbone as an ONNX graph that takes one picture's bytes, normalisation included."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import nn

from enteron.errors import EnteronError
from enteron.files import write_bytes, write_text
from enteron.model.backbones import Backbone
from enteron.model.options import BackboneSpec

INPUT, OUTPUT = "squares", "features"
OPSET = 20  # the first with Gelu as one operator


class _Encoding(nn.Module):
    """What an encoder computes, from bytes on."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, squares: torch.Tensor) -> torch.Tensor:
        return self.backbone(self.backbone.spec.preprocessing.normalise(squares))


def export_graph(backbone: Backbone) -> bytes:
    """The graph of squares (1, 3, size, size) uint8 to features (1, 512) float32.

    One picture, of fixed shape: pictures are run side by side on the cores, never joined, so no
    embedding can depend on what it was batched with.
    """
    size = backbone.spec.preprocessing.size
    picture = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.inference_mode():
        # The exporter uses something of torch's that torch has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(
            _Encoding(backbone).eval(),
            (picture,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
    assert program is not None
    return program.model_proto.SerializeToString()


_DOMAIN = "com.microsoft"
# AVX2 adds pairs of uint8 x int8 products in 16 bits with saturation: 2 * 255 * 64 still fits,
# 2 * 255 * 127 does not. Seven bits cost some precision and are right on every machine.
_LARGEST = 64


def quantise_graph(graph: bytes) -> bytes:
    """The same graph with every product of activations and stored weights in int8."""
    model = onnx.load_from_string(graph)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    readers = _readers(nodes)
    gone: set[int] = set()
    made: list[onnx.NodeProto] = []
    for node in nodes:
        if id(node) in gone:
            continue
        weight = stored.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or len(weight.dims) != 2:
            made.append(node)
            continue
        values, scales = quantise_weight(numpy_helper.to_array(weight).astype(np.float32))
        names = [f"{weight.name}.{part}" for part in ("int8", "scale")]
        for name, array in zip(names, (values, scales), strict=True):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        inputs, output = [node.input[0], *names], node.output[0]
        bias = _bias(readers.get(output, []), output, stored)
        if bias is not None:
            add, name = bias
            inputs += ["", name]  # weights are symmetric: no zero point
            output = add.output[0]
            gone.add(id(add))
        made.append(
            helper.make_node("DynamicQuantizeMatMul", inputs, [output], node.name, domain=_DOMAIN)
        )
    return _with_nodes(model, made)


def shifted_graph(graph: bytes, shift: NDArray[np.float32]) -> bytes:
    """The same graph, with a constant (512,) added to what comes out."""
    model = onnx.load_model_from_string(graph)
    before = f"{OUTPUT}_before_shift"
    for node in model.graph.node:
        node.output[:] = [before if name == OUTPUT else name for name in node.output]
    constant = numpy_helper.from_array(np.asarray(shift, np.float32)[None, :], f"{OUTPUT}_shift")
    model.graph.initializer.append(constant)
    model.graph.node.append(helper.make_node("Add", [before, constant.name], [OUTPUT]))
    return model.SerializeToString()


def quantise_weight(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Weights (inputs, outputs) as int8 in [-64, 64], and the scale of each output."""
    scales = np.abs(weight).max(axis=0) / _LARGEST
    scales[scales == 0] = 1  # an output whose weights are all zero
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)


def _bias(
    readers: list[onnx.NodeProto], product: str, stored: dict[str, onnx.TensorProto]
) -> tuple[onnx.NodeProto, str] | None:
    """The addition of a stored vector that is all that follows the product, if it is."""
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    other = [name for name in readers[0].input if name != product]
    if len(other) != 1 or other[0] not in stored or len(stored[other[0]].dims) != 1:
        return None
    return readers[0], other[0]


def _readers(nodes: list[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each value."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def _with_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> bytes:
    """The model with these nodes and only the tensors that they read."""
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)
    del model.graph.value_info[:]  # shapes of values that may be gone
    model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return model.SerializeToString()


_MADE_BY = ("torch", "onnx", "onnxscript", "onnxruntime", "timm")


def cache_folder() -> Path:
    """`ENTERON_CACHE`, else `XDG_CACHE_HOME/enteron`, else `~/.cache/enteron`."""
    own = os.environ.get("ENTERON_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "enteron"


def graph_key(spec: BackboneSpec, backbone_hash: str, kind: str) -> str:
    """Names a graph by everything it depends on.

    The specification is part of it because weights alone do not tell how many heads share them.
    """
    facts = {
        "backbone": backbone_hash,
        "spec": spec.model_dump(mode="json"),
        "kind": kind,
        "versions": {name: _version(name) for name in _MADE_BY},
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{spec.name}-{kind}-{digest[:24]}"


def cached_graph(key: str, build: Callable[[], bytes]) -> bytes:
    """The stored graph, or a new one, stored if the folder allows it."""
    folder = cache_folder()
    path, seal = folder / f"{key}.onnx", folder / f"{key}.sha256"
    try:
        graph = path.read_bytes()
        if hashlib.sha256(graph).hexdigest() == seal.read_text(encoding="utf-8").strip():
            return graph
    except (OSError, UnicodeDecodeError):
        pass  # not there, or not readable: built again
    graph = build()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, graph)
        write_text(seal, hashlib.sha256(graph).hexdigest() + "\n")
    except (OSError, EnteronError):
        pass  # without a cache the next run exports again, which is all that is lost
    return graph


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"

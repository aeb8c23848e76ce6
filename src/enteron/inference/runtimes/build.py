"""An encoder by the name of its runtime."""

import os
from collections.abc import Callable

from enteron.errors import EnteronError, nearest
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes.cache import cached_graph, graph_key
from enteron.model.backbone import Backbone

_DRIFT_PICTURES = 16  # on which int8's common drift is measured


def build_encoder(backbone: Backbone, runtime: str, threads: int) -> Encoder:
    """The encoder of one runtime, exported and quantised where it needs that."""
    if runtime not in _BUILDERS:
        raise EnteronError(
            f"there is no runtime '{runtime}'", nearest(runtime, ("auto", "exact", *NAMES))
        )
    return _BUILDERS[runtime](backbone, threads)


def usable_threads(threads: int | None) -> int:
    """The threads that were asked for, or one for every core that this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0))
    if threads < 1:
        raise EnteronError(f"an encoder cannot run on {threads} threads", "give at least 1")
    return threads


def _torch(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.torch_runtime import TorchEncoder

    return TorchEncoder(backbone, threads)


def _torch_int8(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.torch_int8 import TorchInt8Encoder

    return TorchInt8Encoder(backbone, threads)


def _onnx(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.onnx_runtime import OnnxEncoder

    weights = backbone.hash()
    graph = _fp32_graph(backbone, weights)
    return OnnxEncoder(graph, "onnx", weights, backbone.spec.preprocessing, threads)


def _onnx_int8(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.onnx_runtime import OnnxEncoder
    from enteron.inference.runtimes.quantise import quantise_graph

    if backbone.spec.name == "lite":
        raise EnteronError(
            "runtime 'onnx-int8' quantises linear layers, and 'lite' is made of convolutions",
            "use --runtime onnx, its fastest",
        )
    weights = backbone.hash()
    graph = cached_graph(
        graph_key(backbone.spec, weights, "int8-shifted"),
        lambda: _without_common_drift(
            backbone, quantise_graph(_fp32_graph(backbone, weights)), weights, threads
        ),
    )
    return OnnxEncoder(graph, "onnx-int8", weights, backbone.spec.preprocessing, threads)


def _without_common_drift(backbone: Backbone, graph: bytes, weights: str, threads: int) -> bytes:
    """Most of what int8 does to embeddings is the same for all pictures: taken off again.

    It is measured on synthetic pictures. On others the constant may fit less well, which the trial
    of `auto`, on the study's own pictures, would show.
    """
    from enteron.inference.runtimes.onnx_runtime import OnnxEncoder
    from enteron.inference.runtimes.quantise import shifted_graph
    from enteron.inference.runtimes.samples import phantom_squares

    preprocessing = backbone.spec.preprocessing
    pictures = phantom_squares(preprocessing, _DRIFT_PICTURES)
    found = OnnxEncoder(graph, "onnx-int8", weights, preprocessing, threads).encode(pictures)
    exact = _torch(backbone, threads).encode(pictures)
    return shifted_graph(graph, (exact - found).mean(axis=0))


def _openvino(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.openvino_runtime import OpenvinoEncoder

    weights = backbone.hash()
    graph = _fp32_graph(backbone, weights)
    return OpenvinoEncoder(graph, weights, backbone.spec.preprocessing, threads)


def _cuda(runtime: str) -> Callable[[Backbone, int], Encoder]:
    def build(backbone: Backbone, threads: int) -> Encoder:
        from enteron.inference.runtimes.cuda import CudaEncoder

        return CudaEncoder(backbone, runtime)

    return build


def _fp32_graph(backbone: Backbone, weights: str) -> bytes:
    from enteron.inference.runtimes.export import export_graph

    return cached_graph(graph_key(backbone.spec, weights, "fp32"), lambda: export_graph(backbone))


_BUILDERS: dict[str, Callable[[Backbone, int], Encoder]] = {
    "torch": _torch,
    "torch-int8": _torch_int8,
    "onnx": _onnx,
    "onnx-int8": _onnx_int8,
    "openvino": _openvino,
    "cuda-fp16": _cuda("cuda-fp16"),
    "cuda-bf16": _cuda("cuda-bf16"),
}
NAMES = tuple(_BUILDERS)
"""Every runtime that can be asked for by name."""

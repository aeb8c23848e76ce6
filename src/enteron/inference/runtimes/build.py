"""An encoder by the name of its runtime."""

import os
from collections.abc import Callable

from enteron.errors import EnteronError, nearest
from enteron.inference.encoder import Encoder
from enteron.model.backbone import Backbone

RUNTIMES = ("torch", "onnx")
"""Every runtime that can be asked for by name."""


def build_encoder(backbone: Backbone, runtime: str, threads: int) -> Encoder:
    """The encoder of one runtime, exported and quantised where it needs that."""
    builders: dict[str, Callable[[Backbone, int], Encoder]] = {
        "torch": _torch,
        "onnx": _onnx,
    }
    if runtime not in builders:
        raise EnteronError(f"there is no runtime '{runtime}'", nearest(runtime, RUNTIMES))
    return builders[runtime](backbone, threads)


def usable_threads(threads: int | None) -> int:
    """The threads that were asked for, or one for every core this process may use."""
    if threads is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if threads < 1:
        raise EnteronError(f"an encoder cannot run on {threads} threads", "give at least 1")
    return threads


def _torch(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.torch_runtime import TorchEncoder

    return TorchEncoder(backbone, threads)


def _onnx(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.runtimes.cache import cached_graph, graph_key
    from enteron.inference.runtimes.export import export_graph
    from enteron.inference.runtimes.onnx_runtime import OnnxEncoder

    backbone_hash = backbone.hash()
    key = graph_key(backbone.spec, backbone_hash, "onnx")
    graph = cached_graph(key, lambda: export_graph(backbone))
    return OnnxEncoder(graph, "onnx", backbone_hash, backbone.spec.preprocessing, threads)

"""Which runtime encodes: one by name, the exact one, or the fastest that is near enough."""

from enteron.inference.encoder import Encoder, Squares
from enteron.inference.runtimes.build import build_encoder, usable_threads
from enteron.model.backbone import Backbone

EXACT = "torch"


def make_encoder(
    backbone: Backbone,
    runtime: str = "auto",
    *,
    threads: int | None = None,
    samples: Squares | None = None,
) -> Encoder:
    """An encoder: `exact`, a runtime by name, or `auto`, which tries them on the samples."""
    if runtime == "auto":
        runtime = default_runtime(backbone)
    name = EXACT if runtime == "exact" else runtime
    return build_encoder(backbone, name, usable_threads(threads))


def default_runtime(backbone: Backbone) -> str:
    """`onnx` for convolutions, which eager torch runs slowly on a CPU; `torch` for ViTs."""
    return "onnx" if backbone.spec.name == "lite" else EXACT

"""Which runtime encodes: one by name, the exact one, or the fastest that is near enough."""

from enteron.inference.encoder import Encoder, Squares
from enteron.inference.runtimes.build import build_encoder, usable_threads
from enteron.inference.runtimes.trial import Choice, Limits, compare
from enteron.model.backbone import Backbone

EXACT = "torch"
_PICTURES = 4  # of a trial; some seconds with a ViT-B/16 on two cores


def make_encoder(
    backbone: Backbone,
    runtime: str = "auto",
    *,
    threads: int | None = None,
    samples: Squares | None = None,
) -> Encoder:
    """An encoder: `exact`, a runtime by name, or `auto`, which is `choose`'s."""
    if runtime == "auto":
        return choose(backbone, threads=threads, samples=samples).encoder
    name = EXACT if runtime == "exact" else runtime
    return build_encoder(backbone, name, usable_threads(threads))


def default_runtime(backbone: Backbone) -> str:
    """What encodes where nothing is said; its embeddings are exact, or differ by rounding.

    Convolutions run several times as fast in ONNX Runtime's fp32 as in eager torch on a CPU.
    """
    return "onnx" if backbone.spec.name == "lite" else EXACT


def choose(
    backbone: Backbone,
    *,
    threads: int | None = None,
    samples: Squares | None = None,
    limits: Limits | None = None,
) -> Choice:
    """Try the candidates of this machine on a few squares, and choose by speed and drift.

    `samples` are squares of the study that will be encoded; without any, synthetic ones are drawn.
    """
    if samples is None:
        from enteron.inference.runtimes.samples import phantom_squares

        samples = phantom_squares(backbone.spec.preprocessing, _PICTURES)
    count = usable_threads(threads)
    exact, *others = (build_encoder(backbone, name, count) for name in candidates(backbone))
    return compare(exact, others, samples[:_PICTURES], limits)


def candidates(backbone: Backbone) -> tuple[str, ...]:
    """The runtimes worth trying here, the exact one first, then by preference.

    For ViTs fp32 elsewhere is no faster than torch, and holds the weights more than once.
    `torch-int8` is never tried: its embeddings depend on the pictures beside them.
    """
    import torch

    from enteron.inference.runtimes.openvino_runtime import openvino_installed

    if torch.cuda.is_available():
        return (EXACT, "cuda-fp16", "cuda-bf16")
    if backbone.spec.name != "lite":
        return (EXACT, "onnx-int8")
    return (EXACT, "onnx", "openvino") if openvino_installed() else (EXACT, "onnx")

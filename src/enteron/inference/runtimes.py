"""Runtimes of a backbone: torch, which is exact, and faster ones with a measured drift.

`make_encoder` builds a runtime by name. `auto` tries the candidates of this machine on a few
images and chooses by speed and drift (`choose`).
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enteron.errors import EnteronError, ModelError, nearest
from enteron.inference.accelerator import Accelerator, uses_cuda
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.graph_model import GraphBackbone
from enteron.model.preprocessing import Preprocessing
from enteron.options import Options

if TYPE_CHECKING:  # torch is imported by the runtimes that need it
    from enteron.inference.onnx_runtime import MapEncoder
    from enteron.model.backbones import Backbone

    AnyBackbone = Backbone | GraphBackbone

EXACT = "torch"
"""The runtime that every other one is compared with."""

CUDA = "cuda"
"""fp32 on a CUDA card: what is used there when no runtime is named."""

_TRIAL_IMAGES = 4  # of a trial; some seconds with a ViT-B/16 on two cores


def make_encoder(
    backbone: "AnyBackbone",
    runtime: str = "auto",
    *,
    threads: int | None = None,
    samples: ImageBatch | None = None,
    accelerator: Accelerator = "auto",
) -> Encoder:
    """An encoder: `exact`, a runtime by name, or `auto`, the one that `choose` chooses."""
    if runtime == "auto":
        choice = choose(backbone, threads=threads, samples=samples, accelerator=accelerator)
        return choice.encoder
    name = EXACT if runtime == "exact" else runtime
    return build_encoder(backbone, name, usable_threads(threads))


def default_runtime(backbone: "AnyBackbone", accelerator: Accelerator = "auto") -> str:
    """The runtime used when none is named; its embeddings are exact, or differ by rounding.

    Convolutions run several times as fast in ONNX Runtime's fp32 as in eager torch on a CPU.
    """
    if uses_cuda(accelerator):
        return CUDA
    stored = isinstance(backbone, GraphBackbone)
    return "onnx" if stored or backbone.spec.name == "lite" else EXACT


def usable_threads(threads: int | None) -> int:
    """The given number of threads, or one for every core that this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0))
    if threads < 1:
        raise EnteronError(f"an encoder cannot run on {threads} threads", "give at least 1")
    return threads


def candidate_runtimes(
    backbone: "AnyBackbone", accelerator: Accelerator = "auto"
) -> tuple[str, ...]:
    """The runtimes worth trying on this machine: the exact one first, then by preference.

    The stored graph of a packed model is its exact runtime, unless a card is used. For ViTs fp32
    elsewhere is no faster than torch, and holds the weights more than once. `torch-int8` is never
    tried: its embeddings depend on the other images of a batch.
    """
    from enteron.inference.onnx_runtime import openvino_installed

    if uses_cuda(accelerator):
        return (EXACT, CUDA, "cuda-fp16", "cuda-bf16")
    if isinstance(backbone, GraphBackbone):
        return ("onnx",) if backbone.int8 is None else ("onnx", "onnx-int8")
    if backbone.spec.name != "lite":
        return (EXACT, "onnx-int8")
    return (EXACT, "onnx", "openvino") if openvino_installed() else (EXACT, "onnx")


# ---- trial images

TRIAL_FILE = Path(__file__).with_name("trial_pictures.webp")  # lossless
STORED_IMAGES = 8
STORED_SIZE = 224  # pixels; four pictures to a row of the file


def trial_images(preprocessing: Preprocessing, count: int = STORED_IMAGES) -> ImageBatch:
    """Up to eight stored images (count, 3, size, size), for trials without a study.

    They are synthetic frames of all five regions; `benchmarks/trial_pictures.py` drew them once.
    """
    import cv2

    mosaic = cv2.imdecode(np.fromfile(TRIAL_FILE, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert mosaic is not None
    size = STORED_SIZE
    tiles = mosaic.reshape(-1, size, mosaic.shape[1] // size, size, 3).swapaxes(1, 2)
    pictures = tiles.reshape(STORED_IMAGES, size, size, 3)
    spread = np.arange(count) * STORED_IMAGES // count  # over all regions
    return np.stack([preprocessing.resize_and_crop(picture) for picture in pictures[spread]])


# ---- building an encoder


def build_encoder(backbone: "AnyBackbone", runtime: str, threads: int) -> Encoder:
    """The encoder of one runtime, exported and quantised where needed."""
    if runtime not in _BUILDERS:
        raise EnteronError(
            f"there is no runtime '{runtime}'", nearest(runtime, ("auto", "exact", *RUNTIMES))
        )
    return _BUILDERS[runtime](backbone, threads)


def make_map_encoder(backbone: "Backbone", *, threads: int | None = None) -> "MapEncoder":
    """An encoder of the maps that local evidence is fitted on."""
    from enteron.inference.onnx_graph import export_maps_graph
    from enteron.inference.onnx_runtime import MapEncoder

    graph = export_maps_graph(backbone)
    return MapEncoder(graph, backbone.spec.preprocessing, usable_threads(threads))


def _in_torch(backbone: "AnyBackbone") -> "Backbone":
    """The backbone with its weights in torch; that of a packed model is loaded."""
    return backbone.load() if isinstance(backbone, GraphBackbone) else backbone


def _build_torch(backbone: "AnyBackbone", threads: int) -> Encoder:
    backbone = _in_torch(backbone)  # first: without torch it says so
    from enteron.inference.torch_runtime import TorchEncoder

    return TorchEncoder(backbone, threads)


def _build_torch_int8(backbone: "AnyBackbone", threads: int) -> Encoder:
    backbone = _in_torch(backbone)  # first: without torch it says so
    from enteron.inference.torch_runtime import TorchInt8Encoder

    return TorchInt8Encoder(backbone, threads)


def _build_onnx(backbone: "AnyBackbone", threads: int) -> Encoder:
    from enteron.inference.onnx_runtime import OnnxEncoder

    if isinstance(backbone, GraphBackbone):
        return backbone.encoder(threads)
    backbone_hash = backbone.hash()
    graph = _fp32_graph(backbone, backbone_hash)
    return OnnxEncoder(graph, "onnx", backbone_hash, backbone.spec.preprocessing, threads)


def _build_onnx_int8(backbone: "AnyBackbone", threads: int) -> Encoder:
    from enteron.inference.graph_cache import cached_graph, graph_key
    from enteron.inference.onnx_runtime import OnnxEncoder

    if isinstance(backbone, GraphBackbone) and backbone.spec.name == "lite":
        return backbone.int8_encoder(threads)
    if backbone.spec.name == "lite":
        raise EnteronError(
            "runtime 'onnx-int8' of 'lite' needs pictures to be calibrated on",
            "pack the model with `enteron pack --int8 DATA`, or use --runtime onnx",
        )
    backbone = _in_torch(backbone)
    backbone_hash = backbone.hash()
    graph = cached_graph(
        graph_key(backbone.spec, backbone_hash, "int8-shifted"),
        lambda: _int8_graph(backbone, backbone_hash, threads),
        lambda graph: _is_faithful(graph, backbone, _INT8_DRIFT),
    )
    return OnnxEncoder(graph, "onnx-int8", backbone_hash, backbone.spec.preprocessing, threads)


def _int8_graph(backbone: "Backbone", backbone_hash: str, threads: int) -> bytes:
    """The quantised graph, without the part of its drift that all images have in common.

    Most of the drift of int8 is the same for every image. It is measured on the trial images and
    subtracted. On other images the constant may fit less well; the trial of `auto`, on images of
    the study itself, shows whether it does.
    """
    from enteron.inference.onnx_graph import quantise_graph, shifted_graph
    from enteron.inference.onnx_runtime import OnnxEncoder

    graph = quantise_graph(_fp32_graph(backbone, backbone_hash))
    preprocessing = backbone.spec.preprocessing
    images = trial_images(preprocessing)
    quantised = OnnxEncoder(graph, "onnx-int8", backbone_hash, preprocessing, threads)
    difference = _build_torch(backbone, threads).encode(images) - quantised.encode(images)
    return shifted_graph(graph, difference.mean(axis=0))


def _build_tome(runtime: str) -> "Callable[[AnyBackbone, int], Encoder]":
    def build(backbone: "AnyBackbone", threads: int) -> Encoder:
        backbone = _in_torch(backbone)  # first: without torch it says so
        from enteron.inference.graph_cache import cached_graph, graph_key
        from enteron.inference.onnx_graph import export_graph
        from enteron.inference.onnx_runtime import OnnxEncoder
        from enteron.inference.torch_runtime import TorchEncoder
        from enteron.model.token_merging import MERGED, merging_backbone

        merging = merging_backbone(backbone)
        backbone_hash = backbone.hash()
        in_torch = TorchEncoder(merging, threads)
        in_torch.runtime, in_torch.backbone_hash = "torch-tome", backbone_hash
        _require_little_drift(in_torch, _build_torch(backbone, threads))
        if runtime == "torch-tome":
            return in_torch
        graph = cached_graph(
            graph_key(backbone.spec, backbone_hash, f"fp32-tome-{MERGED}"),
            lambda: export_graph(merging),
            lambda graph: _is_faithful(graph, merging, _FP32_DRIFT),
        )
        return OnnxEncoder(graph, runtime, backbone_hash, backbone.spec.preprocessing, threads)

    return build


def _require_little_drift(encoder: Encoder, exact: Encoder) -> None:
    """Refuse merged tokens that move embeddings of the trial images beyond the limits of `auto`."""
    images = trial_images(encoder.preprocessing, _TRIAL_IMAGES)
    measured = drift(encoder.encode(images), exact.encode(images))
    if not _within(measured, TOKEN_LIMITS, TOKEN_LIMITS.of_spread):
        raise ModelError(
            f"merging tokens moves this model's embeddings too far (worst cosine "
            f"{measured.cosine:.3f}, {measured.of_spread:.2f} of their spread)",
            "use --runtime onnx-int8, or exact",
        )


def _build_openvino(backbone: "AnyBackbone", threads: int) -> Encoder:
    from enteron.inference.onnx_runtime import OpenvinoEncoder

    backbone = _in_torch(backbone)
    backbone_hash = backbone.hash()
    graph = _fp32_graph(backbone, backbone_hash)
    return OpenvinoEncoder(graph, backbone_hash, backbone.spec.preprocessing, threads)


def _build_cuda(runtime: str) -> "Callable[[AnyBackbone, int], Encoder]":
    def build(backbone: "AnyBackbone", threads: int) -> Encoder:
        backbone = _in_torch(backbone)  # first: without torch it says so
        from enteron.inference.torch_runtime import CudaEncoder

        return CudaEncoder(backbone, runtime)

    return build


def _fp32_graph(backbone: "Backbone", backbone_hash: str) -> bytes:
    from enteron.inference.graph_cache import cached_graph, graph_key
    from enteron.inference.onnx_graph import export_graph

    return cached_graph(
        graph_key(backbone.spec, backbone_hash, "fp32"),
        lambda: export_graph(backbone),
        lambda graph: _is_faithful(graph, backbone, _FP32_DRIFT),
    )


# Drift, as a share of the spread, at which a graph from the cache is not this backbone's. Rounding
# gives about 1e-6; int8 some 0.1; another backbone more than 1.
_FP32_DRIFT = 1e-3
_INT8_DRIFT = 0.5
_CHECKED_IMAGES = 3


def _is_faithful(graph: bytes, backbone: "Backbone", largest_drift: float) -> bool:
    """Whether a graph from the cache encodes pictures as the backbone does.

    The pictures are shifted by a random distance each time, so that no graph can know them. Any
    failure counts as no: the graph is then built again.
    """
    from enteron.inference.onnx_runtime import OnnxEncoder

    preprocessing = backbone.spec.preprocessing
    images = trial_images(preprocessing, _CHECKED_IMAGES)
    shift = tuple(int(n) for n in np.random.default_rng().integers(preprocessing.size, size=2))
    images = np.ascontiguousarray(np.roll(images, shift, axis=(2, 3)))
    try:
        features = OnnxEncoder(graph, "onnx", "", preprocessing, 1).encode(images)
    except Exception:  # ONNX Runtime's own exceptions have no common base
        return False
    exact = _build_torch(backbone, usable_threads(None)).encode(images)
    measured = drift(features, exact)
    return measured.largest == 0 or measured.of_spread <= largest_drift


_BUILDERS: "dict[str, Callable[[AnyBackbone, int], Encoder]]" = {
    "torch": _build_torch,
    "torch-int8": _build_torch_int8,
    "onnx": _build_onnx,
    "onnx-int8": _build_onnx_int8,
    "torch-tome": _build_tome("torch-tome"),
    "onnx-tome": _build_tome("onnx-tome"),
    "openvino": _build_openvino,
    CUDA: _build_cuda(CUDA),
    "cuda-fp16": _build_cuda("cuda-fp16"),
    "cuda-bf16": _build_cuda("cuda-bf16"),
}
RUNTIMES = tuple(_BUILDERS)
"""Every runtime that has a name."""


# ---- drift


@dataclass(frozen=True)
class Drift:
    """Distances between two sets of embeddings of the same images."""

    cosine: float
    """The lowest cosine of any image; 1 is no change of direction."""

    largest: float
    """The largest difference of any number, in the unit of the embeddings."""

    of_spread: float
    """Root mean square of the differences, as a share of the spread of the exact embeddings.

    Cosines are near 1 for any encoder whose embeddings share a large mean; this measure is not.
    NaN where all images have the same embedding.
    """


def drift(features: Features, exact: Features) -> Drift:
    """The drift of embeddings (n, 512) from the exact ones of the same n >= 1 images."""
    if features.shape != exact.shape or not len(exact):
        raise ModelError(
            f"embeddings of shape {features.shape} cannot be compared with {exact.shape}",
            "give the embeddings of the same images, at least one",
        )
    measured, reference = features.astype(np.float64), exact.astype(np.float64)
    if not np.isfinite(measured).all():
        return Drift(cosine=np.nan, largest=np.inf, of_spread=np.inf)
    lengths = np.linalg.norm(measured, axis=1) * np.linalg.norm(reference, axis=1)
    # Two embeddings of length 0 are equal: cosine 1. If only one has length 0, the cosine is 0.
    equal = (measured == reference).all(axis=1)
    products = (measured * reference).sum(axis=1)
    cosines = np.divide(products, lengths, out=equal * 1.0, where=lengths > 0)
    error = np.square(measured - reference).sum()
    spread = np.square(reference - reference.mean(axis=0)).sum()
    return Drift(
        cosine=float(cosines.min()),
        largest=float(np.abs(measured - reference).max()),
        of_spread=float(np.sqrt(error / spread)) if spread > 0 else np.nan,
    )


# ---- choosing

Clock = Callable[[], float]


class Limits(Options):
    """When a runtime may replace the exact one."""

    cosine: float = 0.995
    """The lowest cosine that any image's embedding may have with its exact one."""

    of_spread: float = 0.2
    """The largest drift, as a share of the spread of the embeddings."""

    rounding: float = 1e-3
    """The largest drift, as a share of the spread, that counts as rounding."""

    speedup: float = 1.2
    """How many times as fast a runtime must be to replace one that comes before it.

    Otherwise chance would decide between equals, and a study could get another runtime in each
    run.
    """

    rounds: int = 3
    """How often each runtime is timed, in turns; the median counts."""

    too_slow: float = 2.0
    """A runtime this many times as slow as the fastest in the first round is not timed again."""


TOKEN_LIMITS = Limits()
"""What merged tokens must keep to, also where their runtime is named."""


@dataclass(frozen=True)
class Trial:
    """How one runtime did."""

    runtime: str
    rate: float  # images per second
    ratio: float  # of its rate to that of the exact runtime
    drift: Drift
    verdict: str


@dataclass(frozen=True)
class Choice:
    """The chosen runtime, and the trials behind the choice."""

    encoder: Encoder
    reason: str
    trials: tuple[Trial, ...]

    @property
    def runtime(self) -> str:
        """The name of the chosen runtime."""
        return self.encoder.runtime

    def table(self) -> str:
        """The trials in Markdown, one row each."""
        head = "| runtime | frames/s | ratio | cosine | largest | of spread | verdict |"
        rows = [
            f"| {t.runtime} | {t.rate:.1f} | {t.ratio:.2f} | {t.drift.cosine:.5f} "
            f"| {t.drift.largest:.1e} | {t.drift.of_spread:.1e} | {t.verdict} |"
            for t in self.trials
        ]
        return "\n".join([head, "|---|---:|---:|---:|---:|---:|---|", *rows])


def choose(
    backbone: "AnyBackbone",
    *,
    threads: int | None = None,
    samples: ImageBatch | None = None,
    limits: Limits | None = None,
    accelerator: Accelerator = "auto",
) -> Choice:
    """Try the candidates of this machine on a few images, and choose by speed and drift.

    `samples` are images of the study that will be encoded; without any, stored ones are used.
    """
    if samples is None:
        samples = trial_images(backbone.spec.preprocessing, _TRIAL_IMAGES)
    count = usable_threads(threads)
    names = candidate_runtimes(backbone, accelerator)
    exact, *others = (build_encoder(backbone, name, count) for name in names)
    return compare(exact, others, samples[:_TRIAL_IMAGES], limits)


def compare(
    exact: Encoder,
    others: Sequence[Encoder],
    images: ImageBatch,
    limits: Limits | None = None,
    clock: Clock = time.perf_counter,
) -> Choice:
    """Try the exact encoder and the others on the same images (n >= 1), and choose."""
    if not len(images):
        raise EnteronError("there are no images to try runtimes on", "give at least one")
    limits = limits or Limits()
    encoders = {encoder.runtime: encoder for encoder in (exact, *others)}
    # The first pass also warms up: kernels are selected and memory is allocated.
    features = {name: encoder.encode(images) for name, encoder in encoders.items()}
    drifts = {name: drift(rows, features[exact.runtime]) for name, rows in features.items()}
    seconds = _median_seconds(encoders, images, limits, clock)
    return _decide(encoders, exact, len(images), drifts, seconds, limits)


def _median_seconds(
    encoders: Mapping[str, Encoder], images: ImageBatch, limits: Limits, clock: Clock
) -> dict[str, float]:
    """Median seconds of each, timed in turns so that other load on the machine slows all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for turn in range(limits.rounds):
        fastest = min((times[0] for times in seconds.values() if times), default=0.0)
        for name, encoder in encoders.items():
            if turn and seconds[name][0] > limits.too_slow * fastest:
                continue
            start = clock()
            encoder.encode(images)
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _decide(
    encoders: Mapping[str, Encoder],
    exact: Encoder,
    count: int,
    drifts: Mapping[str, Drift],
    seconds: Mapping[str, float],
    limits: Limits,
) -> Choice:
    rounding_only = [n for n in encoders if _within(drifts[n], limits, limits.rounding)]
    drifting = [
        name
        for name in encoders
        if name not in rounding_only and _within(drifts[name], limits, limits.of_spread)
    ]
    chosen = exact.runtime
    for name in rounding_only + drifting:
        if seconds[chosen] >= limits.speedup * seconds[name]:
            chosen = name
    verdicts = dict.fromkeys(encoders, "refused: drift")
    for name in rounding_only + drifting:
        verdicts[name] = "slower" if seconds[name] > seconds[chosen] else "hardly faster"
    verdicts[chosen] = "chosen"
    trials = tuple(
        Trial(
            runtime=name,
            rate=count / seconds[name],
            ratio=seconds[exact.runtime] / seconds[name],
            drift=drifts[name],
            verdict=verdicts[name],
        )
        for name in encoders
    )
    if chosen == exact.runtime:
        reason = f"{chosen}: exact; no faster runtime is close enough to it on this machine"
    else:
        ratio = seconds[exact.runtime] / seconds[chosen]
        reason = f"{chosen}: {ratio:.1f} times as fast as {exact.runtime} on this machine, "
        if chosen in rounding_only:
            reason += "and equal to it up to rounding"
        else:
            reason += f"with a cosine to its embeddings of at least {drifts[chosen].cosine:.4f}"
    return Choice(encoders[chosen], reason, trials)


def _within(measured: Drift, limits: Limits, of_spread: float) -> bool:
    # A single image has no spread: then the cosine alone decides.
    return measured.cosine >= limits.cosine and not measured.of_spread > of_spread

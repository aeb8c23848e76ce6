"""What runs a backbone: torch, which is exact, and the runtimes that are faster on a machine."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from enteron.errors import EnteronError, ModelError, nearest
from enteron.inference.encoder import Encoder, Features, Squares
from enteron.inference.onnx_graph import cached_graph, graph_key
from enteron.model.backbones import Backbone
from enteron.options import Options

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
    from enteron.inference.torch_runtime import TorchEncoder

    return TorchEncoder(backbone, threads)


def _torch_int8(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.torch_runtime import TorchInt8Encoder

    return TorchInt8Encoder(backbone, threads)


def _onnx(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.onnx_runtime import OnnxEncoder

    weights = backbone.hash()
    graph = _fp32_graph(backbone, weights)
    return OnnxEncoder(graph, "onnx", weights, backbone.spec.preprocessing, threads)


def _onnx_int8(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.onnx_graph import quantise_graph
    from enteron.inference.onnx_runtime import OnnxEncoder

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
    from enteron.inference.onnx_graph import shifted_graph
    from enteron.inference.onnx_runtime import OnnxEncoder
    from enteron.inference.trial_pictures import phantom_squares

    preprocessing = backbone.spec.preprocessing
    pictures = phantom_squares(preprocessing, _DRIFT_PICTURES)
    found = OnnxEncoder(graph, "onnx-int8", weights, preprocessing, threads).encode(pictures)
    exact = _torch(backbone, threads).encode(pictures)
    return shifted_graph(graph, (exact - found).mean(axis=0))


def _openvino(backbone: Backbone, threads: int) -> Encoder:
    from enteron.inference.onnx_runtime import OpenvinoEncoder

    weights = backbone.hash()
    graph = _fp32_graph(backbone, weights)
    return OpenvinoEncoder(graph, weights, backbone.spec.preprocessing, threads)


def _cuda(runtime: str) -> Callable[[Backbone, int], Encoder]:
    def build(backbone: Backbone, threads: int) -> Encoder:
        from enteron.inference.torch_runtime import CudaEncoder

        return CudaEncoder(backbone, runtime)

    return build


def _fp32_graph(backbone: Backbone, weights: str) -> bytes:
    from enteron.inference.onnx_graph import export_graph

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


@dataclass(frozen=True)
class Drift:
    """Distances between two sets of embeddings, row by row."""

    cosine: float
    """Of the picture whose direction changed most; 1 is none."""

    largest: float
    """The largest difference of any number, in the unit of the embeddings."""

    of_spread: float
    """Root mean square of the differences, as a share of how far pictures lie apart.

    Cosines are near 1 for any encoder whose embeddings share a large mean; this one is not fooled
    by that. Not a number where all pictures have the same embedding.
    """


def drift(features: Features, exact: Features) -> Drift:
    """The drift of embeddings (n, 512) from the exact ones of the same n >= 1 pictures."""
    if features.shape != exact.shape or not len(exact):
        raise ModelError(
            f"embeddings of shape {features.shape} cannot be compared with {exact.shape}",
            "give the embeddings of the same pictures, at least one",
        )
    ours, theirs = features.astype(np.float64), exact.astype(np.float64)
    if not np.isfinite(ours).all():
        return Drift(cosine=np.nan, largest=np.inf, of_spread=np.inf)
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    # Two embeddings of length 0 are the same one; only one of them being 0 is any direction.
    same = (ours == theirs).all(axis=1)
    cosines = np.divide((ours * theirs).sum(axis=1), lengths, out=same * 1.0, where=lengths > 0)
    error = np.square(ours - theirs).sum()
    spread = np.square(theirs - theirs.mean(axis=0)).sum()
    return Drift(
        cosine=float(cosines.min()),
        largest=float(np.abs(ours - theirs).max()),
        of_spread=float(np.sqrt(error / spread)) if spread > 0 else np.nan,
    )


Clock = Callable[[], float]


class Limits(Options):
    """When a runtime may stand in for the exact one."""

    cosine: float = 0.995
    """The least cosine that any picture's embedding may have with its exact one."""

    of_spread: float = 0.2
    """The largest drift, as a share of how far the pictures' embeddings lie apart."""

    rounding: float = 1e-3
    """A drift, as a share of the same, up to which it is rounding and nothing else."""

    worth: float = 1.2
    """How many times as fast a runtime must be to be taken instead of one before it in the list.

    Ties would otherwise be decided by chance, and a study by another runtime from run to run.
    """

    rounds: int = 3
    """How often each is timed, in turns; the median counts."""

    hopeless: float = 2.0
    """Who takes this many times as long as the fastest in the first round is not timed again."""


@dataclass(frozen=True)
class Trial:
    """How one runtime did."""

    runtime: str
    rate: float  # pictures a second
    ratio: float  # of its rate to that of the exact runtime
    drift: Drift
    verdict: str


@dataclass(frozen=True)
class Choice:
    """Which runtime was chosen, and the trials it was chosen by."""

    encoder: Encoder
    reason: str
    trials: tuple[Trial, ...]

    @property
    def runtime(self) -> str:
        """The name of the chosen one."""
        return self.encoder.runtime

    def table(self) -> str:
        """The trials in Markdown, a row each."""
        head = "| runtime | frames/s | ratio | cosine | largest | of spread | verdict |"
        rows = [
            f"| {t.runtime} | {t.rate:.1f} | {t.ratio:.2f} | {t.drift.cosine:.5f} "
            f"| {t.drift.largest:.1e} | {t.drift.of_spread:.1e} | {t.verdict} |"
            for t in self.trials
        ]
        return "\n".join([head, "|---|---:|---:|---:|---:|---:|---|", *rows])


def compare(
    exact: Encoder,
    others: Sequence[Encoder],
    squares: Squares,
    limits: Limits | None = None,
    clock: Clock = time.perf_counter,
) -> Choice:
    """Try the exact encoder and the others on the same squares (n >= 1), and choose."""
    if not len(squares):
        raise EnteronError("there are no pictures to try runtimes on", "give at least one")
    limits = limits or Limits()
    candidates = {encoder.runtime: encoder for encoder in (exact, *others)}
    # The first pass gives the embeddings, and warms up: kernels are chosen, memory is fetched.
    features = {name: encoder.encode(squares) for name, encoder in candidates.items()}
    drifts = {name: drift(found, features[exact.runtime]) for name, found in features.items()}
    seconds = _seconds(candidates, squares, limits, clock)
    return _decide(candidates, exact, len(squares), drifts, seconds, limits)


def _seconds(
    candidates: Mapping[str, Encoder], squares: Squares, limits: Limits, clock: Clock
) -> dict[str, float]:
    """Median seconds of each; in turns, so that another load on the machine hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(limits.rounds):
        fastest = min((times[0] for times in found.values() if times), default=0.0)
        for name, encoder in candidates.items():
            if turn and found[name][0] > limits.hopeless * fastest:
                continue
            begin = clock()
            encoder.encode(squares)
            found[name].append(clock() - begin)
    return {name: statistics.median(times) for name, times in found.items()}


def _decide(
    candidates: Mapping[str, Encoder],
    exact: Encoder,
    count: int,
    drifts: Mapping[str, Drift],
    seconds: Mapping[str, float],
    limits: Limits,
) -> Choice:
    faithful = [name for name in candidates if _is_within(drifts[name], limits, limits.rounding)]
    allowed = [
        name
        for name in candidates
        if name not in faithful and _is_within(drifts[name], limits, limits.of_spread)
    ]
    chosen = exact.runtime
    for name in faithful + allowed:
        if seconds[chosen] >= limits.worth * seconds[name]:
            chosen = name
    verdicts = dict.fromkeys(candidates, "refused: drift")
    for name in faithful + allowed:
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
        for name in candidates
    )
    return Choice(
        candidates[chosen], _reason(chosen, exact, chosen in faithful, drifts, seconds), trials
    )


def _is_within(found: Drift, limits: Limits, of_spread: float) -> bool:
    # One picture has no spread: then the cosine alone decides.
    return found.cosine >= limits.cosine and not found.of_spread > of_spread


def _reason(
    chosen: str,
    exact: Encoder,
    faithful: bool,
    drifts: Mapping[str, Drift],
    seconds: Mapping[str, float],
) -> str:
    """One sentence for a person who waits for the study."""
    if chosen == exact.runtime:
        return f"{chosen}: exact, and nothing faster is near enough to it here"
    faster = f"{seconds[exact.runtime] / seconds[chosen]:.1f} times as fast as {exact.runtime} here"
    if faithful:
        return f"{chosen}: {faster}, the same but for rounding"
    return f"{chosen}: {faster}, cosine with its embeddings at least {drifts[chosen].cosine:.4f}"


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
        from enteron.inference.trial_pictures import phantom_squares

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

    from enteron.inference.onnx_runtime import openvino_installed

    if torch.cuda.is_available():
        return (EXACT, "cuda-fp16", "cuda-bf16")
    if backbone.spec.name != "lite":
        return (EXACT, "onnx-int8")
    return (EXACT, "onnx", "openvino") if openvino_installed() else (EXACT, "onnx")

"""Scoring a study, compared with the paper's literal inference: six passes per frame.

`enteron bench inference [-- --parts vit lite head memory profile --frames 96]`. ViT-B/16 has
BiomedCLIP's shapes and random weights; its head is fitted to the study, so that there are events to
compare (`--parts events`: on four studies). For trained models there is `enteron bench drift`.
Speeds are end to end, from PNG files to probabilities; ratios are within this run. Kills, full
disks and changed files are tested in `tests/inference/test_embed.py`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks._gemm import backbone_operations, gemm_peak
from benchmarks._inference_study import (
    REAL,
    TOLERANCE,
    SyntheticStudy,
    count_kept,
    fit_head,
    largest_shift,
    synthetic_study,
)
from benchmarks._literal_inference import literal_probabilities
from benchmarks.model import network
from enteron.decoding import decode
from enteron.folders.model import default_model, open_model
from enteron.inference.embed import (
    REDUNDANCY_LIMIT,
    EmbedOptions,
    EmbedTimes,
    embed_study,
)
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.peak import operations
from enteron.inference.runtimes import choose, default_runtime, make_encoder, usable_threads
from enteron.inference.score import Head, probe_effect, score_study
from enteron.inference.store import Embeddings, StoreKey, StoreRecord
from enteron.inference.views import FLIPPED, PLAIN, ViewSet
from enteron.model.network import Network, start_network
from enteron.model.options import FEATURES, ModelOptions
from enteron.profile import STOPWATCH, Part, Profile, since
from enteron.study import open_study
from enteron.study.picture import encode_png
from enteron.types import Scores

PARTS = ("vit", "lite", "head", "memory", "profile")
OPTIONAL_PARTS = ("events",)
SEEDS = (3, 4, 5, 6)
THREADS = usable_threads(None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=PARTS + OPTIONAL_PARTS, default=PARTS)
    parser.add_argument("--frames", type=int, default=96, help="of the study for ViT-B/16")
    parser.add_argument("--lite-frames", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print_peak_memory(arguments.memory_of)
        return
    if "vit" in arguments.parts:
        vit(arguments.frames, arguments.rounds)
    if "events" in arguments.parts:
        compare_events(arguments.frames)
    if "lite" in arguments.parts:
        lite(arguments.lite_frames, arguments.rounds)
    if "head" in arguments.parts:
        head()
    if "memory" in arguments.parts:
        memory()
    if "profile" in arguments.parts:
        profiles(arguments.lite_frames, arguments.frames, arguments.rounds)


class Run:
    """Embeds and scores one study, timed end to end, any number of times."""

    def __init__(
        self,
        study: SyntheticStudy,
        network: Network,
        encoder: Encoder,
        redundancy: float | None = None,
    ) -> None:
        self._study, self._network, self._encoder = study, network, encoder
        self._options = EmbedOptions(redundancy=redundancy)
        self.rates: list[float] = []
        self.waits: list[float] = []

    def repeat(self) -> None:
        """Run once more, without a store."""
        times = EmbedTimes()
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            embeddings = embed_study(
                self._study.open(),
                self._encoder,
                Path(folder) / "features.npy",
                self._options,
                times=times,
            )
            self.scores = score(self._network, embeddings, self._study)
            self.rates.append(len(embeddings) / (time.perf_counter() - start))
            self.effect = probe_effect(self._network, embeddings, self.scores)
        self.waits.append(times.waiting_share)
        self.redundant = embeddings.redundant
        self.encoded = times.encoded / times.rows  # images per frame


def random_vit() -> Network:
    """A network of BiomedCLIP's shapes; with biases, which a quickly fitted head needs."""
    torch.manual_seed(0)
    backbone = network("biomedclip").backbone
    return Network(backbone, ModelOptions(biases=True)).eval()


def score(
    net: Network, embeddings: Embeddings, study: SyntheticStudy, *, views: ViewSet = "flip"
) -> Scores:
    return score_study(net, embeddings, views=views, frames_per_row=study.frames_per_row)


def vit(frames: int, rounds: int) -> None:
    net = random_vit()
    study = synthetic_study(frames)
    exact = make_encoder(net.backbone, "exact")
    with tempfile.TemporaryDirectory() as folder:
        embeddings = embed_study(study.open(), exact, Path(folder) / "fit.npy")
        fit_head(net, embeddings, study.labels)
    print(f"## ViT-B/16, {frames} frames of 336 pixels, {THREADS} threads\n")
    choice = choose(net.backbone, samples=None)
    print(f"auto: {choice.reason}\n{choice.table()}\n")
    runs = {
        "exact": Run(study, net, exact),
        f"auto ({choice.runtime})": Run(study, net, choice.encoder),
        "auto, redundancy": Run(study, net, choice.encoder, redundancy=REDUNDANCY_LIMIT),
    }
    literal_parts = []
    literal_rates: list[float] = []
    peaks: list[float] = []
    # In turns, and the literal one in parts, so that other load on the machine slows all alike.
    for part in np.array_split(np.arange(frames), rounds):
        peaks.append(gemm_peak(THREADS))
        start = time.perf_counter()
        literal_parts.append(
            literal_probabilities(net, study.folder, first=int(part[0]), frames=len(part))
        )
        literal_rates.append(len(part) / (time.perf_counter() - start))
        for run in runs.values():
            run.repeat()
    peak = statistics.median(peaks)
    literal = np.concatenate(literal_parts)
    exact_scores = runs["exact"].scores
    exact_events = decode(exact_scores)
    labels = {event.label for event in exact_events}
    print(f"{len(exact_events)} events in the exact scores, of {len(labels)} labels\n")
    print("| | frames/s | ratio | of GEMM peak | waits | scores: mean | largest | events |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    operations = backbone_operations(net.backbone)
    literal_rate = statistics.median(literal_rates)
    share = 6 * operations * literal_rate / peak
    print(f"| literal | {literal_rate:.2f} | 1.00 | {share:.0%} | | | | |")
    for name, run in runs.items():
        baseline = literal if name == "exact" else exact_scores.values
        difference = np.abs(run.scores.values - baseline)
        shift = largest_shift(exact_events, decode(run.scores))
        same = "other events" if shift is None else f"the same, ends within {shift}"
        rate = statistics.median(run.rates)
        ratios = [r / base for r, base in zip(run.rates, literal_rates, strict=True)]
        share = run.encoded * operations * rate / peak
        print(f"| {name} | {rate:.2f} | {statistics.median(ratios):.2f} | {share:.0%} ", end="")
        print(f"| {statistics.median(run.waits):.1%} ", end="")
        print(f"| {difference.mean():.1e} | {difference.max():.1e} ", end="")
        print(f"| {same} |")
    print_redundancy(runs["auto, redundancy"], frames)
    print("(exact is compared with literal, the others with exact)\n")


def compare_events(frames: int) -> None:
    """How many events int8 and redundancy change, on several studies; not timed."""
    print("| study | events | int8: scores, mean | kept | new | with redundancy: kept | new |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for seed in SEEDS:
        net = random_vit()
        study = synthetic_study(frames, seed=seed)
        int8 = make_encoder(net.backbone, "onnx-int8")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            exact = embed_study(
                study.open(), make_encoder(net.backbone, "exact"), folder / "exact.npy"
            )
            fit_head(net, exact, study.labels)
            exact_scores = score(net, exact, study)
            exact_events = decode(exact_scores)
            print(f"| {seed} | {len(exact_events)} ", end="")
            for limit in (None, REDUNDANCY_LIMIT):
                options = EmbedOptions(redundancy=limit)
                embeddings = embed_study(study.open(), int8, folder / f"{limit}.npy", options)
                scores = score(net, embeddings, study)
                if limit is None:
                    difference = np.abs(scores.values - exact_scores.values)
                    print(f"| {difference.mean():.4f} ", end="")
                events = decode(scores)
                kept = count_kept(exact_events, events)
                print(f"| {kept} | {len(events) - kept} ", end="")
        print("|", flush=True)
    print(f"\nkept: the same label, both ends within {TOLERANCE} frames\n")


def print_redundancy(run: Run, frames: int) -> None:
    """How many frames were redundant, and what that did to scores."""
    share = run.redundant / frames
    print(f"\nlimit of redundancy {REDUNDANCY_LIMIT}: {share:.0%} of frames were redundant")
    if run.effect is not None:
        print(f"{run.effect.frames} probes: scores moved {run.effect.mean:.1e} on average")


def lite(frames: int, rounds: int) -> None:
    torch.manual_seed(0)
    net = start_network(ModelOptions(backbone="lite")).eval()
    encoder = make_encoder(net.backbone, "onnx")
    print(f"## lite ({encoder.runtime}), {frames} frames of 336 pixels, without the mirror image\n")
    for kind in ("PNG", "video"):
        study = synthetic_study(frames, video=kind == "video")
        rates = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "s.npy"
                start = time.perf_counter()
                embeddings = embed_study(study.open(), encoder, path, views=(PLAIN,))
                score(net, embeddings, study, views="none")
                rates.append(frames / (time.perf_counter() - start))
        spread = f"{min(rates):.0f} to {max(rates):.0f}"
        print(f"from {kind}: {statistics.median(rates):.0f} frames/s ({spread})")
    study = synthetic_study(24)
    literal = literal_probabilities(net, study.folder)
    with tempfile.TemporaryDirectory() as folder:
        scores = score(net, embed_study(study.open(), encoder, Path(folder) / "s.npy"), study)
    print(f"against literal, both flips: {np.abs(scores.values - literal).max():.1e} at most\n")


def profiles(frames: int, vit_frames: int, rounds: int) -> None:
    """Where the time goes, without the mirror image: three models, three kinds of pictures.

    Parts are milliseconds a frame; read, decode and resize are sums over the threads that run
    beside the encoder. The round with the median time is shown.
    """
    box = open_model(default_model())
    lite_net, vit_net = start_network(ModelOptions(backbone="lite")).eval(), random_vit()
    vit_encoder = choose(vit_net.backbone, samples=None).encoder
    models: list[tuple[str, Encoder, Head, str, int]] = [
        ("lite", make_encoder(lite_net.backbone, "onnx"), lite_net,
         lite_net.backbone.spec.trunk, frames),
        ("default", make_encoder(box.backbone, default_runtime(box.backbone)), box.head,
         box.record.backbone.trunk, frames),
        (f"ViT-B/16, {vit_encoder.runtime}", vit_encoder, vit_net,
         vit_net.backbone.spec.trunk, vit_frames),
    ]  # fmt: skip
    shown: tuple[Part, ...] = (
        "read", "decode", "resize", "wait", "encode", "head", "store",
    )  # fmt: skip
    print(f"## profile, {THREADS} threads, milliseconds a frame\n")
    columns = ["model", "pictures", "frames/s", *shown, "of GEMM peak, fp32", "limit"]
    print(f"| {' | '.join(columns)} |")
    print("|---|---|" + "---:|" * (len(shown) + 2) + "---|")
    for name, encoder, model_head, trunk, count in models:
        for kind, path, only in _picture_sources(count):
            done = sorted(
                (_profiled(encoder, model_head, trunk, path, only) for _ in range(rounds)),
                key=lambda profile: profile.seconds,
            )
            profile = done[len(done) // 2]
            parts = [1000 * profile.parts.get(part, 0.0) / profile.frames for part in shown]
            share = profile.encoder_share
            print(
                f"| {name} | {kind} | {profile.frames / profile.seconds:.0f} | "
                + " | ".join(f"{part:.2f}" for part in parts)
                + f" | {'' if share is None else f'{share:.0%}'} | {profile.limit} |",
                flush=True,
            )
    print()


def _picture_sources(frames: int) -> list[tuple[str, Path, np.ndarray | None]]:
    """Drawn frames as PNG and as video, and real ones (JPEG of 224 pixels) where they are there."""
    sources: list[tuple[str, Path, np.ndarray | None]] = [
        ("drawn, PNG", synthetic_study(frames).folder, None),
        ("drawn, video", synthetic_study(frames, video=True).folder, None),
    ]
    videos = [path for path in sorted(REAL.glob("*")) if path.is_dir()] if REAL.is_dir() else []
    if videos:
        longest = max(videos, key=lambda path: len(list(path.iterdir())))
        with open_study(longest) as study:
            sources.append(("real, JPEG", longest, study.numbers[:frames]))
    return sources


def _profiled(
    encoder: Encoder, model_head: Head, trunk: str, path: Path, only: np.ndarray | None
) -> Profile:
    """Embed and score a study once."""
    before, start, times = STOPWATCH.seconds(), time.perf_counter(), EmbedTimes()
    with tempfile.TemporaryDirectory() as folder, open_study(path, only=only) as study:
        store = Path(folder) / "s.npy"
        embeddings = embed_study(study, encoder, store, views=(PLAIN,), times=times)
        score_study(model_head, embeddings, views="none")
        return Profile(
            seconds=time.perf_counter() - start,
            parts={str(part): spent for part, spent in since(before).items()},
            frames=len(study),
            images=times.encoded,
            threads=THREADS,
            operations=operations(trunk),
            peak=gemm_peak(THREADS, rounds=3),
        )


def head(rows: int = 161_025) -> None:
    """Time to score as many embeddings as the challenge's test set has frames, both flips."""
    net = start_network(ModelOptions(backbone="vit-tiny")).eval()
    key = StoreKey(
        backbone="", preprocessing="", runtime="", views=(PLAIN.name, FLIPPED.name),
        precision="float32", redundancy=None, study="", samples="",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        features = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 2, FEATURES))
        random = np.random.default_rng(0)
        for start in range(0, rows, 8192):
            part = features[start : start + 8192]
            part[:] = random.standard_normal(part.shape, np.float32)
        features.flush()
        record = StoreRecord(key=key, study="s", chunk=64, checksums=())
        frames = np.arange(rows)
        embeddings = Embeddings(record, frames, frames.astype(np.int32), features)
        before = time.perf_counter()
        score_study(net, embeddings)
        seconds = time.perf_counter() - before
    print(f"## head\n\n{rows:,} stored embeddings, both flips: {seconds:.1f} s", end="")
    print(f" ({rows / seconds:,.0f} frames/s)\n")


class StubEncoder:
    """Runs the real encoder on the first batch; all later embeddings are made up."""

    def __init__(self, encoder: Encoder) -> None:
        self.runtime, self.batch = encoder.runtime, encoder.batch
        self.backbone_hash, self.preprocessing = encoder.backbone_hash, encoder.preprocessing
        self.width = encoder.width
        self._encoder = encoder  # kept for its memory
        self._first_call = True

    def encode(self, images: ImageBatch) -> Features:
        if self._first_call:
            self._first_call = False
            return self._encoder.encode(images)
        corner = images[:, 0, 0, 0].astype(np.float32) / 255
        return np.broadcast_to(corner[:, None], (len(corner), FEATURES)).astype(np.float32)


def memory() -> None:
    """Largest resident memory of a process that embeds and scores, for two lengths of study."""
    print("## memory\n")
    for frames in (2_000, 130_000):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.inference", "--memory-of", str(frames)],
            cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True,
        )  # fmt: skip
        print(f"{frames:,} frames, ViT-B/16: {done.stdout.strip()}", flush=True)
    print()


def print_peak_memory(frames: int) -> None:
    """Embed and score a study that repeats the same eight pictures, and print the peak memory."""
    torch.manual_seed(0)
    net = network("biomedclip").eval()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "study"
        folder.mkdir()
        originals = []
        for number in range(8):
            picture = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            originals.append(folder / f"frame_{number:06d}.png")
            originals[-1].write_bytes(encode_png(picture))
        for number in range(8, frames):
            os.link(originals[number % 8], folder / f"frame_{number:06d}.png")
        encoder = StubEncoder(make_encoder(net.backbone, "exact"))
        embeddings = embed_study(open_study(folder), encoder, Path(name) / "s.npy")
        score_study(net, embeddings)
        # Pages of the mapped file count as resident, although the system may drop them at any time.
        # getrusage would give the parent's maximum, which survives exec.
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        mapped = embeddings.features.nbytes / 2**20
    print(f"peak {peak:,.0f} MiB, of which up to {mapped:,.0f} MiB are pages of the mapped store")


if __name__ == "__main__":
    main()

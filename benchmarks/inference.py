"""Scoring a study, against the paper's inference taken literally: six passes a frame.

`enteron bench inference [-- --parts vit lite head memory --frames 96]`. ViT-B/16 has BiomedCLIP's
shapes and random weights; its head is fitted to the study, so that there are events to compare
(`--parts events`: on four studies). With trained models: `enteron bench drift`.
Speeds are end to end, from PNG files to probabilities; ratios are within this run. Kills, full
disks and changed files are tests: `pytest -m "slow or not slow" tests/inference/test_embed.py`.
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
    REACH,
    Made,
    events_of,
    fit_head,
    largest_shift,
    made_study,
    matched,
)
from benchmarks._literal_inference import literal_probabilities
from benchmarks.model import network
from enteron.inference.embed import (
    FLIPPED,
    PLAIN,
    REDUNDANCY_LIMIT,
    EmbedOptions,
    EmbedTimes,
    embed_study,
)
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.runtimes import choose, make_encoder, usable_threads
from enteron.inference.score import probe_effect, score_study
from enteron.inference.store import Embeddings, StoreKey, StoreRecord
from enteron.model.network import Network, start_network
from enteron.model.options import FEATURES, ModelOptions
from enteron.study import open_study
from enteron.study.picture import encode_png
from enteron.types import Scores

PARTS = ("vit", "lite", "head", "memory")
MORE = ("events",)  # asked for by name
SEEDS = (3, 4, 5, 6)
THREADS = usable_threads(None)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--parts", nargs="+", choices=PARTS + MORE, default=PARTS)
    arguments.add_argument("--frames", type=int, default=96, help="of the study for ViT-B/16")
    arguments.add_argument("--lite-frames", type=int, default=600)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.memory_of:
        peak_of(given.memory_of)
        return
    if "vit" in given.parts:
        vit(given.frames, given.rounds)
    if "events" in given.parts:
        events(given.frames)
    if "lite" in given.parts:
        lite(given.lite_frames, given.rounds)
    if "head" in given.parts:
        head()
    if "memory" in given.parts:
        memory()


class Run:
    """Embedding and scoring of one study, timed end to end, as often as it is asked to."""

    def __init__(
        self, study: Made, net: Network, encoder: Encoder, redundancy: float | None = None
    ) -> None:
        self._study, self._net, self._encoder = study, net, encoder
        self._options = EmbedOptions(redundancy=redundancy)
        self.rates: list[float] = []
        self.waits: list[float] = []

    def again(self) -> None:
        """Once more, from nothing."""
        times = EmbedTimes()
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            found = embed_study(
                self._study.open(),
                self._encoder,
                Path(folder) / "features.npy",
                self._options,
                times=times,
            )
            self.scores = scored(self._net, found, self._study)
            self.rates.append(len(found) / (time.perf_counter() - begin))
            self.effect = probe_effect(self._net, found, self.scores)
        self.waits.append(times.waiting_share)
        self.redundant = found.redundant
        self.encoded = times.encoded / times.rows  # pictures a frame


def random_vit() -> Network:
    """BiomedCLIP's shapes; with biases, which a head that is fitted quickly needs."""
    torch.manual_seed(0)
    backbone = network("biomedclip").backbone
    return Network(backbone, ModelOptions(biases=True)).eval()


def scored(net: Network, embeddings: Embeddings, study: Made, *, flips: bool = True) -> Scores:
    return score_study(net, embeddings, flips=flips, frames_per_row=study.frames_per_row)


def vit(frames: int, rounds: int) -> None:
    net = random_vit()
    study = made_study(frames)
    exact = make_encoder(net.backbone, "exact")
    with tempfile.TemporaryDirectory() as folder:
        first = embed_study(study.open(), exact, Path(folder) / "fit.npy")
        fit_head(net, first, study.labels)
    print(f"## ViT-B/16, {frames} frames of 336 pixels, {THREADS} threads\n")
    choice = choose(net.backbone, samples=None)
    print(f"auto: {choice.reason}\n{choice.table()}\n")
    runs = {
        "exact": Run(study, net, exact),
        f"auto ({choice.runtime})": Run(study, net, choice.encoder),
        "auto, redundancy": Run(study, net, choice.encoder, redundancy=REDUNDANCY_LIMIT),
    }
    literal = np.empty((0, 17), np.float32)
    base: list[float] = []
    peaks: list[float] = []
    # In turns, the literal one in parts: a machine that slows down then slows all of them.
    for part in np.array_split(np.arange(frames), rounds):
        peaks.append(gemm_peak(THREADS))
        begin = time.perf_counter()
        found = literal_probabilities(net, study.folder, first=int(part[0]), frames=len(part))
        base.append(len(part) / (time.perf_counter() - begin))
        literal = np.concatenate([literal, found])
        for run in runs.values():
            run.again()
    peak = statistics.median(peaks)
    reference = runs["exact"]
    wanted = events_of(reference.scores)
    print(f"{len(wanted)} events in the exact scores, of {len({e.label for e in wanted})} labels\n")
    print("| | frames/s | ratio | of GEMM peak | waits | scores: mean | largest | events |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    operations = backbone_operations(net.backbone)
    slow = statistics.median(base)
    print(f"| literal | {slow:.2f} | 1.00 | {6 * operations * slow / peak:.0%} | | | | |")
    for name, run in runs.items():
        against = literal if name == "exact" else reference.scores.values
        difference = np.abs(run.scores.values - against)
        shift = largest_shift(wanted, events_of(run.scores))
        same = "other events" if shift is None else f"the same, ends within {shift}"
        rate = statistics.median(run.rates)
        ratio = statistics.median(one / other for one, other in zip(run.rates, base, strict=True))
        reached = run.encoded * operations * rate / peak
        print(f"| {name} | {rate:.2f} | {ratio:.2f} | {reached:.0%} ", end="")
        print(f"| {statistics.median(run.waits):.1%} ", end="")
        print(f"| {difference.mean():.1e} | {difference.max():.1e} ", end="")
        print(f"| {same} |")
    told(runs["auto, redundancy"], frames)
    print("(exact is compared with literal, the others with exact)\n")


def events(frames: int) -> None:
    """Whether int8 and redundancy leave events alone, on several studies; not timed."""
    print("| study | events | int8: scores, mean | kept | new | with redundancy: kept | new |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for seed in SEEDS:
        net = random_vit()
        study = made_study(frames, seed=seed)
        fast = make_encoder(net.backbone, "onnx-int8")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            whole = embed_study(
                study.open(), make_encoder(net.backbone, "exact"), folder / "exact.npy"
            )
            fit_head(net, whole, study.labels)
            exact = scored(net, whole, study)
            wanted = events_of(exact)
            print(f"| {seed} | {len(wanted)} ", end="")
            for limit in (None, REDUNDANCY_LIMIT):
                path = folder / f"{limit}.npy"
                found = scored(
                    net,
                    embed_study(study.open(), fast, path, EmbedOptions(redundancy=limit)),
                    study,
                )
                if limit is None:
                    print(f"| {np.abs(found.values - exact.values).mean():.4f} ", end="")
                now = events_of(found)
                kept = matched(wanted, now, REACH)
                print(f"| {kept} | {len(now) - kept} ", end="")
        print("|", flush=True)
    print(f"\nkept: the same label, both ends within {REACH} frames\n")


def told(run: Run, frames: int) -> None:
    """What redundancy did."""
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
        study = made_study(frames, video=kind == "video")
        rates = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.perf_counter()
                found = embed_study(study.open(), encoder, Path(folder) / "s.npy", views=(PLAIN,))
                scored(net, found, study, flips=False)
                rates.append(frames / (time.perf_counter() - begin))
        spread = f"{min(rates):.0f} to {max(rates):.0f}"
        print(f"from {kind}: {statistics.median(rates):.0f} frames/s ({spread})")
    few = made_study(24)
    literal = literal_probabilities(net, few.folder)
    with tempfile.TemporaryDirectory() as folder:
        found = scored(net, embed_study(few.open(), encoder, Path(folder) / "s.npy"), few)
    print(f"against literal, both flips: {np.abs(found.values - literal).max():.1e} at most\n")


def head(rows: int = 161_025) -> None:
    """As many embeddings as the challenge's test set has frames, both flips."""
    net = start_network(ModelOptions(backbone="vit-tiny")).eval()
    key = StoreKey(
        backbone="", preprocessing="", runtime="", views=(PLAIN.name, FLIPPED.name),
        precision="float32", redundancy=None, study="",
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
        stored = Embeddings(record, frames, frames.astype(np.int32), features)
        begin = time.perf_counter()
        score_study(net, stored)
        seconds = time.perf_counter() - begin
    print(f"## head\n\n{rows:,} stored embeddings, both flips: {seconds:.1f} s", end="")
    print(f" ({rows / seconds:,.0f} frames/s)\n")


class Stub:
    """ViT-B/16 is loaded and runs once; the other embeddings are made up."""

    def __init__(self, encoder: Encoder) -> None:
        self._real: Encoder | None = encoder
        self.runtime, self.batch = encoder.runtime, encoder.batch
        self.backbone_hash, self.preprocessing = encoder.backbone_hash, encoder.preprocessing
        self._encoder = encoder

    def encode(self, images: ImageBatch) -> Features:
        if self._real is not None:
            self._real = None
            return self._encoder.encode(images)
        first = images[:, 0, 0, 0].astype(np.float32) / 255
        return np.broadcast_to(first[:, None], (len(first), FEATURES)).astype(np.float32)


def memory() -> None:
    """Largest resident memory of a process that embeds and scores, for two lengths."""
    print("## memory\n")
    for frames in (2_000, 130_000):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.inference", "--memory-of", str(frames)],
            cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True,
        )  # fmt: skip
        print(f"{frames:,} frames, ViT-B/16: {done.stdout.strip()}", flush=True)
    print()


def peak_of(frames: int) -> None:
    """Embed and score a study of so many frames, the same few pictures again and again."""
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
        found = embed_study(
            open_study(folder), Stub(make_encoder(net.backbone, "exact")), Path(name) / "s.npy"
        )
        score_study(net, found)
        # Pages of the mapped file count as resident although the system may drop them at any time.
        # Not getrusage: its maximum survives exec and would be that of the parent.
        status = Path("/proc/self/status").read_text()
        usage = int(status.split("VmHWM:")[1].split()[0]) / 1024
        mapped = found.features.nbytes / 2**20
    print(f"peak {usage:,.0f} MiB, of which up to {mapped:,.0f} MiB are pages of the mapped store")


if __name__ == "__main__":
    main()

"""Runtimes of the encoder: speed, drift and fraction of the GEMM peak, for ViT-B/16 and `lite`.

`enteron bench runtimes [-- --backbone lite --rounds 5 --pictures 8]`. ViT-B/16 has BiomedCLIP's
shapes and random weights. Runtimes take turns within a round; ratios are those of medians. Both
wall-clock and processor time are shown, since other load slows only the former.
`-- --real [FOLDER]` encodes real frames, of as many videos of Kvasir-Capsule as there are pictures.
`-- --auto` shows what `auto` chooses, why, and how long the trial takes with cached graphs.
`-- --sharing` times ways to use the cores in ONNX Runtime while as many threads decode PNG files.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from benchmarks._gemm import backbone_operations, gemm_peak
from benchmarks._inference_study import REAL
from benchmarks.model import network
from benchmarks.trial_pictures import phantom_images
from enteron.datasets.layouts import open_dataset
from enteron.errors import StudyError
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.onnx_graph import export_graph
from enteron.inference.onnx_runtime import GRAPH_INPUT, openvino_installed
from enteron.inference.runtimes import build_encoder, choose, drift, usable_threads
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.model.backbones import Backbone, lite_backbone
from enteron.model.preprocessing import Preprocessing
from enteron.phantom.film import Film
from enteron.study.picture import decode_picture, encode_png
from enteron.study.study import RGB


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backbone", choices=["vit-b16", "lite"], help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=int, help="per round; default 8, for lite 32")
    parser.add_argument("--real", type=Path, nargs="?", const=REAL, help="frames of these videos")
    parser.add_argument("--sharing", action="store_true", help="cores shared with decoding")
    parser.add_argument("--auto", action="store_true", help="what `auto` chooses")
    arguments = parser.parse_args()
    threads = usable_threads(None)
    for name in [arguments.backbone] if arguments.backbone else ["vit-b16", "lite"]:
        backbone = _backbone(name)
        count = arguments.pictures or (32 if name == "lite" else 8)
        if arguments.real:
            images = real_images(backbone.spec.preprocessing, arguments.real, count)
        else:
            regions = [REGIONS[row * len(REGIONS) // count] for row in range(count)]
            images = phantom_images(backbone.spec.preprocessing, regions)
        kind = "real" if arguments.real else "drawn"
        print(
            f"## {name}, {count} {kind} pictures, {threads} threads, median of {arguments.rounds}\n"
        )
        if arguments.sharing:
            sharing(backbone, images, threads, arguments.rounds)
        elif arguments.auto:
            auto(backbone, images)
        else:
            table(backbone, images, threads, arguments.rounds)


def real_images(preprocessing: Preprocessing, root: Path, count: int) -> ImageBatch:
    """Images (n, 3, size, size): a frame from the middle of each of `count` videos."""
    studies = list(open_dataset(root).studies.values())
    if len(studies) < count:
        raise StudyError(f"'{root.name}' has only {len(studies)} studies", "ask for fewer pictures")
    images = []
    for place in np.linspace(0, len(studies) - 1, count).astype(int):
        with studies[place].open() as study:
            picture = study.frame(int(study.numbers[len(study) // 2])).image
        assert picture is not None
        images.append(preprocessing.resize_and_crop(picture))
    return np.stack(images)


def _backbone(name: str) -> Backbone:
    torch.manual_seed(0)
    return lite_backbone() if name == "lite" else network("biomedclip").backbone


def table(backbone: Backbone, images: ImageBatch, threads: int, rounds: int) -> None:
    names = ["torch", "torch-int8", "onnx"]
    names += [] if backbone.spec.name == "lite" else ["onnx-int8", "torch-tome", "onnx-tome"]
    names += ["openvino"] if openvino_installed() else []
    encoders = {name: build_encoder(backbone, name, threads) for name in names}
    features = {name: encoder.encode(images) for name, encoder in encoders.items()}
    clock: dict[str, list[float]] = {name: [] for name in names}
    processor: dict[str, list[float]] = {name: [] for name in names}
    peaks = []
    for _ in range(rounds):
        peaks.append(gemm_peak(threads, rounds=1))
        for name, encoder in encoders.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            encoder.encode(images)
            clock[name].append((time.perf_counter() - start) / len(images))
            processor[name].append((time.process_time() - cpu_start) / len(images))
    operations, peak = backbone_operations(backbone), statistics.median(peaks)
    print(f"{operations / 1e9:.2f} G operations per picture, GEMM peak {peak / 1e9:.0f} G/s\n")
    print("| runtime | pictures/s | ratio | ms of processor | ratio | cosine | largest | ", end="")
    print("of spread | of GEMM peak | alone |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    exact_clock = statistics.median(clock["torch"])
    exact_cpu = statistics.median(processor["torch"])
    for name, encoder in encoders.items():
        seconds, cpu = statistics.median(clock[name]), statistics.median(processor[name])
        measured = drift(features[name], features["torch"])
        print(f"| {name} | {1 / seconds:.2f} | {exact_clock / seconds:.2f} ", end="")
        print(f"| {1e3 * cpu:.1f} | {exact_cpu / cpu:.2f} | {measured.cosine:.5f} ", end="")
        print(f"| {measured.largest:.1e} | {measured.of_spread:.1e} ", end="")
        print(f"| {100 * operations / seconds / peak:.0f} % ", end="")
        print(f"| {_alone(encoder, images, features[name]):.1e} |")
    print()


def _alone(encoder: Encoder, images: ImageBatch, together: Features) -> float:
    """The largest difference between an image encoded alone and in a batch."""
    return float(np.abs(encoder.encode(images[-1:])[0] - together[-1]).max())


def auto(backbone: Backbone, images: ImageBatch) -> None:
    choose(backbone, samples=images)  # exports the graphs, unless they are cached
    start = time.perf_counter()
    choice = choose(backbone, samples=images)
    print(f"{choice.table()}\n\n{choice.reason} ({time.perf_counter() - start:.1f} s)\n")


def sharing(backbone: Backbone, images: ImageBatch, threads: int, rounds: int) -> None:
    """As in a study: the next pictures are decoded and resized while images are encoded."""
    encoder = build_encoder(backbone, "onnx", threads)
    graph = export_graph(backbone)
    spinning, waiting = _session(graph, threads, True), _session(graph, threads, False)
    ways: dict[str, Callable[[], object]] = {
        "one picture per thread": lambda: encoder.encode(images),
        "threads inside, spinning": lambda: _one_by_one(spinning, images),
        "threads inside, not spinning": lambda: _one_by_one(waiting, images),
    }
    png = encode_png(_picture())
    preprocessing = backbone.spec.preprocessing

    def decode(_: int) -> ImageBatch:
        return preprocessing.resize_and_crop(decode_picture(png))

    clock: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    with ThreadPoolExecutor(threads) as decoders:
        for turn in range(rounds + 1):
            for name, way in ways.items():
                start, cpu_start = time.perf_counter(), time.process_time()
                ahead = [decoders.submit(decode, row) for row in range(len(images))]
                way()
                wait(ahead)
                if turn:  # the first round warms up
                    clock[name].append((time.perf_counter() - start) / len(images))
                    processor[name].append((time.process_time() - cpu_start) / len(images))
    print("| way | pictures/s | ms of processor |")
    print("|---|---:|---:|")
    for name in ways:
        rate, cpu = 1 / statistics.median(clock[name]), statistics.median(processor[name])
        print(f"| {name} | {rate:.1f} | {1e3 * cpu:.1f} |")
    print()


def _picture() -> RGB:
    """A synthetic frame of 336 pixels."""
    labels = np.zeros((1, len(LABELS)), np.bool_)
    labels[0, COLUMN["small intestine"]] = True
    return Film(labels, "olympus", 0).frame(0)


def _session(graph: bytes, threads: int, spinning: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _one_by_one(session: onnxruntime.InferenceSession, images: ImageBatch) -> None:
    for row in range(len(images)):
        session.run(None, {GRAPH_INPUT: images[row : row + 1]})


if __name__ == "__main__":
    main()

"""Runtimes of the encoder: speed, drift and fraction of the GEMM peak, for ViT-B/16 and `lite`.

`enteron bench runtimes [-- --backbone lite --rounds 5 --pictures 8]`. ViT-B/16 has BiomedCLIP's
shapes and random weights. Runtimes take turns within a round; ratios are of medians. Seconds of
processor time stand beside seconds on the clock, since other work slows the clock only.
`-- --sharing` times ONNX Runtime's ways of using the cores while two threads decode PNG files.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
import torch

from benchmarks._gemm import backbone_operations, gemm_peak
from benchmarks.model import network
from enteron.inference.encoder import Encoder, Features, Squares
from enteron.inference.runtimes.build import build_encoder, usable_threads
from enteron.inference.runtimes.drift import drift
from enteron.inference.runtimes.export import INPUT, export_graph
from enteron.inference.runtimes.openvino_runtime import openvino_installed
from enteron.inference.runtimes.samples import phantom_squares
from enteron.model.backbone import Backbone
from enteron.model.lite import lite_backbone
from enteron.study.picture import decode_picture, encode_png


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--backbone", choices=["vit-b16", "lite"], help="default: both")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--pictures", type=int, help="a round; default 8, of lite 32")
    arguments.add_argument("--sharing", action="store_true", help="cores shared with decoding")
    given = arguments.parse_args()
    threads = usable_threads(None)
    for name in [given.backbone] if given.backbone else ["vit-b16", "lite"]:
        backbone = _backbone(name)
        count = given.pictures or (32 if name == "lite" else 8)
        squares = phantom_squares(backbone.spec.preprocessing, count)
        print(f"## {name}, {count} pictures, {threads} threads, median of {given.rounds}\n")
        if given.sharing:
            sharing(backbone, squares, threads, given.rounds)
        else:
            table(backbone, squares, threads, given.rounds)


def _backbone(name: str) -> Backbone:
    torch.manual_seed(0)
    return lite_backbone() if name == "lite" else network("biomedclip").backbone


def table(backbone: Backbone, squares: Squares, threads: int, rounds: int) -> None:
    names = ["torch", "torch-int8", "onnx"]
    names += [] if backbone.spec.name == "lite" else ["onnx-int8"]
    names += ["openvino"] if openvino_installed() else []
    encoders = {name: build_encoder(backbone, name, threads) for name in names}
    features = {name: encoder.encode(squares) for name, encoder in encoders.items()}
    clock: dict[str, list[float]] = {name: [] for name in names}
    processor: dict[str, list[float]] = {name: [] for name in names}
    peaks = []
    for _ in range(rounds):
        peaks.append(gemm_peak(threads, rounds=1))
        for name, encoder in encoders.items():
            began, used = time.perf_counter(), time.process_time()
            encoder.encode(squares)
            clock[name].append((time.perf_counter() - began) / len(squares))
            processor[name].append((time.process_time() - used) / len(squares))
    operations, peak = backbone_operations(backbone), statistics.median(peaks)
    print(f"{operations / 1e9:.2f} G operations a picture, GEMM peak {peak / 1e9:.0f} G/s\n")
    print("| runtime | pictures/s | ratio | ms of processor | ratio | cosine | largest | ", end="")
    print("of spread | of GEMM peak | alone |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    slow, work = statistics.median(clock["torch"]), statistics.median(processor["torch"])
    for name, encoder in encoders.items():
        seconds, busy = statistics.median(clock[name]), statistics.median(processor[name])
        found = drift(features[name], features["torch"])
        print(f"| {name} | {1 / seconds:.2f} | {slow / seconds:.2f} ", end="")
        print(f"| {1e3 * busy:.1f} | {work / busy:.2f} | {found.cosine:.5f} ", end="")
        print(f"| {found.largest:.1e} | {found.of_spread:.1e} ", end="")
        print(f"| {100 * operations / seconds / peak:.0f} % ", end="")
        print(f"| {_alone(encoder, squares, features[name]):.1e} |")
    print()


def _alone(encoder: Encoder, squares: Squares, together: Features) -> float:
    """The largest difference between a picture encoded alone and among others."""
    return float(np.abs(encoder.encode(squares[-1:])[0] - together[-1]).max())


def sharing(backbone: Backbone, squares: Squares, threads: int, rounds: int) -> None:
    """End to end while as many threads decode PNG files: which way of using the cores is best."""
    ways: dict[str, Callable[[], object]] = {
        "a picture a thread": lambda: encoder.encode(squares),
        "threads inside, spinning": lambda: _one_by_one(spinning, squares),
        "threads inside, not spinning": lambda: _one_by_one(waiting, squares),
    }
    encoder = build_encoder(backbone, "onnx", threads)
    graph = export_graph(backbone)
    spinning, waiting = _session(graph, threads, True), _session(graph, threads, False)
    png = encode_png(np.ascontiguousarray(squares[0].transpose(1, 2, 0)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    decoded: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            with Decoders(png, threads) as decoders:
                begin = time.perf_counter()
                way()
                spent = time.perf_counter() - begin
            if turn:  # the first round warms up
                seconds[name].append(spent / len(squares))
                decoded[name].append(decoders.count / spent)
    print("| way | pictures/s | PNG files decoded/s beside it |")
    print("|---|---:|---:|")
    for name in ways:
        rate = 1 / statistics.median(seconds[name])
        print(f"| {name} | {rate:.1f} | {statistics.median(decoded[name]):.0f} |")
    print()


class Decoders:
    """Threads that decode the same PNG file until told to stop."""

    def __init__(self, png: bytes, threads: int) -> None:
        self.count = 0
        self._png = png
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(threads)]

    def _work(self) -> None:
        while not self._stop.is_set():
            decode_picture(self._png)
            self.count += 1

    def __enter__(self) -> "Decoders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _session(graph: bytes, threads: int, spinning: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _one_by_one(session: onnxruntime.InferenceSession, squares: Squares) -> None:
    for row in range(len(squares)):
        session.run(None, {INPUT: squares[row : row + 1]})


if __name__ == "__main__":
    main()

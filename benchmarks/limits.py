"""How far the model in the box is from what the machine can do, part by part.

`enteron bench limits [-- --frames 400 --rounds 5]`. Limits are measured in the same rounds as the
parts: products of large matrices in fp32 and int8, copies in memory, FFmpeg's decoder alone, and
OpenCV's of PNG files alone. Frames per second are those of all cores that the process may use; for
parts of one thread, those of one thread times the cores.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import av
import cv2
import numpy as np

from benchmarks._gemm import backbone_operations, gemm_peak, int8_gemm_peak
from benchmarks._inference_study import synthetic_study
from enteron.folders.model import default_model, load_model, open_model
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes import make_encoder, usable_threads
from enteron.inference.views import VIEW_SETS
from enteron.model.preprocessing import Preprocessing
from enteron.study import open_study
from enteron.study.study import RGB

THREADS = usable_threads(None)
_COPIED = 256 * 2**20  # bytes: more than any cache holds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    png = synthetic_study(options.frames).folder
    video = synthetic_study(options.frames, video=True).folder
    model = open_model(default_model())
    encoders = {name: make_encoder(model.backbone, name) for name in ("onnx", "onnx-int8")}
    preprocessing = model.backbone.spec.preprocessing
    with open_study(png) as study:
        pictures = [study.frame(int(n)).image for n in study.numbers[:64]]
    batch = np.stack([preprocessing.resize_and_crop(p) for p in pictures if p is not None])
    parts: dict[str, Callable[[], float]] = {
        "fp32 products": lambda: gemm_peak(THREADS, 1),
        "int8 products": lambda: int8_gemm_peak(THREADS, 1),
        "copies": copied_bytes,
        "FFmpeg": lambda: THREADS * rate(lambda: decode_video(video)),
        "OpenCV, PNG": lambda: THREADS * rate(lambda: decode_files(png)),
        "resizing": lambda: THREADS * rate(lambda: resized(pictures, preprocessing)),
    }
    for name, encoder in encoders.items():
        parts[name] = lambda encoder=encoder: rate(lambda: len(encoder.encode(batch)))
        for source, path in (("PNG", png), ("video", video)):
            parts[f"{name}, {source}"] = lambda e=encoder, p=path: rate(lambda: embed(p, e))
    measured: dict[str, list[float]] = {part: [] for part in parts}
    for turn in range(options.rounds + 1):  # the first round warms up
        for part, measure in parts.items():
            value = measure()
            if turn:
                measured[part].append(value)
    median = {part: statistics.median(values) for part, values in measured.items()}
    operations = backbone_operations(load_model(default_model())[0].backbone)
    print(f"{THREADS} threads, {options.frames} frames of 336 pixels, without the mirror image")
    print(
        f"{operations / 1e9:.2f} billion operations an image; median of {options.rounds} rounds\n"
    )
    limits = {
        "onnx": median["fp32 products"] / operations,
        "onnx-int8": median["int8 products"] / operations,
    }
    print("\n| | frames/s | limit | of the limit |")
    print("|---|---:|---:|---:|")
    for name, limit in limits.items():
        print(
            f"| encoder, {name} | {median[name]:.0f} | {limit:.0f} | {median[name] / limit:.0%} |"
        )
    alone = {"PNG": median["OpenCV, PNG"], "video": median["FFmpeg"]}
    for source, decoder in alone.items():
        for name, limit in limits.items():
            # Whole cores share the parts: seconds of each add up.
            bound = 1 / (1 / limit + 1 / decoder)
            own = median[f"{name}, {source}"]
            print(f"| from {source}, {name} | {own:.0f} | {bound:.0f} | {own / bound:.0%} |")
    print(
        f"\nfp32 {median['fp32 products'] / 1e9:.0f} and int8 {median['int8 products'] / 1e9:.0f} "
        f"billion operations a second; copies {median['copies'] / 1e9:.1f} GB/s; alone, frames/s: "
        f"FFmpeg {alone['video']:.0f}, OpenCV's PNG {alone['PNG']:.0f}, resizing "
        f"{median['resizing']:.0f}"
    )


def rate(work: Callable[[], int]) -> float:
    """Frames per second of work that returns their number."""
    start = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - start)


def copied_bytes() -> float:
    """Bytes read and written per second, every thread copying its own memory."""
    arrays = [np.ones(_COPIED // THREADS, np.uint8) for _ in range(THREADS)]
    targets = [np.empty_like(array) for array in arrays]
    for target, array in zip(targets, arrays, strict=True):
        np.copyto(target, array)
    workers = [
        threading.Thread(target=np.copyto, args=pair) for pair in zip(targets, arrays, strict=True)
    ]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 2 * _COPIED / (time.perf_counter() - start)


def decode_video(path: Path) -> int:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        return sum(1 for _ in container.decode(stream))


def decode_files(folder: Path) -> int:
    files = sorted(folder.iterdir())
    return sum(cv2.imread(str(file)) is not None for file in files)


def resized(pictures: Sequence[RGB | None], preprocessing: Preprocessing) -> int:
    return len([preprocessing.resize_and_crop(p) for p in pictures if p is not None])


def embed(path: Path, encoder: Encoder) -> int:
    with tempfile.TemporaryDirectory() as folder, open_study(path) as study:
        store = Path(folder) / "features.npy"
        embed_study(study, encoder, store, EmbedOptions(), views=VIEW_SETS["none"])
        return len(study)


if __name__ == "__main__":
    main()

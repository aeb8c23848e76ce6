"""The model in the box against `lite`: frames per second from a video and from PNG files.

Both encode the same frames of a drawn study (336 pixels), in turns, without and with the mirror
image; ratios are within this run. The box also computes local evidence from its feature map.

`--against CHECKOUT` compares this checkout with another one instead, each in processes of its own,
in turns: `onnx` of both, and `onnx-int8` of this one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._inference_study import reordered_video, synthetic_study
from enteron.folders.model import default_model, open_model
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.views import VIEW_SETS, ViewSet
from enteron.model.backbones import lite_backbone
from enteron.study import open_study

VIEWS: tuple[ViewSet, ...] = ("none", "flip")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of enteron")
    parser.add_argument("--child", nargs=2, metavar=("STUDY", "RUNTIME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(Path(options.child[0]), options.child[1])))
        return
    if options.against:
        compare_checkouts(options.against, options.frames, options.rounds)
        return
    lite = lite_backbone()
    box = open_model(default_model()).backbone
    encoders = {
        "lite": make_encoder(lite, default_runtime(lite)),
        "box": make_encoder(box, default_runtime(box)),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {
            "video": synthetic_study(options.frames, video=True).folder,
            "PNG": synthetic_study(options.frames).folder,
        }
        rates: dict[tuple[str, ViewSet, str], list[float]] = {}
        for turn in range(options.rounds + 1):  # the first round warms up and is not counted
            for source, path in sources.items():
                for views in VIEWS:
                    for model, encoder in encoders.items():
                        rate = embed(path, encoder, views, folder / "features.npy")
                        if turn:
                            rates.setdefault((source, views, model), []).append(rate)
    print(f"{options.frames} frames of 336 pixels, median of {options.rounds} rounds\n")
    print("| from | views | `lite`, frames/s | box, frames/s | box against `lite` |")
    print("|---|---|---:|---:|---:|")
    for source in sources:
        for views in VIEWS:
            ours, theirs = (rates[source, views, model] for model in ("box", "lite"))
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            print(
                f"| {source} | {views} | {statistics.median(theirs):.0f} "
                f"| {statistics.median(ours):.0f} | {ratio:.2f} |"
            )


def compare_checkouts(other: Path, frames: int, rounds: int) -> None:
    here = Path(__file__).resolve().parents[1]
    sources = {
        "PNG": synthetic_study(frames).folder,
        "video": synthetic_study(frames, video=True).folder,
        "video, reordered": reordered_video(frames),
    }
    ways = {"before, onnx": (other, "onnx"), "now, onnx": (here, "onnx")}
    ways["now, onnx-int8"] = (here, "onnx-int8")
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for source, path in sources.items():
            for way, (checkout, runtime) in ways.items():
                # The child's own file runs with the other checkout's package.
                done = subprocess.run(
                    [sys.executable, __file__, "--child", str(path), runtime],
                    env=os.environ | {"PYTHONPATH": f"{checkout.resolve() / 'src'}:{here}"},
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
                results.setdefault((source, way), []).append(json.loads(done.stdout))
    print(f"{frames} frames of 336 pixels, median of {rounds} rounds, without the mirror image\n")
    print("| from | | frames/s | ratio | CPU, ms a frame | ratio |")
    print("|---|---|---:|---:|---:|---:|")
    for source in sources:
        base = results[source, "before, onnx"]
        for way in ways:
            own = results[source, way]
            faster = statistics.median(b[0] / a[0] for a, b in zip(base, own, strict=True))
            less = statistics.median(a[1] / b[1] for a, b in zip(base, own, strict=True))
            rate, cpu = (statistics.median(pair[k] for pair in own) for k in (0, 1))
            print(f"| {source} | {way} | {rate:.0f} | {faster:.2f} | {cpu:.2f} | {less:.2f} |")


def child(path: Path, runtime: str) -> tuple[float, float]:
    """Frames per second and milliseconds of processor time a frame, after a run to warm up."""
    encoder = make_encoder(open_model(default_model()).backbone, runtime)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "features.npy"
        embed(path, encoder, "none", store)
        before = time.process_time()
        rate = embed(path, encoder, "none", store)
        with open_study(path) as study:
            return rate, 1000 * (time.process_time() - before) / len(study)


def embed(path: Path, encoder: Encoder, views: ViewSet, store: Path) -> float:
    """Frames per second of embedding a study into a new store."""
    store.unlink(missing_ok=True)
    start = time.perf_counter()
    with open_study(path) as study:
        embed_study(study, encoder, store, EmbedOptions(), views=VIEW_SETS[views])
        return len(study) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()

"""The model in the box against `lite`: frames per second from a video and from PNG files.

Both encode the same frames of a drawn study (336 pixels), in turns, without and with the mirror
image; ratios are within this run. The box also computes local evidence from its feature map.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks._inference_study import synthetic_study
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
    options = parser.parse_args()
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


def embed(path: Path, encoder: Encoder, views: ViewSet, store: Path) -> float:
    """Frames per second of embedding a study into a new store."""
    store.unlink(missing_ok=True)
    start = time.perf_counter()
    with open_study(path) as study:
        embed_study(study, encoder, store, EmbedOptions(), views=VIEW_SETS[views])
        return len(study) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()

"""Training: a lite model from nothing, reading of pictures, steps of a ViT-B/16.

`enteron bench training` makes synthetic studies under --folder (kept for the next time), then
- trains with `enteron train --preset lite`, features included, and tests on unseen NaviCam studies;
- compares the rate at which clips are read with the rate at which all cores can decode;
- fine-tunes a network of ViT-B/16 shapes for some steps.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from benchmarks._lessons import FOLDER, SPAWN, TEST, TRAIN, cores, make_data, make_features, tested
from enteron.datasets.galar import find_studies
from enteron.folders.model import load_model
from enteron.model.network import Network, empty_backbone
from enteron.model.options import BackboneSpec, ModelOptions
from enteron.model.preprocessing import Preprocessing
from enteron.study.picture import decode_picture
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Draw
from enteron.training.company import Silence
from enteron.training.loop import Step, Training
from enteron.training.options import AugmentationOptions, TrainingOptions
from enteron.training.pictures import ClipOptions, PictureClips
from enteron.training.run import judge
from enteron.training.sampling import Samples, study_samples

PARTS = ("lite", "reading", "vit")
CLIPS, BATCH, ROUNDS = 1280, 32, 3


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--parts", default=",".join(PARTS))
    given = arguments.parse_args()
    make_data(given.folder, given.studies, given.tests, given.frames)
    for part in given.parts.split(","):
        {"lite": lite, "reading": reading, "vit": vit}[part](given.folder)


def lite(folder: Path) -> None:
    """`enteron train` as a person runs it, in a process of its own, without stored features."""
    out = folder / "lite-model"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "enteron", "train", str(folder / TRAIN), "--out", str(out)]
    begin = time.perf_counter()
    subprocess.run([*command, "--preset", "lite"], check=True)
    seconds = time.perf_counter() - begin
    print(f"lite, features included: {seconds / 60:.1f} minutes on {cores()} cores")
    make_features(folder, TEST)
    found = tested(folder, load_model(out)[0])
    bounds = found.intervals()
    for name, value in found.figures().items():
        low, high = bounds[name]
        print(f"NaviCam, never seen, {len(found.truth)} studies: {name} {value:.3f} ", end="")
        print(f"[{low:.3f}, {high:.3f}]")


def reading(folder: Path) -> None:
    """Frames a second: only decoded, as clips, with augmentation, from kept squares; in turns."""
    studies = find_studies(folder / TRAIN)
    samples = Samples([study_samples(entry, 5) for entry in studies.values()])
    opened = [entry.open() for entry in studies.values()]
    drawn = np.random.default_rng(0).integers(len(samples), size=(CLIPS // BATCH, BATCH))
    draws = [Draw(batch, batch) for batch in drawn]
    files = [
        str(path)
        for entry in studies.values()
        if entry.images is not None
        for path in sorted(entry.images.iterdir())[:200]
    ]
    chosen = np.random.default_rng(1).permutation(files)[: 3 * CLIPS].tolist()
    augmentation = Augmentation(AugmentationOptions(), 224)

    def clips(changes: Augmentation | None, kept: Path | None = None) -> float:
        how = ClipOptions(3, 1, Preprocessing(), changes)
        source = PictureClips(samples, opened, how, cores(), kept)
        batches = source.batches(draws)
        next(batches)  # the workers have started; decoding is timed with started ones, too
        begin = time.perf_counter()
        frames = sum(3 * len(batch.samples) for batch in batches)
        return frames / (time.perf_counter() - begin)

    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        list(pool.map(decode, [chosen[:8]] * cores()))  # started, imports done

        def decoded() -> float:
            parts = [chosen[n::20] for n in range(20)]
            begin = time.perf_counter()
            count = sum(pool.map(decode, parts))
            return count / (time.perf_counter() - begin)

        kept = folder / "squares"
        clips(None, kept)
        rates = [
            (
                decoded(),
                clips(None),
                clips(augmentation),
                clips(None, kept),
                clips(augmentation, kept),
            )
            for _ in range(ROUNDS)
        ]
    only, plain, changed, again, both = (
        statistics.median(column) for column in zip(*rates, strict=True)
    )
    print(f"decoded by {cores()} cores: {only:.0f} frames a second", end="")
    print(f"; as clips {plain:.0f} ({plain / only:.2f}), ", end="")
    print(f"augmented {changed:.0f} ({changed / only:.2f}); ", end="")
    print(f"kept squares {again:.0f} ({again / only:.2f}), augmented {both / only:.2f}")


def decode(files: list[str]) -> int:
    import cv2

    cv2.setNumThreads(1)
    return sum(decode_picture(Path(file).read_bytes()).size > 0 for file in files)


def vit(folder: Path) -> None:
    """Some steps of the paper's training on a network of BiomedCLIP's shapes, random weights."""
    spec = BackboneSpec(
        name="biomedclip", trunk="vit_base_patch16_224", preprocessing=Preprocessing()
    )
    torch.manual_seed(0)
    network = Network(empty_backbone(spec), ModelOptions())
    entry = next(iter(find_studies(folder / TRAIN).values()))
    part = study_samples(entry, 5)
    few = type(part)(part.study, part.stored, part.rows[:8], part.labels[:8])
    options = TrainingOptions.model_validate(
        {"epochs": 1, "batch": 4, "sampler": {"samples": 20}, "workers": 1}
    )
    augmentation = Augmentation(options.augmentation, 224)

    def source(samples: Samples, changes: Augmentation | None) -> PictureClips:
        return PictureClips(samples, [entry.open()], ClipOptions(3, 1, Preprocessing(), changes), 1)

    watcher = Clock()
    Training(
        network,
        source(Samples([part]), augmentation),
        source(Samples([few]), None),
        options,
        judge,
        watcher,
        None,
    ).run()
    seconds = np.diff(watcher.times)
    print(f"ViT-B/16, whole network: {len(watcher.times)} steps of {options.batch} clips, ", end="")
    print(f"{statistics.median(seconds):.1f} s each; losses ", end="")
    print(" ".join(f"{loss:.3f}" for loss in watcher.losses))


class Clock(Silence):
    """Notes when every step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.losses: list[float] = []

    def stepped(self, step: Step) -> None:
        self.times.append(time.perf_counter())
        self.losses.append(step.losses["total"])


if __name__ == "__main__":
    main()

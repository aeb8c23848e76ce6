"""Training: a lite model from scratch, reading of images, steps of a ViT-B/16.

`enteron bench training` draws synthetic studies under --folder, unless they exist, then
- trains with `enteron train --preset lite`, features included, and tests on unseen NaviCam studies;
- compares the rate at which clips are read with the rate at which all cores decode images;
- fine-tunes a network with the shapes of ViT-B/16 for a few steps.
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

from benchmarks._training_data import (
    FOLDER,
    SPAWN,
    TEST,
    TRAIN,
    cores,
    make_data,
    make_features,
    score_test_studies,
)
from enteron.datasets.galar import find_studies
from enteron.folders.model import load_model
from enteron.model.network import Network, empty_backbone
from enteron.model.options import BackboneSpec, ModelOptions
from enteron.model.preprocessing import Preprocessing
from enteron.study.picture import decode_picture
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Draw
from enteron.training.loop import Step, TrainingListener, TrainingLoop
from enteron.training.options import AugmentationOptions, TrainingOptions
from enteron.training.pictures import ClipOptions, ClipSource
from enteron.training.sampling import Samples, StudySamples, study_samples

PARTS = ("lite", "reading", "vit")
CLIPS, BATCH, ROUNDS = 1280, 32, 3


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--parts", default=",".join(PARTS))
    options = arguments.parse_args()
    make_data(options.folder, options.studies, options.tests, options.frames)
    for part in options.parts.split(","):
        {"lite": lite, "reading": reading, "vit": vit}[part](options.folder)


def lite(folder: Path) -> None:
    """`enteron train` in its own process, without stored features."""
    out = folder / "lite-model"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "enteron", "train", str(folder / TRAIN), "--out", str(out)]
    started = time.perf_counter()
    subprocess.run([*command, "--preset", "lite"], check=True)
    seconds = time.perf_counter() - started
    print(f"lite, features included: {seconds / 60:.1f} minutes on {cores()} cores")
    make_features(folder, TEST)
    scores = score_test_studies(folder, load_model(out)[0])
    intervals = scores.intervals()
    for name, value in scores.metrics().items():
        low, high = intervals[name]
        print(f"NaviCam, never seen, {len(scores.truth)} studies: {name} {value:.3f} ", end="")
        print(f"[{low:.3f}, {high:.3f}]")


def reading(folder: Path) -> None:
    """Frames per second, in turns: decoding only, clips, augmented clips, both from the cache."""
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
    files = np.random.default_rng(1).permutation(files)[: 3 * CLIPS].tolist()
    augmentation = Augmentation(AugmentationOptions(), 224)

    def read_clips(augmentation: Augmentation | None, cache: Path | None = None) -> float:
        options = ClipOptions(3, 1, Preprocessing(), augmentation)
        batches = ClipSource(samples, opened, options, cores(), cache).batches(draws)
        next(batches)  # the workers have started, as those that only decode have
        started = time.perf_counter()
        frames = sum(3 * len(batch.samples) for batch in batches)
        return frames / (time.perf_counter() - started)

    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        list(pool.map(decode, [files[:8]] * cores()))  # starts the processes and their imports

        def decode_only() -> float:
            parts = [files[n::20] for n in range(20)]
            started = time.perf_counter()
            count = sum(pool.map(decode, parts))
            return count / (time.perf_counter() - started)

        cache = folder / "squares"
        read_clips(None, cache)
        read_clips(augmentation, cache)
        rates = [
            (
                decode_only(),
                read_clips(None),
                read_clips(augmentation),
                read_clips(None, cache),
                read_clips(augmentation, cache),
            )
            for _ in range(ROUNDS)
        ]
    decoding, plain, augmented, cached, cached_augmented = (
        statistics.median(column) for column in zip(*rates, strict=True)
    )
    print(f"decoded by {cores()} cores: {decoding:.0f} frames a second", end="")
    print(f"; as clips {plain:.0f} ({plain / decoding:.2f}), ", end="")
    print(f"augmented {augmented:.0f} ({augmented / decoding:.2f}); ", end="")
    print(f"cached {cached:.0f} ({cached / decoding:.2f}), ", end="")
    print(f"augmented {cached_augmented / decoding:.2f}")


def decode(files: list[str]) -> int:
    import cv2

    cv2.setNumThreads(1)
    return sum(decode_picture(Path(file).read_bytes()).size > 0 for file in files)


def vit(folder: Path) -> None:
    """A few steps of the paper's training on random weights with the shapes of BiomedCLIP."""
    spec = BackboneSpec(
        name="biomedclip", trunk="vit_base_patch16_224", preprocessing=Preprocessing()
    )
    torch.manual_seed(0)
    network = Network(empty_backbone(spec), ModelOptions())
    entry = next(iter(find_studies(folder / TRAIN).values()))
    samples = study_samples(entry, 5)
    first = StudySamples(samples.study, samples.stored, samples.rows[:8], samples.labels[:8])
    options = TrainingOptions.model_validate(
        {"epochs": 1, "batch": 4, "sampler": {"samples": 20}, "workers": 1}
    )
    augmentation = Augmentation(options.augmentation, 224)

    def source(study: StudySamples, augmentation: Augmentation | None) -> ClipSource:
        clip_options = ClipOptions(3, 1, Preprocessing(), augmentation)
        return ClipSource(Samples([study]), [entry.open()], clip_options, 1)

    clock = Clock()
    train, val = source(samples, augmentation), source(first, None)
    TrainingLoop(network, train, val, options, listeners=(clock,)).run()
    seconds = np.diff(clock.times)
    print(f"ViT-B/16, whole network: {len(clock.times)} steps of {options.batch} clips, ", end="")
    print(f"{statistics.median(seconds):.1f} s each; losses ", end="")
    print(" ".join(f"{loss:.3f}" for loss in clock.losses))


class Clock(TrainingListener):
    """Records when every step ended, and its loss."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.losses: list[float] = []

    def on_step(self, step: Step) -> None:
        self.times.append(time.perf_counter())
        self.losses.append(step.losses["total"])


if __name__ == "__main__":
    main()

"""Clip spacing: models of studies stored at every fifth frame on studies stored at every frame.

Synthetic PillCam and Olympus studies of which every fifth frame is stored train (recipe `lite`);
NaviCam studies, of which every frame is stored, test: with stored neighbours (decision 1), then
with the spacing of the training (`enteron read --neighbour-step trained`), and single frames by a
model trained so. Three seeds; differences are paired, intervals resample test studies.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks._training_data import (
    FOLDER,
    METRICS,
    SPAWN,
    TEST,
    TRAIN,
    UnseenScores,
    cores,
    make_data,
    make_features,
    open_features,
    score_test_studies,
    train_on_features,
    training_split,
)
from benchmarks.ensembles import show
from enteron.datasets.galar import find_studies
from enteron.datasets.splits import Split
from enteron.inference.spacing import Spacing, trained_step
from enteron.training.batches import clip_spacings
from enteron.training.sampling import Samples, study_samples
from enteron.types import FrameAxis

STRIDE = 5


@dataclass(frozen=True)
class Task:
    """One training, and the steps that it is tested with."""

    folder: Path
    seed: int
    split: Split
    draws: int | None
    frames: int  # of a clip
    steps: tuple[int, ...]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--draws", type=int, help="clips per epoch (default: all frames)")
    options = arguments.parse_args()
    folder = options.folder
    make_data(folder, options.studies, options.tests, options.frames)
    for name in (TRAIN, TEST):
        make_features(folder, name)
    split = of_stride(folder, training_split(folder), STRIDE)
    spacings = spacings_of(folder, split)
    strides = {stored_stride(folder, TEST, study) for study in find_studies(folder / TEST)}
    (stride,) = strides
    step = trained_step(spacings, stride)
    listed = ", ".join(f"{s.frames} frames {s.share:.0%}" for s in spacings)
    print(f"{len(split.train)} studies train, spacings: {listed}; ", end="")
    print(f"stored frames of the tests are {stride} apart, so the step is {step}")
    seeds = range(42, 42 + options.seeds)
    tasks = [Task(folder, seed, split, options.draws, 3, (1, step)) for seed in seeds]
    tasks += [Task(folder, seed, split, options.draws, 1, (1,)) for seed in seeds]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        tested = list(pool.map(run, tasks))
    clips, single = tested[: options.seeds], tested[options.seeds :]
    columns = " | ".join(f"{name} | difference" for name in METRICS.values())
    print(f"\n| {len(clips[0][1].truth)} test studies | {columns} |")
    print("|---|" + "---|" * (2 * len(METRICS)))
    stored = [scores[1] for scores in clips]
    show("stored neighbours", stored)
    show(f"neighbours as in training, {step} frames apart", [s[step] for s in clips], stored)
    show("single frames, trained so", [scores[1] for scores in single], stored)


def stored_stride(folder: Path, name: str, study: str) -> int:
    return FrameAxis(open_features(folder, name, study).frames).step


def of_stride(folder: Path, split: Split, stride: int) -> Split:
    """The studies of a split that are stored at every `stride`-th frame."""
    train, val = (
        tuple(s for s in part if stored_stride(folder, TRAIN, s) == stride)
        for part in (split.train, split.val)
    )
    return Split(train, val or split.val, (), split.rule)


def spacings_of(folder: Path, split: Split) -> tuple[Spacing, ...]:
    """What a model folder of this training would say."""
    studies = find_studies(folder / TRAIN)
    return clip_spacings(Samples([study_samples(studies[s], 1) for s in split.train]), 3, 1)


def run(task: Task) -> dict[int, UnseenScores]:
    """One training, and its scores of the test studies with each step."""
    import torch

    torch.set_num_threads(1)

    from enteron.training.options import recipe

    changes = {"sampler": {"samples": task.draws}, "model": {"frames": task.frames}}
    options = recipe("lite", **changes, seed=task.seed)
    network = train_on_features(task.folder, task.split, options).network
    return {step: score_test_studies(task.folder, network, step=step) for step in task.steps}


if __name__ == "__main__":
    main()

"""Several models and several views: what averaging their scores is worth, and what it costs.

Synthetic PillCam and Olympus studies train (recipe `lite`, stored features), NaviCam studies test.
First table: three seeds on one split, and three folds of the same studies, each against the mean of
its single models. Second table: views of each picture, scored by the three seeds. Differences are
paired; intervals resample test studies.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    paired_gain,
    score_test_studies,
    train_on_features,
    training_split,
)
from enteron.datasets.galar import find_studies
from enteron.datasets.splits import Split
from enteron.inference.embed import embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.views import VIEW_SETS, ViewSet
from enteron.model.backbones import lite_backbone
from enteron.training.folds import divide
from enteron.training.sampling import study_samples

MODELS = 3
ROUNDS = 3
TIMED_FRAMES = 16


@dataclass(frozen=True)
class Task:
    """One training, and what its model is tested with."""

    folder: Path
    seed: int
    split: Split
    draws: int | None
    features: str  # of the test studies, with all eight views
    views: tuple[ViewSet, ...]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument(
        "--thinned", type=int, default=1, help="test on every so many-th stored frame only"
    )
    arguments.add_argument("--draws", type=int, help="clips per epoch (default: all frames)")
    options = arguments.parse_args()
    folder = options.folder
    make_data(folder, options.studies, options.tests, options.frames)
    make_features(folder, TRAIN)
    turned = f"{TEST}-d4-{options.thinned}"
    make_features(folder, TEST, turned, VIEW_SETS["d4"], options.thinned)
    split, every = training_split(folder), tuple(VIEW_SETS)
    seeds = [Task(folder, 42 + n, split, options.draws, turned, every) for n in range(MODELS)]
    folds = [Task(folder, 42, f, options.draws, turned, ("flip",)) for f in divided(folder)]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        tested = list(pool.map(run, [*seeds, *folds]))
    by_seed, by_fold = tested[:MODELS], tested[MODELS:]
    flips = [scores["flip"] for scores in by_seed]
    folded = [scores["flip"] for scores in by_fold]
    print(f"\n| {len(flips[0].truth)} test studies | {' | '.join(with_gain(METRICS.values()))} |")
    print("|---|" + "---|" * (2 * len(METRICS)))
    show("one model, mean of three seeds", flips)
    show("three seeds, mean of probabilities", [combined(flips)], flips)
    show("three seeds, mean of log-odds", [combined(flips, log_odds, sigmoid)], flips)
    show("one model, mean of three folds", folded)
    show("three folds, mean of probabilities", [combined(folded)], folded)
    costs = encoding_costs(folder)
    columns = " | ".join(with_gain(METRICS.values(), "against none"))
    print(f"\n| views | images a frame | processor time | {columns} |")
    print("|---|---|---|" + "---|" * (2 * len(METRICS)))
    plain = [scores["none"] for scores in by_seed]
    for name, views in VIEW_SETS.items():
        scores = [each[name] for each in by_seed]
        title = f"{name} | {len(views)} | {costs[name] / costs['none']:.1f}"
        show(title, scores, None if name == "none" else plain)


def divided(folder: Path) -> list[Split]:
    """Folds of all training studies; what a fold leaves out chooses its epoch."""
    studies = find_studies(folder / TRAIN)
    shows = {name: study_samples(e, 1).labels.present_counts > 0 for name, e in studies.items()}
    parts = divide(list(studies), MODELS, 42, shows)
    return [
        Split(tuple(s for other in parts if other is not part for s in other), tuple(part), (), "")
        for part in parts
    ]


def run(task: Task) -> dict[ViewSet, UnseenScores]:
    """One training, and its scores of the test studies with each set of views."""
    import torch

    torch.set_num_threads(1)

    from enteron.training.options import recipe

    options = recipe("lite", sampler={"samples": task.draws}, seed=task.seed)
    network = train_on_features(task.folder, task.split, options).network
    return {
        views: score_test_studies(task.folder, network, views=views, features=task.features)
        for views in task.views
    }


def log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    clipped = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
    return np.log(clipped / (1 - clipped))


def sigmoid(odds: NDArray[np.floating]) -> NDArray[np.floating]:
    return 1 / (1 + np.exp(-odds))


def combined(
    models: Sequence[UnseenScores],
    scale: Callable[[NDArray[np.float32]], NDArray[np.floating]] = lambda values: values,
    back: Callable[[NDArray[np.floating]], NDArray[np.floating]] = lambda values: values,
) -> UnseenScores:
    """The mean of several models' scores, as `enteron combine --scores raw` makes it."""
    scores = [
        back(np.mean([scale(model.scores[study]) for model in models], axis=0)).astype(np.float32)
        for study in range(len(models[0].truth))
    ]
    return UnseenScores(models[0].truth, scores)


def encoding_costs(folder: Path) -> dict[ViewSet, float]:
    """Processor seconds to decode, resize and encode a study with each set, medians of rounds."""
    import tempfile

    backbone = lite_backbone()
    encoder = make_encoder(backbone, default_runtime(backbone))
    study = next(iter(find_studies(folder / TEST).values())).open()
    part = study.numbers[:TIMED_FRAMES]
    seconds: dict[ViewSet, list[float]] = {name: [] for name in VIEW_SETS}
    from enteron.study import open_study

    for _ in range(ROUNDS):
        for name, views in VIEW_SETS.items():
            with tempfile.TemporaryDirectory() as scratch:
                few = open_study(Path(study.files()[0]).parent, only=part)
                begin = time.process_time()
                embed_study(few, encoder, Path(scratch) / "s.npy", views=views)
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def with_gain(names: Iterable[str], gain: str = "gain") -> list[str]:
    return [column for name in names for column in (name, gain)]


def show(
    title: str, models: Sequence[UnseenScores], other: Sequence[UnseenScores] | None = None
) -> None:
    """One row: means over models, and differences to the others with 95 % intervals."""
    metrics = [model.metrics() for model in models]
    gains = None if other is None else paired_gain(models, other)
    cells: list[str] = []
    for name in METRICS:
        cells.append(f"{np.mean([m[name] for m in metrics]):.3f}")
        cells.append("" if gains is None else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*gains[name]))
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Why one frame beats three: the network with parts of its clip taken away, one at a time.

Trainings of `lite` on drawn PillCam and Olympus studies, tested on NaviCam studies, several seeds;
the data of the benchmark `context`. Every row is compared with one frame, seed by seed. `half of
the studies` trains one frame and three on half as many: if data were the cause, the gap would grow.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks._training_data import (
    METRICS,
    SPAWN,
    TEST,
    TRAIN,
    UnseenScores,
    cores,
    make_data,
    make_features,
    score_test_studies,
    train_on_features,
    training_split,
)
from benchmarks.context import FOLDER
from enteron.inference.views import VIEW_SETS

ONE = "one frame"
HALF = ", half of the studies"
NO_DELTA = "three frames, no delta"
ROWS: dict[str, dict[str, Any]] = {
    ONE: {"frames": 1},
    "three frames": {},
    "three frames, no attention (delta of plain features)": {"local_differencing": False},
    NO_DELTA: {},
    "three frames, five rows apart": {"neighbour_step": 5},
    "three frames, five rows apart, no attention": {
        "neighbour_step": 5,
        "local_differencing": False,
    },
    "three times the same frame": {"neighbour_step": 1},
    ONE + HALF: {"frames": 1},
    "three frames" + HALF: {},
}
SAME = "three times the same frame"


@dataclass(frozen=True)
class Task:
    """One training of the table."""

    folder: Path
    row: str
    seed: int


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=28)
    arguments.add_argument("--tests", type=int, default=20)
    arguments.add_argument("--frames", type=int, default=2000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument(
        "--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="beside one frame"
    )
    options = arguments.parse_args()
    make_data(options.folder, options.studies, options.tests, options.frames)
    for name in (TRAIN, TEST):
        make_features(options.folder, name, views=VIEW_SETS["none"])
    asked = {ONE, *options.rows}
    if any(row.endswith(HALF) for row in asked):
        asked.add(ONE + HALF)  # what the others are compared with
    tasks = [
        Task(options.folder, row, seed)
        for row in ROWS
        if row in asked
        for seed in range(42, 42 + options.seeds)
    ]
    results: dict[str, list[dict[str, float]]] = {}
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        for task, scores in zip(tasks, pool.map(run, tasks), strict=True):
            results.setdefault(task.row, []).append(scores.metrics())
            print(f"# {task.row}, seed {task.seed}", flush=True)
    show(results)


def run(task: Task) -> UnseenScores:
    """One training, scored on the test studies."""
    import torch

    torch.set_num_threads(1)

    from enteron.training.options import recipe

    options = recipe("lite", None, model=ROWS[task.row], seed=task.seed)
    split = training_split(task.folder)
    if task.row.endswith(HALF):
        split = replace(split, train=split.train[::2])
    with _changed(task.row):
        network = train_on_features(task.folder, split, options).network
        return score_test_studies(task.folder, network, views="none")


def _changed(row: str) -> Any:
    """The network without what the row takes away, for as long as it is trained and scored."""
    from enteron.model import network

    def no_delta(windows: Any) -> Any:
        temporal = network.TemporalFeatures(windows[:, -1], windows[:, -1])
        return temporal._replace(delta=temporal.delta * 0)

    def same(self: Any, windows: Any) -> Any:
        return forward(self, windows[:, -1:].expand_as(windows))

    forward = network.LocalDifferencing.forward
    if row == NO_DELTA:
        return mock.patch.object(network, "temporal_features", no_delta)
    if row == SAME:
        return mock.patch.multiple(
            network.LocalDifferencing,
            forward=same,
            over_study=lambda self, features, rows: same(self, features[rows])[:, -2:],
        )
    return mock.patch.object(network, "temporal_features", network.temporal_features)


def show(results: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n| | {' | '.join(f'{name} | minus one frame' for name in METRICS.values())} |")
    print("|---|" + "---|" * (2 * len(METRICS)))
    for row, seeds in results.items():
        base = results[ONE + HALF] if row.endswith(HALF) else results[ONE]
        cells: list[str] = []
        for key in METRICS:
            values = np.array([metrics[key] for metrics in seeds])
            difference = values - np.array([metrics[key] for metrics in base])
            cells.append(f"{values.mean():.3f}")
            cells.append(
                ""
                if base is seeds
                else f"{difference.mean():+.3f} [{difference.min():+.3f}, {difference.max():+.3f}]"
            )
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

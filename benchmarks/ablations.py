"""Ablations: trainings without one part of the method each, several seeds, unseen studies.

Synthetic PillCam and Olympus studies train (recipe `lite`, features stored once and shared),
NaviCam studies with another seed test. `enteron bench ablations` makes missing data under --folder
and prints the table; `-- --rows "full system,one frame"` runs only these rows.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._training_data import (
    FOLDER,
    METRICS,
    SPAWN,
    TEST,
    TRAIN,
    cores,
    make_data,
    make_features,
    score_test_studies,
    train_on_features,
    training_split,
)
from enteron.datasets.galar import Entry
from enteron.training.sampling import StudySamples
from enteron.types import FrameLabels

FULL = "full system"
BY_INDEX = "labels joined on index"
ROWS: dict[str, dict[str, Any]] = {
    FULL: {},
    "soft targets focused jointly": {"losses": {"soft_targets": "joint"}},
    "without LDA": {"model": {"local_differencing": False}},
    "without anatomy conditioning": {"model": {"anatomy_conditioning": False}},
    "without prototypes": {"model": {"prototypes": False}},
    "without angular loss": {"losses": {"angular": 0.0}},
    "without contrastive path": {"model": {"contrastive": False}},
    "plain cross-entropy": {
        "losses": {"gamma_positive": 0.0, "gamma_negative": 0.0, "margin": 0.0}
    },
    "without balanced sampling": {"sampler": {"balanced": False}},
    "without EMA": {"ema": 0.0, "ema_rise": False},
    "without mixup": {"mixup": 0.0},
    "one frame": {"model": {"frames": 1}},
    "without biases": {"model": {"biases": False}},
    BY_INDEX: {},
}


@dataclass(frozen=True)
class Task:
    """One training of the table."""

    folder: Path
    row: str
    seed: int
    draws: int | None = None  # per epoch


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--draws", type=int, help="clips per epoch (default: all frames)")
    arguments.add_argument("--rows", default=",".join(ROWS))
    arguments.add_argument("--json", type=Path, help="also write every metric here")
    options = arguments.parse_args()
    make_data(options.folder, options.studies, options.tests, options.frames)
    for name in (TRAIN, TEST):
        make_features(options.folder, name)
    tasks = [
        Task(options.folder, row, seed, options.draws)
        for row in options.rows.split(",")
        for seed in range(42, 42 + options.seeds)
    ]
    started = time.perf_counter()
    results: dict[str, list[dict[str, float]]] = {}
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        for task, metrics in zip(tasks, pool.map(run, tasks), strict=True):
            results.setdefault(task.row, []).append(metrics)
            print(f"# {task.row}, seed {task.seed}: {as_text(metrics)}", flush=True)
    print(f"# {len(tasks)} trainings in {(time.perf_counter() - started) / 60:.0f} minutes")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    print_table(results)


def run(task: Task) -> dict[str, float]:
    """One training and its metrics on the unseen studies."""
    import torch

    torch.set_num_threads(1)  # one training per core instead of all cores for one

    from enteron.training.options import recipe

    changes = ROWS[task.row]
    sampler = {**changes.get("sampler", {}), "samples": task.draws}
    table: dict[str, Any] = {**changes, "sampler": sampler, "seed": task.seed}
    options = recipe("lite", None, **table)
    samples_of = by_index if task.row == BY_INDEX else None
    split = training_split(task.folder)
    result = train_on_features(task.folder, split, options, samples_of)
    metrics = score_test_studies(task.folder, result.network).metrics()
    return {**metrics, "epoch": result.best.epoch}


def by_index(entry: Entry) -> StudySamples:
    """Samples joined as in the authors' public code, which takes row numbers for frame numbers.

    Where every fifth frame is stored, an image gets the labels of another moment, and four of five
    images get none. Used only to measure the cost of this mistake.
    """
    table, images = entry.table(), entry.open().numbers
    frames, rows, _ = np.intersect1d(table.index, images, return_indices=True)
    labels = FrameLabels.complete(table.values[rows])
    return StudySamples(entry.id, images, np.searchsorted(images, frames), labels)


def as_text(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {metrics[key]:.3f}" for key, name in METRICS.items())


def print_table(results: dict[str, list[dict[str, float]]]) -> None:
    """Print mean over seeds, spread (largest minus smallest) and paired difference to FULL."""
    print(f"\n| | {' | '.join(f'{name} | difference' for name in METRICS.values())} |")
    print("|---|" + "---|" * (2 * len(METRICS)))
    for row, seeds in results.items():
        cells: list[str] = []
        for key in METRICS:
            values = np.array([metrics[key] for metrics in seeds])
            cells.append(f"{values.mean():.3f} ({np.ptp(values):.3f})")
            if row == FULL or FULL not in results:
                cells.append("")
                continue
            difference = values - np.array([metrics[key] for metrics in results[FULL]])
            low, high = difference.min(), difference.max()
            cells.append(f"{difference.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

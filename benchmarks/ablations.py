"""What each part of the method is worth: trainings without it, several seeds, unseen studies.

Synthetic studies of PillCam and Olympus train (recipe `lite`, features stored once and shared),
NaviCam studies with another seed test. `enteron bench ablations` makes what is missing under
--folder and prints the table; `-- --rows "full system,one frame"` runs some of it.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._lessons import (
    FOLDER,
    SPAWN,
    TEST,
    TRAIN,
    cores,
    make_data,
    make_features,
    stored,
    tested,
)
from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.splits import seeded_split
from enteron.training.sampling import StudySamples, study_samples

FULL = "full system"
BY_INDEX = "labels joined on index"
ROWS: dict[str, dict[str, Any]] = {
    FULL: {},
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
FIGURES = {"findings": "findings AP", "regions": "region accuracy", "all": "AP of all labels"}
VALIDATION = 0.25


@dataclass(frozen=True)
class Task:
    """One training of the table."""

    folder: Path
    row: str
    seed: int


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="data and features")
    arguments.add_argument("--studies", type=int, default=16)
    arguments.add_argument("--tests", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--rows", default=",".join(ROWS))
    arguments.add_argument("--json", type=Path, help="also write every figure here")
    given = arguments.parse_args()
    make_data(given.folder, given.studies, given.tests, given.frames)
    for name in (TRAIN, TEST):
        make_features(given.folder, name)
    tasks = [
        Task(given.folder, row, seed)
        for row in given.rows.split(",")
        for seed in range(42, 42 + given.seeds)
    ]
    begin = time.perf_counter()
    found: dict[str, list[dict[str, float]]] = {}
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        for task, figures in zip(tasks, pool.map(run, tasks), strict=True):
            found.setdefault(task.row, []).append(figures)
            print(f"# {task.row}, seed {task.seed}: {shown(figures)}", flush=True)
    print(f"# {len(tasks)} trainings in {(time.perf_counter() - begin) / 60:.0f} minutes")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    print_table(found)


def run(task: Task) -> dict[str, float]:
    """One training and its figures on the unseen studies."""
    import torch

    torch.set_num_threads(1)  # a training for every core, instead of all cores for one

    from enteron.model.network import start_network
    from enteron.training.company import Silence
    from enteron.training.features import StoredStudy, StoredWindows
    from enteron.training.loop import Training
    from enteron.training.options import recipe
    from enteron.training.run import judge

    options = recipe("lite", **ROWS[task.row], seed=task.seed)
    studies = find_studies(task.folder / TRAIN)
    split = seeded_split(studies, seed=42, val=VALIDATION)

    def source(members: tuple[str, ...]) -> StoredWindows:
        made: list[StoredStudy] = []
        for study in members:
            entry, kept = studies[study], stored(task.folder, TRAIN, study)
            samples = by_index(entry) if task.row == BY_INDEX else study_samples(entry, 1)
            made.append(StoredStudy(samples, np.asarray(kept.features), kept.readable))
        return StoredWindows(made, options.model.frames, 1)

    network = start_network(options.model, options.seed)
    training = Training(
        network, source(split.train), source(split.val), options, judge, Silence(), None
    )
    outcome = training.run()
    best = outcome.history.best
    assert best is not None
    return {**tested(task.folder, outcome.network).figures(), "epoch": best.epoch}


def by_index(entry: Entry) -> StudySamples:
    """As the authors' public code joined: the row number taken for the frame number.

    Where every fifth frame is stored, an image gets the labels of another moment, and four of five
    images get none. Here only, to see what it costs.
    """
    table, images = entry.table(), entry.open().numbers
    frames, row, _ = np.intersect1d(table.index, images, return_indices=True)
    return StudySamples(entry.id, images, np.searchsorted(images, frames), table.values[row])


def shown(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {figures[key]:.3f}" for key, name in FIGURES.items())


def print_table(found: dict[str, list[dict[str, float]]]) -> None:
    """Mean over seeds, spread (largest minus smallest), and the paired difference to the full."""
    print(f"\n| | {' | '.join(f'{name} | difference' for name in FIGURES.values())} |")
    print("|---|" + "---|" * (2 * len(FIGURES)))
    for row, figures in found.items():
        cells: list[str] = []
        for key in FIGURES:
            values = np.array([f[key] for f in figures])
            cells.append(f"{values.mean():.3f} ({np.ptp(values):.3f})")
            if row == FULL or FULL not in found:
                cells.append("")
                continue
            gap = values - np.array([f[key] for f in found[FULL]])
            cells.append(f"{gap.mean():+.3f} [{gap.min():+.3f}, {gap.max():+.3f}]")
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

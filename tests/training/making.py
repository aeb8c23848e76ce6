"""Small trainings: features that tell the label, a network without a backbone worth the name."""

from pathlib import Path

import numpy as np
import torch

from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.model.network import Network
from enteron.model.options import ModelOptions
from enteron.training.batches import Source
from enteron.training.company import Silence
from enteron.training.distributed import Processes
from enteron.training.features import StoredStudy, StoredWindows
from enteron.training.loop import Judge, Training, Watcher
from enteron.training.options import TrainingOptions
from enteron.training.run import judge
from enteron.training.sampling import StudySamples
from tests.model.making import FakeBackbone

MODEL = {"backbone": "vit-tiny"}


def small_options(**changes: object) -> TrainingOptions:
    """Some steps of a frozen training."""
    table = {
        "regime": "frozen",
        "model": MODEL,
        "data": {"stride": 1},
        "epochs": 2,
        "batch": 16,
        "workers": 0,
        "checkpoint_steps": 3,
        "ema": 0.9,
        "optimiser": {"head_rate": 1e-3},
    }
    return TrainingOptions.model_validate({**table, **changes})


def some_labels(count: int, seed: int) -> np.ndarray:
    """(count, 17): a region per row in transit order, and rare findings."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((count, len(LABELS)), dtype=bool)
    labels[np.arange(count), np.arange(count) * len(REGIONS) // count] = True
    labels[rng.random(count) < 0.2, COLUMN["blood"]] = True
    labels[rng.random(count) < 0.05, COLUMN["polyp"]] = True
    return labels


def stored_study(name: str, count: int = 32, seed: int = 0, views: int = 1) -> StoredStudy:
    """Features that carry their labels in 17 fixed directions, and noise."""
    labels = some_labels(count, seed)
    rng = np.random.default_rng(seed + 1000)
    directions = np.random.default_rng(7).normal(size=(len(LABELS), 512))
    noise = rng.normal(size=(count, views, 512))
    features = (labels @ directions)[:, None] + noise
    rows = np.arange(count)
    samples = StudySamples(name, 5 * rows, rows, labels)
    return StoredStudy(samples, features.astype(np.float32), rows)


def sources(views: int = 1, frames: int = 3) -> tuple[StoredWindows, StoredWindows]:
    """Three studies to train on, one to validate on."""
    train = [stored_study(str(n), seed=n, views=views) for n in (1, 2, 3)]
    val = [stored_study("4", seed=4, views=views)]
    return StoredWindows(train, frames, 1), StoredWindows(val, frames, 1)


def small_network(options: TrainingOptions) -> Network:
    torch.manual_seed(options.seed)
    return Network(FakeBackbone(), ModelOptions.model_validate(options.model))


def small_training(
    options: TrainingOptions,
    folder: Path | None = None,
    watcher: Watcher | None = None,
    processes: Processes | None = None,
    given: tuple[Source, Source] | None = None,
    judge: Judge = judge,
) -> Training:
    train, val = given or sources(max(options.views, 1), options.model.frames)
    network = small_network(options)
    return Training(network, train, val, options, judge, watcher or Silence(), folder, processes)

"""Small trainings for the tests: features that carry their labels, and a minimal backbone."""

from pathlib import Path

import numpy as np
import torch

from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.model.network import Network
from enteron.model.options import ModelOptions
from enteron.progress import Progress
from enteron.training.batches import BatchSource
from enteron.training.distributed import Processes
from enteron.training.features import FeatureSource, StudyFeatures
from enteron.training.loop import Metrics, TrainingListener, TrainingLoop
from enteron.training.options import TrainingOptions
from enteron.training.results import validation_metrics
from enteron.training.sampling import StudySamples
from enteron.types import FrameLabels
from tests.model.making import FakeBackbone

MODEL = {"backbone": "vit-tiny"}


def small_options(**changes: object) -> TrainingOptions:
    """A few steps of the frozen regime."""
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


def study_features(name: str, count: int = 32, seed: int = 0, views: int = 1) -> StudyFeatures:
    """Features that carry their labels in 17 fixed directions, plus noise."""
    labels = some_labels(count, seed)
    rng = np.random.default_rng(seed + 1000)
    directions = np.random.default_rng(7).normal(size=(len(LABELS), 512))
    noise = rng.normal(size=(count, views, 512))
    features = (labels @ directions)[:, None] + noise
    rows = np.arange(count)
    samples = StudySamples(name, 5 * rows, rows, FrameLabels.complete(labels))
    return StudyFeatures(samples, features.astype(np.float32), rows)


def sources(views: int = 1, frames: int = 3) -> tuple[FeatureSource, FeatureSource]:
    """Three studies to train on, one to validate on."""
    train = [study_features(str(n), seed=n, views=views) for n in (1, 2, 3)]
    val = [study_features("4", seed=4, views=views)]
    return FeatureSource(train, frames, 1), FeatureSource(val, frames, 1)


def small_network(options: TrainingOptions) -> Network:
    torch.manual_seed(options.seed)
    return Network(FakeBackbone(), ModelOptions.model_validate(options.model))


def small_loop(
    options: TrainingOptions,
    folder: Path | None = None,
    listener: TrainingListener | None = None,
    processes: Processes | None = None,
    data: tuple[BatchSource, BatchSource] | None = None,
    metrics: Metrics = validation_metrics,
    progress: Progress | None = None,
) -> TrainingLoop:
    train, val = data or sources(max(options.views, 1), options.model.frames)
    return TrainingLoop(
        small_network(options),
        train,
        val,
        options,
        folder=folder,
        progress=progress,
        listeners=() if listener is None else (listener,),
        processes=processes,
        metrics=metrics,
    )

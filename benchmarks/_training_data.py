"""Synthetic data, stored features and test results, shared by the benchmarks of training."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.splits import Split, seeded_split
from enteron.datasets.submission import read_submission
from enteron.fitting.frames import label_rows
from enteron.inference.embed import embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.inference.store import Embeddings, open_embeddings
from enteron.inference.views import VIEW_SETS, View, ViewSet
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.metrics.frames import frame_metrics
from enteron.model.backbones import lite_backbone
from enteron.model.network import Network
from enteron.study import open_study
from enteron.training.results import findings_ap, region_accuracy
from enteron.training.sampling import StudySamples, study_samples
from enteron.types import FrameLabels

if TYPE_CHECKING:
    from enteron.training.loop import TrainingResult
    from enteron.training.options import TrainingOptions

FOLDER = Path(tempfile.gettempdir()) / "enteron-training"
TRAIN, TEST = "mixed", "navicam"
VALIDATION = 0.25
RESAMPLES = 500
METRICS = {"findings": "findings AP", "regions": "region accuracy", "all": "AP of all labels"}


@dataclass(frozen=True)
class UnseenScores:
    """Scores and truth of the test studies."""

    truth: list[NDArray[np.bool_]]  # per study (rows, 17)
    scores: list[NDArray[np.float32]]  # per study (rows, 17)

    def metrics(self, studies: NDArray[np.int64] | None = None) -> dict[str, float]:
        """Metrics of all studies, or of a resample of them."""
        chosen = range(len(self.truth)) if studies is None else studies
        truth = np.concatenate([self.truth[i] for i in chosen])
        scores = np.concatenate([self.scores[i] for i in chosen])
        frames = frame_metrics(truth, scores)
        return {
            "findings": findings_ap(frames),
            "regions": region_accuracy(FrameLabels.complete(truth), scores) or 0.0,
            "all": frames.macro("ap", "left out"),
        }

    @cached_property
    def _ranked(self) -> "_RankedScores":
        return _RankedScores(np.concatenate(self.truth), np.concatenate(self.scores))

    def resampled(self, studies: NDArray[np.int64]) -> dict[str, float]:
        """`metrics` of a resample of the studies, by counting how often each was drawn."""
        return self.weighted(np.bincount(studies, minlength=len(self.truth)).astype(np.float64))

    def weighted(self, drawn: NDArray[np.float64]) -> dict[str, float]:
        """`metrics` where each study counts as often as `drawn` (studies,) says."""
        return self._ranked.metrics(np.repeat(drawn, [len(study) for study in self.truth]))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals by resampling studies."""
        rng = np.random.default_rng(0)
        count = len(self.truth)
        resamples = [self.resampled(rng.integers(count, size=count)) for _ in range(RESAMPLES)]
        return {
            name: tuple(np.quantile([metrics[name] for metrics in resamples], (0.025, 0.975)))
            for name in resamples[0]
        }


class _RankedScores:
    """The metrics of weighted rows: every label is sorted once, whatever the weights."""

    def __init__(self, truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
        self._order = np.argsort(-scores, axis=0, kind="stable")
        self._truth = np.take_along_axis(truth, self._order, axis=0)
        regions = len(REGIONS)
        self._known = truth[:, :regions].any(axis=1)
        right = np.take_along_axis(truth, scores[:, :regions].argmax(axis=1)[:, None], axis=1)
        self._right = right[:, 0]

    def metrics(self, weights: NDArray[np.float64]) -> dict[str, float]:
        """What `UnseenScores.metrics` gives if every row is there `weights` times."""
        weight = weights[self._order]
        hits = weight * self._truth
        support = hits.sum(axis=0)
        precision = np.cumsum(hits, axis=0) / np.maximum(np.cumsum(weight, axis=0), 1e-12)
        with np.errstate(invalid="ignore"):
            ap = (precision * hits).sum(axis=0) / support
        findings = [COLUMN[label] for label in FINDINGS if support[COLUMN[label]] > 0]
        known = weights * self._known
        return {
            "findings": float(ap[findings].mean()) if findings else 0.0,
            "regions": float((known * self._right).sum() / max(known.sum(), 1e-12)),
            "all": float(ap[support > 0].mean()),
        }


def make_data(folder: Path, studies: int, tests: int, frames: int) -> None:
    """Draw the training studies (PillCam, Olympus) and test studies (NaviCam) that are missing."""
    draw_studies(folder / TRAIN, studies, frames, 1, TRAIN)
    draw_studies(folder / TEST, tests, frames, 2, TEST)


def draw_studies(
    root: Path, studies: int, frames: int, seed: int, device: str, *, video: bool = False
) -> None:
    """Draw the studies of a root that are missing, as `enteron phantom` does."""
    command = [sys.executable, "-m", "enteron", "phantom", str(root)]
    command += ["--studies", str(studies), "--frames", str(frames)]
    command += ["--seed", str(seed), "--device", device, *(["--video"] if video else [])]
    subprocess.run(command, check=True)


def make_features(
    folder: Path,
    name: str,
    features_name: str | None = None,
    views: Sequence[View] = VIEW_SETS["flip"],
    thinned: int = 1,
) -> None:
    """Encode the studies of one root that have no stored features yet.

    `thinned`: as if only every so many-th frame had been stored.
    """
    backbone = lite_backbone()
    encoder = make_encoder(backbone, default_runtime(backbone))
    features = features_folder(folder, features_name or name)
    features.mkdir(parents=True, exist_ok=True)
    for study, entry in find_studies(folder / name).items():
        opened = entry.open()
        if thinned > 1:
            folder_of_frames = Path(opened.files()[0]).parent
            opened = open_study(folder_of_frames, study_id=study, only=opened.numbers[::thinned])
        embed_study(opened, encoder, features / f"{study}.npy", views=views)


def features_folder(folder: Path, name: str) -> Path:
    return folder / "features" / name


def open_features(folder: Path, name: str, study: str) -> Embeddings:
    return open_embeddings(features_folder(folder, name) / f"{study}.npy", check=False)


def score_test_studies(
    folder: Path,
    network: Network,
    *,
    views: ViewSet = "flip",
    step: int | None = None,
    features: str = TEST,
) -> UnseenScores:
    """Score the test studies, with both flips by default, as `enteron read` does."""
    truths = {a.study: a for a in read_submission(folder / TEST / "truth.json")}
    truth, values = [], []
    for study in find_studies(folder / TEST):
        stored = open_features(folder, features, study)
        scores = score_study(network, stored, views=views, step=step)
        values.append(scores.values)
        truth.append(label_rows(scores, truths[study]))
    return UnseenScores(truth, values)


def training_split(folder: Path) -> Split:
    """The studies that train and those that choose the epoch, the same for every seed."""
    return seeded_split(find_studies(folder / TRAIN), seed=42, val=VALIDATION)


def train_on_features(
    folder: Path,
    split: Split,
    options: "TrainingOptions",
    samples_of: Callable[[Entry], StudySamples] | None = None,
) -> "TrainingResult":
    """Train a head on stored features of the training root; `samples_of`: how labels are joined."""
    from enteron.model.network import start_network
    from enteron.training.features import FeatureSource, StudyFeatures
    from enteron.training.loop import TrainingLoop

    studies = find_studies(folder / TRAIN)

    def source(members: tuple[str, ...]) -> FeatureSource:
        features: list[StudyFeatures] = []
        for study in members:
            entry, stored = studies[study], open_features(folder, TRAIN, study)
            samples = study_samples(entry, 1) if samples_of is None else samples_of(entry)
            features.append(StudyFeatures(samples, np.asarray(stored.features), stored.readable))
        return FeatureSource(features, options.model.frames, options.model.neighbour_step)

    network = start_network(options.model, options.seed)
    return TrainingLoop(network, source(split.train), source(split.val), options).run()


def paired_gain(
    better: Sequence[UnseenScores], other: Sequence[UnseenScores]
) -> dict[str, tuple[float, float, float]]:
    """Difference of mean metrics over models, and its 95 % interval by resampling studies."""
    rng = np.random.default_rng(0)
    count = len(better[0].truth)
    draws = [np.arange(count), *(rng.integers(count, size=count) for _ in range(RESAMPLES))]

    def difference(studies: NDArray[np.int64]) -> dict[str, float]:
        one, two = ([scores.resampled(studies) for scores in models] for models in (better, other))
        return {
            name: float(np.mean([m[name] for m in one]) - np.mean([m[name] for m in two]))
            for name in one[0]
        }

    overall, *resampled = [difference(studies) for studies in draws]
    return {
        name: (value, *np.quantile([r[name] for r in resampled], (0.025, 0.975)))
        for name, value in overall.items()
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2


SPAWN = multiprocessing.get_context("spawn")

"""Synthetic data, stored features and test results, shared by the benchmarks of training."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.galar import find_studies
from enteron.datasets.submission import read_submission
from enteron.fitting.frames import label_rows
from enteron.inference.embed import embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.inference.store import Embeddings, open_embeddings
from enteron.metrics.frames import frame_metrics
from enteron.model.backbones import lite_backbone
from enteron.model.network import Network
from enteron.training.results import findings_ap, region_accuracy
from enteron.types import FrameLabels

FOLDER = Path(tempfile.gettempdir()) / "enteron-training"
TRAIN, TEST = "mixed", "navicam"
RESAMPLES = 500


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

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals by resampling studies."""
        rng = np.random.default_rng(0)
        count = len(self.truth)
        resamples = [self.metrics(rng.integers(count, size=count)) for _ in range(RESAMPLES)]
        return {
            name: tuple(np.quantile([metrics[name] for metrics in resamples], (0.025, 0.975)))
            for name in resamples[0]
        }


def make_data(folder: Path, studies: int, tests: int, frames: int) -> None:
    """Draw the training studies (PillCam, Olympus) and test studies (NaviCam) that are missing."""
    for name, count, seed in ((TRAIN, studies, 1), (TEST, tests, 2)):
        command = [sys.executable, "-m", "enteron", "phantom", str(folder / name)]
        command += ["--studies", str(count), "--frames", str(frames)]
        subprocess.run([*command, "--seed", str(seed), "--device", name], check=True)


def make_features(folder: Path, name: str) -> None:
    """Encode the studies of one root that have no stored features yet."""
    backbone = lite_backbone()
    encoder = make_encoder(backbone, default_runtime(backbone))
    features = features_folder(folder, name)
    features.mkdir(parents=True, exist_ok=True)
    for study, entry in find_studies(folder / name).items():
        embed_study(entry.open(), encoder, features / f"{study}.npy")


def features_folder(folder: Path, name: str) -> Path:
    return folder / "features" / name


def open_features(folder: Path, name: str, study: str) -> Embeddings:
    return open_embeddings(features_folder(folder, name) / f"{study}.npy", check=False)


def score_test_studies(folder: Path, network: Network) -> UnseenScores:
    """Score the test studies with both flips, as `enteron read` does."""
    truths = {a.study: a for a in read_submission(folder / TEST / "truth.json")}
    truth, values = [], []
    for study in find_studies(folder / TEST):
        scores = score_study(network, open_features(folder, TEST, study))
        values.append(scores.values)
        truth.append(label_rows(scores, truths[study]))
    return UnseenScores(truth, values)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2


SPAWN = multiprocessing.get_context("spawn")

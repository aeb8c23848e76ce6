"""Synthetic data, stored features and test figures, shared by the benchmarks of training."""

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
from enteron.fitting.labelled import label_rows
from enteron.inference.embed import embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.inference.store import Embeddings, open_embeddings
from enteron.metrics.frames import frame_metrics
from enteron.model.backbones import lite_backbone
from enteron.model.network import Network
from enteron.training.run import findings_ap, region_accuracy

FOLDER = Path(tempfile.gettempdir()) / "enteron-lessons"
TRAIN, TEST = "mixed", "navicam"
RESAMPLES = 500


@dataclass(frozen=True)
class Tested:
    """Scores of unseen studies beside their truth."""

    truth: list[NDArray[np.bool_]]  # per study (rows, 17)
    scores: list[NDArray[np.float32]]

    def figures(self, studies: NDArray[np.int64] | None = None) -> dict[str, float]:
        """Of all studies, or of a resample of them."""
        chosen = range(len(self.truth)) if studies is None else studies
        truth = np.concatenate([self.truth[i] for i in chosen])
        scores = np.concatenate([self.scores[i] for i in chosen])
        found = frame_metrics(truth, scores)
        return {
            "findings": findings_ap(found),
            "regions": region_accuracy(truth, scores),
            "all": found.macro("ap", "left out"),
        }

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals by resampling studies."""
        draw = np.random.default_rng(0)
        count = len(self.truth)
        rows = [self.figures(draw.integers(count, size=count)) for _ in range(RESAMPLES)]
        return {
            name: tuple(np.quantile([row[name] for row in rows], (0.025, 0.975)))
            for name in rows[0]
        }


def make_data(folder: Path, studies: int, tests: int, frames: int) -> None:
    """Studies to train on (PillCam, Olympus) and to test on (NaviCam); what is there is kept."""
    for name, count, seed in ((TRAIN, studies, 1), (TEST, tests, 2)):
        command = [sys.executable, "-m", "enteron", "phantom", str(folder / name)]
        command += ["--studies", str(count), "--frames", str(frames)]
        subprocess.run([*command, "--seed", str(seed), "--device", name], check=True)


def make_features(folder: Path, name: str) -> None:
    """Features of every study of one root; what is there is kept."""
    backbone = lite_backbone()
    encoder = make_encoder(backbone, default_runtime(backbone))
    place = features(folder, name)
    place.mkdir(parents=True, exist_ok=True)
    for study, entry in find_studies(folder / name).items():
        embed_study(entry.open(), encoder, place / f"{study}.npy")


def features(folder: Path, name: str) -> Path:
    return folder / "features" / name


def stored(folder: Path, name: str, study: str) -> Embeddings:
    return open_embeddings(features(folder, name) / f"{study}.npy", check=False)


def tested(folder: Path, network: Network) -> Tested:
    """The unseen studies, both flips, as a reading scores them."""
    truths = {a.study: a for a in read_submission(folder / TEST / "truth.json")}
    truth, scores = [], []
    for study in find_studies(folder / TEST):
        found = score_study(network, stored(folder, TEST, study))
        scores.append(found.values)
        truth.append(label_rows(found, truths[study]))
    return Tested(truth, scores)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2


SPAWN = multiprocessing.get_context("spawn")

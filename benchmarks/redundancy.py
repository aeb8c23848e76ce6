"""Redundant frames, scores and events for several limits of redundancy, drawn or real.

`enteron bench redundancy [-- --model MODEL --frames 1000 --studies 3]`. With a trained model folder
the events are those of that model; without one, those of `lite` with a head fitted to each study.
`-- --model MODEL --real [ROOT]` reads the labelled studies of a root (default: the videos of
Kvasir-Capsule in ../shared, runs of consecutive frames) that MODEL was not trained on, by its own
split. How far neighbouring frames of real and synthetic capsules differ: `enteron bench
phantom_realism`.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._inference_study import (
    REAL,
    TOLERANCE,
    RememberingEncoder,
    count_kept,
    fit_head,
    left_out_studies,
    synthetic_study,
)
from enteron.calibration import Calibration, calibrated
from enteron.datasets.layouts import open_dataset
from enteron.decoding import decode
from enteron.errors import ConfigError
from enteron.folders.model import load_calibration, load_model
from enteron.inference.embed import (
    REDUNDANCY_LIMIT,
    EmbedOptions,
    RedundancyFilter,
    embed_study,
)
from enteron.inference.encoder import Encoder
from enteron.inference.pictures import prepare_frame
from enteron.inference.runtimes import make_encoder
from enteron.inference.score import score_study
from enteron.labels import LABELS
from enteron.model.network import Network, start_network
from enteron.model.options import ModelOptions
from enteron.model.preprocessing import Preprocessing
from enteron.study import Study
from enteron.types import Scores

LIMITS = (1.0, 2.0, 3.0, 6.0)  # grey levels


@dataclass(frozen=True)
class StudyResult:
    """One study at one limit."""

    frames: int
    redundant: int
    mean: float  # difference of scores
    largest: float
    decisions: int  # labels of frames that are called otherwise
    events: int  # without redundancy
    kept: int
    new: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a trained model folder with lite")
    parser.add_argument("--frames", type=int, default=1000, help="of each synthetic study")
    parser.add_argument("--studies", type=int, default=3, help="synthetic studies")
    parser.add_argument("--real", type=Path, nargs="?", const=REAL, help="real studies instead")
    arguments = parser.parse_args()
    if arguments.real and not arguments.model:
        raise ConfigError("real studies have no labels of whole studies", "give a --model")
    calibration = None
    if arguments.model:
        network = load_model(arguments.model)[0].eval()
        calibration = load_calibration(arguments.model)
    else:
        network = start_network(ModelOptions(backbone="lite")).eval()
    encoder = make_encoder(network.backbone, "onnx")
    results: list[dict[float, StudyResult]] = []
    if arguments.real:
        for entry in left_out_studies(arguments.model, arguments.real):
            with entry.open() as study:
                results.append(at_limits(study, network, encoder, calibration))
        print_shares(arguments.real, network.backbone.spec.preprocessing)
        print(f"\n{len(results)} real studies, left out of training; ", end="")
    else:
        for number in range(arguments.studies):
            drawn = synthetic_study(arguments.frames, seed=11 + number)
            labels = None if arguments.model else drawn.labels
            with drawn.open() as study:
                results.append(at_limits(study, network, encoder, calibration, labels))
        print(f"{arguments.studies} studies of {arguments.frames} frames; ", end="")
    print(f"default limit {REDUNDANCY_LIMIT}\n")
    print_table(results)


def at_limits(
    study: Study,
    network: Network,
    encoder: Encoder,
    calibration: Calibration | None,
    labels: np.ndarray | None = None,
) -> dict[float, StudyResult]:
    """The study read with each limit; `labels` fit a head to it first."""
    encoder = RememberingEncoder(encoder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exact = embed_study(study, encoder, folder / "exact.npy")
        if labels is not None:
            fit_head(network, exact, labels)
        exact_scores = score_study(network, exact, frames_per_row=study.frames_per_row)
        exact_events = decode(exact_scores, None, None, calibration)
        results: dict[float, StudyResult] = {}
        for limit in LIMITS:
            options = EmbedOptions(redundancy=limit)
            embeddings = embed_study(study, encoder, folder / f"{limit}.npy", options)
            scores = score_study(network, embeddings, frames_per_row=study.frames_per_row)
            events = decode(scores, None, None, calibration)
            difference = np.abs(scores.values - exact_scores.values)
            kept = count_kept(exact_events, events)
            changed = _positive(scores, calibration) != _positive(exact_scores, calibration)
            results[limit] = StudyResult(
                frames=len(embeddings),
                redundant=embeddings.redundant,
                mean=float(difference.mean()),
                largest=float(difference.max()),
                decisions=int(changed.sum()),
                events=len(exact_events),
                kept=kept,
                new=len(events) - kept,
            )
    return results


def print_shares(root: Path, preprocessing: Preprocessing) -> None:
    """The share of redundant frames in every study of a root, which takes no model."""
    shares = []
    for entry in open_dataset(root).studies.values():
        with entry.open() as study:
            counts = np.zeros(len(LIMITS), np.int64)
            filters: list[RedundancyFilter] = []
            for row, frame in enumerate(study):
                if row % EmbedOptions().chunk == 0:  # every chunk starts with an encoded frame
                    filters = [RedundancyFilter(limit) for limit in LIMITS]
                image = prepare_frame(frame, preprocessing).image
                assert image is not None
                counts += [f.source(row, image) != row for f in filters]
            shares.append(counts / len(study))
    quantiles = np.quantile(shares, (0, 0.5, 1), axis=0)
    print(f"redundant frames of all {len(shares)} studies: least, median, mean and most")
    for k, limit in enumerate(LIMITS):
        least, median, most = quantiles[:, k]
        mean = np.mean(shares, axis=0)[k]
        print(f"limit {limit:g}: {least:.1%}, {median:.1%}, {mean:.1%}, {most:.1%}")


def _positive(scores: Scores, calibration: Calibration | None) -> np.ndarray:
    """(frames, 17): which labels a frame is called, at the thresholds of the calibration."""
    if calibration is None:
        return scores.values >= 0.5
    thresholds = calibration.likelihood.thresholds
    # A label without a threshold is never reported.
    limits = [np.inf if thresholds[label] is None else thresholds[label] for label in LABELS]
    return calibrated(scores, calibration.likelihood) >= np.array(limits, np.float32)


def print_table(results: list[dict[float, StudyResult]]) -> None:
    by_study = len(results) <= 4
    heading = "by study" if by_study else "all studies"
    print("| limit | redundant | scores: mean | largest | decisions changed | ", end="")
    print(f"events kept, and new ones, {heading} |")
    print("|---:|---:|---:|---:|---:|---|")
    for limit in LIMITS:
        studies = [result[limit] for result in results]
        frames = sum(study.frames for study in studies)
        redundant = sum(study.redundant for study in studies) / frames
        mean = sum(study.mean * study.frames for study in studies) / frames
        largest = max(study.largest for study in studies)
        decisions = sum(study.decisions for study in studies) / (frames * len(LABELS))
        counts = [(study.kept, study.events, study.new) for study in studies]
        if not by_study:
            counts = [tuple(np.sum(counts, axis=0).tolist())]
        events = ", ".join(f"{kept} of {total} + {new}" for kept, total, new in counts)
        print(f"| {limit:g} | {redundant:.1%} | {mean:.4f} | {largest:.3f} ", end="")
        print(f"| {decisions:.3%} | {events} |")
    frames = sum(result[LIMITS[0]].frames for result in results)
    print(f"\n{frames} frames; kept: the same label, ", end="")
    print(f"both ends within {TOLERANCE} frames; decisions: labels of frames, at their thresholds")


if __name__ == "__main__":
    main()

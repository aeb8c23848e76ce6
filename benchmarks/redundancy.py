"""Redundant frames, scores and events for several limits of redundancy.

`enteron bench redundancy [-- --model MODEL --frames 1000 --studies 3]`. With a trained model folder
the events are those of that model; without one, those of `lite` with a head fitted to each study.
In the studies the capsule stands still half of the time. How far neighbouring frames of real and
synthetic capsules differ: `enteron bench phantom_neighbours`.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._inference_study import TOLERANCE, count_kept, fit_head, synthetic_study
from enteron.decoding import decode
from enteron.folders.model import load_calibration, load_model
from enteron.inference.embed import REDUNDANCY_LIMIT, EmbedOptions, embed_study
from enteron.inference.runtimes import make_encoder
from enteron.inference.score import score_study
from enteron.model.network import start_network
from enteron.model.options import ModelOptions

LIMITS = (1.0, 2.0, 3.0, 6.0)  # grey levels


@dataclass(frozen=True)
class StudyResult:
    """One study at one limit."""

    redundant: float  # share of frames
    mean: float  # difference of scores
    largest: float
    events: int  # without redundancy
    kept: int
    new: int


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a trained model folder with lite")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--studies", type=int, default=3)
    arguments = parser.parse_args()
    calibration = None
    if arguments.model:
        network = load_model(arguments.model)[0]
        calibration = load_calibration(arguments.model)
    else:
        network = start_network(ModelOptions(backbone="lite")).eval()
    encoder = make_encoder(network.backbone, "onnx")
    results: dict[float, list[StudyResult]] = {limit: [] for limit in LIMITS}
    for number in range(arguments.studies):
        study = synthetic_study(arguments.frames, seed=11 + number)
        scale = study.frames_per_row
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            exact = embed_study(study.open(), encoder, folder / "exact.npy")
            if not arguments.model:
                fit_head(network, exact, study.labels)
            exact_scores = score_study(network, exact, frames_per_row=scale)
            exact_events = decode(exact_scores, None, None, calibration)
            for limit in LIMITS:
                options = EmbedOptions(redundancy=limit)
                embeddings = embed_study(study.open(), encoder, folder / f"{limit}.npy", options)
                scores = score_study(network, embeddings, frames_per_row=scale)
                events = decode(scores, None, None, calibration)
                difference = np.abs(scores.values - exact_scores.values)
                kept = count_kept(exact_events, events)
                result = StudyResult(
                    redundant=embeddings.redundant / len(embeddings),
                    mean=float(difference.mean()),
                    largest=float(difference.max()),
                    events=len(exact_events),
                    kept=kept,
                    new=len(events) - kept,
                )
                results[limit].append(result)
    print(f"{arguments.studies} studies of {arguments.frames} frames; ", end="")
    print(f"default limit {REDUNDANCY_LIMIT}\n")
    print("| limit | redundant | scores: mean | largest | events kept, and new ones, by study |")
    print("|---:|---:|---:|---:|---|")
    for limit, studies in results.items():
        redundant = np.mean([study.redundant for study in studies])
        mean = np.mean([study.mean for study in studies])
        largest = max(study.largest for study in studies)
        events = ", ".join(f"{study.kept} of {study.events} + {study.new}" for study in studies)
        print(f"| {limit} | {redundant:.0%} | {mean:.4f} | {largest:.3f} | {events} |")
    print(f"\nkept: the same label, both ends within {TOLERANCE} frames")


if __name__ == "__main__":
    main()

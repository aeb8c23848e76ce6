"""What faster inference changes in the readings of a trained model, study by study.

`enteron bench drift -- MODEL ROOT [--studies 8] [--runtimes onnx-int8]`. MODEL is a trained and
calibrated model folder, ROOT holds studies that it has not seen; with `--real` the default ROOT are
the videos of Kvasir-Capsule in ../shared, and those are read that the model's split left out.
Every study is read exactly, with each runtime, and with redundant frames skipped. Compared are the
scores, and the events of the preset `transit`. `lite` has no int8; to try it on a small ViT, train
one first: `enteron train DATA --out MODEL --preset lite --config FILE` with `[model]`
`backbone = "vit-tiny"`.
"""

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks._inference_study import REAL, TOLERANCE, count_kept, left_out_studies
from enteron.calibration import Calibration
from enteron.datasets.dataset import DatasetStudy
from enteron.datasets.galar import Entry, find_studies
from enteron.decoding import PRESETS, DecodedEvent, decode
from enteron.errors import ConfigError
from enteron.folders.model import load_calibration, load_model
from enteron.inference.embed import REDUNDANCY_LIMIT, EmbedOptions, embed_study
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.model.network import Network
from enteron.priors import load_priors
from enteron.study import Study
from enteron.types import Scores


@dataclass
class Comparison:
    """One way of reading compared with the exact one, over all studies."""

    mean: list[float] = field(default_factory=list)  # difference of scores, by study
    largest: float = 0.0
    redundant: list[float] = field(default_factory=list)  # share of frames, by study
    kept: int = 0  # events with the same label and both ends within TOLERANCE
    lost: int = 0
    new: int = 0
    unchanged: int = 0  # studies whose events are all kept, without new ones


@dataclass(frozen=True)
class StudyReader:
    """Reads one study in several ways."""

    study: Study
    network: Network
    calibration: Calibration | None
    folder: Path

    def read(
        self, encoder: Encoder, limit: float | None
    ) -> tuple[Scores, list[DecodedEvent], float]:
        """Scores, events, and the share of redundant frames."""
        path = self.folder / f"{encoder.runtime}-{limit}.npy"
        embeddings = embed_study(self.study, encoder, path, EmbedOptions(redundancy=limit))
        scores = score_study(self.network, embeddings, frames_per_row=self.study.frames_per_row)
        events = decode(scores, PRESETS["transit"], load_priors(), self.calibration)
        return scores, events, embeddings.redundant / len(embeddings)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("root", type=Path, nargs="?")
    parser.add_argument("--real", action="store_true", help="labelled studies that were left out")
    parser.add_argument("--studies", type=int, default=8)
    parser.add_argument("--runtimes", nargs="*", default=["onnx-int8"])
    arguments = parser.parse_args()
    root = arguments.root or (REAL if arguments.real else None)
    if root is None:
        raise ConfigError("there is no root of studies", "give one, or --real")
    network = load_model(arguments.model)[0].eval()
    calibration = load_calibration(arguments.model)
    reference = make_encoder(network.backbone, default_runtime(network.backbone))
    ways: dict[str, tuple[Encoder, float | None]] = {
        name: (make_encoder(network.backbone, name), None) for name in arguments.runtimes
    }
    ways[f"{reference.runtime}, redundancy"] = (reference, REDUNDANCY_LIMIT)
    for name in arguments.runtimes:
        ways[f"{name}, redundancy"] = (ways[name][0], REDUNDANCY_LIMIT)
    comparisons = {name: Comparison() for name in ways}
    entries: list[DatasetStudy] | list[Entry] = (
        left_out_studies(arguments.model, root)
        if arguments.real
        else list(find_studies(root).values())
    )
    entries = entries[: arguments.studies]
    total = 0
    for entry in entries:
        with entry.open() as study, tempfile.TemporaryDirectory() as folder:
            reader = StudyReader(study, network, calibration, Path(folder))
            exact_scores, exact_events, _ = reader.read(reference, None)
            total += len(exact_events)
            for way, (encoder, limit) in ways.items():
                scores, events, redundant = reader.read(encoder, limit)
                kept = count_kept(exact_events, events)
                difference = np.abs(scores.values - exact_scores.values)
                comparison = comparisons[way]
                comparison.mean.append(float(np.nanmean(difference)))
                comparison.largest = max(comparison.largest, float(np.nanmax(difference)))
                comparison.redundant.append(redundant)
                comparison.kept += kept
                comparison.lost += len(exact_events) - kept
                comparison.new += len(events) - kept
                comparison.unchanged += kept == len(exact_events) == len(events)
    print(f"{len(entries)} studies, {total} events read with {reference.runtime}\n")
    print("| | redundant | scores: mean | largest | events kept | lost | new | studies unchanged |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for way, result in comparisons.items():
        print(f"| {way} | {np.mean(result.redundant):.0%} | {np.mean(result.mean):.4f} ", end="")
        print(f"| {result.largest:.3f} | {result.kept} | {result.lost} | {result.new} ", end="")
        print(f"| {result.unchanged} of {len(entries)} |")
    print(f"\nkept: the same label, both ends within {TOLERANCE} frames")


if __name__ == "__main__":
    main()

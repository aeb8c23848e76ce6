"""What faster inference changes in the readings of a trained model, study by study.

`enteron bench drift -- MODEL ROOT [--studies 8] [--runtimes onnx-int8]`. MODEL is a trained and
calibrated model folder, ROOT holds studies that it did not see. Every study is read exactly, with
each runtime, and with redundant frames left to their twins; what is compared is what a person gets:
scores, and events under the decoder `transit`. `lite` has no int8; for a small ViT to try it on:
`enteron train DATA --out MODEL --preset lite --config FILE` with `[model]` `backbone = "vit-tiny"`.
"""

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks._inference_study import REACH, matched
from enteron.calibration import Calibration
from enteron.datasets.galar import find_studies
from enteron.decode import PRESETS, DecodedEvent, decode
from enteron.folders.model import load_calibration, load_model
from enteron.inference.embed import REDUNDANCY_LIMIT, EmbedOptions, embed_study
from enteron.inference.encoder import Encoder
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.model.network import Network
from enteron.phantom.time_scale import read_frames_per_row
from enteron.priors import load_priors
from enteron.study import Study
from enteron.types import Scores


@dataclass
class Found:
    """One way of reading, over all studies."""

    mean: list[float] = field(default_factory=list)
    largest: float = 0.0
    redundant: list[float] = field(default_factory=list)
    unmoved: int = 0  # events whose ends stayed within REACH
    lost: int = 0
    new: int = 0
    whole: int = 0  # studies without any change


@dataclass(frozen=True)
class Reader:
    """Reads one study in several ways."""

    study: Study
    net: Network
    calibration: Calibration | None
    frames_per_row: float | None
    folder: Path

    def read(
        self, encoder: Encoder, limit: float | None
    ) -> tuple[Scores, list[DecodedEvent], float]:
        """Scores, events, and the share of redundant frames."""
        path = self.folder / f"{encoder.runtime}-{limit}.npy"
        stored = embed_study(self.study, encoder, path, EmbedOptions(redundancy=limit))
        scores = score_study(self.net, stored, frames_per_row=self.frames_per_row)
        events = decode(scores, PRESETS["transit"], load_priors(), self.calibration)
        return scores, events, stored.redundant / len(stored)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", type=Path)
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--studies", type=int, default=8)
    arguments.add_argument("--runtimes", nargs="*", default=["onnx-int8"])
    given = arguments.parse_args()
    net = load_model(given.model)[0].eval()
    calibration = load_calibration(given.model)
    reference = make_encoder(net.backbone, default_runtime(net.backbone))
    ways: dict[str, tuple[Encoder, float | None]] = {
        name: (make_encoder(net.backbone, name), None) for name in given.runtimes
    }
    ways[f"{reference.runtime}, redundancy"] = (reference, REDUNDANCY_LIMIT)
    ways |= {f"{name}, redundancy": (ways[name][0], REDUNDANCY_LIMIT) for name in given.runtimes}
    found = {name: Found() for name in ways}
    entries = list(find_studies(given.root).items())[: given.studies]
    scale = read_frames_per_row(given.root)
    total = 0
    for name, entry in entries:
        with entry.open() as study, tempfile.TemporaryDirectory() as folder:
            reader = Reader(study, net, calibration, scale.get(name), Path(folder))
            exact, wanted, _ = reader.read(reference, None)
            total += len(wanted)
            for way, (encoder, limit) in ways.items():
                scores, events, redundant = reader.read(encoder, limit)
                same = matched(wanted, events, REACH)
                line = found[way]
                difference = np.abs(scores.values - exact.values)
                line.mean.append(float(np.nanmean(difference)))
                line.largest = max(line.largest, float(np.nanmax(difference)))
                line.redundant.append(redundant)
                line.unmoved += same
                line.lost += len(wanted) - same
                line.new += len(events) - same
                line.whole += same == len(wanted) == len(events)
    print(f"{len(entries)} studies, {total} events read with {reference.runtime}\n")
    print("| | redundant | scores: mean | largest | events kept | lost | new | studies unchanged |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for way, line in found.items():
        print(f"| {way} | {np.mean(line.redundant):.0%} | {np.mean(line.mean):.4f} ", end="")
        print(f"| {line.largest:.3f} | {line.unmoved} | {line.lost} | {line.new} ", end="")
        print(f"| {line.whole} of {len(entries)} |")
    print(f"\nkept: the same label, both ends within {REACH} frames")


if __name__ == "__main__":
    main()

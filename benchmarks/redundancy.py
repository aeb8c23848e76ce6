"""Which limit of redundancy leaves events as they are: shares, scores and events for several.

`enteron bench redundancy [-- --model MODEL --frames 1000 --studies 3]`. With a trained model folder
events are those of that model; without one, of `lite` with a head fitted to each study. The studies
stand still half of the time. How far neighbouring frames of real and synthetic capsules differ:
`enteron bench phantom_neighbours`.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._inference_study import REACH, fit_head, made_study, matched
from enteron.decode import decode
from enteron.folders.model import load_calibration, load_model
from enteron.inference.embed import REDUNDANCY_LIMIT, EmbedOptions, embed_study
from enteron.inference.runtimes import make_encoder
from enteron.inference.score import score_study
from enteron.model.network import start_network
from enteron.model.options import ModelOptions


@dataclass(frozen=True)
class Line:
    """One study at one limit."""

    share: float
    mean: float  # difference of scores
    largest: float
    events: int
    kept: int
    new: int


LIMITS = (1.0, 2.0, 3.0, 6.0)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=Path, help="a trained model folder with lite")
    arguments.add_argument("--frames", type=int, default=1000)
    arguments.add_argument("--studies", type=int, default=3)
    given = arguments.parse_args()
    calibration = None
    if given.model:
        net = load_model(given.model)[0]
        calibration = load_calibration(given.model)
    else:
        net = start_network(ModelOptions(backbone="lite")).eval()
    encoder = make_encoder(net.backbone, "onnx")
    rows: dict[float, list[Line]] = {}
    for number in range(given.studies):
        study = made_study(given.frames, seed=11 + number)
        with tempfile.TemporaryDirectory() as folder:
            exact = embed_study(study.open(), encoder, Path(folder) / "exact.npy")
            if not given.model:
                fit_head(net, exact, study.labels)
            reference = score_study(net, exact, frames_per_row=study.frames_per_row)
            wanted = decode(reference, None, None, calibration)
            for limit in LIMITS:
                options = EmbedOptions(redundancy=limit)
                found = embed_study(study.open(), encoder, Path(folder) / f"{limit}.npy", options)
                scores = score_study(net, found, frames_per_row=study.frames_per_row)
                difference = np.abs(scores.values - reference.values)
                events = decode(scores, None, None, calibration)
                kept = matched(wanted, events, REACH)
                share = found.redundant / len(found)
                mean, most = float(difference.mean()), float(difference.max())
                line = Line(share, mean, most, len(wanted), kept, len(events) - kept)
                rows.setdefault(limit, []).append(line)
    print(f"{given.studies} studies of {given.frames} frames; default limit {REDUNDANCY_LIMIT}\n")
    print("| limit | redundant | scores: mean | largest | events kept, and new ones, by study |")
    print("|---:|---:|---:|---:|---|")
    for limit, found in rows.items():
        share, mean = (np.mean([getattr(x, name) for x in found]) for name in ("share", "mean"))
        most = max(line.largest for line in found)
        told = ", ".join(f"{x.kept} of {x.events} + {x.new}" for x in found)
        print(f"| {limit} | {share:.0%} | {mean:.4f} | {most:.3f} | {told} |")
    print(f"\nkept: the same label, both ends within {REACH} frames")


if __name__ == "__main__":
    main()

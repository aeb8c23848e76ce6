"""The prior submission against the updated one: its decoder on real label sequences.

The paper compares two whole systems, so its gain of .114 has two causes that it cannot tell apart:
another model and another decoder. Here each half is varied on its own.

Decoder half: the 60 real label sequences at full length with simulated scores of the paper's
quality (`benchmarks/_simulation.py` lists the assumptions), decoded by `gap-merge`, `paper` and
`transit`. Calibration and priors are fitted on one half of the studies and used on the other, both
ways, so that all studies are evaluated. Without `../shared` label sequences are drawn from the
packaged priors, and the output says so.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks._decoder_tables import Truth
from benchmarks._simulation import SimulationOptions, simulate
from benchmarks.decoders import PRESETS, RATES, load_studies, priors_of
from enteron.calibration import Calibration
from enteron.cli.console import console, table
from enteron.decoding import DecodeOptions, decode
from enteron.decoding.events import to_annotation
from enteron.decoding.options import GapMergeOptions
from enteron.fitting.decoder import fit_decoder
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.labels import COLUMN, REGIONS
from enteron.metrics.evaluation import Evaluation, StudyBootstrap, evaluate
from enteron.priors import Priors
from enteron.runs import runs_of
from enteron.types import Annotation, Scores, Unit

GAP_MERGE = PRESETS["gap-merge"]
GAP_15 = GAP_MERGE.model_copy(update={"gap_merge": GapMergeOptions(gap=15)})
DECODERS: dict[str, DecodeOptions | None] = {
    "an empty file": None,
    "gap-merge (prior, v3.1)": GAP_MERGE,
    "gap-merge, gap of 15 as in the paper's text": GAP_15,
    "paper (updated)": PRESETS["paper"],
    "transit": PRESETS["transit"],
}
DIFFERENCES = (
    ("paper (updated)", "gap-merge (prior, v3.1)"),
    ("transit", "gap-merge (prior, v3.1)"),
    ("transit", "paper (updated)"),
    ("paper (updated)", "an empty file"),
    ("transit", "an empty file"),
)


@dataclass
class Cell:
    """A model with a decoder, over all seeds: what the official file of every study is worth."""

    model: str
    decoder: str
    evaluations: list[Evaluation] = field(default_factory=list)  # one per seed
    region_events: list[NDArray[np.float64]] = field(default_factory=list)  # (studies,) per seed

    def add(self, truths: Sequence[Annotation], predictions: Sequence[Annotation]) -> None:
        """One seed."""
        self.evaluations.append(evaluate(list(truths), list(predictions)))
        self.region_events.append(np.array([count_regions(p) for p in predictions], float))


def main() -> None:
    arguments = parse_arguments()
    decoder_half(arguments.seeds, arguments.studies, arguments.level)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    return parser.parse_args()


# ---- the decoder half


def decoder_half(seeds: int, count: int, level: str) -> None:
    """Simulated scores of one model, three decoders."""
    studies, origin = load_studies(count)
    truths = [truth for truth, _ in studies]
    print(f"Decoder half. {len(studies)} label sequences: {origin}")
    print(f"simulated scores of level '{level}', {seeds} seeds; fitted on one half of the studies,")
    print("evaluated on the other, both ways\n", flush=True)
    cells = [Cell("simulated", name) for name in DECODERS]
    for seed in range(seeds):
        begin = time.perf_counter()
        labelled = simulated(studies, seed, level)
        fitted = [fit_half(labelled[1 - half :: 2]) for half in (0, 1)]
        for cell in cells:
            options = DECODERS[cell.decoder]
            predictions = [
                predict(study.scores, options, *fitted[index % 2])
                for index, study in enumerate(labelled)
            ]
            cell.add(truths, predictions)
        log(f"seed {seed}: {time.perf_counter() - begin:.0f} s")
    labels = [label_rows(scores, truth) for truth, scores in studies]
    stays = np.mean([true_stays(study) for study in labels])
    print(f"The annotation has {stays:.1f} stays in a region a study, short steps back included.\n")
    true_regions = np.array([true_region_count(study) for study in labels], float)
    show("Decoder half: one model's simulated scores, all decoders", cells, true_regions)


def simulated(studies: list[tuple[Truth, Scores]], seed: int, level: str) -> list[LabelledStudy]:
    """Scores of every study at full length."""
    options = SimulationOptions(level=level)  # type: ignore[arg-type]
    labelled: list[LabelledStudy] = []
    for index, (truth, scores) in enumerate(studies):
        values = label_rows(scores, truth)
        seeds = np.random.SeedSequence([seed, index])
        drawn = simulate(values, scores.axis.step, RATES, seeds, options)
        labelled.append(LabelledStudy(Scores(scores.study, scores.axis, drawn), values))
    return labelled


def predict(
    scores: Scores, options: DecodeOptions | None, calibration: Calibration, priors: Priors
) -> Annotation:
    """The official file of a study; without options an empty one."""
    events = [] if options is None else decode(scores, options, priors, calibration)
    return to_annotation(scores.study, Unit.FRAME, events, options)


def fit_half(studies: list[LabelledStudy]) -> tuple[Calibration, Priors]:
    """Calibration and priors of the studies that are not decoded with them."""
    priors = priors_of(studies)
    return fit_decoder(studies, priors), priors


# ---- region events


def count_regions(prediction: Annotation) -> int:
    """Events of the official file that carry a region: what the paper counts as fragments."""
    return sum(any(label in REGIONS for label in s.labels) for s in prediction.segments)


def true_region_count(truth: NDArray[np.bool_]) -> int:
    """Regions that a study shows: the events of a single transit."""
    return int(truth[:, : len(REGIONS)].any(axis=0).sum())


def true_stays(truth: NDArray[np.bool_]) -> int:
    """Stays in a region, however often findings cut them in the annotation."""
    return sum(len(runs_of(truth[:, COLUMN[region]])) for region in REGIONS)


# ---- tables, for both halves


def show(title: str, cells: Sequence[Cell], true_regions: NDArray[np.float64]) -> None:
    out = console()
    out.width = 170
    out.print(scores_table(title, cells, true_regions))
    out.print(differences_table(cells))


def scores_table(title: str, cells: Sequence[Cell], true_regions: NDArray[np.float64]) -> Table:
    result = table(
        f"{title}; 95 % intervals over studies",
        "model, decoder", "mAP at 0.5", "at 0.95", "present labels, 0.5",
        f"region events a study (truth {true_regions.mean():.1f})",
        "median (range)", "studies within 1 of the truth",
    )  # fmt: skip
    for cell in cells:
        counts = np.stack(cell.region_events)
        near = (np.abs(counts - true_regions) <= 1).mean(axis=0)
        result.add_row(
            f"{cell.model}, {cell.decoder}",
            interval([e.official[0].studies for e in cell.evaluations]),
            interval([e.official[1].studies for e in cell.evaluations]),
            interval([e.official[0].present_studies for e in cell.evaluations]),
            interval(list(counts), digits=1),
            f"{np.median(counts):.0f} ({counts.min():.0f}-{counts.max():.0f})",
            interval([near], digits=2),
        )
    return result


def differences_table(cells: Sequence[Cell]) -> Table:
    by_name = {cell.decoder: cell for cell in cells}
    result = table("Paired differences at 0.5", "", "official", "present labels")
    for better, other in DIFFERENCES:
        pairs = zip(by_name[better].evaluations, by_name[other].evaluations, strict=True)
        halves = [(a.official[0], b.official[0]) for a, b in pairs]
        result.add_row(
            f"{better} minus {other}",
            interval([a.studies - b.studies for a, b in halves]),
            interval([a.present_studies - b.present_studies for a, b in halves]),
        )
    return result


def interval(seeds: list[NDArray[np.float64]], digits: int = 3) -> str:
    """Mean over seeds and studies; the interval resamples studies, with their seeds together."""
    by_study = np.mean(seeds, axis=0)
    low, high = StudyBootstrap(by_study.size).mean(by_study) or (np.nan, np.nan)
    return f"{np.nanmean(by_study):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

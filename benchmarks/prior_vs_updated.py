"""The prior submission against the updated one: model and decoder, each varied on its own.

The paper compares two whole systems, so its gain of .114 has two causes that it cannot tell apart:
another model and another decoder.

Model half: both systems trained end to end on synthetic studies (PillCam and Olympus), with a small
ViT from scratch, since differential attention needs a ViT and no pretrained one is at hand
(`benchmarks/_small_vit.py`); NaviCam studies test, decoded by both decoders: four cells, and
`transit`. Calibration and priors are fitted on one half of the test studies for the other.

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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks._decoder_tables import Truth
from benchmarks._simulation import SimulationOptions, simulate
from benchmarks._small_vit import SmallTraining, System, train_and_score, truths
from benchmarks._training_data import (
    FOLDER,
    METRICS,
    SPAWN,
    UnseenScores,
    cores,
    make_data,
    paired_gain,
)
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
MODEL_DECODERS = ("an empty file", "gap-merge (prior, v3.1)", "paper (updated)", "transit")
SYSTEMS: dict[System, str] = {"prior": "prior model", "updated": "updated model"}


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
    if arguments.half != "model":
        decoder_half(arguments.seeds, arguments.studies, arguments.level)
    if arguments.half != "decoder":
        model_half(arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    parser.add_argument("--half", choices=("both", "decoder", "model"), default="both")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="data of the model half")
    parser.add_argument("--drawn", type=int, default=16, help="training studies, model half")
    parser.add_argument("--tests", type=int, default=8, help="test studies, model half")
    parser.add_argument("--frames", type=int, default=1000, help="of each, model half")
    parser.add_argument("--draws", type=int, default=3000, help="clips per epoch, model half")
    parser.add_argument("--epochs", type=int, default=6, help="model half")
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


# ---- the model half


def model_half(arguments: argparse.Namespace) -> None:
    """Both systems' models, trained from scratch, with both systems' decoders."""
    folder = arguments.folder
    make_data(folder, arguments.drawn, arguments.tests, arguments.frames)
    tasks = [
        SmallTraining(folder, system, 42 + seed, arguments.draws, arguments.epochs)
        for seed in range(arguments.seeds)
        for system in SYSTEMS
    ]
    begin = time.perf_counter()
    scored: dict[System, list[list[Scores]]] = {system: [] for system in SYSTEMS}
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        for task, scores in zip(tasks, pool.map(train_and_score, tasks), strict=True):
            scored[task.system].append(scores)
            log(f"{task.system}, seed {task.seed}: {time.perf_counter() - begin:.0f} s")
    annotations = truths(folder)
    print(f"\nModel half. {len(annotations)} synthetic test studies, {arguments.seeds} seeds of ")
    print(f"{arguments.epochs} epochs of {arguments.draws} clips, a ViT from scratch\n")
    frame_table(annotations, scored)
    fitted = {
        system: [fit_both_halves(scores, annotations) for scores in seeds]
        for system, seeds in scored.items()
    }
    cells: list[Cell] = []
    for system, title in SYSTEMS.items():
        for decoder in MODEL_DECODERS:
            cell = Cell(title, decoder)
            for scores, fits in zip(scored[system], fitted[system], strict=True):
                cell.add(annotations, decoded(scores, fits, DECODERS[decoder]))
            cells.append(cell)
    labels = [label_rows(s, t) for s, t in zip(scored["prior"][0], annotations, strict=True)]
    true_regions = np.array([true_region_count(study) for study in labels], float)
    out = console()
    out.width = 170
    out.print(scores_table("Model half: trained models, all decoders", cells, true_regions))
    out.print(cell_differences(cells))


def fit_both_halves(
    scores: Sequence[Scores], annotations: Sequence[Annotation]
) -> list[tuple[Calibration, Priors]]:
    """What the studies with even and with odd numbers need, each fitted on the others."""
    labelled = [
        LabelledStudy(s, label_rows(s, truth)) for s, truth in zip(scores, annotations, strict=True)
    ]
    return [fit_half(labelled[1 - half :: 2]) for half in (0, 1)]


def decoded(
    scores: Sequence[Scores],
    fits: list[tuple[Calibration, Priors]],
    options: DecodeOptions | None,
) -> list[Annotation]:
    """The official files of all studies."""
    return [predict(s, options, *fits[index % 2]) for index, s in enumerate(scores)]


def frame_table(
    annotations: Sequence[Annotation], scored: dict[System, list[list[Scores]]]
) -> None:
    """Frame metrics of both models, and the paired difference over studies."""
    unseen = {
        system: [
            UnseenScores(
                [label_rows(s, t) for s, t in zip(scores, annotations, strict=True)],
                [s.values for s in scores],
            )
            for scores in seeds
        ]
        for system, seeds in scored.items()
    }
    gains = paired_gain(unseen["updated"], unseen["prior"])
    print(f"| frames | {' | '.join(METRICS.values())} |")
    print("|---|" + "---|" * len(METRICS))
    for system, title in SYSTEMS.items():
        metrics = [seed.metrics() for seed in unseen[system]]
        values = [f"{np.mean([m[name] for m in metrics]):.3f}" for name in METRICS]
        print(f"| {title} | {' | '.join(values)} |")
    differences = ["{:+.3f} [{:+.3f}, {:+.3f}]".format(*gains[name]) for name in METRICS]
    print(f"| difference | {' | '.join(differences)} |\n", flush=True)


def cell_differences(cells: Sequence[Cell]) -> Table:
    """What the model and what the decoder is worth, each with the other one fixed."""
    by_name = {(cell.model, cell.decoder): cell for cell in cells}
    prior, updated = SYSTEMS.values()
    gap_merge, paper = MODEL_DECODERS[1:3]
    result = table("Paired differences at 0.5", "", "official", "present labels")
    for title, better, other in (
        ("model, with gap-merge", (updated, gap_merge), (prior, gap_merge)),
        ("model, with paper", (updated, paper), (prior, paper)),
        ("model, with transit", (updated, "transit"), (prior, "transit")),
        ("decoder, prior model", (prior, paper), (prior, gap_merge)),
        ("decoder, updated model", (updated, paper), (updated, gap_merge)),
        ("both, as in the paper", (updated, paper), (prior, gap_merge)),
        ("updated system minus an empty file", (updated, paper), (updated, "an empty file")),
    ):
        result.add_row(title, *differences(by_name[better], by_name[other]))
    return result


def differences(better: Cell, other: Cell) -> tuple[str, str]:
    """Official and over present labels, at 0.5, with intervals over studies."""
    pairs = zip(better.evaluations, other.evaluations, strict=True)
    halves = [(a.official[0], b.official[0]) for a, b in pairs]
    return (
        interval([a.studies - b.studies for a, b in halves]),
        interval([a.present_studies - b.present_studies for a, b in halves]),
    )


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
        row = differences(by_name[better], by_name[other])
        result.add_row(f"{better} minus {other}", *row)
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

"""Is a promised recall kept? Random halvings of studies: one half promises, the other is read.

By default: the 60 label sequences with simulated scores. Temperature and biases of frames come from
scores of another seed. Then the same with other scores in the half that is read, as of a device
that the promise was not fitted on: of another quality, or with all log-odds lower. With
`-- --readings ROOT --truth ROOT`: studies that a model has read; `--shifted ROOT --shifted-truth
ROOT` are readings of another device, on which the same promises are tried.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks._labelled_readings import read_labelled
from benchmarks._simulated_lesions import simulated_studies
from enteron.calibration import Calibration, logit, sigmoid
from enteron.cli.console import console, table
from enteron.errors import EnteronError
from enteron.fitting.frames import LabelledStudy, fit_calibration
from enteron.fitting.guarantee import ListedStudy, list_study, promise_recall
from enteron.labels import FINDINGS
from enteron.metrics.lesions import ReadingSpeed
from enteron.priors import load_priors

ALPHAS = (0.1, 0.2, 0.5)
PRIORS = load_priors()


def main() -> None:
    arguments = parse_arguments()
    if arguments.readings is not None:
        read_studies(arguments)
        return
    count, seed = arguments.studies, arguments.seed
    other_noise = simulated_studies(count, seed + 1000, arguments.level)
    calibration = fit_calibration(other_noise.studies)
    print(f"{count} label sequences: {other_noise.origin}")
    same = simulated_studies(count, seed, arguments.level).studies
    fitted = listed(same, calibration)
    show(
        f"scores of level '{arguments.level}' in both halves",
        halvings(fitted, fitted, arguments.halvings),
    )
    for title, studies in (
        (
            f"promised on level '{arguments.level}', read on level '{arguments.shift}'",
            simulated_studies(count, seed, arguments.shift).studies,
        ),
        (
            f"the half that is read has all log-odds lower by {arguments.lower:g}",
            [lowered(study, arguments.lower) for study in same],
        ),
    ):
        show(title, halvings(fitted, listed(studies, calibration), arguments.halvings))


def listed(studies: list[LabelledStudy], calibration: Calibration) -> list[ListedStudy]:
    log("listing")
    return [list_study(study, calibration, PRIORS) for study in studies]


def lowered(study: LabelledStudy, by: float) -> LabelledStudy:
    """The study as a device shows it on which the model is less sure of everything."""
    values = study.scores.values.copy()
    findings = values[:, -len(FINDINGS) :]
    findings[:] = sigmoid(logit(findings) - np.float32(by))
    return LabelledStudy(replace(study.scores, values=values), study.truth)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halvings", type=int, default=200)
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--shift", choices=("weaker", "paper", "stronger"), default="weaker")
    parser.add_argument("--lower", type=float, default=2.0, help="log-odds")
    parser.add_argument("--readings", type=Path, help="a folder of readings")
    parser.add_argument("--truth", type=Path, help="their truth")
    parser.add_argument("--shifted", type=Path, help="readings of another device")
    parser.add_argument("--shifted-truth", type=Path, help="their truth")
    return parser.parse_args()


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Result:
    """Of all halvings at one alpha."""

    def __init__(self) -> None:
        self.missed: list[float] = []
        self.fitted: list[int] = []
        self.pictures: list[float] = []
        self.refused = 0


def halvings(fitted: list[ListedStudy], read: list[ListedStudy], count: int) -> dict[float, Result]:
    """Promise on a random half of `fitted`, and look at the other half as `read` has it."""
    results = {alpha: Result() for alpha in ALPHAS}
    rng = np.random.default_rng(0)
    for _ in range(count):
        order = rng.permutation(len(fitted))
        half = len(fitted) // 2
        promising = [fitted[i] for i in order[:half]]
        new = [read[i] for i in order[half:]]
        for alpha, result in results.items():
            judge(alpha, promising, new, result)
    return results


def judge(
    alpha: float, promising: list[ListedStudy], new: list[ListedStudy], result: Result
) -> None:
    try:
        promise = promise_recall(alpha, promising)
    except EnteronError:
        result.refused += 1
        return
    threshold = np.array([promise.threshold])
    shares = [float(study.missed_share(threshold)[0]) for study in new if study.detected_at.size]
    result.missed.append(float(np.mean(shares)))
    result.fitted.append(promise.studies)
    result.pictures.append(float(np.mean([study.pictures(threshold)[0] for study in new])))


def show(title: str, results: dict[float, Result]) -> None:
    rows = table(
        title,
        "at most missed", "halvings", "studies with lesions", "missed, mean", "standard error",
        "from", "to", "within", "pictures a study", "minutes as stills", "as video",
    )  # fmt: skip
    speed = ReadingSpeed()
    for alpha, result in results.items():
        if not result.missed:
            rows.add_row(f"{alpha:g}", f"0 (refused: {result.refused})")
            continue
        mean, count = float(np.mean(result.missed)), float(np.mean(result.fitted))
        error = float(np.std(result.missed, ddof=1) / np.sqrt(len(result.missed)))
        low, high = alpha - 2 / (count + 1) - 2 * error, alpha + 2 * error
        pictures = float(np.mean(result.pictures))
        refused = f" (refused: {result.refused})" if result.refused else ""
        rows.add_row(
            f"{alpha:g}",
            f"{len(result.missed)}{refused}",
            f"{count:.1f}",
            f"{mean:.4f}",
            f"{error:.4f}",
            f"{low:.4f}",
            f"{high:.4f}",
            "yes" if low <= mean <= high else "NO",
            f"{pictures:,.0f}",
            f"{pictures * speed.seconds_per_still / 60:.0f}",
            f"{pictures / speed.frames_per_second / 60:.0f}",
        )
    out = console()
    out.width = 170
    out.print(rows)


def read_studies(arguments: argparse.Namespace) -> None:
    """Studies that a model has read, with the truth beside them."""
    same = listed_readings(arguments.readings, arguments.truth)
    show("random halvings", halvings(same, same, arguments.halvings))
    if arguments.shifted is None:
        return
    other = listed_readings(arguments.shifted, arguments.shifted_truth)
    results = {alpha: Result() for alpha in ALPHAS}
    rng = np.random.default_rng(0)
    for _ in range(arguments.halvings):  # promises of random halves, kept or not on another device
        order = rng.permutation(len(same))[: len(same) // 2]
        for alpha, result in results.items():
            judge(alpha, [same[i] for i in order], other, result)
    show("the same promises on the other device", results)


def listed_readings(root: Path, truth: Path | None) -> list[ListedStudy]:
    """The ranked frames of readings, with the calibration that they were decoded with."""
    lists = [
        list_study(study.labelled, study.calibration, PRIORS)
        for study in read_labelled(root, truth)
    ]
    with_lesions = sum(bool(study.detected_at.size) for study in lists)
    print(f"{len(lists)} readings in {root.name}, {with_lesions} of them with lesions")
    return lists


if __name__ == "__main__":
    main()

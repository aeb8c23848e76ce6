"""Lesions found against false events a study: `paper`, `transit`, `clinical` and the oracle.

The label sequences and simulated scores of the benchmark `decoders`; fitted on every other study,
evaluated on the rest. A lesion is found when the frame that represents an event of its finding lies
in it. The oracle decodes the true labels with `transit`: even so one picture shows one lesion, and
an event that joins several lesions shows only one of them. `clinical, promised` shows the pictures
that a promised recall of one half needs.
"""

import argparse
import sys
import time

import numpy as np

from benchmarks._decoder_tables import judged
from benchmarks._simulated_lesions import simulated_studies
from benchmarks.decoders import PRESETS, priors_of
from enteron.calibration import Calibration
from enteron.cli.console import console, table
from enteron.decoding import DecodedEvent, decode
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.frames import LabelledStudy
from enteron.fitting.guarantee import fit_lists
from enteron.labels import FINDINGS
from enteron.metrics.froc import FALSE_EVENT_RATES
from enteron.metrics.intervals import Estimate
from enteron.metrics.lesion_evaluation import LesionEvaluation
from enteron.priors import Priors
from enteron.types import Scores

RATES = (*FALSE_EVENT_RATES, 32.0, 64.0)
PROMISED = 0.5


def main() -> None:
    arguments = parse_arguments()
    results: dict[str, list[LesionEvaluation]] = {}
    origin = ""
    for seed in range(arguments.seeds):
        begin = time.perf_counter()
        drawn = simulated_studies(arguments.studies, seed, arguments.level)
        origin = drawn.origin
        fitting, read = drawn.studies[0::2], drawn.studies[1::2]
        truths = drawn.truths[1::2]
        priors = priors_of(fitting)
        calibration = fit_decoder(fitting, priors, FitOptions())
        promised = fit_lists(fitting, calibration, priors, lesion_recall=PROMISED)
        for name in ("paper", "transit", "clinical"):
            events = [decode(s.scores, PRESETS[name], priors, calibration) for s in read]
            results.setdefault(name, []).append(judged(truths, read, events))
        events = [decode(s.scores, PRESETS["clinical"], priors, promised) for s in read]
        results.setdefault("clinical, promised", []).append(judged(truths, read, events))
        results.setdefault("oracle", []).append(judged(truths, read, oracle(read, priors)))
        print(f"seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    print(f"{arguments.studies} label sequences: {origin}; scores of level ", end="")
    print(f"'{arguments.level}', {arguments.seeds} seeds; every other study evaluated")
    show(results)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    return parser.parse_args()


def oracle(studies: list[LabelledStudy], priors: Priors) -> list[list[DecodedEvent]]:
    true = [Scores(s.scores.study, s.scores.axis, s.truth.astype(np.float32)) for s in studies]
    return [decode(scores, PRESETS["transit"], priors, Calibration()) for scores in true]


def mean(estimates: list[Estimate]) -> float:
    return float(np.mean([estimate.value or 0.0 for estimate in estimates]))


def show(results: dict[str, list[LesionEvaluation]]) -> None:
    result = table(
        "Share of lesions found, at most so many false events a study (mean over seeds)",
        "decoder", *(f"{rate:g}" for rate in RATES), "all events", "false a study", "flagged",
    )  # fmt: skip
    for name, evaluations in results.items():
        curves = [e.curve for e in evaluations if e.curve is not None]
        last = curves[0].false_per_study[-1]
        cells = [
            f"{np.mean([curve.recall_at(rate) for curve in curves]):.3f}" if rate <= last else ""
            for rate in RATES
        ]
        overall = [e.shown.overall for e in evaluations]
        recall = mean([figures.recall for figures in overall])
        interval = overall[0].recall.interval or (np.nan, np.nan)
        false = mean([figures.false_per_study for figures in overall])
        flagged = mean([e.shown.flagged_share for e in evaluations])
        spread = f"[{interval[0]:.3f}, {interval[1]:.3f}]"
        result.add_row(
            name, *cells, f"{recall:.3f} {spread}", f"{false:.1f}", f"{100 * flagged:.1f} %"
        )
    out = console()
    out.width = 160
    out.print(result)
    print(f"findings: {', '.join(FINDINGS)}")


if __name__ == "__main__":
    main()

"""Decoders compared on real label sequences with simulated scores: the table of docs/decoding.md.

Everything is fitted on half of the studies and evaluated on the other half, over several seeds:
calibration, decoder options and the priors (durations, run lengths, presence) too, since the
packaged priors come from all 60 studies. Without `../shared` label sequences are drawn from the
packaged priors, and the output says so.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks._decoder_tables import Row, Truth, judged, show
from benchmarks._simulation import SimulationOptions, simulate
from benchmarks._training_data import SPAWN, cores
from enteron.calibration import Calibration
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.datasets.submission import read_events
from enteron.decoding import PRESETS, DecodedEvent, DecodeOptions, decode
from enteron.decoding.events import to_annotation
from enteron.decoding.evidence import base_rates
from enteron.decoding.options import StateMachineOptions
from enteron.fitting.decoder import ContextUse, FitOptions, fit_decoder
from enteron.fitting.events import match_spans, true_rows_before
from enteron.fitting.frames import LabelledStudy, fit_calibration, label_rows
from enteron.labels import ANATOMY, COLUMN, FINDINGS, LABELS
from enteron.metrics.evaluation import Evaluation, evaluate
from enteron.phantom.timeline import draw_timeline
from enteron.priors import Priors, load_priors
from enteron.priors.fit import fit_priors
from enteron.types import Annotation, FrameAxis, Scores, Segment, Unit

REAL = Path(__file__).parents[2] / "shared" / "galar" / "events-60.json"
EVERY_FRAME = range(39, 61)  # studies with every frame stored; the others: every fifth

PACKAGED = load_priors()
RATES = base_rates(PACKAGED)  # of the training data of the simulated classifier
PAPER, TRANSIT = PRESETS["paper"], PRESETS["transit"]
BACKDATED = PAPER.model_copy(update={"state_machine": StateMachineOptions(backdate=True)})

CONTEXT = ", context"
"""Rows whose findings are judged by what surrounds them in time."""

USES: tuple[ContextUse, ...] = ("none", "events")

LESIONS = ("transit", "challenge", "clinical")
"""Presets of which pictures of lesions are judged, too."""

Predict = Callable[[LabelledStudy, Calibration], list[DecodedEvent]]


def main() -> None:
    arguments = parse_arguments()
    studies, origin = load_studies(arguments.studies)
    if arguments.swap:
        studies = [*studies[1:], studies[0]]
    print(f"{len(studies)} label sequences: {origin}")
    print(f"simulated scores of level '{arguments.level}', {arguments.seeds} seeds")
    print("fitted on every other study, evaluated on the rest\n", flush=True)
    rows = {row.name: row for row in all_rows()}
    tasks = [(seed, studies, arguments.level) for seed in range(arguments.seeds)]
    with ProcessPoolExecutor(cores(), mp_context=SPAWN) as pool:
        for results in pool.map(run_seed, tasks):
            for result in results:
                row = rows[result.name]
                row.events += result.events
                row.evaluations += result.evaluations
                row.lesions += result.lesions
    show(list(rows.values()), [truth for truth, _ in studies[1::2]])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--studies", type=int, default=60, help="fewer for a quick look")
    parser.add_argument("--swap", action="store_true", help="exchange the two halves")
    return parser.parse_args()


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_studies(count: int) -> tuple[list[tuple[Truth, Scores]], str]:
    """Truth in frames beside scores of zero, which carry the frame numbers; and their origin."""
    studies: list[tuple[Truth, Scores]] = []
    if REAL.exists():
        for rows in read_events(REAL, Unit.INDEX)[:count]:
            stride = 1 if int(rows.study) in EVERY_FRAME else 5
            truth: Truth = Annotation(
                rows.study,
                Unit.FRAME,
                tuple(Segment(s.start * stride, s.stop * stride, s.labels) for s in rows.segments),
            )
            first, last = rows.extent
            studies.append((truth, empty_scores(rows.study, stride * np.arange(first, last))))
        return studies, "real annotation (../shared)"
    for study in range(count):
        labels = draw_timeline(None, study, PACKAGED).labels
        axis = FrameAxis(5 * np.arange(len(labels)))
        table = LabelTable(str(study), axis, np.arange(len(labels)), labels)
        studies.append((truth_events(table, Unit.FRAME), empty_scores(str(study), axis.frames)))
    return studies, "drawn from the priors, since ../shared is not here"


def empty_scores(study: str, frames: np.ndarray) -> Scores:
    return Scores(study, FrameAxis(frames), np.zeros((frames.size, len(LABELS)), np.float32))


def all_rows() -> list[Row]:
    return [
        Row("empty file", only=()),
        Row("gap-merge", options=PRESETS["gap-merge"]),
        Row("paper"),
        Row("paper, back-dated"),
        Row("paper, anatomy only", only=ANATOMY),
        Row("transit, anatomy only", only=ANATOMY),
        Row("transit"),
        Row("challenge", options=PRESETS["challenge"]),
        Row("clinical"),
        Row("transit, context"),
        Row("challenge, context", options=PRESETS["challenge"]),
        Row("clinical, context"),
        Row("oracle: truth through paper", oracle=True),
        Row("oracle: truth through transit", oracle=True),
        Row("oracle: that, cut", options=PRESETS["challenge"], oracle=True),
    ]


def run_seed(task: tuple[int, list[tuple[Truth, Scores]], str]) -> list[Row]:
    """All rows for scores that are simulated with one seed."""
    seed, studies, level = task
    begin = time.perf_counter()
    rows = {row.name: row for row in all_rows() if not (row.oracle and seed)}
    options = SimulationOptions(level=level)  # type: ignore[arg-type]
    labelled: list[LabelledStudy] = []
    for index, (truth, scores) in enumerate(studies):
        values = label_rows(scores, truth)
        drawn = simulate(
            values, scores.axis.step, RATES, np.random.SeedSequence([seed, index]), options
        )
        labelled.append(LabelledStudy(Scores(scores.study, scores.axis, drawn), values))
    fitting, evaluated = labelled[0::2], labelled[1::2]
    priors = priors_of(fitting)
    truths = [truth for truth, _ in studies[1::2]]
    # The budget of `clinical` is what the paper's decoder spends on the studies of the fit.
    calibration = fit_calibration(fitting)
    spent = cost_per_study(fitting, calibration, priors)
    calibration, with_context = (
        fit_decoder(fitting, priors, FitOptions(budget=max(spent, 0.01), context=use))
        for use in USES
    )
    log(f"  kappa {calibration.kappa}, low {calibration.low}, budget {spent:.2f} a study")
    log(f"  {with_context.event_context}")
    decoded: dict[str, list[list[DecodedEvent]]] = {}
    for name, row in rows.items():
        base = name.removesuffix(", anatomy only")
        if base not in decoded:
            predict = predictor(base, priors)
            rules = with_context if base.endswith(CONTEXT) else calibration
            decoded[base] = [predict(study, rules) for study in evaluated]
        events = [[e for e in study if e.label in row.only] for study in decoded[base]]
        row.events.append(events)
        row.evaluations.append(evaluate_events(truths, events, row.options))
        if base == name and name.split(",")[0] in LESIONS:
            row.lesions.append(judged(truths, evaluated, events))
    log(f"seed {seed}: {time.perf_counter() - begin:.0f} s")
    return list(rows.values())


def priors_of(studies: list[LabelledStudy]) -> Priors:
    """Priors of the studies of the fit, in rows as the annotation has them."""
    annotations: list[Annotation] = []
    for study in studies:
        axis = study.scores.axis
        table = LabelTable(study.scores.study, axis, axis.frames // axis.step, study.truth)
        annotations.append(truth_events(table, Unit.INDEX))
    strides = {study.scores.study: study.scores.axis.step for study in studies}
    return fit_priors(annotations, strides, "the half that is fitted on", published=False)


def predictor(name: str, priors: Priors) -> Predict:
    if name == "empty file":
        return lambda study, calibration: []
    if name.startswith("oracle"):
        return oracle_through(PAPER if name.endswith("paper") else TRANSIT, priors)
    options = {"paper, back-dated": BACKDATED}.get(name) or PRESETS[name.split(",")[0]]
    return lambda study, calibration: decode(study.scores, options, priors, calibration)


def oracle_through(options: DecodeOptions, priors: Priors) -> Predict:
    def predict(study: LabelledStudy, calibration: Calibration) -> list[DecodedEvent]:
        oracle = Scores(study.scores.study, study.scores.axis, study.truth.astype(np.float32))
        return decode(oracle, options, priors)

    return predict


def evaluate_events(
    truths: list[Truth], events: list[list[DecodedEvent]], options: DecodeOptions | None = None
) -> Evaluation:
    predictions = [
        to_annotation(truth.study, Unit.FRAME, study_events, options)
        for truth, study_events in zip(truths, events, strict=True)
    ]
    return evaluate(truths, predictions)


def cost_per_study(studies: list[LabelledStudy], calibration: Calibration, priors: Priors) -> float:
    """What the paper's findings cost per study: false alarms, with the price of false minutes."""
    cost = 0.0
    for study in studies:
        axis = study.scores.axis
        events = decode(study.scores, PAPER, priors, calibration)
        for label in FINDINGS:
            edges = sorted((e.start, e.stop) for e in events if e.label == label)
            spans = np.searchsorted(axis.frames, np.array(edges, dtype=np.int64).reshape(-1, 2))
            before = true_rows_before(study.truth[:, COLUMN[label]])
            cost += match_spans(spans, before, axis.step)[1]
    return cost / len(studies)


if __name__ == "__main__":
    main()

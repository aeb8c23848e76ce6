"""Decoders compared on real label sequences with simulated scores: the table of docs/decoding.md.

Fitted on half of the studies, reported on the other half, over several seeds. Without `../shared`
the label sequences are drawn from the priors, and the output says so.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.table import Table

from enteron.calibration.fit import fit_calibration
from enteron.calibration.labelled import Labelled, label_rows
from enteron.calibration.logits import calibrated
from enteron.calibration.value import Calibration
from enteron.cli.show import console, number, table
from enteron.decode import PRESETS, DecodedEvent, DecodeOptions, decode
from enteron.decode.challenge import to_annotation
from enteron.decode.evidence import base_rates
from enteron.decode.options import StateMachineOptions
from enteron.decode.runs import runs
from enteron.galar.submission import read_events
from enteron.galar.table import LabelTable
from enteron.galar.truth import truth_events
from enteron.labels import ANATOMY, COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.bootstrap import StudyBootstrap
from enteron.metrics.evaluation import NOMINAL_RATE, Evaluation, evaluate
from enteron.metrics.honest import IS_FINDING, Detection, detect_by_overlap
from enteron.metrics.simulation import SimulationOptions, simulate
from enteron.metrics.spans import flatten, merge_touching
from enteron.phantom.timeline import draw_timeline
from enteron.priors import load_priors
from enteron.tuning import FitOptions, fit_decoder
from enteron.tuning.curves import before, judged
from enteron.types import Annotation, FrameAxis, FrameUnit, Scores, Segment, Unit

REAL = Path(__file__).parents[2] / "shared" / "galar" / "events-60.json"
EVERY_FRAME = range(39, 61)  # Galar's studies that are stored whole; the others: every fifth frame
GAP = 15  # rows that the prior submission bridged
MATCHED = (1.0, 5.0)  # false alarms per hour at which recall is compared, beside the paper's own

PRIORS = load_priors()
RATES = base_rates(PRIORS)
PAPER, TRANSIT = PRESETS["paper"], PRESETS["transit"]
BACKDATED = PAPER.model_copy(update={"state_machine": StateMachineOptions(backdate=True)})

Predict = Callable[[Labelled, Calibration], list[DecodedEvent]]
Truth = Annotation[FrameUnit]


@dataclass
class Row:
    """What one decoder did over all seeds, study by study."""

    name: str
    cut: bool = False
    only: tuple[str, ...] = LABELS
    oracle: bool = False  # sees the truth: the same at every seed
    evaluations: list[Evaluation] = field(default_factory=list)
    events: list[list[list[DecodedEvent]]] = field(default_factory=list)  # by seed and study


def main() -> None:
    arguments = parsed()
    studies, origin = load_studies(arguments.studies)
    print(f"{len(studies)} label sequences: {origin}")
    print(f"simulated scores of level '{arguments.level}', {arguments.seeds} seeds")
    print("fitted on every other study, reported on those between them\n", flush=True)
    rows = {row.name: row for row in all_rows()}
    for seed in range(arguments.seeds):
        began = time.perf_counter()
        run_seed(seed, studies, rows, arguments.level)
        log(f"seed {seed}: {time.perf_counter() - began:.0f} s")
    show(list(rows.values()), [truth for truth, _ in studies[1::2]])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--level", choices=("weaker", "paper", "stronger"), default="paper")
    parser.add_argument("--studies", type=int, default=60, help="how many, for a quick look")
    return parser.parse_args()


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_studies(count: int) -> tuple[list[tuple[Truth, Scores]], str]:
    """Truth in frames, and a table of zeros in place of scores, which knows the frames."""
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
        labels = draw_timeline(None, study, PRIORS).labels
        axis = FrameAxis(5 * np.arange(len(labels)))
        table = LabelTable(str(study), axis, np.arange(len(labels)), labels)
        studies.append((truth_events(table, Unit.FRAME), empty_scores(str(study), axis.frames)))
    return studies, "drawn from the priors, since ../shared is not here"


def empty_scores(study: str, frames: np.ndarray) -> Scores:
    return Scores(study, FrameAxis(frames), np.zeros((frames.size, len(LABELS)), np.float32))


def all_rows() -> list[Row]:
    return [
        Row("empty file", only=()),
        Row("gap merge"),
        Row("paper"),
        Row("paper, back-dated"),
        Row("paper, anatomy only", only=ANATOMY),
        Row("transit, anatomy only", only=ANATOMY),
        Row("transit"),
        Row("challenge", cut=True),
        Row("clinical"),
        Row("oracle: truth through paper", oracle=True),
        Row("oracle: truth through transit", oracle=True),
        Row("oracle: that, cut", cut=True, oracle=True),
    ]


def run_seed(
    seed: int, studies: list[tuple[Truth, Scores]], rows: dict[str, Row], level: str
) -> None:
    options = SimulationOptions(level=level)  # type: ignore[arg-type]
    labelled: list[Labelled] = []
    for place, (truth, scores) in enumerate(studies):
        values = label_rows(scores, truth)
        drawn = simulate(
            values, scores.axis.step, RATES, np.random.SeedSequence([seed, place]), options
        )
        labelled.append(Labelled(Scores(scores.study, scores.axis, drawn), values))
    fitting, reported = labelled[0::2], labelled[1::2]
    truths = [truth for truth, _ in studies[1::2]]
    # The budget of `clinical` is what the paper's decoder spends on the studies of the fit.
    calibration = fit_calibration(fitting)
    spent = cost_per_hour(fitting, calibration)
    calibration = fit_decoder(fitting, PRIORS, FitOptions(budget=max(spent, 0.01)))
    log(f"  kappa {calibration.kappa}, low {calibration.low}, budget {spent:.2f} an hour")
    done: dict[str, list[list[DecodedEvent]]] = {}
    for name, row in rows.items():
        if row.oracle and seed:
            continue
        base = name.removesuffix(", anatomy only")
        if base not in done:
            predict = predictor(base)
            done[base] = [predict(study, calibration) for study in reported]
        events = [[e for e in found if e.label in row.only] for found in done[base]]
        row.events.append(events)
        row.evaluations.append(evaluated(truths, events, row.cut))


def predictor(name: str) -> Predict:
    if name == "empty file":
        return lambda study, calibration: []
    if name == "gap merge":
        return gap_merge
    if name.startswith("oracle"):
        return oracle_through(PAPER if name.endswith("paper") else TRANSIT)
    options = {"paper, back-dated": BACKDATED}.get(name) or PRESETS[name.split(",")[0]]
    return lambda study, calibration: decode(study.scores, options, PRIORS, calibration)


def oracle_through(options: DecodeOptions) -> Predict:
    def predict(study: Labelled, calibration: Calibration) -> list[DecodedEvent]:
        known = Scores(study.scores.study, study.scores.axis, study.truth.astype(np.float32))
        return decode(known, options, PRIORS)

    return predict


def gap_merge(study: Labelled, calibration: Calibration) -> list[DecodedEvent]:
    """The prior submission: thresholds, then gaps of up to 15 rows closed, label by label."""
    p = calibrated(study.scores, calibration.paper)
    frames, ends = study.scores.axis.frames, study.scores.axis.ends()
    events: list[DecodedEvent] = []
    for column, label in enumerate(LABELS):
        threshold = calibration.paper.thresholds[label]
        spans = runs(p[:, column] >= threshold) if threshold is not None else np.empty((0, 2), int)
        if not len(spans):
            continue
        fresh = np.concatenate(([True], spans[1:, 0] - spans[:-1, 1] > GAP))
        first = np.flatnonzero(fresh)
        last = np.append(first[1:], len(spans)) - 1
        for start, stop in zip(spans[first, 0], spans[last, 1], strict=True):
            score = float(p[start:stop, column].mean())
            events.append(DecodedEvent(int(frames[start]), int(ends[stop - 1]), label, score))
    return sorted(events, key=lambda event: -(event.score or 0.0))


def evaluated(truths: list[Truth], events: list[list[DecodedEvent]], cut: bool) -> Evaluation:
    predictions = [
        to_annotation(truth.study, Unit.FRAME, found, cut=cut)
        for truth, found in zip(truths, events, strict=True)
    ]
    return evaluate(truths, predictions)  # type: ignore[type-var]


def cost_per_hour(studies: list[Labelled], calibration: Calibration) -> float:
    """What the paper's findings cost, in the currency of the budget: alarms and false minutes."""
    cost, frames = 0.0, 0
    for study in studies:
        axis = study.scores.axis
        events = decode(study.scores, PAPER, PRIORS, calibration)
        for label in FINDINGS:
            mine = sorted((e.start, e.stop) for e in events if e.label == label)
            spans = np.searchsorted(axis.frames, np.array(mine, dtype=np.int64).reshape(-1, 2))
            cost += judged(spans, before(study.truth[:, COLUMN[label]]), axis.step)[1]
        frames += len(axis) * axis.step
    return cost / (frames / NOMINAL_RATE / 3600)


def show(rows: list[Row], truths: list[Truth]) -> None:
    out = console()
    out.width = 170
    by_name = {row.name: row for row in rows}
    out.print(scores_table(rows))
    out.print(borders_table(rows))
    out.print(findings_table(rows, truths, by_name["paper"]))
    out.print(differences_table(by_name))


def scores_table(rows: list[Row]) -> Table:
    made = table(
        "Temporal mAP, 95 % intervals over studies",
        "decoder", "at 0.5", "at 0.95", "minus empty, 0.5", "present labels", "present, merged",
        "anatomy events a study",
    )  # fmt: skip
    for row in rows:
        made.add_row(
            row.name,
            spread(row, lambda e: e.official[0].studies),
            spread(row, lambda e: e.official[1].studies),
            spread(row, lambda e: e.official[0].studies - e.empty[0].studies),
            spread(row, lambda e: e.official[0].present_studies),
            spread(row, lambda e: e.merged[0].present_studies),
            anatomy_events(row),
        )
    return made


def anatomy_events(row: Row) -> str:
    counts = [sum(e.label in REGIONS for e in study) for seed in row.events for study in seed]
    return f"{np.mean(counts):.1f} ({np.min(counts)}-{np.max(counts)})"


def borders_table(rows: list[Row]) -> Table:
    made = table(
        "Region onsets, in original frames",
        "decoder", "median error", "90th percentile", "missed", "invented", "of",
    )  # fmt: skip
    for row in rows:
        errors = np.abs(np.concatenate([e.borders.error.ravel() for e in row.evaluations]))
        errors = errors[~np.isnan(errors)]
        found = [np.median(errors), np.quantile(errors, 0.9)] if errors.size else [None, None]
        made.add_row(
            row.name,
            *(number(value, 0) for value in found),
            f"{np.mean([e.borders.missed.sum() for e in row.evaluations]):.1f}",
            f"{np.mean([e.borders.invented.sum() for e in row.evaluations]):.1f}",
            f"{np.mean([(~np.isnan(e.borders.true)).sum() for e in row.evaluations]):.0f}",
        )
    return made


def findings_table(rows: list[Row], truths: list[Truth], paper: Row) -> Table:
    own = [alarms_of(e) for e in paper.evaluations]
    made = table(
        "Findings: recall of true events (any overlap), each list cut by its own confidence",
        "decoder", "recall", "alarms / h", "flagged time", "recall at the paper's own alarms",
        *(f"at {alarms:g} / h" for alarms in MATCHED),
    )  # fmt: skip
    for row in rows:
        seeds = range(len(row.evaluations))
        matched = [recall_at(row, seed, truths, own[seed]) for seed in seeds]
        made.add_row(
            row.name,
            ratio(row, lambda e: e.overlap.found, lambda e: e.overlap.truths),
            f"{np.mean([alarms_of(e) for e in row.evaluations]):.2f}",
            f"{100 * np.mean([flagged(row, seed, truths) for seed in seeds]):.1f} %",
            bootstrapped(matched),
            *(
                f"{np.mean([share(recall_at(row, s, truths, alarms)) for s in seeds]):.3f}"
                for alarms in MATCHED
            ),
        )
    return made


def alarms_of(evaluation: Evaluation) -> float:
    return float(evaluation.overlap.false_alarms[:, IS_FINDING].sum() / evaluation.hours.sum())


def flagged(row: Row, seed: int, truths: list[Truth]) -> float:
    """Share of the recording that lies in some finding's event."""
    total = sum(truth.extent[1] - truth.extent[0] for truth in truths)
    shown = 0
    for events in row.events[seed]:
        reach = 0
        for event in sorted(e for e in events if e.label in FINDINGS):
            shown += max(0, event.stop - max(event.start, reach))
            reach = max(reach, event.stop)
    return shown / total


def recall_at(row: Row, seed: int, truths: list[Truth], alarms: float) -> np.ndarray:
    """(studies, 2): found and true findings with the list cut where alarms an hour are reached.

    The order is the decoder's own, over all studies: by persistence for the paper's, by score for
    the others.
    """
    ranked = sorted(
        (rank_of(row, event, place), study, event)
        for study, events in enumerate(row.events[seed])
        for place, event in enumerate(e for e in events if e.label in FINDINGS)
    )
    spans = [truth.spans() for truth in truths]
    hours = row.evaluations[seed].hours.sum()
    wrong = np.cumsum([not touches(event, spans[study]) for _, study, event in ranked])
    kept = kept_of(ranked[: int((wrong <= alarms * hours).sum())], truths)
    return np.stack(
        [kept.found[:, IS_FINDING].sum(axis=1), kept.truths[:, IS_FINDING].sum(axis=1)], axis=1
    )


def rank_of(row: Row, event: DecodedEvent, place: int) -> float:
    if row.name.startswith("paper"):  # S, from its parts: mean probability and duration in rows
        return -(event.score or 0.0) * np.log1p(max(len(event) - 1, 0))
    return -(event.score or 0.0)


def touches(event: DecodedEvent, spans: dict[str, np.ndarray]) -> bool:
    """Whether an event overlaps the truth of its label, whose segments are in time order."""
    if event.label not in spans:
        return False
    starts, stops = spans[event.label].T
    return bool(np.searchsorted(starts, event.stop) > np.searchsorted(stops, event.start, "right"))


def kept_of(ranked: list[tuple[float, int, DecodedEvent]], truths: list[Truth]) -> Detection:
    events: list[list[Segment]] = [[] for _ in truths]
    for _, study, event in ranked:
        events[study].append(Segment(event.start, event.stop, (event.label,)))
    true, predicted = (
        merge_touching(flatten(side)) for side in ((t.segments for t in truths), events)
    )
    return detect_by_overlap(true, predicted, len(truths))


def differences_table(rows: dict[str, Row]) -> Table:
    made = table(
        "Paired differences at 0.5, 95 % intervals over studies",
        "", "official", "present labels", "present, merged",
    )  # fmt: skip
    for better, other in (
        ("transit, anatomy only", "paper, anatomy only"),
        ("transit, anatomy only", "gap merge"),
        ("challenge", "empty file"),
        ("challenge", "paper"),
        ("paper, back-dated", "paper"),
    ):
        pairs = list(zip(rows[better].evaluations, rows[other].evaluations, strict=True))
        made.add_row(
            f"{better} minus {other}",
            interval([a.official[0].studies - b.official[0].studies for a, b in pairs]),
            interval(
                [a.official[0].present_studies - b.official[0].present_studies for a, b in pairs]
            ),
            interval([a.merged[0].present_studies - b.merged[0].present_studies for a, b in pairs]),
        )
    return made


def spread(row: Row, values: Callable[[Evaluation], np.ndarray]) -> str:
    return interval([values(e) for e in row.evaluations])


def interval(seeds: list[np.ndarray]) -> str:
    """Mean over seeds and studies; the interval resamples studies, with their seeds together."""
    by_study = np.mean(seeds, axis=0)
    low, high = StudyBootstrap(by_study.size).mean(by_study) or (np.nan, np.nan)
    return f"{np.nanmean(by_study):.3f} [{low:.3f}, {high:.3f}]"


def ratio(row: Row, above: Callable[[Evaluation], np.ndarray], below: Callable) -> str:
    return bootstrapped(
        [
            np.stack([above(e)[:, IS_FINDING].sum(1), below(e)[:, IS_FINDING].sum(1)], axis=1)
            for e in row.evaluations
        ]
    )


def share(counts: np.ndarray) -> float:
    return float(counts[:, 0].sum() / counts[:, 1].sum())


def bootstrapped(seeds: list[np.ndarray]) -> str:
    total = np.sum(seeds, axis=0)
    low, high = StudyBootstrap(len(total)).ratio(total[:, 0], total[:, 1]) or (np.nan, np.nan)
    return f"{share(total):.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()

"""Tables of the benchmark `decoders`: scores, onsets, findings, lesions, paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from enteron.cli.console import console, number, table
from enteron.decoding import DecodedEvent, DecodeOptions
from enteron.fitting.frames import LabelledStudy
from enteron.folders.shown import representative_frames
from enteron.labels import FINDINGS, LABELS, REGIONS
from enteron.metrics.evaluation import Evaluation, StudyBootstrap
from enteron.metrics.honest import IS_FINDING, Detection, detect_by_overlap
from enteron.metrics.lesion_evaluation import LesionEvaluation, ShownStudy, evaluate_lesions
from enteron.metrics.lesions import Recording
from enteron.metrics.official import flatten, merge_touching
from enteron.types import Annotation, Segment, Unit

FALSE_PICTURES = (1.0, 4.0, 8.0, 16.0)
RESAMPLES = 300
MATCHED = (8.0, 40.0)  # false alarms per study at which recall is compared, beside the paper's own

Truth = Annotation


@dataclass
class Row:
    """Results of one decoder over all seeds, study by study."""

    name: str
    options: DecodeOptions | None = None  # where the official file is cut, or in another order
    only: tuple[str, ...] = LABELS
    oracle: bool = False  # decodes the truth: the same at every seed
    evaluations: list[Evaluation] = field(default_factory=list)
    events: list[list[list[DecodedEvent]]] = field(default_factory=list)  # by seed and study
    lesions: list[LesionEvaluation] = field(default_factory=list)  # by seed, where they are judged


def show(rows: list[Row], truths: list[Truth]) -> None:
    out = console()
    out.width = 170
    by_name = {row.name: row for row in rows}
    out.print(scores_table(rows))
    out.print(borders_table(rows))
    out.print(findings_table(rows, truths, by_name["paper"]))
    out.print(lesions_table(by_name))
    out.print(differences_table(by_name))


def scores_table(rows: list[Row]) -> Table:
    result = table(
        "Temporal mAP, 95 % intervals over studies",
        "decoder", "at 0.5", "at 0.95", "minus empty, 0.5", "present labels", "present, merged",
        "anatomy events a study",
    )  # fmt: skip
    for row in rows:
        result.add_row(
            row.name,
            spread(row, lambda e: e.official[0].studies),
            spread(row, lambda e: e.official[1].studies),
            spread(row, lambda e: e.official[0].studies - e.empty[0].studies),
            spread(row, lambda e: e.official[0].present_studies),
            spread(row, lambda e: e.merged[0].present_studies),
            anatomy_events(row),
        )
    return result


def anatomy_events(row: Row) -> str:
    counts = [sum(e.label in REGIONS for e in study) for seed in row.events for study in seed]
    return f"{np.mean(counts):.1f} ({np.min(counts)}-{np.max(counts)})"


def borders_table(rows: list[Row]) -> Table:
    result = table(
        "Region onsets, in original frames",
        "decoder", "median error", "90th percentile", "missed", "invented", "of",
    )  # fmt: skip
    for row in rows:
        errors = np.abs(np.concatenate([e.borders.error.ravel() for e in row.evaluations]))
        errors = errors[~np.isnan(errors)]
        quantiles = [np.quantile(errors, q) for q in (0.5, 0.9)] if errors.size else [None, None]
        result.add_row(
            row.name,
            *(number(value, 0) for value in quantiles),
            f"{np.mean([e.borders.missed.sum() for e in row.evaluations]):.1f}",
            f"{np.mean([e.borders.invented.sum() for e in row.evaluations]):.1f}",
            f"{np.mean([(~np.isnan(e.borders.true)).sum() for e in row.evaluations]):.0f}",
        )
    return result


def findings_table(rows: list[Row], truths: list[Truth], paper: Row) -> Table:
    paper_alarms = [alarms_of(e) for e in paper.evaluations]
    result = table(
        "Findings: recall of true events (any overlap), each list cut by its own confidence",
        "decoder", "recall", "alarms / study", "flagged time", "recall at the paper's own alarms",
        *(f"at {alarms:g} / study" for alarms in MATCHED),
    )  # fmt: skip
    for row in rows:
        seeds = range(len(row.evaluations))
        matched = [recall_at(row, seed, truths, paper_alarms[seed]) for seed in seeds]
        result.add_row(
            row.name,
            ratio(row, lambda e: e.overlap.detected, lambda e: e.overlap.true_events),
            f"{np.mean([alarms_of(e) for e in row.evaluations]):.2f}",
            f"{100 * np.mean([flagged(row, seed, truths) for seed in seeds]):.1f} %",
            bootstrapped(matched),
            *(
                f"{np.mean([share(recall_at(row, s, truths, alarms)) for s in seeds]):.3f}"
                for alarms in MATCHED
            ),
        )
    return result


def lesions_table(rows: dict[str, Row]) -> Table:
    result = table(
        "Lesions: found if the picture of an event of their finding lies in them",
        "decoder", "recall", "false pictures / study",
        *(f"recall at {rate:g} / study" for rate in FALSE_PICTURES),
        "false pictures at the recall of both, beside the same without context", "ratio",
    )  # fmt: skip
    for name, row in rows.items():
        if not row.lesions:
            continue
        overall = [evaluation.shown.overall for evaluation in row.lesions]
        curves = [evaluation.curve for evaluation in row.lesions]
        cells = [
            np.mean([0.0 if curve is None else curve.recall_at(rate) for curve in curves])
            for rate in FALSE_PICTURES
        ]
        plain = rows.get(name.split(",")[0])
        compared = ["", ""]
        if plain is not None and plain is not row:
            compared = compared_false(row.lesions, plain.lesions)
        result.add_row(
            name,
            f"{np.mean([figures.recall.value or 0.0 for figures in overall]):.3f}",
            f"{np.mean([figures.false_per_study.value or 0.0 for figures in overall]):.1f}",
            *(f"{cell:.3f}" for cell in cells),
            *compared,
        )
    return result


def compared_false(
    with_context: Sequence[LesionEvaluation], without: Sequence[LesionEvaluation]
) -> list[str]:
    """False pictures a study where both have found as many lesions, and their ratio."""
    count = len(without[0].detection.lesions.studies)
    rng = np.random.default_rng(0)
    draws = [
        np.ones(count),
        *(
            np.bincount(rng.integers(count, size=count), minlength=count).astype(float)
            for _ in range(RESAMPLES)
        ),
    ]
    pairs = list(zip(with_context, without, strict=True))
    recalls = [
        min(evaluation.shown.overall.recall.value or 0.0 for evaluation in pair) for pair in pairs
    ]
    # (draws, 2): with context and without, means over seeds
    false = np.array(
        [
            np.mean(
                [
                    [false_at_recall(evaluation, recall, drawn) for evaluation in pair]
                    for pair, recall in zip(pairs, recalls, strict=True)
                ],
                axis=0,
            )
            for drawn in draws
        ]
    )
    with np.errstate(invalid="ignore"):  # a resample in which neither reaches the recall
        ratio = false[:, 0] / np.maximum(false[:, 1], 1e-9)
    low, high = np.nanquantile(ratio[1:], (0.025, 0.975), method="nearest")
    return [
        f"{false[0, 0]:.2f} beside {false[0, 1]:.2f} (recall {np.mean(recalls):.3f})",
        f"{ratio[0]:.2f} [{low:.2f}, {high:.2f}]",
    ]


def false_at_recall(
    evaluation: LesionEvaluation, recall: float, drawn: NDArray[np.float64]
) -> float:
    """False events a study at the highest threshold that reaches the recall.

    `drawn`: how often each study is counted. Infinite where the recall is never reached.
    """
    detection = evaluation.detection
    lesion_weights = drawn[detection.lesions.study]
    order = np.argsort(-detection.detected_at)
    reached = np.cumsum(lesion_weights[order]) / max(lesion_weights.sum(), 1e-12)
    found = np.isfinite(detection.detected_at[order]) & (reached >= recall - 1e-12)
    if not found.any():
        return float("inf")
    threshold = detection.detected_at[order][found.argmax()]
    false = (detection.events.confidence >= threshold) & ~detection.is_true
    return float(drawn[detection.events.study[false]].sum() / drawn.sum())


def judged(
    truths: Sequence[Annotation],
    studies: Sequence[LabelledStudy],
    events: Sequence[list[DecodedEvent]],
) -> LesionEvaluation:
    """Lesions and pictures of decoded studies."""
    shown = [
        ShownStudy(
            Annotation.from_events(truth.study, Unit.FRAME, found),
            tuple(found),
            representative_frames(found, study.scores),
            Recording.from_scores(study.scores),
        )
        for truth, study, found in zip(truths, studies, events, strict=True)
    ]
    return evaluate_lesions(truths, shown, StudyBootstrap(len(truths)))


def alarms_of(evaluation: Evaluation) -> float:
    return float(evaluation.overlap.false_alarms[:, IS_FINDING].sum() / len(evaluation.studies))


def flagged(row: Row, seed: int, truths: list[Truth]) -> float:
    """Share of the recording that lies in some finding's event."""
    total = sum(truth.extent[1] - truth.extent[0] for truth in truths)
    covered = 0
    for events in row.events[seed]:
        reach = 0
        for event in sorted(e for e in events if e.label in FINDINGS):
            covered += max(0, event.stop - max(event.start, reach))
            reach = max(reach, event.stop)
    return covered / total


def recall_at(row: Row, seed: int, truths: list[Truth], alarms: float) -> np.ndarray:
    """(studies, 2): found and true findings with the list cut where alarms a study are reached.

    The order is the decoder's, over all studies: by persistence for the paper's, by score for the
    others.
    """
    ranked = sorted(
        (rank_of(row, event), study, event)
        for study, events in enumerate(row.events[seed])
        for event in events
        if event.label in FINDINGS
    )
    spans = [truth.spans() for truth in truths]
    wrong = np.cumsum([not overlaps_truth(event, spans[study]) for _, study, event in ranked])
    detection = detect(ranked[: int((wrong <= alarms * len(truths)).sum())], truths)
    return np.stack(
        [
            detection.detected[:, IS_FINDING].sum(axis=1),
            detection.true_events[:, IS_FINDING].sum(axis=1),
        ],
        axis=1,
    )


def rank_of(row: Row, event: DecodedEvent) -> float:
    if row.name.startswith("paper"):  # S, from its parts: mean probability and duration in rows
        return -(event.score or 0.0) * np.log1p(max(len(event) - 1, 0))
    return -(event.score or 0.0)


def overlaps_truth(event: DecodedEvent, spans: dict[str, np.ndarray]) -> bool:
    """Whether an event overlaps the truth of its label, whose segments are in time order."""
    if event.label not in spans:
        return False
    starts, stops = spans[event.label].T
    return bool(np.searchsorted(starts, event.stop) > np.searchsorted(stops, event.start, "right"))


def detect(ranked: list[tuple[float, int, DecodedEvent]], truths: list[Truth]) -> Detection:
    events: list[list[Segment]] = [[] for _ in truths]
    for _, study, event in ranked:
        events[study].append(Segment(event.start, event.stop, (event.label,)))
    true, predicted = (
        merge_touching(flatten(side)) for side in ((t.segments for t in truths), events)
    )
    return detect_by_overlap(true, predicted, len(truths))


def differences_table(rows: dict[str, Row]) -> Table:
    result = table(
        "Paired differences at 0.5, 95 % intervals over studies",
        "", "official", "present labels", "present, merged",
    )  # fmt: skip
    for better, other in (
        ("transit, anatomy only", "paper, anatomy only"),
        ("transit, anatomy only", "gap-merge"),
        ("challenge", "empty file"),
        ("challenge", "paper"),
        ("paper, back-dated", "paper"),
        ("transit, context", "transit"),
        ("challenge, context", "challenge"),
        ("clinical, context", "clinical"),
    ):
        pairs = list(zip(rows[better].evaluations, rows[other].evaluations, strict=True))
        result.add_row(
            f"{better} minus {other}",
            interval([a.official[0].studies - b.official[0].studies for a, b in pairs]),
            interval(
                [a.official[0].present_studies - b.official[0].present_studies for a, b in pairs]
            ),
            interval([a.merged[0].present_studies - b.merged[0].present_studies for a, b in pairs]),
        )
    return result


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

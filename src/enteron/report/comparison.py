"""The reading compared with a reference annotation of the same study."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enteron.decoding.events import DecodedEvent, to_annotation
from enteron.errors import EnteronError, UnitError
from enteron.folders.reading import RunRecord
from enteron.folders.shown import representative_frames
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.metrics.evaluation import EvaluationOptions, Figures, evaluate, summarise
from enteron.metrics.lesion_evaluation import ShownStudy, evaluate_lesions
from enteron.metrics.lesions import Recording
from enteron.report.charts import Chart, froc_chart
from enteron.report.clock import Clock, counted
from enteron.report.suspicious import FIRST
from enteron.types import Annotation, Scores


@dataclass(frozen=True)
class ScoreRow:
    """One figure at two temporal overlaps."""

    name: str
    half: float | None  # at an overlap of 0.5
    strict: float | None  # at 0.95


@dataclass(frozen=True)
class LabelRow:
    """Counts of one label."""

    label: str
    column: int
    annotated: int
    found: int  # annotated intervals that a reported event overlaps
    reported: int
    correct: int  # reported events that overlap an annotated interval


@dataclass(frozen=True)
class BorderRow:
    """How early or late the reading lets a region begin."""

    region: str
    error: str


@dataclass(frozen=True)
class ComparisonPanel:
    """All figures of one study."""

    scores: tuple[ScoreRow, ...]
    annotated_findings: int
    found_findings: int
    false_alarms: int
    false_alarms_per_hour: float | None  # None where times are unknown
    labels: tuple[LabelRow, ...]
    borders: tuple[BorderRow, ...]
    warnings: tuple[str, ...]
    lesions: int
    shown_lesions: int  # that the picture of an event lies in
    listed_lesions: int | None  # that one of the first pictures of the list lies in
    froc: Chart | None  # lesions found against false events; None without lesions


def comparison_panel(
    events: Sequence[DecodedEvent],
    truth: Annotation,
    study: str,
    clock: Clock,
    run: RunRecord,
    scores: Scores,
    listed: Sequence[int] | None = None,
) -> ComparisonPanel:
    """Figures of this study; the annotation must be of the same study and in the same unit.

    `listed` are the suspicious frames in their order, where they were listed.
    """
    if truth.study != study:
        raise EnteronError(
            f"the truth is of study {truth.study}, the reading of study {study}",
            "give the truth of the study that was read",
        )
    unit = clock.axis.unit
    if unit is not truth.unit:
        raise UnitError(
            f"the reading of study {study} counts in '{unit}', its truth in '{truth.unit}'",
            "index or frame? decode with a 'frame' column, or with --stride",
        )
    predicted = to_annotation(study, unit, events, run.options)
    # The frames of a shortened study do not follow each other in real time.
    seconds = clock.end_seconds(clock.end) if run.scaling is None else None
    rate = (clock.end - clock.first) / seconds if seconds else None
    figures = summarise(evaluate([truth], [predicted], EvaluationOptions(rate=rate)))
    findings = figures["findings"]
    shown = ShownStudy(
        predicted,
        tuple(events),
        representative_frames(events, scores),
        Recording.from_scores(scores),
        None if listed is None else np.array(listed, dtype=np.int64),
    )
    lesions = evaluate_lesions([truth], [shown])
    return ComparisonPanel(
        scores=_score_rows(figures),
        annotated_findings=findings["truths"],
        found_findings=findings["found"],
        false_alarms=findings["false_alarms"],
        false_alarms_per_hour=findings["false_alarms_per_hour"],
        labels=_label_rows(figures),
        borders=_border_rows(figures, study, clock),
        warnings=tuple(figures["warnings"]),
        lesions=lesions.shown.overall.lesions,
        shown_lesions=lesions.shown.overall.found,
        listed_lesions=None if lesions.top is None else int(lesions.top.found(FIRST).sum()),
        froc=froc_chart(lesions.curve, lesions.curves)
        if lesions.curve is not None and lesions.curve.lesions
        else None,
    )


SCORES = (
    ("this reading: official score", "map"),
    ("for comparison: reporting nothing at all", "empty"),
    ("this reading: only labels that the study shows", "present"),
    ("the same, with touching intervals joined", "present_merged"),
)


def _score_rows(figures: Figures) -> tuple[ScoreRow, ...]:
    return tuple(ScoreRow(name, figures[key]["0.5"], figures[key]["0.95"]) for name, key in SCORES)


def _label_rows(figures: Figures) -> tuple[LabelRow, ...]:
    rows = []
    for label in LABELS:
        counts = figures["labels"][label]
        if counts["truths"] or counts["predicted"]:
            row = LabelRow(
                label,
                COLUMN[label],
                annotated=counts["truths"],
                found=counts["found"],
                reported=counts["predicted"],
                correct=counts["right"],
            )
            rows.append(row)
    return tuple(rows)


def _border_rows(figures: Figures, study: str, clock: Clock) -> tuple[BorderRow, ...]:
    rows = []
    for region in REGIONS:
        error = figures["videos"][study]["onset_error"][region]
        state = figures["boundaries"]["regions"][region]
        if error is not None:
            side = "late" if error > 0 else "early"
            text = f"{counted(round(abs(error)), clock.word)} {side}" if error else "exact"
            rows.append(BorderRow(region, text))
        elif state["missed"]:
            rows.append(BorderRow(region, "not reported"))
        elif state["invented"]:
            rows.append(BorderRow(region, "not annotated"))
    return tuple(rows)

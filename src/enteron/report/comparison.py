"""The reading beside its annotation: the official score, and what it hides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enteron.decode.events import DecodedEvent, to_annotation
from enteron.errors import EnteronError, UnitError
from enteron.folders.reading import RunRecord
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.metrics.evaluation import EvaluationOptions, evaluate, summarise
from enteron.report.clock import Clock, counted
from enteron.types import Annotation, Unit


@dataclass(frozen=True)
class ScoreRow:
    """A figure at both overlaps."""

    name: str
    half: float | None  # at a temporal overlap of 0.5
    strict: float | None  # at 0.95


@dataclass(frozen=True)
class LabelRow:
    """One label, annotated and found."""

    label: str
    column: int
    annotated: int
    found: int
    predicted: int
    right: int


@dataclass(frozen=True)
class BorderRow:
    """Where a region begins, in the prediction minus in the annotation."""

    region: str
    error: str


@dataclass(frozen=True)
class ComparisonPanel:
    """All figures of one study."""

    scores: tuple[ScoreRow, ...]
    recall: float | None
    precision: float | None
    false_alarms: int
    false_alarms_per_hour: float | None  # None where no frame rate is known
    annotated_findings: int
    found_findings: int
    labels: tuple[LabelRow, ...]
    borders: tuple[BorderRow, ...]
    warnings: tuple[str, ...]
    word: str


def comparison_panel(
    events: Sequence[DecodedEvent],
    truth: Annotation,
    study: str,
    clock: Clock,
    run: RunRecord,
) -> ComparisonPanel:
    """Figures of this study; its truth must be of the same study and count the same thing."""
    if truth.study != study:
        raise EnteronError(
            f"the truth is of study {truth.study}, the reading of study {study}",
            "give the truth of the study that was read",
        )
    if clock.unit is not truth.unit:
        raise UnitError(
            f"the reading of study {study} counts in '{clock.unit}', its truth in '{truth.unit}'",
            "index or frame? decode with a 'frame' column, or with --stride",
        )
    cut = bool(run.options.get("cut", False))
    predicted: Annotation = to_annotation(study, Unit.FRAME, events, cut=cut)
    hours = (clock.seconds(clock.end) or 0.0) / 3600
    length = clock.end - clock.first
    rate = length / hours / 3600 if hours else None
    figures = summarise(evaluate([truth], [predicted], EvaluationOptions(rate=rate)))
    findings = figures["findings"]
    return ComparisonPanel(
        scores=_scores(figures),
        recall=findings["recall"],
        precision=findings["precision"],
        false_alarms=findings["false_alarms"],
        false_alarms_per_hour=findings["false_alarms_per_hour"] if hours else None,
        annotated_findings=findings["truths"],
        found_findings=findings["found"],
        labels=_labels(figures),
        borders=_borders(figures, study, clock),
        warnings=tuple(figures["warnings"]),
        word=clock.word,
    )


def _scores(figures: dict[str, Any]) -> tuple[ScoreRow, ...]:
    rows = (
        ("this reading, official score", "map"),
        ("an empty file on the same study", "empty"),
        ("labels that the study shows, only", "present"),
        ("the same, events not cut at every change", "present_merged"),
    )
    return tuple(
        ScoreRow(name, *(figures[key][at] for at in ("0.5", "0.95"))) for name, key in rows
    )


def _labels(figures: dict[str, Any]) -> tuple[LabelRow, ...]:
    rows = []
    for label in LABELS:
        row = figures["labels"][label]
        if row["truths"] or row["predicted"]:
            counts = (row[key] for key in ("truths", "found", "predicted", "right"))
            rows.append(LabelRow(label, COLUMN[label], *counts))
    return tuple(rows)


def _borders(figures: dict[str, Any], study: str, clock: Clock) -> tuple[BorderRow, ...]:
    rows = []
    for region in REGIONS:
        error = figures["videos"][study]["onset_error"][region]
        state = figures["boundaries"]["regions"][region]
        if error is not None:
            side = "late" if error > 0 else "early"
            said = f"{counted(round(abs(error)), clock.word)} {side}" if error else "exact"
            rows.append(BorderRow(region, said))
        elif state["missed"] or state["invented"]:
            rows.append(BorderRow(region, "missed" if state["missed"] else "not annotated"))
    return tuple(rows)

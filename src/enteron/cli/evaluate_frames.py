"""The part of `enteron evaluate` that compares scores of frames with their labels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from enteron.types import Layout

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.metrics.frame_evaluation import FrameEvaluation, LabelFigures

_TITLES = {"auc": "AUC", "ap": "AP", "sensitivity": "sensitivity"}


def is_frame_truth(truth: Path) -> bool:
    """Whether the truth labels single frames: any labelled dataset but Galar."""
    if truth.is_file() and truth.suffix.lower() != ".csv":
        return False
    if not truth.exists():
        return False
    from enteron.datasets.layouts import find_layout

    return find_layout(truth)[0] is not Layout.GALAR


def report_frames(
    truth: Path, scores: Path, *, specificity: float, only_predicted: bool, as_json: bool
) -> None:
    """Evaluate and print."""
    from enteron.datasets.layouts import read_frame_truth
    from enteron.folders.frame_scores import read_frame_scores
    from enteron.metrics.frame_evaluation import evaluate_frames, summarise_frames

    evaluation = evaluate_frames(
        read_frame_truth(truth),
        read_frame_scores(scores),
        specificity=specificity,
        only_predicted=only_predicted,
    )
    if as_json:
        typer.echo(json.dumps(summarise_frames(evaluation), indent=1))
    else:
        _print_evaluation(evaluation)


def _print_evaluation(evaluation: "FrameEvaluation") -> None:
    from enteron.cli.console import console
    from enteron.metrics.frame_evaluation import describe_unscored

    out = console()
    out.print(_figure_table(evaluation, pooled=False))
    out.print(
        "[dim]Mean over the studies that have both frames that show the label and frames known not "
        "to. Intervals: 95 %, over studies.[/dim]\n"
    )
    out.print(_figure_table(evaluation, pooled=True))
    out.print(
        "[dim]All frames together. Where few studies have both kinds of frames, this compares "
        "studies with each other, not frames of a study.[/dim]\n"
    )
    out.print(_count_table(evaluation))
    if note := describe_unscored(evaluation):
        out.print(f"[yellow]Note:[/yellow] {note}.")


def _figure_table(evaluation: "FrameEvaluation", *, pooled: bool) -> "Table":
    from enteron.cli.console import table, with_interval
    from enteron.errors import quantity

    studies = quantity(len(evaluation.studies), "study", "studies")
    kind = "pooled over all frames" if pooled else "mean over studies"
    names = [*_TITLES.values()]
    names[-1] += f" at specificity {evaluation.specificity:g}"
    result = table(f"Frames, {kind} · {studies}", "label", *names, "studies")

    def add(title: str, row: "dict[str, LabelFigures] | LabelFigures", compared: str) -> None:
        figures = evaluation.macro if isinstance(row, dict) else row.figures
        cells = [
            with_interval(figures[name].pooled, figures[name].pooled_interval)
            if pooled
            else with_interval(figures[name].mean, figures[name].mean_interval)
            for name in ("auc", "ap", "sensitivity")
        ]
        result.add_row(title, *cells, compared, style="bold" if isinstance(row, dict) else "")

    for label, row in evaluation.labels.items():
        if row.present and row.absent and (pooled or row.compared):
            add(label, row, str(row.studies if pooled else row.compared))
    add("mean of these labels", {}, "")
    return result


def _count_table(evaluation: "FrameEvaluation") -> "Table":
    from enteron.cli.console import table

    counts = table("Frames", "label", "present", "absent", "unknown, left out", "studies with it")
    for label, row in evaluation.labels.items():
        cells = (row.present, row.absent, row.unknown, row.studies)
        counts.add_row(label, *(f"{cell:,}" for cell in cells))
    return counts

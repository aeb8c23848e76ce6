"""The part of `enteron evaluate` that compares scores of frames with their labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from enteron.files import json_text
from enteron.types import Layout

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.metrics.frame_evaluation import Figure, FrameEvaluation, Name


def is_frame_truth(truth: Path) -> bool:
    """Whether the truth labels single frames: any labelled dataset but Galar."""
    if not truth.is_dir() and not (truth.is_file() and truth.suffix.lower() == ".csv"):
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
        typer.echo(json_text(summarise_frames(evaluation), indent=1))
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
    from enteron.metrics.frame_evaluation import NAMES

    studies = quantity(len(evaluation.studies), "study", "studies")
    kind = "pooled over all frames" if pooled else "mean over studies"
    sensitivity = f"sensitivity at specificity {evaluation.specificity:g}"
    result = table(f"Frames, {kind} · {studies}", "label", "AUC", "AP", sensitivity, "studies")

    def cells(figures: "Mapping[Name, Figure]") -> list[str]:
        return [
            with_interval(figure.pooled, figure.pooled_interval)
            if pooled
            else with_interval(figure.mean, figure.mean_interval)
            for figure in (figures[name] for name in NAMES)
        ]

    for label, row in evaluation.labels.items():
        if row.present and row.absent and (pooled or row.compared):
            count = row.studies if pooled else row.compared
            result.add_row(label, *cells(row.figures), str(count))
    result.add_row("mean of these labels", *cells(evaluation.macro), "", style="bold")
    return result


def _count_table(evaluation: "FrameEvaluation") -> "Table":
    from enteron.cli.console import table

    counts = table("Frames", "label", "present", "absent", "unknown, left out", "studies with it")
    for label, row in evaluation.labels.items():
        cells = (row.present, row.absent, row.unknown, row.studies)
        counts.add_row(label, *(f"{cell:,}" for cell in cells))
    return counts

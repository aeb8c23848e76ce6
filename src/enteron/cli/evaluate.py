"""`enteron evaluate`: score predicted events against true ones."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.types import Unit

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.metrics.evaluation import Evaluation


def evaluate(
    truth: Annotated[
        Path,
        typer.Argument(
            help="Official JSON, or a folder of Galar labels; for frames a labelled dataset.",
            readable=False,
        ),
    ],
    prediction: Annotated[
        Path,
        typer.Argument(
            help="Official JSON, a reading, a folder of readings, or a reading's events.json; for "
            "frames scores in parquet or CSV, or readings.",
            readable=False,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print every metric as JSON.")] = False,
    unit: Annotated[
        Unit, typer.Option(help="What the events count: frame numbers, or rows of the label file.")
    ] = Unit.FRAME,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            help="Frames per second, for false alarms per hour (default: the reading's, or 2).",
        ),
    ] = None,
    only_predicted: Annotated[
        bool,
        typer.Option("--only-predicted", help="Score only the studies that the prediction has."),
    ] = False,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames", help="Evaluate scores of frames, not events, also with Galar's labels."
        ),
    ] = False,
    specificity: Annotated[
        float, typer.Option(help="Specificity at which the sensitivity of frames is given.")
    ] = 0.9,
) -> None:
    """Score predicted events: the official mAP, and what it does not show.

    Where the truth labels single frames (Kvasir-Capsule, WCEBleedGen, a table of your own), scores
    of frames are evaluated: AUC, AP and sensitivity per label, over studies. Example:
    [bold]enteron evaluate truth.json prediction.json[/bold], or
    [bold]enteron evaluate kvasir-capsule readings[/bold]
    """
    from enteron.cli.evaluate_frames import is_frame_truth, report_frames

    if frames or is_frame_truth(truth):
        report_frames(
            truth,
            prediction,
            specificity=specificity,
            only_predicted=only_predicted,
            as_json=as_json,
        )
        return
    from enteron.datasets.submission import read_truth
    from enteron.folders.predictions import read_predictions
    from enteron.metrics.evaluation import EvaluationOptions, summarise
    from enteron.metrics.evaluation import evaluate as compute

    true_events = read_truth(truth, unit)
    predictions = read_predictions(prediction, unit)
    evaluation = compute(
        true_events,
        predictions.annotations,
        EvaluationOptions(rate=rate, only_predicted=only_predicted),
        rates=predictions.rates,
    )
    if as_json:
        typer.echo(json.dumps(summarise(evaluation), indent=1))
    else:
        print_evaluation(evaluation)


def print_evaluation(evaluation: "Evaluation") -> None:
    """Print all metrics as tables, with what an empty file scores beside the official score."""
    from enteron.cli.console import console
    from enteron.metrics.evaluation import summarise

    figures = summarise(evaluation)
    out = console()
    for warning in evaluation.warnings:
        out.print(f"[yellow]Note:[/yellow] {warning}.\n")
    out.print(_score_table(figures))
    out.print(
        "[dim]A label that a study does not have scores 1 when nothing is predicted for it: this "
        "is why an empty file scores. Intervals: 95 %, over studies.[/dim]\n"
    )
    out.print(_findings_table(figures))
    remedy = " Set the rate with --rate." if evaluation.rate_assumed else ""
    out.print(f"{evaluation.rate_note}.{remedy}", style="dim")
    onsets = _onset_table(figures, evaluation.unit_name)
    for table in (onsets, _label_table(figures), _study_table(figures)):
        out.print()
        out.print(table)


def _score_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import table, with_interval
    from enteron.errors import quantity

    counts = figures["counts"]
    scores = table(
        f"Temporal mAP · {quantity(counts['studies'], 'study', 'studies')}, "
        f"{quantity(counts['predicted_events'], 'predicted event')}, "
        f"{quantity(counts['truth_events'], 'true event')}",
        "",
        *(f"at {threshold}" for threshold in figures["map"]),
    )
    rows = (
        ("official", "map", "bold"),
        ("an empty file, on the same truth", "empty", ""),
        ("official minus empty", "map_minus_empty", ""),
        ("labels present in the truth only", "present", ""),
        ("the same, events merged per label", "present_merged", ""),
        ("the truth itself, merged per label", "whole_truth", "dim"),
    )
    for title, name, style in rows:
        cells: list[str] = []
        for threshold in figures["map"]:
            if name == "map_minus_empty":
                value = figures["map"][threshold] - figures["empty"][threshold]
            else:
                value = figures[name][threshold]
            interval = figures["intervals"].get(name, {}).get(threshold)
            cells.append(with_interval(value, interval))
        scores.add_row(title, *cells, style=style)
    return scores


def _findings_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import table, with_interval

    findings = figures["findings"]
    rates = table(
        "Findings", "", "recall", "precision", "false alarms / h", "detected", "of", "predicted"
    )
    for title, row in (("any overlap", findings), ("tIoU 0.5", findings["tiou_0.5"])):
        names = ("recall", "precision", "false_alarms_per_hour")
        cells = [with_interval(row[name], row["intervals"][name]) for name in names]
        rates.add_row(title, *cells, *(str(row[name]) for name in ("found", "truths", "predicted")))
    return rates


def _onset_table(figures: dict[str, Any], unit_name: str) -> "Table":
    from enteron.cli.console import number, table

    onsets = table(
        f"Region onsets, error in {unit_name}",
        "region",
        "median",
        "90th percentile",
        "compared",
        "missed",
        "invented",
    )
    rows = {**figures["boundaries"]["regions"], "all": figures["boundaries"]}
    for region, row in rows.items():
        onsets.add_row(
            region,
            number(row["median"], 0),
            number(row["p90"], 0),
            *(str(row[name]) for name in ("n", "missed", "invented")),
        )
    return onsets


def _label_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import number, table

    labels = table(
        "Labels (AP at 0.5)",
        "label",
        "official",
        "empty",
        "where present",
        "merged",
        "studies",
        "events",
        "detected",
        "predicted",
        "correct",
    )
    for label, row in figures["labels"].items():
        scores = ("ap", "empty_ap", "present_ap", "present_merged_ap")
        counts = ("studies", "truths", "found", "predicted", "right")
        labels.add_row(
            label,
            *(number(row[name]["0.5"]) for name in scores),
            *(str(row[name]) for name in counts),
        )
    return labels


def _study_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import number, table

    studies = table(
        "Studies (mAP at 0.5)",
        "study",
        "official",
        "empty",
        "present",
        "merged",
        "events",
        "true",
        "findings detected",
        "of",
        "false alarms",
    )
    for study, row in figures["videos"].items():
        findings = row["findings"]
        studies.add_row(
            study,
            *(number(row[name]["0.5"]) for name in ("map", "empty", "present", "present_merged")),
            str(row["predicted_events"]),
            str(row["truth_events"]),
            *(str(findings[name]) for name in ("found", "truths", "false_alarms")),
        )
    return studies

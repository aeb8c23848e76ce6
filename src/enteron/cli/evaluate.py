"""`enteron evaluate`: predicted events beside true ones."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from enteron.types import Unit


def evaluate(
    truth: Annotated[Path, typer.Argument(help="Official JSON, or a folder of Galar labels.")],
    prediction: Annotated[Path, typer.Argument(help="Official JSON with the predicted events.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    unit: Annotated[
        Unit, typer.Option(help="What the events count: frame numbers, or rows of the label file.")
    ] = Unit.FRAME,
    rate: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Frames per second, for false alarms per hour [nominal: 2]."),
    ] = None,
) -> None:
    """Score predicted events: the official mAP, and what it hides.

    Example: [bold]enteron evaluate truth.json prediction.json[/bold]
    """
    from enteron.datasets.submission import read_events, read_truth
    from enteron.metrics.evaluation import EvaluationOptions, summarise
    from enteron.metrics.evaluation import evaluate as compare

    options = EvaluationOptions(rate=rate)
    figures = summarise(compare(read_truth(truth, unit), read_events(prediction, unit), options))
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
    else:
        print_figures(figures)


def print_figures(figures: dict[str, Any]) -> None:
    """The figures as tables, the honest ones around the official one."""
    from enteron.cli.console import console

    out = console()
    for warning in figures["warnings"]:
        out.print(f"[yellow]Note:[/yellow] {warning}.\n")
    out.print(_headline(figures))
    out.print(
        "[dim]A label that a study does not show scores 1 when nothing is predicted for it, hence "
        "the empty file's score. Intervals: 95 %, over studies.[/dim]\n"
    )
    out.print(_findings(figures))
    out.print(_rate_note(figures), style="dim")
    out.print()
    out.print(_boundaries(figures))
    out.print()
    out.print(_labels(figures))
    out.print()
    out.print(_videos(figures))


def _headline(figures: dict[str, Any]) -> Any:
    from enteron.cli.console import table, with_interval

    counts = figures["counts"]
    made = table(
        f"Temporal mAP · {counts['studies']} studies, {counts['predicted_events']} predicted and "
        f"{counts['truth_events']} true events",
        "",
        "at 0.5",
        "at 0.95",
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
        cells = []
        for key in figures["map"]:
            if name == "map_minus_empty":
                value = figures["map"][key] - figures["empty"][key]
            else:
                value = figures[name][key]
            cells.append(with_interval(value, figures["intervals"].get(name, {}).get(key)))
        made.add_row(title, *cells, style=style)
    return made


def _findings(figures: dict[str, Any]) -> Any:
    from enteron.cli.console import table, with_interval

    made = table(
        "Findings", "", "recall", "precision", "false alarms / h", "found", "of", "predicted"
    )
    findings = figures["findings"]
    for title, part in (("any overlap", findings), ("tIoU 0.5", findings["tiou_0.5"])):
        names = ("recall", "precision", "false_alarms_per_hour")
        cells = [with_interval(part[name], part["intervals"][name]) for name in names]
        made.add_row(title, *cells, str(part["found"]), str(part["truths"]), str(part["predicted"]))
    return made


def _rate_note(figures: dict[str, Any]) -> str:
    findings = figures["findings"]
    how = "assumed; set it with --rate" if findings["rate_assumed"] else "as given"
    return f"{findings['hours']:.1f} hours at {findings['rate']:g} {figures['unit']}s/s ({how})."


def _boundaries(figures: dict[str, Any]) -> Any:
    from enteron.cli.console import number, table

    made = table(
        f"Region onsets, error in {figures['unit']}s",
        "region",
        "median",
        "90th percentile",
        "compared",
        "missed",
        "invented",
    )
    rows = {**figures["boundaries"]["regions"], "all": figures["boundaries"]}
    for region, row in rows.items():
        made.add_row(
            region,
            number(row["median"], 0),
            number(row["p90"], 0),
            *(str(row[name]) for name in ("n", "missed", "invented")),
        )
    return made


def _labels(figures: dict[str, Any]) -> Any:
    from enteron.cli.console import number, table

    made = table(
        "Labels (AP at 0.5)",
        "label",
        "official",
        "empty",
        "where present",
        "merged",
        "studies",
        "events",
        "found",
        "predicted",
        "right",
    )
    for label, row in figures["labels"].items():
        made.add_row(
            label,
            *(
                number(row[name]["0.5"])
                for name in ("ap", "empty_ap", "present_ap", "present_merged_ap")
            ),
            *(str(row[name]) for name in ("studies", "truths", "found", "predicted", "right")),
        )
    return made


def _videos(figures: dict[str, Any]) -> Any:
    from enteron.cli.console import number, table

    made = table(
        "Studies (mAP at 0.5)",
        "study",
        "official",
        "empty",
        "present",
        "merged",
        "events",
        "true",
        "findings found",
        "of",
        "false alarms",
    )
    for study, row in figures["videos"].items():
        findings = row["findings"]
        made.add_row(
            study,
            *(number(row[name]["0.5"]) for name in ("map", "empty", "present", "present_merged")),
            str(row["predicted_events"]),
            str(row["truth_events"]),
            *(str(findings[name]) for name in ("found", "truths", "false_alarms")),
        )
    return made

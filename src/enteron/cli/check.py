"""`enteron check`: what is in a data root, and what is wrong with it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def check(
    root: Annotated[Path, typer.Argument(help="Folder with studies, labels, or both.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every frame too, to find unreadable ones.")
    ] = False,
) -> None:
    """Look at a data root: studies, frames, labels, how they join, and every problem.

    Exit code 1 when there is a problem. Example: [bold]enteron check /data/galar[/bold]
    """
    from enteron.cli.console import progress
    from enteron.datasets.galar import find_studies
    from enteron.datasets.inspection import inspect
    from enteron.errors import StudyError

    entries = find_studies(root)
    if not entries:
        raise StudyError(
            f"the folder '{root.name}' holds no studies",
            "give a folder with one folder of frames per study, or with a folder named Labels",
        )
    reports = [
        inspect(entry, decode=decode) for entry in progress(list(entries.values()), "Checking")
    ]
    problems = sum(len(report.problems) for report in reports)
    if as_json:
        content = {"studies": [asdict(report) for report in reports], "problems": problems}
        typer.echo(json.dumps(content, indent=1))
    else:
        _print(reports, problems)
    if problems:
        raise typer.Exit(1)


def _print(reports: list, problems: int) -> None:
    from enteron.cli.console import NONE, console, table

    out = console()
    made = table(
        f"{len(reports)} studies",
        "study",
        "device",
        "frames",
        "numbers",
        "label rows",
        "joined",
        "labels",
        "problems",
    )
    for report in reports:
        made.add_row(
            report.study,
            report.device or NONE,
            NONE if report.frames is None else f"{report.frames:,}",
            report.numbers or NONE,
            NONE if report.rows is None else f"{report.rows:,}",
            NONE if report.coverage is None else f"{100 * report.coverage:.1f} %",
            report.labels or NONE,
            str(len(report.problems)) if report.problems else "",
            style="red" if report.problems else "",
        )
    out.print(made)
    for report in reports:
        for problem in report.problems:
            out.print(f"[red]Problem:[/red] {problem}")
        for note in report.notes:
            out.print(f"[dim]Study {report.study}: {note}.[/dim]")
    frames = sum(report.frames or 0 for report in reports)
    rows = sum(report.rows or 0 for report in reports)
    verdict = f"{problems} problems" if problems else "no problems"
    out.print(f"{frames:,} frames, {rows:,} label rows, {verdict}.")

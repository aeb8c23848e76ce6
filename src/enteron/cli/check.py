"""`enteron check`: the contents of a data root, and its problems."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.datasets.inspection import StudyReport


def check(
    root: Annotated[
        Path, typer.Argument(help="Folder with studies, labels, or both.", readable=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every frame too, to find unreadable ones.")
    ] = False,
) -> None:
    """Check a data root: studies, frames, labels, how they join, and every problem.

    Exit code 1 when there is a problem. Example: [bold]enteron check /data/galar[/bold]
    """
    from enteron.cli.console import RichProgress, print_ignored
    from enteron.datasets.galar import find_studies
    from enteron.datasets.inspection import inspect
    from enteron.errors import StudyError
    from enteron.files import json_text

    entries = find_studies(root)
    ignored = entries.ignored.sentences()
    if not entries:
        listed = "".join(f"; ignored {sentence}" for sentence in ignored)
        raise StudyError(
            f"the folder '{root.name}' holds no studies{listed}",
            "give a folder with one folder of frames per study, or with a folder named Labels",
        )
    reports: list[StudyReport] = []
    with RichProgress().task("Checking", len(entries), "studies") as advance:
        for entry in entries.values():
            reports.append(inspect(entry, decode=decode))
            advance(1)
    problems = sum(len(report.problems) for report in reports)
    if as_json:
        content = {
            "studies": [asdict(report) for report in reports],
            "ignored": ignored,
            "problems": problems,
        }
        typer.echo(json_text(content, indent=1))
    else:
        _print_reports(reports, problems)
        print_ignored(entries.ignored)
    if problems:
        raise typer.Exit(1)


def _print_reports(reports: "list[StudyReport]", problems: int) -> None:
    from enteron.cli.console import NONE, console, markup, table
    from enteron.errors import quantity

    studies = table(
        quantity(len(reports), "study", "studies"),
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
        studies.add_row(
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
    out = console()
    out.print(studies)
    for report in reports:
        for problem in report.problems:
            out.print(f"[red]Problem:[/red] {markup(problem)}")
        for note in report.notes:
            out.print(f"[dim]Study {markup(report.study)}: {markup(note)}.[/dim]")
    frames = quantity(sum(report.frames or 0 for report in reports), "frame")
    rows = quantity(sum(report.rows or 0 for report in reports), "label row")
    verdict = quantity(problems, "problem") if problems else "no problems"
    out.print(f"{frames}, {rows}, {verdict}.")

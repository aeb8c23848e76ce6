"""`enteron check`: the contents of a data root, and its problems."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.labels import LABELS
from enteron.types import Layout

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.datasets.inspection import StudyReport
    from enteron.study.ignored import Ignored


def check(
    root: Annotated[
        Path, typer.Argument(help="Folder with studies, labels, or both.", readable=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode every frame too, to find unreadable ones.")
    ] = False,
    layout: Annotated[
        Layout | None, typer.Option(help="What the root is (default: found by what it holds).")
    ] = None,
) -> None:
    """Check a data root: studies, frames, labels, how they join, and every problem.

    Knows Galar, Kvasir-Capsule, WCEBleedGen and tables of your own. Exit code 1 when there is a
    problem. Example: [bold]enteron check /data/galar[/bold]
    """
    from enteron.cli.console import print_ignored
    from enteron.datasets.layouts import find_layout
    from enteron.files import json_text

    if layout is None:
        layout, reason = find_layout(root)
    else:
        reason = "as --layout says"
    reports, notes, ignored = (
        _galar_reports(root, decode) if layout is Layout.GALAR else _reports(root, layout, decode)
    )
    problems = sum(len(report.problems) for report in reports)
    if as_json:
        content = {
            "layout": layout,
            "reason": reason,
            "notes": notes,
            "ignored": ignored.sentences(),
            "studies": [asdict(report) for report in reports],
            "problems": problems,
        }
        typer.echo(json_text(content, indent=1))
    else:
        _print_layout(layout, reason, notes)
        _print_reports(reports, problems)
        print_ignored(ignored)
    if problems:
        raise typer.Exit(1)


def _galar_reports(root: Path, decode: bool) -> "tuple[list[StudyReport], list[str], Ignored]":
    """Studies in Galar's layout, those without images or without labels too."""
    from enteron.cli.console import RichProgress
    from enteron.datasets.galar import find_studies
    from enteron.datasets.inspection import inspect
    from enteron.errors import StudyError

    entries = find_studies(root)
    if not entries:
        listed = "".join(f"; ignored {sentence}" for sentence in entries.ignored.sentences())
        raise StudyError(
            f"the folder '{root.name}' holds no studies{listed}",
            "give a folder with one folder of frames per study, or with a folder named Labels",
        )
    reports: list[StudyReport] = []
    with RichProgress().task("Checking", len(entries), "studies") as advance:
        for entry in entries.values():
            reports.append(inspect(entry, decode=decode))
            advance(1)
    return reports, [], entries.ignored


def _reports(
    root: Path, layout: Layout, decode: bool
) -> "tuple[list[StudyReport], list[str], Ignored]":
    from enteron.cli.console import RichProgress
    from enteron.datasets.inspection import inspect_study
    from enteron.datasets.layouts import open_dataset
    from enteron.study.ignored import Ignored

    dataset = open_dataset(root, layout)
    reports: list[StudyReport] = []
    with RichProgress().task("Checking", len(dataset.studies), "studies") as advance:
        for entry in dataset.studies.values():
            reports.append(inspect_study(entry, decode=decode))
            advance(1)
    return reports, list(dataset.notes), Ignored()


def _print_layout(layout: Layout, reason: str, notes: list[str]) -> None:
    from enteron.cli.console import console, markup

    out = console()
    out.print(f"Layout: {layout} ({markup(reason)}).", highlight=False)
    for note in notes:
        out.print(f"[dim]{markup(note[0].upper() + note[1:])}.[/dim]", highlight=False)


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
    out.print(_label_table(reports))
    for report in reports:
        for problem in report.problems:
            out.print(f"[red]Problem:[/red] {markup(problem)}")
        for note in report.notes:
            out.print(f"[dim]Study {markup(report.study)}: {markup(note)}.[/dim]")
    frames = quantity(sum(report.frames or 0 for report in reports), "frame")
    rows = quantity(sum(report.rows or 0 for report in reports), "label row")
    boxes = sum(report.boxes for report in reports)
    shown_boxes = f"{quantity(boxes, 'box', 'boxes')}, " if boxes else ""
    verdict = quantity(problems, "problem") if problems else "no problems"
    out.print(f"{frames}, {rows}, {shown_boxes}{verdict}.")


def _label_table(reports: "list[StudyReport]") -> "Table":
    """Frames by label: present, absent and unknown, and the studies that show it."""
    from enteron.cli.console import table

    labels = table("Labels", "label", "present", "absent", "unknown", "studies that show it")
    for label in LABELS:
        counts = [
            sum(by_label.get(label, 0) for by_label in columns)
            for columns in (
                [report.positives for report in reports],
                [report.absent for report in reports],
                [report.unknown for report in reports],
            )
        ]
        showing = sum(report.positives.get(label, 0) > 0 for report in reports)
        labels.add_row(label, *(f"{count:,}" for count in counts), f"{showing:,}")
    return labels

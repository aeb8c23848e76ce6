"""`enteron submission`: official files of several studies as one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.types import Annotation

app = typer.Typer(no_args_is_help=True, help="Official event files: merge them.")


@app.callback()
def submission() -> None:
    """Official event files."""


@app.command()
def merge(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Official JSON files, readings, or folders of readings.", readable=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The official file to write.", readable=False)],
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Official JSON or folder of Galar labels whose studies the file must have.",
            readable=False,
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(help="CSV file for the events by label and study.", readable=False),
    ] = None,
) -> None:
    """Merge official files into one that holds all studies, and check it.

    Every file is checked first. A study in two files is refused, unless both say the same of it.
    Example: [bold]enteron submission merge a.json b.json --out all.json[/bold]
    """
    from enteron.cli.console import plain
    from enteron.cli.read import print_studies
    from enteron.datasets.submission import (
        read_submission,
        read_truth,
        require_same_studies,
        write_submission,
    )
    from enteron.errors import EnteronError, quantity
    from enteron.folders.predictions import read_predictions
    from enteron.folders.studies_table import study_row, write_studies_table
    from enteron.types import Unit

    if out.is_dir():
        raise EnteronError(f"'{out.name}' is a folder", "name the file to write with --out")
    sources = [(path, read_predictions(path, Unit.FRAME).annotations) for path in files]
    merged = _merge(sources)
    if truth is not None:
        true_studies = [annotation.study for annotation in read_truth(truth, Unit.FRAME)]
        require_same_studies(true_studies, [annotation.study for annotation in merged])
    write_submission(out, merged)
    if read_submission(out) != merged:  # what was sent is what is there
        raise EnteronError(f"{out.name} does not hold what was written", "check the disk")
    rows = [study_row(annotation) for annotation in merged]
    if table is not None:
        write_studies_table(table, rows)
    print_studies(rows)
    events = sum(row.events for row in rows)
    typer.echo(
        f"{plain(str(out))} holds {quantity(len(rows), 'study', 'studies')} and "
        f"{quantity(events, 'event')}."
    )


def _merge(sources: "list[tuple[Path, list[Annotation]]]") -> "list[Annotation]":
    """Every study once, in the order of the sources."""
    from enteron.errors import SubmissionError

    merged: dict[str, tuple[Path, Annotation]] = {}
    for path, annotations in sources:
        for annotation in annotations:
            earlier, same = merged.setdefault(annotation.study, (path, annotation))
            if same != annotation:
                raise SubmissionError(
                    f"'{earlier.name}' and '{path.name}' have different events of study "
                    f"{annotation.study}",
                    "give one of them: which is meant cannot be told",
                )
    return [annotation for _, annotation in merged.values()]

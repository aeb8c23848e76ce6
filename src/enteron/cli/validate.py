"""`enteron validate`: is a file a valid submission."""

from pathlib import Path
from typing import Annotated

import typer


def validate(
    prediction: Annotated[Path, typer.Argument(help="Official JSON with the predicted events.")],
    truth: Annotated[
        Path | None,
        typer.Option(help="Official JSON or label folder, to compare the studies with."),
    ] = None,
) -> None:
    """Check a submission before it is sent; the first thing wrong is named, with exit code 1.

    Example: [bold]enteron validate submission.json[/bold]
    """
    from enteron.datasets.submission import foreign_fields, read_submission, require_same_studies
    from enteron.types import Unit

    annotations = read_submission(prediction)
    if truth is not None:
        from enteron.datasets.submission import read_truth

        known = read_truth(truth, Unit.FRAME)
        require_same_studies((a.study for a in known), (a.study for a in annotations))
    segments = [segment for annotation in annotations for segment in annotation.segments]
    typer.echo(f"{prediction.name} is valid: {len(annotations)} studies, {len(segments)} events.")
    if foreign := foreign_fields(prediction.read_text(encoding="utf-8-sig")):
        names = ", ".join(f"'{name}'" for name in foreign)
        typer.echo(f"Note: {names} is not part of the format; events rank by their order only.")
    if unlabelled := sum(not segment.labels for segment in segments):
        typer.echo(f"Note: {unlabelled} events carry no label and count for nothing.")
    if silent := [a.study for a in annotations if not a.segments]:
        typer.echo(f"Note: {len(silent)} studies have no events, the first is {silent[0]}.")

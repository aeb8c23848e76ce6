"""`enteron validate`: check that predicted events are a valid submission."""

from pathlib import Path
from typing import Annotated

import typer


def validate(
    prediction: Annotated[
        Path,
        typer.Argument(
            help="Official JSON, a reading, a folder of readings, or a reading's events.json.",
            readable=False,
        ),
    ],
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Official JSON or folder of Galar labels that has the same studies.",
            readable=False,
        ),
    ] = None,
) -> None:
    """Check a submission before it is sent; the first error is printed, with exit code 1.

    Example: [bold]enteron validate submission.json[/bold]
    """
    from enteron.cli.console import plain
    from enteron.datasets.submission import foreign_fields, read_event_text, require_same_studies
    from enteron.errors import quantity
    from enteron.folders.predictions import read_predictions
    from enteron.types import Unit

    predictions = read_predictions(prediction, Unit.FRAME)
    annotations = predictions.annotations
    if truth is not None:
        from enteron.datasets.submission import read_truth

        true_studies = [annotation.study for annotation in read_truth(truth, Unit.FRAME)]
        require_same_studies(true_studies, [annotation.study for annotation in annotations])
    segments = [segment for annotation in annotations for segment in annotation.segments]
    typer.echo(
        f"{prediction.resolve().name} is valid: "
        f"{quantity(len(annotations), 'study', 'studies')}, {quantity(len(segments), 'event')}."
    )
    if not predictions.official_files:
        typer.echo("Note: this is not the file to send; submission.json of the reading is.")
    elif len(predictions.official_files) > 1:
        typer.echo(
            "Note: each reading has its own submission.json; the challenge takes one file with all "
            "studies."
        )
    foreign = {
        name
        for file in predictions.official_files
        for name in foreign_fields(read_event_text(file))
    }
    if foreign:
        names = plain(", ".join(f"'{name}'" for name in sorted(foreign)))
        verb = "is" if len(foreign) == 1 else "are"
        typer.echo(f"Note: {names} {verb} not part of the format; only the order of events ranks.")
    unlabelled = sum(not segment.labels for segment in segments)
    if unlabelled:
        ignored = "has no label and is" if unlabelled == 1 else "have no label and are"
        typer.echo(f"Note: {quantity(unlabelled, 'event')} {ignored} ignored by the score.")
    without_events = [annotation.study for annotation in annotations if not annotation.segments]
    if without_events:
        verb = "has" if len(without_events) == 1 else "have"
        typer.echo(
            f"Note: {quantity(len(without_events), 'study', 'studies')} {verb} no events, the "
            f"first is {without_events[0]}."
        )

"""`enteron export`: a reading's events for other programs."""

from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Programs that can import events."""

    LABEL_STUDIO = "label-studio"


def export(
    folder: Annotated[
        Path, typer.Argument(help="A reading: what `enteron read` wrote.", readable=False)
    ],
    format: Annotated[  # noqa: A002 (the option's name)
        Format, typer.Option(help="The program to write for.")
    ] = Format.LABEL_STUDIO,
    video: Annotated[
        str | None,
        typer.Option(
            help="Address of the study's video in that program (default: its local storage)."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Pictures per second of that video (default: as in run.json, if known)."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(help="The decoded scores, where they are not in the folder.", readable=False),
    ] = None,
) -> None:
    """Write the events of a reading for an annotation tool, to be corrected there.

    Example: [bold]enteron export reading --format label-studio --video /data/study.mp4[/bold]
    """
    from enteron.folders.label_studio import write_label_studio
    from enteron.folders.reading import load_reading
    from enteron.locks import folder_lock

    assert format is Format.LABEL_STUDIO
    with folder_lock(folder) if folder.is_dir() else nullcontext():
        reading = load_reading(folder, scores)
        if rate is None and not reading.run.rate_assumed:
            rate = reading.run.rate
        task, interface = write_label_studio(
            folder,
            reading.scores,
            reading.events,
            video=video,
            rate=rate,
            axis=reading.stored_axis,
            identity=reading.run.identity,
        )
        reading.run.with_files(folder, (task.name, interface.name)).save(folder)
    typer.echo(
        f"Wrote {len(reading.events)} events to {task} and the labelling interface to "
        f"{interface.name}."
    )
    if reading.run.unnamed:
        typer.echo(
            f"run.json does not list {reading.run.unnamed} of the unreadable frames: in a video "
            "that contains them, later positions are shifted by that many."
        )
    if rate is None:
        typer.echo(
            "The frame rate is unknown: Label Studio assumes 24 per second; set it with --rate."
        )

"""`enteron report`: the page of a reading."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from enteron.errors import EnteronError
from enteron.types import Annotation, Unit


def report(
    folder: Annotated[
        Path, typer.Argument(help="A reading: what `enteron read` wrote.", readable=False)
    ],
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Annotation to compare with: official JSON, or Galar's label folder.",
            readable=False,
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            help="The study's frames or video, to take pictures from again.", readable=False
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(help="The decoded scores, where they are not in the folder.", readable=False),
    ] = None,
    device_text: Annotated[
        bool,
        typer.Option(
            "--device-text", help="Keep what the recorder wrote into the pictures, and title cards."
        ),
    ] = False,
) -> None:
    """Write the page of a reading again: report.html, one file that needs no network.

    Example: [bold]enteron report reading --truth truth.json[/bold]
    """
    from enteron.cli.console import plain
    from enteron.folders.reading import content_of, load_reading
    from enteron.folders.suspicious import suspicious_frames
    from enteron.locks import folder_lock
    from enteron.report import write_report

    with folder_lock(folder) if folder.is_dir() else nullcontext():
        reading = load_reading(folder, scores)
        annotation = None if truth is None else _annotation(truth, reading.study)
        if study is not None:
            from enteron.report.pictures import choose_pictures, save_pictures
            from enteron.study import open_study

            with open_study(study, study_id=reading.study) as frames:
                content = content_of(reading, frames)
                listed = suspicious_frames(folder)
                chosen = choose_pictures(reading.scores, reading.events, listed)
                save_pictures(frames, chosen, folder, mask_text=not device_text, content=content)
        path = write_report(folder, truth=annotation, device_text=device_text, scores_file=scores)
    size = path.stat().st_size / 1e6
    typer.echo(f"Open {plain(str(path))} ({size:.1f} MB) in a browser.")


def _annotation(truth: Path, study: str) -> Annotation:
    """The annotation of the study that was read."""
    from enteron.datasets.submission import read_truth

    annotations = {annotation.study: annotation for annotation in read_truth(truth, Unit.FRAME)}
    if study not in annotations:
        some = ", ".join(sorted(annotations)[:4]) + (", …" if len(annotations) > 4 else "")
        raise EnteronError(
            f"the truth has no study {study}, only {some}",
            "give the truth of the study that was read",
        )
    return annotations[study]

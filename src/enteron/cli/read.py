"""`enteron read`: a study and a model to events and a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.decode import Preset

if TYPE_CHECKING:
    from enteron.folders.reading import Reading, Redundant
    from enteron.types import Annotation


def read(
    study: Annotated[
        Path,
        typer.Argument(
            help="A folder of frames, a video, or a root with several studies.", readable=False
        ),
    ],
    model: Annotated[
        Path, typer.Option(help="Model folder, as `enteron train` makes it.", readable=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the reading (default: STUDY-reading, here).", readable=False),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="How scores become events.")] = Preset.TRANSIT,
    tta: Annotated[
        bool, typer.Option("--tta/--no-tta", help="Score the mirror image of each clip as well.")
    ] = True,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Runtime of the encoder: exact, auto, or a name (default: what suits the model)."
        ),
    ] = None,
    skip_redundant: Annotated[
        bool,
        typer.Option(
            "--skip-redundant",
            help="Encode frames that hardly differ from an earlier one only once.",
        ),
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Annotation to compare with on the page: official JSON, or labels.", readable=False
        ),
    ] = None,
    study_id: Annotated[
        str | None, typer.Option(help="Id of a single study (default: name of its folder or file).")
    ] = None,
    device_text: Annotated[
        bool,
        typer.Option("--device-text", help="Keep what the recorder wrote into the pictures."),
    ] = False,
) -> None:
    """Read a study: regions, landmarks and findings in time, with a page to look at.

    Writes scores.parquet, events.json, events.csv, submission.json, files for Label Studio,
    report.html and run.json. A killed run resumes when it is started again.
    Example: [bold]enteron read study.mp4 --model model[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.inference.embed import REDUNDANCY_LIMIT
    from enteron.reading import Reader, ReadOptions, studies_under, write_joint_submission
    from enteron.study import open_study

    studies = studies_under(study)
    if study_id is not None and len(studies) == 1:
        studies = [(study_id, studies[0][1])]
    truths = _truths(truth, [name for name, _ in studies])
    options = ReadOptions(
        preset=preset.value,
        tta=tta,
        runtime=runtime,
        redundancy=REDUNDANCY_LIMIT if skip_redundant else None,
        mask_text=not device_text,
    )
    reader = Reader(model, options)
    folder = out if out is not None else Path(f"{study.resolve().stem}-reading")
    progress = RichProgress()
    readings: list[Reading] = []
    for index, (name, path) in enumerate(studies, 1):
        if len(studies) > 1:
            progress.message(f"Reading study {index} of {len(studies)}")
        opened = open_study(path, study_id=name)
        target = folder / name if len(studies) > 1 else folder
        readings.append(reader.read(opened, target, truth=truths.get(name), progress=progress))
        show(readings[-1])
    if len(readings) > 1:
        path = write_joint_submission(readings, folder)
        typer.echo(f"{path} holds all {len(readings)} studies.")


def _truths(truth: Path | None, names: list[str]) -> "dict[str, Annotation]":
    """The annotation of the studies to be read, checked before the long work starts."""
    from enteron.datasets.submission import read_truth
    from enteron.errors import LabelError
    from enteron.types import Unit

    if truth is None:
        return {}
    annotations = {annotation.study: annotation for annotation in read_truth(truth, Unit.FRAME)}
    missing = [name for name in names if name not in annotations]
    if missing:
        raise LabelError(
            f"'{truth.name}' has no annotation of study {missing[0]}",
            "give the annotation of the studies that are read, or none",
        )
    return {name: annotations[name] for name in names}


def show(reading: "Reading") -> None:
    """Print what a physician asks first: where the capsule was, and what to look at."""
    from enteron.cli.console import NONE, console, number, table
    from enteron.labels import LABELS, REGIONS

    out = console()
    run = reading.run
    unreadable = 0 if run.unreadable is None else run.unreadable.count
    out.print(
        f"[bold]Study {reading.study}[/bold]: {run.rows:,} frames, "
        + (f"{unreadable:,} of them unreadable" if unreadable else "all readable")
    )
    if run.missing is not None:
        out.print(f"[bold red]Incomplete:[/bold red] {run.missing.sentence}.")
    for note in run.notes:
        out.print(f"[yellow]Note:[/yellow] {note}.")
    if run.redundant is not None:
        out.print(_redundancy(run.redundant))
    result = table("", "found", "events", "first frame", "last frame", "confidence", "at frame")
    for label in sorted(reading.counts, key=LABELS.index):
        events = [event for event in reading.events if event.label == label]
        best = max(events, key=lambda event: event.score or 0.0)
        result.add_row(
            f"[bold]{label}[/bold]" if label in REGIONS else f"  {label}",
            f"{len(events):,}",
            f"{min(event.start for event in events):,}",
            f"{max(event.stop for event in events) - 1:,}",
            number(best.score, 2),
            NONE if label in REGIONS else f"{best.start:,}",
        )
    out.print(result)
    if not reading.events:
        out.print("No events were found.")
    if not run.is_calibrated:
        out.print(
            "[yellow]Note:[/yellow] the model was never calibrated, so confidences and thresholds "
            "are guesses: run enteron calibrate MODEL DATA."
        )
    if run.scaling:
        out.print(f"[yellow]Note:[/yellow] {run.scaling}.")
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in reading.seconds.items())
    runtime = NONE if run.runtime is None else run.runtime.name
    out.print(f"[dim]Seconds: {stages}. Runtime: {runtime}.[/dim]")
    out.print(f"Open {reading.report} in a browser. Not a diagnosis.\n", soft_wrap=True)


def _redundancy(redundant: "Redundant") -> str:
    text = f"{redundant.share:.0%} of the frames took the embedding of an earlier frame"
    if redundant.probed:
        text += (
            f"; on {redundant.probed} of them that were encoded all the same, scores differed "
            f"by {redundant.mean_difference:.4f} on average and by "
            f"{redundant.largest_difference:.2f} at most"
        )
    return text + "."

"""`enteron read`: a study and a model to events and a report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.decode import Preset

if TYPE_CHECKING:
    from enteron.reading import Reading
    from enteron.types import Annotation


def read(
    study: Annotated[
        Path, typer.Argument(help="A folder of frames, a video, or a root with several studies.")
    ],
    model: Annotated[Path, typer.Option(help="Model folder, as `enteron train` makes it.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the reading [STUDY-reading, here].")
    ] = None,
    preset: Annotated[Preset, typer.Option(help="How scores become events.")] = Preset.TRANSIT,
    tta: Annotated[
        bool, typer.Option("--tta/--no-tta", help="Score the mirror image of each clip as well.")
    ] = True,
    runtime: Annotated[
        str | None,
        typer.Option(help="What runs the encoder: exact, auto, or a name [as suits the model]."),
    ] = None,
    skip_redundant: Annotated[
        bool,
        typer.Option(
            "--skip-redundant", help="Encode frames that hardly differ from the last one only once."
        ),
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(help="Annotation to show and score beside it: official JSON, or labels."),
    ] = None,
    study_id: Annotated[
        str | None, typer.Option(help="Name of a single study [its folder's or file's].")
    ] = None,
    device_text: Annotated[
        bool,
        typer.Option("--device-text", help="Keep what the recorder wrote into the pictures."),
    ] = False,
) -> None:
    """Read a study: regions, landmarks and findings in time, with a page to look at.

    Writes scores.parquet, events.json, events.csv, submission.json, files for Label Studio,
    report.html and run.json. A killed run goes on when it is started again.
    Example: [bold]enteron read study.mp4 --model model[/bold]
    """
    from enteron.inference.embed import REDUNDANCY_LIMIT
    from enteron.phantom.time_scale import frames_per_row_of
    from enteron.reading import Reader, ReadOptions, studies_under, write_together
    from enteron.study import open_study

    places = studies_under(study)
    if study_id is not None and len(places) == 1:
        places = [(study_id, places[0][1])]
    known = _truths(truth, [name for name, _ in places])
    options = ReadOptions(
        preset=preset.value,
        tta=tta,
        runtime=runtime,
        redundancy=REDUNDANCY_LIMIT if skip_redundant else None,
        mask_text=not device_text,
    )
    reader = Reader(model, options)
    whole = out if out is not None else Path(f"{study.resolve().stem}-reading")
    readings: list[Reading] = []
    for number, (name, place) in enumerate(places, 1):
        bars = Bars(f"{number}/{len(places)} " if len(places) > 1 else "")
        opened = open_study(place, study_id=name)
        folder = whole / name if len(places) > 1 else whole
        scale = frames_per_row_of(place, opened.id)
        done = reader.read_opened(opened, folder, scale, truth=known.get(name), progress=bars)
        readings.append(done)
        show(done)
    if len(readings) > 1:
        write_together(readings, whole)
        typer.echo(f"{whole.name}/submission.json holds all {len(readings)} studies.")


def _truths(truth: Path | None, names: list[str]) -> "dict[str, Annotation]":
    """The annotation of the studies that will be read, before the long work begins."""
    from enteron.datasets.submission import read_truth
    from enteron.errors import LabelError
    from enteron.types import Unit

    if truth is None:
        return {}
    known = {annotation.study: annotation for annotation in read_truth(truth, Unit.FRAME)}
    missing = [name for name in names if name not in known]
    if missing:
        raise LabelError(
            f"'{truth.name}' says nothing of study {missing[0]}",
            "give the annotation of the studies that are read, or none",
        )
    return {name: known[name] for name in names}


_WORDS = {"embed": "Encoding frames", "score": "Scoring", "pictures": "Pictures"}


class Bars:
    """A bar per stage, with its rate and the time left, where somebody watches."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        from enteron.cli.console import bar

        with bar(self._prefix + _WORDS.get(name, name), total, "frames") as advance:
            yield advance


def show(reading: "Reading") -> None:
    """What a physician wants to know first: where the capsule was, and what to look at."""
    from enteron.cli.console import NONE, console, number, table
    from enteron.labels import LABELS, REGIONS

    out = console()
    run = reading.run
    unreadable = run["unreadable"]["count"]
    out.print(
        f"[bold]Study {reading.study}[/bold]: {run['rows']:,} frames, "
        + (f"{unreadable:,} of them unreadable" if unreadable else "all readable")
    )
    if run["redundant"] is not None:
        out.print(_redundancy(run["redundant"]))
    made = table("", "found", "events", "first frame", "last frame", "surest", "at frame")
    for label in sorted(reading.counts, key=LABELS.index):
        mine = [event for event in reading.events if event.label == label]
        surest = max(mine, key=lambda event: event.score or 0.0)
        made.add_row(
            f"[bold]{label}[/bold]" if label in REGIONS else f"  {label}",
            f"{len(mine):,}",
            f"{min(event.start for event in mine):,}",
            f"{max(event.stop for event in mine) - 1:,}",
            number(surest.score, 2),
            NONE if label in REGIONS else f"{surest.start:,}",
        )
    out.print(made)
    if not reading.events:
        out.print("Nothing was found.")
    if not run["model"]["calibrated"]:
        out.print(
            "[yellow]Note:[/yellow] the model was never calibrated, so confidence and thresholds "
            "are guesses: enteron calibrate MODEL DATA."
        )
    if run["scaling"]:
        out.print(f"[yellow]Note:[/yellow] {run['scaling']}.")
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in reading.seconds.items())
    out.print(f"[dim]Seconds: {stages}. Runtime: {run['runtime']['name']}.[/dim]")
    out.print(f"Open {reading.folder.name}/report.html in a browser. Not a diagnosis.\n")


def _redundancy(found: dict) -> str:
    text = f"{found['share']:.0%} of the frames took the embedding of a frame before them"
    if found["probed"]:
        text += (
            f"; on {found['probed']} of them that were encoded all the same, scores moved by "
            f"{found['mean_difference']:.4f} on average, {found['largest_difference']:.2f} at most"
        )
    return text + "."

"""`enteron demo`: a first page in a minute; with --full the whole system on synthetic studies."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.demo import DecoderResult, DemoResult
    from enteron.folders.reading import Reading


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for studies, model and readings.", readable=False)
    ] = Path("enteron-demo"),
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed: another one draws other studies.", show_default=False),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="The whole system: draw studies, train, calibrate, read a device that training "
            "never saw, score. Some minutes; needs the extra train.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="With --full, a few small studies: checks that it runs, not how well."
        ),
    ] = False,
) -> None:
    """Draw a study, read it with the model in the box, and show the page: a minute.

    A second run keeps what the first one completed. With --full everything else is shown too.
    Example: [bold]enteron demo --out demo[/bold]
    """
    start = time.perf_counter()
    reading = _full(out, seed, quick) if full else show_example(out, seed)
    typer.echo(f"The demo took {time.perf_counter() - start:.0f} s.")
    typer.echo(f"Open {reading.report} in a browser.")
    typer.echo(f"To review, sign and export it there: enteron serve {shlex.quote(str(out))}")


def show_example(out: Path, seed: int | None = None) -> "Reading":
    """Draw a study, read it and print the reading."""
    from enteron.cli.console import RichProgress
    from enteron.cli.read import show
    from enteron.demo import EXAMPLE_SEED, read_example

    typer.echo(
        "One synthetic study of a capsule that the model never saw, read with the model in the "
        "box.\nIt is a drawing, not a recording: the result says nothing about patients."
    )
    reading = read_example(out, RichProgress(), seed=EXAMPLE_SEED if seed is None else seed)
    show(reading)
    return reading


def _full(out: Path, seed: int | None, quick: bool) -> "Reading":
    from enteron.cli.console import RichProgress
    from enteron.demo import DemoOptions, run_demo

    options = DemoOptions() if seed is None else DemoOptions(seed=seed)
    if quick:
        small = {"studies": 6, "frames": 50, "unseen": 2, "unseen_frames": 50}
        options = options.model_copy(update=small)
    typer.echo(
        f"{options.studies} synthetic studies of two devices to learn from, {options.unseen} of a "
        "third device to read.\nThey are drawings, not recordings: the results say nothing about "
        "patients."
    )
    result = run_demo(out, options, RichProgress())
    _show(result)
    return result.reading


def _show(result: "DemoResult") -> None:
    from enteron.cli.console import console
    from enteron.cli.read import show

    typer.echo()
    show(result.reading)
    out = console()
    out.print(_table(result.decoders))
    low, high = result.shortening
    out.print(
        f"[yellow]Note:[/yellow] these studies are {low:.0f} to {high:.0f} times shorter than real "
        "ones. Constants counted in rows were divided by each study's own factor, for every "
        "decoder alike."
    )
    out.print(
        "[dim]Official mAP over all labels and over those present in the truth, with 95 % "
        "intervals over studies. A label that a study does not show scores 1 when nothing is "
        "predicted for it: hence the score of the empty file. Oracle: the true frame labels, "
        "decoded by transit.[/dim]"
    )


def _table(decoders: "tuple[DecoderResult, ...]") -> "Table":
    import numpy as np

    from enteron.cli.console import number, table, with_interval
    from enteron.errors import quantity

    studies = len(decoders[0].evaluation.studies)
    result = table(
        f"{studies} unseen studies, each decoded in several ways",
        "decoder", "mAP at 0.5", "at 0.95", "present labels, 0.5", "region events per study",
        "region onset, median error",
    )  # fmt: skip
    for decoder in decoders:
        evaluation = decoder.evaluation
        half, strict = evaluation.official
        errors = np.abs(evaluation.borders.error)
        errors = errors[~np.isnan(errors)]
        mean = evaluation.bootstrap.mean
        result.add_row(
            decoder.name,
            with_interval(float(half.studies.mean()), mean(half.studies)),
            number(float(strict.studies.mean())),
            with_interval(float(np.nanmean(half.present_studies)), mean(half.present_studies)),
            number(decoder.region_events, 1),
            quantity(round(float(np.median(errors))), "frame") if errors.size else "-",
        )
    return result

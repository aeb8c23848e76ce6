"""`enteron phantom`: synthetic studies."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Device(StrEnum):
    """Capsules that synthetic studies imitate."""

    OLYMPUS = "olympus"
    PILLCAM = "pillcam"
    NAVICAM = "navicam"
    MIXED = "mixed"


def phantom(
    out: Annotated[
        Path,
        typer.Argument(
            help="Folder for the studies: new, empty, or of an earlier run to add to.",
            readable=False,
        ),
    ],
    studies: Annotated[int, typer.Option(min=1, help="How many studies.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Stored frames of each study.")] = 2000,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same one gives the same studies.")
    ] = 1,
    device: Annotated[
        Device,
        typer.Option(help="mixed: PillCam and Olympus, for training; navicam: the test layout."),
    ] = Device.MIXED,
    rarity: Annotated[
        float,
        typer.Option(min=0, help="1 as rare as in the data, 0 every label in every study."),
    ] = 1.0,
    stalls: Annotated[
        float, typer.Option(min=0, max=1, help="Share of frames in which the capsule stands still.")
    ] = 0.13,
    priors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Statistics to draw from, made by enteron priors fit (default: those of Galar).",
            readable=False,
        ),
    ] = None,
    video: Annotated[
        bool, typer.Option("--video", help="Write a video per study, not a folder of frames.")
    ] = False,
    sheet: Annotated[
        bool, typer.Option("--sheet", help="Also write examples of every label to sheet.png.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes to draw with (default: one per core).")
    ] = None,
) -> None:
    """Draw synthetic studies in Galar's layout from measured statistics.

    Run it again with more studies to add some; a killed run is resumed by the same command. The
    first run after installing compiles the renderer, for about half a minute.

    Example: [bold]enteron phantom data --studies 8 --frames 2000 --seed 1[/bold]
    """
    import time

    from enteron.cli.console import RichProgress
    from enteron.phantom.dataset import PhantomOptions, frames_to_make, make_studies
    from enteron.priors import load_priors

    options = PhantomOptions(
        frames=frames, seed=seed, device=device.value, rarity=rarity, stalls=stalls, video=video
    )
    statistics = load_priors(priors)
    total = frames_to_make(out, studies, options)
    start = time.perf_counter()
    with RichProgress().task("Drawing", total) as advance:
        for count in make_studies(out, studies, options, workers, priors=statistics):
            advance(count)
    seconds = time.perf_counter() - start
    if sheet:
        from enteron.phantom.dataset import save_sheet

        save_sheet(out / "sheet.png", seed)
        typer.echo(f"Examples of every label are in {out / 'sheet.png'}.")
    if total == 0:
        typer.echo(f"All {studies} studies exist already.")
        return
    typer.echo(
        f"Drew {total:,} frames in {seconds:.0f} s, {total / seconds:.0f} per second. "
        f"Look at them with: enteron check {out}"
    )

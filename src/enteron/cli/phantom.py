"""`enteron phantom`: synthetic studies."""

from pathlib import Path
from typing import Annotated

import typer

from enteron.cli.console import Device


def phantom(
    out: Annotated[Path, typer.Argument(help="Folder to make them in; new, empty, or the same.")],
    studies: Annotated[int, typer.Option(min=1, help="How many studies.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Stored frames of each.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Everything follows from it.")] = 1,
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
    ] = 0.5,
    video: Annotated[
        bool, typer.Option("--video", help="A video per study instead of a folder of frames.")
    ] = False,
    sheet: Annotated[
        bool, typer.Option("--sheet", help="Also a page of examples of every label, sheet.png.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes to draw with [all cores].")
    ] = None,
) -> None:
    """Make synthetic studies in Galar's layout, drawn from measured statistics.

    Run again with more studies to add some; a killed run goes on where it stopped. The first run
    after installing compiles the renderer, for about half a minute.

    Example: [bold]enteron phantom data --studies 8 --frames 2000 --seed 1[/bold]
    """
    import time

    from enteron.cli.console import counted
    from enteron.phantom.dataset import PhantomOptions, frames_to_make, make_studies

    options = PhantomOptions(
        frames=frames, seed=seed, device=device.value, rarity=rarity, stalls=stalls, video=video
    )
    total = frames_to_make(out, studies, options)
    begin = time.perf_counter()
    for _ in counted(make_studies(out, studies, options, workers), total, "Drawing", "frames"):
        pass
    seconds = time.perf_counter() - begin
    if sheet:
        from enteron.phantom.sheet import save_sheet

        save_sheet(out / "sheet.png", seed)
        typer.echo(f"Examples of every label are in {out.name}/sheet.png.")
    if total == 0:
        typer.echo(f"All {studies} studies were there already.")
        return
    typer.echo(
        f"{out.name}: {total} frames in {seconds:.0f} s, {total / seconds:.0f} a second. "
        f"Look at them with: enteron check {out.name}"
    )

"""`enteron pack`: a model folder that is read without torch."""

from pathlib import Path
from typing import Annotated

import typer


def pack(
    model: Annotated[
        Path, typer.Argument(help="Model folder, as `enteron train` makes it.", readable=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the packed model.", readable=False)],
    name: Annotated[
        str | None, typer.Option(help="What pages and terminals call the model.")
    ] = None,
    int8: Annotated[
        list[Path] | None,
        typer.Option(
            help="Dataset on whose frames an encoder in int8 is calibrated, for `--runtime "
            "onnx-int8`; can be given several times.",
            readable=False,
        ),
    ] = None,
) -> None:
    """Pack a model: half the size, and read without torch.

    Weights are rounded to 16 bits, and the network is stored as two ONNX graphs beside them.
    Rounding makes it another model, so calibrate it afterwards.
    Example: [bold]enteron pack model --out packed[/bold], then
    [bold]enteron calibrate packed data[/bold]
    """
    from enteron.cli.console import plain
    from enteron.folders.model import CALIBRATION
    from enteron.folders.packing import pack_model

    packed = pack_model(model, out, name=name, int8=int8 or ())
    typer.echo(f"{plain(str(out))}: {packed.size / 1e6:.1f} MB, read without torch.")
    if packed.calibrated:
        typer.echo(f"Its {CALIBRATION} is that of {plain(model.name)}: no weight was rounded.")
    else:
        typer.echo(
            "It is not calibrated: rounding changed the weights. Run "
            f"enteron calibrate {plain(str(out))} DATA."
        )

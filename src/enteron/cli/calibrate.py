"""`enteron calibrate`: temperature, thresholds and decoder rules for a model."""

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    model: Annotated[Path, typer.Argument(help="Model folder, as `enteron train` makes it.")],
    data: Annotated[Path, typer.Argument(help="Data root with the studies to calibrate on.")],
    split: Annotated[
        str, typer.Option(help="Part of the model's split: val, train, test, or all of the root.")
    ] = "val",
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per hour that 'clinical' may cost.")
    ] = 1.0,
    features: Annotated[
        Path | None,
        typer.Option(help="Folder of stored features [the model's own, as training left it]."),
    ] = None,
) -> None:
    """Fit what decoding needs to know of a model, on studies it was not trained on.

    Writes calibration.json into the model folder. Features of studies that are not stored yet are
    made and kept. Example: [bold]enteron calibrate model data[/bold]
    """
    from enteron.cli.console import console, number, table
    from enteron.cli.read import Bars
    from enteron.fitting.calibrate import calibrate_model

    done = calibrate_model(
        model, data, part=split, budget=budget, features=features, progress=Bars()
    )
    fitted = done.calibration
    likelihood = fitted.likelihood
    made = table(
        f"Calibrated on {fitted.studies} studies, {fitted.rows:,} frames",
        "label", "threshold", "paper's", "frames that show it",
    )  # fmt: skip
    for label, threshold in likelihood.thresholds.items():
        made.add_row(
            label,
            number(threshold, 2),
            number(fitted.paper.thresholds[label], 2),
            f"{done.support[label]:,}",
        )
    out = console()
    out.print(made)
    if likelihood.before is not None and likelihood.after is not None:
        out.print(
            f"Temperature {likelihood.temperature:.2f}; calibration error "
            f"{likelihood.before.ece:.3f} before, {likelihood.after.ece:.3f} after. "
            "A dash: never emitted, since no frame showed it."
        )
    if not fitted.silence:
        out.print(
            "[yellow]Note:[/yellow] when to be silent could not be fitted on a single study: "
            "`--decoder challenge` needs a calibration on two or more."
        )
    if done.shortened:
        out.print(f"[yellow]Note:[/yellow] {done.shortened}.")
    out.print(f"calibration.json is in {model.name}.")

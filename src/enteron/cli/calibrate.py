"""`enteron calibrate`: temperature, thresholds and decoder rules for a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.fitting.calibrate import CalibrationReport


def calibrate(
    model: Annotated[
        Path, typer.Argument(help="Model folder, as `enteron train` makes it.", readable=False)
    ],
    data: Annotated[
        Path, typer.Argument(help="Data root with the studies to calibrate on.", readable=False)
    ],
    split: Annotated[
        str, typer.Option(help="Part of the model's split: val, train, test, or all of the root.")
    ] = "val",
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per hour that 'clinical' may cost.")
    ] = 1.0,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Folder of stored features (default: features/ of the model folder).",
            readable=False,
        ),
    ] = None,
    priors: Annotated[
        Path | None,
        typer.Option(
            help="Priors of `enteron priors fit` (default: the model's, or the packaged ones).",
            readable=False,
        ),
    ] = None,
    include_training_studies: Annotated[
        bool,
        typer.Option(
            "--include-training-studies",
            help="Fit on studies that trained the model too; every reading will say so.",
        ),
    ] = False,
) -> None:
    """Fit a model's calibration on studies it was not trained on.

    Writes calibration.json into the model folder, and the priors where they were given. Features
    that are not stored yet are computed and stored.
    Example: [bold]enteron calibrate model data[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.fitting.calibrate import calibrate_model
    from enteron.priors import load_priors

    report = calibrate_model(
        model,
        data,
        part=split,
        budget=budget,
        features=features,
        priors=None if priors is None else load_priors(priors),
        include_training=include_training_studies,
        progress=RichProgress(),
    )
    _show(report, model.name)


def _show(report: "CalibrationReport", model: str) -> None:
    from enteron.cli.console import console, markup, number, table

    calibration = report.calibration
    likelihood = calibration.likelihood
    thresholds = table(
        f"Calibrated on {calibration.studies} studies, {calibration.rows:,} frames",
        "label", "threshold", "paper's", "frames that show it",
    )  # fmt: skip
    for label, threshold in likelihood.thresholds.items():
        thresholds.add_row(
            label,
            number(threshold, 2),
            number(calibration.paper.thresholds[label], 2),
            f"{report.support[label]:,}",
        )
    out = console()
    out.print(thresholds)
    if likelihood.before is not None and likelihood.after is not None:
        out.print(
            f"Temperature {likelihood.temperature:.2f}; calibration error "
            f"{likelihood.before.ece:.3f} before, {likelihood.after.ece:.3f} after. "
            "A dash: never emitted, since no frame showed it."
        )
    if calibration.training_studies:
        out.print(
            f"[yellow]Note:[/yellow] {calibration.training_studies} of these studies trained the "
            "model, so that confidences will be too high; every reading will say so."
        )
    if not calibration.silence:
        out.print(
            "[yellow]Note:[/yellow] the rule of silence cannot be fitted on a single study: "
            "`--preset challenge` needs a calibration on two or more."
        )
    if report.scaling_note:
        out.print(f"[yellow]Note:[/yellow] {report.scaling_note}.")
    out.print(f"calibration.json is in {markup(model)}.")

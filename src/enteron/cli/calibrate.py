"""`enteron calibrate`: temperature, thresholds and decoder rules for a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.fitting.calibrate import CalibrationReport


_EVENTS_UNFITTED = (
    ": there is none here, so that `transit` keeps its defaults, and `clinical` and `challenge` "
    "cannot be used"
)


def calibrate(
    model: Annotated[
        Path, typer.Argument(help="Model folder, as `enteron train` makes it.", readable=False)
    ],
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Data roots with the studies to calibrate on; those of the training, as they were "
            "given there.",
            readable=False,
        ),
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
) -> None:
    """Fit a model's calibration on studies it was not trained on.

    Writes calibration.json into the model folder. Features that are not stored yet are computed
    and stored. Example: [bold]enteron calibrate model data[/bold]
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
        progress=RichProgress(),
    )
    _show(report, model.name)


def _show(report: "CalibrationReport", model: str) -> None:
    from enteron.cli.console import console, number, table
    from enteron.errors import quantity

    calibration = report.calibration
    likelihood = calibration.likelihood
    is_partial = any(report.unknown.values())
    thresholds = table(
        f"Calibrated on {calibration.studies} studies, {calibration.rows:,} frames",
        "label", "threshold", "paper's", "frames that show it",
        *(["frames that say nothing about it"] if is_partial else []),
    )  # fmt: skip
    for label, threshold in likelihood.thresholds.items():
        thresholds.add_row(
            label,
            number(threshold, 2),
            number(calibration.paper.thresholds[label], 2),
            f"{report.support[label]:,}",
            *([f"{report.unknown[label]:,}"] if is_partial else []),
        )
    out = console()
    out.print(thresholds)
    if likelihood.before is not None and likelihood.after is not None:
        out.print(
            f"Temperature {likelihood.temperature:.2f}; calibration error "
            f"{likelihood.before.ece:.3f} before, {likelihood.after.ece:.3f} after. "
            "A dash: never emitted, since no frame showed it"
            f"{', or none is known not to' if is_partial else ''}."
        )
    if is_partial:
        out.print(
            f"[yellow]Note:[/yellow] {calibration.studies - report.event_studies} of "
            f"{quantity(calibration.studies, 'study', 'studies')} have labels that are unknown and "
            "calibrate frames only; rules of events and of silence need studies that are labelled "
            f"from end to end{_EVENTS_UNFITTED if report.event_studies == 0 else ''}."
        )
    if not calibration.silence and report.event_studies:
        out.print(
            "[yellow]Note:[/yellow] the rule of silence cannot be fitted on a single study: "
            "`--preset challenge` needs a calibration on two or more."
        )
    if report.scaling_note:
        out.print(f"[yellow]Note:[/yellow] {report.scaling_note}.")
    out.print(f"calibration.json is in {model}.")

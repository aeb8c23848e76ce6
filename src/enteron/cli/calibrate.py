"""`enteron calibrate`: temperature, thresholds and decoder rules for a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.parameters import AcceleratorOption, RuntimeOption

if TYPE_CHECKING:
    from enteron.calibration import Calibration, FrameCalibration
    from enteron.fitting.calibrate import CalibrationReport
    from enteron.fitting.decoder import ContextComparison


_EVENTS_UNFITTED = (
    ": there is none here, so that `transit` keeps its defaults, and `clinical` and `challenge` "
    "cannot be used"
)


def calibrate(
    model: Annotated[
        Path, typer.Argument(help="Model folder, as `enteron train` makes it.", readable=False)
    ],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Data roots with the studies to calibrate on; those of the training, as they were "
            "given there.",
            readable=False,
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Part of the model's split: val, train, test, or all of the root.")
    ] = "val",
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per study that 'clinical' may cost.")
    ] = 8.0,
    lesion_recall: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=0.999, help="Promise this recall of lesions, such as 0.9, instead."
        ),
    ] = None,
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
    measure: Annotated[
        list[Path] | None,
        typer.Option(
            help="Labelled data that take part in no fit: findings are measured on them, and "
            "reported only if they are told apart.",
            readable=False,
        ),
    ] = None,
    context: Annotated[
        bool,
        typer.Option(
            "--context",
            help="Judge events by the scores around them in time, if left-out studies gain by it.",
        ),
    ] = False,
    readings: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead of data: reading folders of other studies, every frame of which was "
            "encoded. Fits what lies between two frames, for `enteron read --coarse`.",
            readable=False,
        ),
    ] = None,
    studies: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --readings: the studies that were read, or folders that hold them.",
            readable=False,
        ),
    ] = None,
    accelerator: AcceleratorOption = "auto",
    runtime: RuntimeOption = None,
) -> None:
    """Fit a model's calibration on studies it was not trained on.

    Writes calibration.json into the model folder, and the priors where they were given. Features
    that are not stored yet are computed and stored. With --readings it writes coarse.json and
    glance.safetensors instead.
    Example: [bold]enteron calibrate model data[/bold]
    """
    from enteron.errors import ConfigError

    if bool(data) == bool(readings):
        raise ConfigError(
            "calibrate fits either on data with labels or on readings",
            "give data roots, or --readings, and not both",
        )
    if bool(readings) != bool(studies):
        raise ConfigError(
            "what lies between two frames is learnt from readings and their pictures",
            "give both --readings and --studies, or neither",
        )
    if readings and studies:
        _fit_between(model, readings, studies)
        return
    assert data is not None
    from enteron.cli.console import RichProgress
    from enteron.fitting.calibrate import calibrate_model
    from enteron.priors import load_priors

    report = calibrate_model(
        model,
        data,
        part=split,
        budget=budget,
        lesion_recall=lesion_recall,
        features=features,
        priors=None if priors is None else load_priors(priors),
        include_training=include_training_studies,
        use_context=context,
        accelerator=accelerator,
        runtime=runtime,
        measure=measure or (),
        progress=RichProgress(),
    )
    _show(report, model.name)


def _fit_between(model: Path, readings: list[Path], studies: list[Path]) -> None:
    """Fit and tell what lies between two frames."""
    from enteron.cli.console import RichProgress, plain
    from enteron.errors import quantity
    from enteron.fitting.coarse import fit_readings
    from enteron.folders.model import COARSE
    from enteron.model.requirements import require_torch

    require_torch("learning what lies between two frames")
    estimate = fit_readings(model, readings, studies, progress=RichProgress())
    typer.echo(
        f"{COARSE} of {plain(model.name)}: fitted on {estimate.rows:,} frames of "
        f"{quantity(estimate.studies, 'study', 'studies')}, for {len(estimate.labels)} labels. "
        "Now: enteron read STUDY --coarse"
    )


def _temperatures(frames: "FrameCalibration") -> str:
    if frames.anatomy_temperature is None:
        return f"Temperature {frames.temperature:.2f}"
    return (
        f"Temperature {frames.temperature:.2f} for findings, {frames.anatomy_temperature:.2f} for "
        "regions and landmarks"
    )


def _show_measured(calibration: "Calibration") -> None:
    """How well findings are told apart on real frames, and which are not reported."""
    from enteron.cli.console import console, table

    if calibration.measured is None:
        return
    measured = table(
        "Findings in real frames of studies that did not train",
        "finding", "AUC", "studies that show it", "data",
    )  # fmt: skip
    for finding, result in calibration.measured.items():
        measured.add_row(finding, f"{result.auc:.2f}", str(result.studies), result.data)
    out = console()
    out.print(measured)
    for finding, reason in calibration.unproven.items():
        out.print(f"Not reported: {finding}, {reason}.")


def _show(report: "CalibrationReport", model: str) -> None:
    from enteron.cli.console import console, markup, number, table
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
            f"{_temperatures(likelihood)}; calibration error "
            f"{likelihood.before.ece:.3f} before, {likelihood.after.ece:.3f} after. "
            "A dash: never emitted, since no frame showed it"
            f"{', or none is known not to' if is_partial else ''}."
        )
    if calibration.training_studies:
        out.print(
            f"[yellow]Note:[/yellow] {calibration.training_studies} of these studies trained the "
            "model, so that confidences will be too high; every reading will say so."
        )
    if report.context is not None:
        show_context(report.context, used=calibration.uses_context)
    elif gain := calibration.context_gains.get("findings"):
        out.print(
            "Scores refined by those around them in time, mean AP of findings in frames of "
            f"left-out studies: {gain.without:.3f} without, {gain.with_context:.3f} with: "
            + ("used." if calibration.uses_context else "not used.")
        )
    show_reliability(calibration)
    show_promise(calibration)
    _show_measured(calibration)
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
    out.print(f"calibration.json is in {markup(model)}.")


def show_context(comparison: "ContextComparison", *, used: bool) -> None:
    """What the scores around a frame are worth for events, and whether they are used."""
    from enteron.cli.console import console

    figures = "; ".join(
        f"{name} {value:.3f} without, {comparison['with'][name]:.3f} with"
        for name, value in comparison["without"].items()
    )
    console().print(
        f"Events judged by the scores around them in time, on left-out studies: {figures}: "
        + ("used." if used else "not used, since it does not beat the plain decoder."),
        highlight=False,
    )


def show_reliability(calibration: "Calibration") -> None:
    """How true the confidences of events are, on studies that the rules were not fitted on."""
    from enteron.cli.console import NONE, console, number, table

    if not calibration.reliability:
        return
    rows = table(
        "Confidence of events on held-out studies: how many of them touch a lesion",
        "finding", "events", "mean confidence", "true", "mean error",
        "true of those at 0.8 or more", "curve",
    )  # fmt: skip
    for finding, result in calibration.reliability.items():
        high = [b for b in result.bins if b.low >= 0.8 - 1e-9]
        events = sum(b.events for b in high)
        true = sum(b.events * b.true_share for b in high)
        rule = calibration.events.get(finding)
        curve = "logistic" if rule is None or rule.curve is None else rule.curve.method
        if calibration.event_context is not None:
            curve = "with context"
        rows.add_row(
            finding,
            f"{result.events:,}",
            number(sum(b.events * b.confidence for b in result.bins) / result.events, 2),
            number(sum(b.events * b.true_share for b in result.bins) / result.events, 2),
            number(result.ece, 2),
            f"{true:.0f} of {events}" if events else NONE,
            curve,
        )
    console().print(rows)


def show_promise(calibration: "Calibration") -> None:
    """What a promised recall means and costs."""
    from enteron.cli.console import console
    from enteron.errors import quantity
    from enteron.metrics.lesions import ReadingSpeed

    promise = calibration.guarantee
    if promise is None:
        return
    pictures = promise.events_per_study or 0.0
    speed = ReadingSpeed()
    devices = ", ".join(f"{name} ({count})" for name, count in promise.devices.items())
    console().print(
        f"[bold]Promised recall {promise.recall:g}[/bold]: of a new study like these, at most "
        f"{promise.alpha:.3g} of the lesions are missed on average, if all pictures of a suspicion "
        f"of at least {promise.threshold:.3g} are looked at. Fitted on "
        f"{quantity(promise.studies, 'study', 'studies')} with lesions"
        + (f" ({devices})" if devices else "")
        + f", which miss {promise.missed:.3f}. It costs {pictures:,.0f} pictures a study: "
        f"{promise.minutes_per_study or 0.0:.0f} min at {speed.seconds_per_still:g} s each, or "
        f"{pictures / speed.frames_per_second / 60:.0f} min as a video of "
        f"{speed.frames_per_second:g} a second. It says nothing about a single study, or about "
        "other capsules.",
        highlight=False,
    )

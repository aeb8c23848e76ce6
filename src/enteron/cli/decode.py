"""`enteron decode`: scores of any model to events."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.decoding import DecodedEvent
    from enteron.priors import Priors
    from enteron.types import Scores

SHOWN = 30  # events in the table on the terminal


class Preset(StrEnum):
    """What the events are for."""

    PAPER = "paper"
    TRANSIT = "transit"
    CHALLENGE = "challenge"
    CLINICAL = "clinical"


def decode(
    scores: Annotated[
        Path,
        typer.Argument(
            help="Parquet or CSV: a column 'frame' or 'index', and one per label.", readable=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the events.", readable=False)],
    preset: Annotated[Preset, typer.Option(help="How to decode.")] = Preset.TRANSIT,
    study_id: Annotated[
        str | None, typer.Option(help="Name of the study (default: the file's name).")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model folder whose calibration.json makes probabilities of the scores.",
            readable=False,
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Original frames per row, if there is only an 'index' column."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of decoder options, in place of a preset.", readable=False),
    ] = None,
    priors: Annotated[
        Path | None,
        typer.Option(
            help="Priors of `enteron priors fit` (default: the model's, or the packaged ones).",
            readable=False,
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(help="Importance of a finding in suspicious.json, as polyp=3 (default: 1)."),
    ] = None,
) -> None:
    """Turn scores per frame into events: regions, landmarks and findings.

    Writes events.json, events.csv, suspicious.json, submission.json and run.json.
    Example: [bold]enteron decode scores.parquet --out reading --preset paper[/bold]
    """
    import time

    from enteron.calibration import Calibration
    from enteron.decoding import DecodeOptions
    from enteron.decoding import decode as decode_scores
    from enteron.decoding import preset as preset_options
    from enteron.decoding.options import require_fitted
    from enteron.decoding.pipeline import decision_thresholds, frame_calibration
    from enteron.decoding.suspicious import SuspicionOptions
    from enteron.folders.model import load_calibration
    from enteron.folders.reading import (
        ModelFacts,
        RunRecord,
        package_versions,
        scaling_note,
        write_events,
    )
    from enteron.folders.scores import read_scores
    from enteron.folders.suspicious import write_suspicious
    from enteron.options import load_options

    suspicion = SuspicionOptions(weights=parse_weights(weight))
    options = preset_options(preset) if config is None else load_options(DecodeOptions, config)
    calibration = Calibration() if model is None else load_calibration(model)
    require_fitted(options, calibration)
    chosen_priors = choose_priors(priors, model)
    start = time.perf_counter()
    read = read_scores(scores, study_id, stride)
    loaded = time.perf_counter()
    if model is None:
        _warn_uncalibrated(scores)
    events = decode_scores(read, options, chosen_priors, calibration)
    decoded = time.perf_counter()
    write_events(out, read, events, cut=options.cut)
    write_suspicious(
        out,
        read,
        events,
        chosen_priors,
        calibration if model is not None else None,
        options=suspicion,
    )
    RunRecord(
        study=read.study,
        state="decoded",
        command=f"enteron decode {scores.name} --preset {preset}",
        unit=read.unit,
        rows=len(read.axis),
        scored=len(read.axis),
        stride=read.axis.step,
        gaps=int(read.axis.gaps().size),
        model=ModelFacts(hash=_calibration_hash(model), calibrated=model is not None),
        preset=str(preset) if config is None else None,
        options=options,
        frame_calibration=frame_calibration(options, calibration) if model is not None else None,
        thresholds=decision_thresholds(options, calibration),
        scaling=scaling_note(read),
        versions=package_versions("enteron", "numpy", "scipy", "polars"),
        timings={"read": round(loaded - start, 3), "decode": round(decoded - loaded, 3)},
    ).save(out)
    _show(read, events)


def parse_weights(pairs: list[str] | None) -> dict[str, float]:
    """Weights of findings from texts such as 'polyp=3'."""
    from enteron.errors import ConfigError, nearest
    from enteron.labels import FINDINGS

    weights: dict[str, float] = {}
    for pair in pairs or []:
        finding, _, number = pair.partition("=")
        if finding not in FINDINGS:
            raise ConfigError(f"'{finding}' is not a finding", nearest(finding, FINDINGS))
        try:
            weights[finding] = float(number)
        except ValueError:
            weights[finding] = -1.0
        if not 0 <= weights[finding] <= 1000:
            raise ConfigError(
                f"'{pair}' has no weight from 0 to 1000", "write it as polyp=3, or polyp=0"
            )
    return weights


def choose_priors(path: Path | None, model: Path | None) -> "Priors":
    """Those of the file, else those of the model folder, else the packaged ones."""
    from enteron.folders.model import model_priors
    from enteron.priors import load_priors

    if path is not None or model is None:
        return load_priors(path)
    return model_priors(model)


def _warn_uncalibrated(scores: Path) -> None:
    """Say before decoding that nothing turns scores into probabilities."""
    from enteron.folders.scores import is_written_by_enteron

    if is_written_by_enteron(scores):
        text = (
            f"{scores.name} holds the raw scores of a model, which are not probabilities. Give "
            "the model that made them with --model MODEL, or the events will be wrong."
        )
    else:
        text = (
            "without --model the scores are taken as calibrated probabilities. If they are not, "
            "the events will be wrong."
        )
    typer.echo(f"Warning: {text}", err=True)


def _show(scores: "Scores", events: "Sequence[DecodedEvent]") -> None:
    from enteron.cli.console import NONE, console, number, table

    rows = table(
        f"Study {scores.study}: {len(events)} events", "label", "start", "stop", "score", "in"
    )
    for event in events[:SHOWN]:
        rows.add_row(
            event.label,
            f"{event.start:,}",
            f"{event.stop:,}",
            number(event.score, 2),
            event.region or NONE,
        )
    out = console()
    out.print(rows)
    if len(events) > SHOWN:
        out.print(f"[dim]and {len(events) - SHOWN} more, in events.csv.[/dim]")
    if scores.unit == "index":
        out.print(
            "[yellow]Note:[/yellow] there is no 'frame' column, so events count rows, durations "
            "take a row for a frame, and no submission.json is written, since the official file "
            "counts frames. Give the frames per row with --stride."
        )


def _calibration_hash(model: Path | None) -> str | None:
    """Identifies the calibration that was used."""
    if model is None:
        return None
    import hashlib

    from enteron.folders.model import CALIBRATION

    path = model / CALIBRATION if model.is_dir() else model
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

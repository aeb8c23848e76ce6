"""`enteron decode`: scores of any model to events."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Preset(StrEnum):
    """What the events are for."""

    PAPER = "paper"
    TRANSIT = "transit"
    CHALLENGE = "challenge"
    CLINICAL = "clinical"


def decode(
    scores: Annotated[
        Path,
        typer.Argument(help="Parquet or CSV: a column 'frame' or 'index', and one per label."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the events.")],
    preset: Annotated[Preset, typer.Option(help="How to decode.")] = Preset.TRANSIT,
    study_id: Annotated[
        str | None, typer.Option(help="Name of the study [the file's name].")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model folder whose calibration.json fits the scores.")
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Original frames per row, if there is only an 'index' column."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of decoder options, in place of a preset.")
    ] = None,
) -> None:
    """Turn scores per frame into events: regions, landmarks and findings.

    Writes events.json, events.csv, submission.json and run.json.
    Example: [bold]enteron decode scores.parquet --out reading --preset paper[/bold]
    """
    import time

    from enteron.calibration import Calibration
    from enteron.decode import DecodeOptions
    from enteron.decode import decode as decoded
    from enteron.decode import preset as preset_options
    from enteron.folders.model import load_calibration
    from enteron.folders.reading import write_reading, write_run
    from enteron.folders.scores import read_scores
    from enteron.options import load_options

    options = preset_options(preset) if config is None else load_options(DecodeOptions, config)
    calibration = Calibration() if model is None else load_calibration(model)
    begin = time.perf_counter()
    read = read_scores(scores, study_id, stride)
    loaded = time.perf_counter()
    events = decoded(read, options, None, calibration)
    done = time.perf_counter()
    write_reading(out, read, read.unit, events, cut=options.cut)
    run: dict[str, Any] = {
        "command": f"enteron decode {scores.name} --preset {preset}",
        "preset": str(preset) if config is None else None,
        "options": options.model_dump(),
        "calibrated": model is not None,
        "model": _hash(model),
        "study": read.study,
        "unit": str(read.unit),
        "rows": len(read.axis),
        "stride": read.axis.step,
        "gaps": int(read.axis.gaps().size),
        "versions": _versions(),
        "timings": {"read": round(loaded - begin, 3), "decode": round(done - loaded, 3)},
    }
    write_run(out, run)
    _say(read.study, read.unit, events, calibrated=model is not None)


def _say(study: str, unit: str, events: list, *, calibrated: bool) -> None:
    from enteron.cli.console import NONE, console, number, table

    made = table(f"Study {study}: {len(events)} events", "label", "start", "stop", "score", "in")
    for event in events[:30]:
        made.add_row(
            event.label,
            f"{event.start:,}",
            f"{event.stop:,}",
            number(event.score, 2),
            event.region or NONE,
        )
    out = console()
    out.print(made)
    if len(events) > 30:
        out.print(f"[dim]and {len(events) - 30} more, in events.csv.[/dim]")
    if not calibrated:
        out.print("[dim]Scores were taken as they are: no --model, so nothing calibrated.[/dim]")
    if unit == "index":
        out.print(
            "[yellow]Note:[/yellow] there is no 'frame' column, so events count rows, and "
            "durations take a row for a frame; --stride says how many frames a row stands for."
        )


def _hash(model: Path | None) -> str | None:
    """Identifies the calibration that was used."""
    if model is None:
        return None
    import hashlib

    from enteron.folders.model import CALIBRATION

    path = model / CALIBRATION if model.is_dir() else model
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("enteron", "numpy", "scipy", "polars")}

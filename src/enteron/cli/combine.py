"""`enteron combine`: the mean of several models' scores as one reading."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.decode import Preset
from enteron.cli.parameters import DecoderConfigOption

if TYPE_CHECKING:
    from enteron.folders.reading import Reading


class Mean(StrEnum):
    """On which scale scores are averaged."""

    PROBABILITY = "probability"
    LOG_ODDS = "log-odds"


class Averaged(StrEnum):
    """Which scores are averaged."""

    CALIBRATED = "calibrated"
    RAW = "raw"


def combine(
    readings: Annotated[
        list[Path],
        typer.Argument(
            help="Readings of one study, or folders that hold readings of the same studies.",
            readable=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the combination.", readable=False)],
    mean: Annotated[
        Mean, typer.Option(help="Average probabilities, or log-odds.")
    ] = Mean.PROBABILITY,
    weights: Annotated[
        str | None, typer.Option(help="Weight of each reading, such as 2,1,1 (default: equal).")
    ] = None,
    scores: Annotated[
        Averaged | None,
        typer.Option(
            help="What is averaged (default: calibrated scores if all readings have them, raw ones "
            "if none has)."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Folder of `enteron tune`, fitted on the same combination of other studies.",
            readable=False,
        ),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="How scores become events.")] = Preset.TRANSIT,
    config: DecoderConfigOption = None,
) -> None:
    """Combine readings of several models into one: a mean of their scores, decoded anew.

    Writes what `enteron read` writes, without embeddings; run.json names the members by hash.
    Example: [bold]enteron combine reading-a reading-b reading-c --out combined[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.cli.read import show, show_studies
    from enteron.combination import CombineOptions
    from enteron.combination import combine as combine_readings
    from enteron.decoding import DecodeOptions
    from enteron.folders.reading import RUN
    from enteron.options import load_options

    options = CombineOptions(
        mean=mean.value,
        weights=_parse_weights(weights),
        scores=None if scores is None else scores.value,
        preset=preset.value,
        decoding=None if config is None else load_options(DecodeOptions, config),
    )
    results = combine_readings(
        readings, out, options=options, calibration=calibration, progress=RichProgress()
    )
    for result in results:
        show(result)
    _show_calibration(results[0], calibration is not None)
    if not (out / RUN).is_file():  # several studies
        show_studies(results, out)


def _parse_weights(text: str | None) -> tuple[float, ...] | None:
    """Weights from a text such as '2,1,1'."""
    from enteron.errors import ConfigError

    if text is None:
        return None
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 < weight <= 1e6 for weight in weights):
        raise ConfigError(
            f"'{text}' is not a list of weights", "write numbers above 0 with commas, such as 2,1,1"
        )
    return weights


def _show_calibration(reading: "Reading", fitted: bool) -> None:
    """Say what was averaged, and what the confidence of the mean rests on."""
    from enteron.cli.console import console

    combination = reading.run.combination
    assert combination is not None  # of a reading that was just combined
    text = f"Averaged: {combination.averaged} scores of {len(combination.members)} readings"
    if fitted:
        text += ", with a calibration of the combination."
    elif combination.averaged == "calibrated":
        text += (
            ". Each was calibrated, their mean was not: its thresholds are means of theirs. Fit "
            "a calibration of the combination with enteron tune for the presets challenge and "
            "clinical."
        )
    else:
        text += ", which are not probabilities."
    console().print(text)

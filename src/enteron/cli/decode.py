"""`enteron decode`: scores of any model to events."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.cli.parameters import DecoderConfigOption, NoContextOption

if TYPE_CHECKING:
    from enteron.decoding import DecodedEvent
    from enteron.types import Scores

SHOWN = 30  # events in the table on the terminal


class Preset(StrEnum):
    """What the events are for."""

    PAPER = "paper"
    GAP_MERGE = "gap-merge"
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
        str | None,
        typer.Option(
            help="Id of the study (default: the one that the file states, or one derived from its "
            "content)."
        ),
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
    config: DecoderConfigOption = None,
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
    no_context: NoContextOption = False,
) -> None:
    """Turn scores per frame into events: regions, landmarks and findings.

    Writes events.json, events.csv, suspicious.json, submission.json and run.json.
    Example: [bold]enteron decode scores.parquet --out reading --preset paper[/bold]
    """
    import time

    from enteron.calibration import Calibration, with_or_without_context
    from enteron.decoding import DecodeOptions
    from enteron.decoding import decode as decode_scores
    from enteron.decoding import preset as preset_options
    from enteron.decoding.options import require_fitted
    from enteron.decoding.pipeline import (
        decision_thresholds,
        event_context,
        frame_calibration,
    )
    from enteron.decoding.suspicious import SuspicionOptions
    from enteron.files import make_folder
    from enteron.folders.identity import ReadingIdentity, decoding_hash, scores_hash
    from enteron.folders.model import (
        calibration_hash,
        decoding_priors,
        load_calibration,
        require_scored_by,
    )
    from enteron.folders.reading import (
        EVENTS,
        EVENTS_TABLE,
        SCORES,
        SUBMISSION,
        ModelFacts,
        RunRecord,
        package_versions,
        remove_derived,
        replaceable_run,
        scaling_note,
        write_events,
    )
    from enteron.folders.scores import read_score_metadata, read_scores
    from enteron.folders.suspicious import SUSPICIOUS, write_suspicious
    from enteron.locks import folder_lock
    from enteron.options import load_options
    from enteron.priors import load_priors

    suspicion = SuspicionOptions(weights=parse_weights(weight))
    options = preset_options(preset) if config is None else load_options(DecodeOptions, config)
    calibration = Calibration() if model is None else load_calibration(model)
    calibration = with_or_without_context(calibration, not no_context)
    require_fitted(options, calibration)
    given_priors = None if priors is None else load_priors(priors)
    chosen_priors = decoding_priors(calibration, model, given_priors)
    start = time.perf_counter()
    read = read_scores(scores, study_id, stride)
    metadata = read_score_metadata(scores)
    _require_finished(scores)
    if model is not None:
        require_scored_by(calibration, metadata.model, model, scores)
    loaded = time.perf_counter()
    if model is None:
        _warn_uncalibrated(scores)
    events = decode_scores(read, options, chosen_priors, calibration)
    decoded = time.perf_counter()
    identity = ReadingIdentity(
        study=read.study,
        content=metadata.content,
        model=metadata.model,
        calibration=None if model is None else calibration_hash(model),
        decoding=decoding_hash(options, chosen_priors),
        scores=scores_hash(read),
    )
    make_folder(out)
    with folder_lock(out):
        earlier = replaceable_run(out, identity)
        stale = remove_derived(out)
        write_events(out, read, events, identity, options)
        fitted = calibration if model is not None else None
        write_suspicious(out, read, events, chosen_priors, fitted, options=suspicion)
        facts: dict[str, Any] = {
            "study": read.study,
            "state": "finished",
            "identity": identity,
            "files": {},
            # The name of the file may be a patient's.
            "command": f"enteron decode SCORES --preset {preset}",
            "unit": read.unit,
            "scored": len(read.axis),
            "stride": read.axis.step,
            "gaps": int(read.axis.gaps().size),
            "preset": str(preset) if config is None else None,
            "options": options,
            "frame_calibration": frame_calibration(options, calibration) if model else None,
            "event_context": event_context(options, calibration),
            "base_rates": calibration.rates,
            "thresholds": decision_thresholds(options, calibration),
            "scaling": scaling_note(read),
            "versions": package_versions("enteron", "numpy", "scipy", "polars"),
            "timings": {"read": round(loaded - start, 3), "decode": round(decoded - loaded, 3)},
        }
        if earlier is not None and earlier.model is not None and earlier.model.backbone is not None:
            # A reading: of the study and the model, it knows more than the scores tell.
            facts["model"] = earlier.model.model_copy(
                update={
                    "calibrated": model is not None,
                    "calibrated_on_training": calibration.training_studies,
                }
            )
            record = earlier.model_copy(update=facts)
        else:
            digest = None if identity.calibration is None else identity.calibration[:16]
            facts["rows"] = len(read.axis)
            facts["model"] = ModelFacts(
                hash=digest,
                calibrated=model is not None,
                calibrated_on_training=calibration.training_studies,
            )
            record = RunRecord(**facts)
        record.with_files(out, (SCORES, EVENTS, EVENTS_TABLE, SUBMISSION, SUSPICIOUS)).save(out)
    for name in stale:
        typer.echo(f"Removed {name}, which showed the events that were replaced.", err=True)
    _show(read, events)
    if record.training_note is not None:
        typer.echo(f"Note: {record.training_note}.", err=True)


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


def _warn_uncalibrated(scores: Path) -> None:
    """Say before decoding that nothing turns scores into probabilities."""
    from enteron.cli.console import plain
    from enteron.folders.scores import is_written_by_enteron, read_score_metadata

    if read_score_metadata(scores).calibrated:
        text = (
            f"{scores.name} holds means of calibrated scores, for which nothing was fitted. Fit a "
            "calibration with enteron tune and give it with --model, or combine the readings again."
        )
    elif is_written_by_enteron(scores):
        text = (
            f"{scores.name} holds the raw scores of a model, which are not probabilities. Give "
            "the model that made them with --model MODEL, or the events will be wrong."
        )
    else:
        text = (
            "without --model the scores are taken as calibrated probabilities. If they are not, "
            "the events will be wrong."
        )
    typer.echo(f"Warning: {plain(text)}", err=True)


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


def _require_finished(scores: Path) -> None:
    """Refuse scores of a reading that is not finished."""
    from enteron.folders.reading import SCORES, RunRecord

    run = RunRecord.load(scores.parent) if scores.name == SCORES else None
    if run is not None and run.identity is not None:
        run.require_finished(scores.resolve().parent)

"""`enteron tune`: decoder options for a model, from stored scores and truth."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from enteron.types import Unit


def tune(
    scores: Annotated[
        Path, typer.Argument(help="Folder of scores, one parquet or CSV per study, named by id.")
    ],
    truth: Annotated[Path, typer.Argument(help="Official JSON, or a folder of Galar labels.")],
    out: Annotated[
        Path | None, typer.Option(help="Model folder to write calibration.json into.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per hour that 'clinical' may cost.")
    ] = 1.0,
    unit: Annotated[
        Unit, typer.Option(help="What an official JSON counts: frame numbers, or rows.")
    ] = Unit.FRAME,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
) -> None:
    """Fit calibration and decoder options, and say how good they are on other studies.

    Every figure is of studies that its options were not fitted on. What is written with --out is
    fitted on all of them. Example: [bold]enteron tune scores truth.json --out model[/bold]
    """
    from enteron.cli.console import progress
    from enteron.datasets.submission import read_truth
    from enteron.fitting.decoder import FitOptions, cross_validate, fit_decoder
    from enteron.folders.model import CALIBRATION, save_calibration
    from enteron.metrics.evaluation import evaluate, summarise
    from enteron.priors import load_priors
    from enteron.types import Annotation

    labelled, known = _studies(scores, read_truth(truth, unit), unit)
    options, priors = FitOptions(budget=budget), load_priors()
    done = list(progress(cross_validate(labelled, priors, folds, options), "Cross-validating"))
    figures: dict[str, Any] = {}
    for preset in done[0].predictions:
        predicted: list[Annotation] = [p for f in done for p in f.predictions[preset]]
        figures[preset] = summarise(evaluate(known, predicted))
    kappas = [fold.calibration.kappa for fold in done]
    if as_json:
        typer.echo(json.dumps({"presets": figures, "kappa": kappas, "folds": folds}, indent=1))
    else:
        _print(figures, kappas, len(labelled), folds)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        save_calibration(fit_decoder(labelled, priors, options), out / CALIBRATION)
        if not as_json:
            typer.echo(f"{CALIBRATION}: fitted on all {len(labelled)} studies")


def _studies(folder: Path, truth: list, unit: Unit) -> tuple[list, list]:
    """Scores beside the truth of the same study, both in frames."""
    from enteron.cli.console import progress
    from enteron.errors import LabelError, UnitError
    from enteron.fitting.labelled import Labelled, label_rows
    from enteron.folders.scores import find_score_files, read_scores

    files = find_score_files(folder)
    by_study = {annotation.study: annotation for annotation in truth}
    if missing := [study for study in files if study not in by_study]:
        raise LabelError(
            f"the truth lacks {len(missing)} of {len(files)} studies with scores, the first is "
            f"{missing[0]}",
            "name each file of scores by its study's id",
        )
    labelled, known = [], []
    for study, path in progress(list(files.items()), "Reading"):
        read = read_scores(path, study)
        if read.unit is not unit:
            raise UnitError(
                f"study {study}: scores count in '{read.unit}', the truth in '{unit}'",
                "index or frame? bring both to the same unit",
            )
        labelled.append(Labelled(read, label_rows(read, by_study[study])))
        known.append(by_study[study])
    return labelled, known


def _print(figures: dict[str, Any], kappas: list, studies: int, folds: int) -> None:
    from enteron.cli.console import console, number, table, with_interval

    made = table(
        f"{studies} studies, {folds} folds: each study decoded with what others taught",
        "preset",
        "mAP at 0.5",
        "at 0.95",
        "present labels",
        "merged",
        "onset error",
        "recall",
        "false alarms / h",
    )
    for preset, found in figures.items():
        made.add_row(
            preset,
            with_interval(found["map"]["0.5"], found["intervals"]["map"]["0.5"]),
            number(found["map"]["0.95"]),
            number(found["present"]["0.5"]),
            number(found["present_merged"]["0.5"]),
            number(found["boundaries"]["median"], 0),
            number(found["findings"]["recall"]),
            number(found["findings"]["false_alarms_per_hour"], 2),
        )
    out = console()
    out.print(made)
    empty = next(iter(figures.values()))["empty"]["0.5"]
    out.print(f"[dim]An empty file scores {empty:.3f} on the same studies.[/dim]")
    out.print(f"kappa by fold: {', '.join(f'{kappa:g}' for kappa in kappas)}")

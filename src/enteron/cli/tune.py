"""`enteron tune`: calibration and decoder options for a model, from stored scores and truth."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.cli.decode import choose_priors
from enteron.types import Annotation, Unit

if TYPE_CHECKING:
    from enteron.fitting.frames import LabelledStudy


def tune(
    scores: Annotated[
        Path,
        typer.Argument(
            help="Folder of scores, one parquet or CSV per study, named by id.", readable=False
        ),
    ],
    truth: Annotated[
        Path, typer.Argument(help="Official JSON, or a folder of Galar labels.", readable=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Model folder to write calibration.json into.", readable=False),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per hour that 'clinical' may cost.")
    ] = 1.0,
    unit: Annotated[
        Unit, typer.Option(help="What an official JSON counts: frame numbers, or rows.")
    ] = Unit.FRAME,
    priors: Annotated[
        Path | None,
        typer.Option(
            help="Priors of `enteron priors fit` (default: those of OUT, or the packaged ones).",
            readable=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
) -> None:
    """Fit calibration and decoder options, and cross-validate them.

    Every figure is of studies that its options were not fitted on. The calibration that --out
    writes is fitted on all of them.
    Example: [bold]enteron tune scores truth.json --out model[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.datasets.submission import read_truth
    from enteron.files import make_folder
    from enteron.fitting.decoder import FitOptions, Fold, cross_validate, fit_decoder
    from enteron.folders.model import CALIBRATION, save_calibration
    from enteron.metrics.evaluation import evaluate, summarise

    chosen_priors = choose_priors(priors, out)  # as `decode --model OUT` will do
    studies, truths = _labelled_studies(scores, read_truth(truth, unit), unit)
    options = FitOptions(budget=budget)
    fold_results: list[Fold] = []
    with RichProgress().task("Cross-validating", folds, "folds") as advance:
        for fold in cross_validate(studies, chosen_priors, folds, options):
            fold_results.append(fold)
            advance(1)
    figures: dict[str, dict[str, Any]] = {}
    for preset in fold_results[0].predictions:
        predictions = [p for fold in fold_results for p in fold.predictions[preset]]
        figures[preset] = summarise(evaluate(truths, predictions))
    kappas = [k for fold in fold_results if (k := fold.calibration.kappa) is not None]
    if as_json:
        typer.echo(json.dumps({"presets": figures, "kappa": kappas, "folds": folds}, indent=1))
    else:
        _show(figures, kappas, len(studies), folds)
    if out is not None:
        make_folder(out)
        save_calibration(fit_decoder(studies, chosen_priors, options), out / CALIBRATION)
        if not as_json:
            typer.echo(f"{CALIBRATION}: fitted on all {len(studies)} studies")


def _labelled_studies(
    folder: Path, truths: Sequence[Annotation], unit: Unit
) -> "tuple[list[LabelledStudy], list[Annotation]]":
    """Scores beside the truth of the same study, both in the same unit, and those truths."""
    from enteron.errors import LabelError, UnitError
    from enteron.fitting.frames import LabelledStudy, label_rows
    from enteron.folders.scores import find_score_files, read_scores

    files = find_score_files(folder)
    truth_of = {annotation.study: annotation for annotation in truths}
    if missing := [study for study in files if study not in truth_of]:
        raise LabelError(
            f"the truth lacks {len(missing)} of {len(files)} studies with scores, the first is "
            f"{missing[0]}",
            "name each file of scores by its study's id",
        )
    studies: list[LabelledStudy] = []
    for study, path in files.items():
        scores = read_scores(path, study)
        if scores.unit is not unit:
            raise UnitError(
                f"study {study}: scores count in '{scores.unit}', the truth in '{unit}'",
                "index or frame? bring both to the same unit",
            )
        studies.append(LabelledStudy(scores, label_rows(scores, truth_of[study])))
    return studies, [truth_of[study] for study in files]


def _show(
    figures: dict[str, dict[str, Any]], kappas: Sequence[float], studies: int, folds: int
) -> None:
    from enteron.cli.console import console, number, table, with_interval

    rows = table(
        f"{studies} studies, {folds} folds: each study decoded with a calibration of the others",
        "preset",
        "mAP at 0.5",
        "at 0.95",
        "present labels",
        "merged",
        "onset error",
        "recall",
        "false alarms / h",
    )
    for preset, figure in figures.items():
        rows.add_row(
            preset,
            with_interval(figure["map"]["0.5"], figure["intervals"]["map"]["0.5"]),
            number(figure["map"]["0.95"]),
            number(figure["present"]["0.5"]),
            number(figure["present_merged"]["0.5"]),
            number(figure["boundaries"]["median"], 0),
            number(figure["findings"]["recall"]),
            number(figure["findings"]["false_alarms_per_hour"], 2),
        )
    out = console()
    out.print(rows)
    empty = next(iter(figures.values()))["empty"]["0.5"]
    out.print(f"[dim]An empty file scores {empty:.3f} on the same studies.[/dim]")
    out.print(f"kappa by fold: {', '.join(f'{kappa:g}' for kappa in kappas)}")

"""`enteron tune`: calibration and decoder options for a model, from stored scores and truth."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.cli.calibrate import show_context, show_promise, show_reliability
from enteron.cli.parameters import NoContextOption
from enteron.types import Annotation, Unit, study_id_hash

if TYPE_CHECKING:
    from enteron.fitting.frames import LabelledStudy
    from enteron.priors import Priors


def tune(
    scores: Annotated[
        Path,
        typer.Argument(
            help="Folder of readings, or of scores: one parquet or CSV per study, named by id.",
            readable=False,
        ),
    ],
    truth: Annotated[
        Path, typer.Argument(help="Official JSON, or a folder of Galar labels.", readable=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of its own to write calibration.json into.", readable=False),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    budget: Annotated[
        float, typer.Option(min=0.001, help="False alarms per study that 'clinical' may cost.")
    ] = 8.0,
    lesion_recall: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=0.999, help="Promise this recall of lesions, such as 0.9, instead."
        ),
    ] = None,
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
    no_context: NoContextOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
) -> None:
    """Fit calibration and decoder options, and cross-validate them.

    Every figure is of studies that its options were not fitted on. The calibration that --out
    writes is fitted on all of them.
    Example: [bold]enteron tune scores truth.json --out tuned[/bold]
    """
    from enteron.calibration import FittedFor
    from enteron.cli.console import RichProgress
    from enteron.datasets.submission import read_truth
    from enteron.files import json_text, make_folder
    from enteron.fitting.calibrate import save_fitted
    from enteron.fitting.decoder import (
        FitOptions,
        Fold,
        compared_figures,
        context_pays,
        cross_validate,
        fit_decoder,
    )
    from enteron.fitting.guarantee import fit_lists, require_enough
    from enteron.folders.model import CALIBRATION
    from enteron.metrics.evaluation import Evaluation, evaluate, summarise
    from enteron.priors import priors_hash

    if out is not None:
        _require_no_model(out)
    chosen_priors = _choose_priors(priors, out)
    studies, truths, scored_by = _labelled_studies(scores, read_truth(truth, unit), unit)
    if lesion_recall is not None:
        require_enough(1 - lesion_recall, len(studies))
    progress = RichProgress()

    def validated(context: bool) -> tuple[list[Fold], dict[str, Evaluation]]:
        results: list[Fold] = []
        title = "Cross-validating" + (" with context" if context else "")
        with progress.task(title, folds, "folds") as advance:
            fit = FitOptions(budget=budget, context="events" if context else "none")
            for fold in cross_validate(studies, chosen_priors, folds, fit):
                results.append(fold)
                advance(1)
        evaluations = {
            preset: evaluate(truths, [p for fold in results for p in fold.predictions[preset]])
            for preset in results[0].predictions
        }
        return results, evaluations

    fold_results, evaluations = validated(context=False)
    use_context, comparison = False, None
    if not no_context:
        with_context, refined = validated(context=True)
        comparison = {
            "without": compared_figures(evaluations["transit"]),
            "with": compared_figures(refined["transit"]),
        }
        use_context = any(fold.calibration.uses_context for fold in with_context) and context_pays(
            comparison
        )
        if use_context:
            fold_results, evaluations = with_context, refined
    figures = {preset: summarise(evaluation) for preset, evaluation in evaluations.items()}
    options = FitOptions(budget=budget, context="events" if use_context else "none")
    kappas = [k for fold in fold_results if (k := fold.calibration.kappa) is not None]
    if as_json:
        table = {"presets": figures, "kappa": kappas, "folds": folds}
        if comparison is not None:
            table["context"] = {"used": use_context, **comparison}
        typer.echo(json_text(table, indent=1))
    else:
        _show(figures, kappas, len(studies), folds)
        if comparison is not None:
            show_context(comparison, used=use_context)
    if out is not None:
        make_folder(out)
        fitted_for = FittedFor(
            origin="scores",
            scored_by=scored_by,
            priors=priors_hash(chosen_priors),
            study_ids=tuple(sorted(study_id_hash(study.scores.study) for study in studies)),
        )
        calibration = fit_decoder(studies, chosen_priors, options)
        calibration = fit_lists(studies, calibration, chosen_priors, lesion_recall=lesion_recall)
        if calibration.uses_context:
            plain = fit_decoder(studies, chosen_priors, options.model_copy(update=_PLAIN))
            plain = fit_lists(studies, plain, chosen_priors, lesion_recall=lesion_recall)
            plain = plain.model_copy(update={"fitted_for": fitted_for})
            calibration = calibration.model_copy(update={"without_context": plain})
        save_fitted(calibration.model_copy(update={"fitted_for": fitted_for}), chosen_priors, out)
        if not as_json:
            show_reliability(calibration)
            show_promise(calibration)
            typer.echo(f"{CALIBRATION}: fitted on all {len(studies)} studies")


_PLAIN = {"context": "none"}


def _require_no_model(folder: Path) -> None:
    """Refuse a model folder: nothing shows that the scores are of its model."""
    from enteron.errors import ConfigError
    from enteron.folders.model import RECORD

    if (folder / RECORD).exists():
        raise ConfigError(
            f"'{folder.name}' holds a model, and these scores may be of another one",
            "give a folder of its own, or calibrate the model with `enteron calibrate`",
        )


def _choose_priors(path: Path | None, out: Path | None) -> "Priors":
    """Those of the file, else those of the folder, else the packaged ones: as decoding will do."""
    from enteron.folders.model import model_priors
    from enteron.priors import load_priors

    return load_priors(path) if path is not None or out is None else model_priors(out)


def _labelled_studies(
    folder: Path, truths: Sequence[Annotation], unit: Unit
) -> "tuple[list[LabelledStudy], list[Annotation], str | None]":
    """Scores beside the truth of the same study, those truths, and what made the scores.

    Both are in the same unit. Scores of different models are refused.
    """
    from enteron.errors import ConfigError, LabelError, UnitError
    from enteron.fitting.frames import LabelledStudy, label_rows
    from enteron.folders.scores import find_score_files, read_score_metadata, read_scores

    files = find_score_files(folder)
    truth_of = {annotation.study: annotation for annotation in truths}
    if missing := [study for study in files if study not in truth_of]:
        raise LabelError(
            f"the truth lacks {len(missing)} of {len(files)} studies with scores, the first is "
            f"{missing[0]}",
            "name each file of scores by its study's id",
        )
    studies: list[LabelledStudy] = []
    models = {study: read_score_metadata(path).model for study, path in files.items()}
    first, *others = files
    if odd := [study for study in others if models[study] != models[first]]:
        raise ConfigError(
            f"the scores of studies {first} and {odd[0]} are of different models or combinations",
            "give scores that were all made in the same way",
        )
    for study, path in files.items():
        scores = read_scores(path, study)
        if scores.unit is not unit:
            raise UnitError(
                f"study {study}: scores count in '{scores.unit}', the truth in '{unit}'",
                "index or frame? bring both to the same unit",
            )
        studies.append(LabelledStudy(scores, label_rows(scores, truth_of[study])))
    return studies, [truth_of[study] for study in files], models[first]


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
        "false alarms / study",
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
            number(figure["findings"]["false_alarms_per_study"], 2),
        )
    out = console()
    out.print(rows)
    empty = next(iter(figures.values()))["empty"]["0.5"]
    out.print(f"[dim]An empty file scores {empty:.3f} on the same studies.[/dim]")
    out.print(f"kappa by fold: {', '.join(f'{kappa:g}' for kappa in kappas)}")

"""`enteron evaluate`: score predicted events against true ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.types import Unit

if TYPE_CHECKING:
    from rich.table import Table

    from enteron.folders.predictions import Predictions
    from enteron.metrics.evaluation import Evaluation
    from enteron.metrics.lesion_evaluation import ShownStudy


def evaluate(
    truth: Annotated[
        Path,
        typer.Argument(
            help="Official JSON, or a folder of Galar labels; for frames a labelled dataset.",
            readable=False,
        ),
    ],
    prediction: Annotated[
        Path,
        typer.Argument(
            help="Official JSON, a reading, a folder of readings, or a reading's events.json; for "
            "frames scores in parquet or CSV, or readings.",
            readable=False,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print every metric as JSON.")] = False,
    unit: Annotated[
        Unit, typer.Option(help="What the events count: frame numbers, or rows of the label file.")
    ] = Unit.FRAME,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            help="Frames per second, for rates per hour (default: the reading's, or none).",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with tables, curves and pictures.", readable=False),
    ] = None,
    studies: Annotated[
        Path | None,
        typer.Option(
            help="The studies' frames or videos, for pictures of missed lesions on the page.",
            readable=False,
        ),
    ] = None,
    only_predicted: Annotated[
        bool,
        typer.Option("--only-predicted", help="Score only the studies that the prediction has."),
    ] = False,
    frames: Annotated[
        bool,
        typer.Option(
            "--frames", help="Evaluate scores of frames, not events, also with Galar's labels."
        ),
    ] = False,
    specificity: Annotated[
        float, typer.Option(help="Specificity at which the sensitivity of frames is given.")
    ] = 0.9,
) -> None:
    """Score predicted events: the official mAP, and what it does not show.

    A lesion is found when a picture that is shown lies in it: the frame that represents an event,
    or one of the most suspicious frames of a reading.
    Where the truth labels single frames (Kvasir-Capsule, WCEBleedGen, a table of your own), scores
    of frames are evaluated: AUC, AP and sensitivity per label, over studies. Example:
    [bold]enteron evaluate truth.json prediction.json[/bold], or
    [bold]enteron evaluate kvasir-capsule readings[/bold]
    """
    from enteron.cli.evaluate_frames import is_frame_truth, report_frames

    if frames or is_frame_truth(truth):
        report_frames(
            truth,
            prediction,
            specificity=specificity,
            only_predicted=only_predicted,
            as_json=as_json,
        )
        return
    from enteron.datasets.submission import read_truth
    from enteron.files import json_text
    from enteron.folders.predictions import read_predictions
    from enteron.metrics.evaluation import EvaluationOptions, summarise
    from enteron.metrics.evaluation import evaluate as compute
    from enteron.metrics.lesion_evaluation import evaluate_lesions, summarise_lesions

    true_events = read_truth(truth, unit)
    predictions = read_predictions(prediction, unit)
    evaluation = compute(
        true_events,
        predictions.annotations,
        EvaluationOptions(rate=rate, only_predicted=only_predicted),
        rates=predictions.rates,
    )
    truth_of = {annotation.study: annotation for annotation in true_events}
    truths = [truth_of[study] for study in evaluation.studies]
    rates = predictions.rates if rate is None else dict.fromkeys(evaluation.studies, rate)
    shown = shown_by(predictions, evaluation.studies, rate)
    lesions = evaluate_lesions(truths, shown, evaluation.bootstrap, rates=rates)
    figures = {**summarise(evaluation), "lesions": summarise_lesions(lesions)}
    if html is not None:
        from enteron.report.evaluation import write_evaluation_page

        pictures_from = {} if studies is None else _study_paths(studies)
        write_evaluation_page(html, evaluation, lesions, predictions.folders, pictures_from)
    if as_json:
        typer.echo(json_text(figures, indent=1))
        return
    print_evaluation(evaluation, figures)
    if html is not None:
        from enteron.cli.console import plain

        typer.echo(f"Open {plain(str(html))} in a browser.")


def _study_paths(root: Path) -> dict[str, Path]:
    """Frames or videos by study."""
    from enteron.reading import studies_under

    found = studies_under(root, keep_names=True)
    return {study.id or study.name: study.path for study in found.studies}


def shown_by(
    predictions: "Predictions", studies: Sequence[str], rate: float | None
) -> "list[ShownStudy]":
    """What predictions show of each study; official files need no packages of the decoder."""
    from enteron.metrics.lesion_evaluation import ShownStudy

    if predictions.folders:
        from enteron.folders.shown import shown_studies

        return shown_studies(predictions, studies, rate)
    annotations = {annotation.study: annotation for annotation in predictions.annotations}
    return [ShownStudy(annotations[study]) for study in studies]


def print_evaluation(evaluation: "Evaluation", figures: dict[str, Any]) -> None:
    """Print all metrics as tables, with what an empty file scores beside the official score."""
    from enteron.cli.console import console

    out = console()
    for warning in evaluation.warnings:
        out.print(f"[yellow]Note:[/yellow] {warning}.\n")
    out.print(_score_table(figures))
    out.print(
        "[dim]A label that a study does not have scores 1 when nothing is predicted for it: this "
        "is why an empty file scores. Intervals: 95 %, over studies.[/dim]\n"
    )
    out.print(_findings_table(figures))
    remedy = "" if evaluation.timed == len(evaluation.studies) else " Set it with --rate."
    out.print(f"{evaluation.rate_note}.{remedy}", style="dim")
    for part in _lesion_tables(figures["lesions"]):
        out.print()
        out.print(part)
    onsets = _onset_table(figures, evaluation.unit_name)
    for table in (onsets, _label_table(figures), _study_table(figures)):
        out.print()
        out.print(table)


def _score_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import table, with_interval
    from enteron.errors import quantity

    counts = figures["counts"]
    scores = table(
        f"Temporal mAP · {quantity(counts['studies'], 'study', 'studies')}, "
        f"{quantity(counts['predicted_events'], 'predicted event')}, "
        f"{quantity(counts['truth_events'], 'true event')}",
        "",
        *(f"at {threshold}" for threshold in figures["map"]),
    )
    rows = (
        ("official", "map", "bold"),
        ("an empty file, on the same truth", "empty", ""),
        ("official minus empty", "map_minus_empty", ""),
        ("labels present in the truth only", "present", ""),
        ("the same, events merged per label", "present_merged", ""),
        ("the truth itself, merged per label", "whole_truth", "dim"),
    )
    for title, name, style in rows:
        cells: list[str] = []
        for threshold in figures["map"]:
            if name == "map_minus_empty":
                value = figures["map"][threshold] - figures["empty"][threshold]
            else:
                value = figures[name][threshold]
            interval = figures["intervals"].get(name, {}).get(threshold)
            cells.append(with_interval(value, interval))
        scores.add_row(title, *cells, style=style)
    return scores


def _findings_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import table, with_interval

    findings = figures["findings"]
    rates = table(
        "Findings, by overlap of events",
        "", "recall", "precision", "false alarms / study", "/ h", "detected", "of", "predicted",
    )  # fmt: skip
    for title, row in (("any overlap", findings), ("tIoU 0.5", findings["tiou_0.5"])):
        names = ("recall", "precision", "false_alarms_per_study", "false_alarms_per_hour")
        cells = [with_interval(row[name], row["intervals"][name]) for name in names]
        rates.add_row(title, *cells, *(str(row[name]) for name in ("found", "truths", "predicted")))
    return rates


def _lesion_tables(figures: dict[str, Any]) -> "list[Table | str]":
    """Lesions found and missed, recall in the first pictures, recall by false events, studies."""
    from enteron.cli.console import NONE, number, table

    def cell(estimate: dict[str, Any] | None, digits: int = 3) -> str:
        if estimate is None or estimate["value"] is None:
            return NONE
        text = number(estimate["value"], digits)
        low_high = estimate["interval"]
        if low_high is None:
            return text
        return f"{text} [{low_high[0]:.{digits}f}, {low_high[1]:.{digits}f}]"

    lesions = table(
        "Lesions: found when the picture of an event lies in them",
        "finding", "lesions", "found", "recall", "events", "false", "false / study", "/ h",
    )  # fmt: skip
    rows = {
        name: row for name, row in figures["findings"].items() if row["lesions"] + row["events"]
    }
    for name, row in {**rows, "all": figures}.items():
        lesions.add_row(
            name,
            f"{row['lesions']:,}",
            f"{row['found']:,}",
            cell(row["recall"]),
            f"{row['events']:,}",
            f"{row['false_events']:,}",
            cell(row["false_per_study"], 1),
            cell(row["false_per_hour"], 2),
            style="bold" if name == "all" else "",
        )
    stills, clips = figures["still_seconds"]["value"], figures["clip_seconds"]["value"]
    parts: list[Table | str] = [
        lesions,
        f"[dim]Runs of a finding at most {figures['gap_seconds']:g} s apart (or "
        f"{figures['gap_frames']} frames, where times are unknown) are one lesion. Events cover "
        f"{100 * (figures['flagged_share']['value'] or 0):.1f} % of a study. To look at them takes "
        f"{(stills or 0) / 60:.1f} min a study as pictures of {figures['seconds_per_still']:g} s, "
        f"or {(clips or 0) / 60:.1f} min as video of {figures['frames_per_second']:g} frames a "
        "second.[/dim]",
    ]
    if figures["top"]:
        top = table("Lesions in the most suspicious pictures", "", *figures["top"])
        top.add_row("recall", *(cell(value) for value in figures["top"].values()))
        parts.append(top)
    if (promised := figures["promised"]) is not None and promised["mean_recall"] is not None:
        parts.append(
            f"In the {promised['pictures_per_study']:.0f} pictures a study that the promised "
            f"recall needs, {promised['mean_recall']:.3f} of a study's lesions are found on "
            "average."
        )
    if figures["froc_points"]:
        points = table(
            "Lesion recall by false events a study, events cut by their confidence",
            "", *(f"at most {point['allowed']:g}" for point in figures["froc_points"]),
        )  # fmt: skip
        points.add_row("recall", *(cell(point["recall"], 2) for point in figures["froc_points"]))
        confidences = [number(point["threshold"], 2) for point in figures["froc_points"]]
        points.add_row("least confidence", *confidences)
        parts.append(points)
    detection = table(
        "Is the finding anywhere in the study?",
        "finding", "studies with", "sensitivity", "studies without", "specificity",
    )  # fmt: skip
    for name, row in figures["detection"].items():
        if name in rows or name not in figures["findings"]:
            detection.add_row(
                name,
                str(row["studies_with"]),
                cell(row["sensitivity"], 2),
                str(row["studies_without"]),
                cell(row["specificity"], 2),
            )
    parts.append(detection)
    return parts


def _onset_table(figures: dict[str, Any], unit_name: str) -> "Table":
    from enteron.cli.console import number, table

    onsets = table(
        f"Region onsets, error in {unit_name}",
        "region",
        "median",
        "90th percentile",
        "compared",
        "missed",
        "invented",
    )
    rows = {**figures["boundaries"]["regions"], "all": figures["boundaries"]}
    for region, row in rows.items():
        onsets.add_row(
            region,
            number(row["median"], 0),
            number(row["p90"], 0),
            *(str(row[name]) for name in ("n", "missed", "invented")),
        )
    return onsets


def _label_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import number, table

    labels = table(
        "Labels (AP at 0.5)",
        "label",
        "official",
        "empty",
        "where present",
        "merged",
        "studies",
        "events",
        "detected",
        "predicted",
        "correct",
    )
    for label, row in figures["labels"].items():
        scores = ("ap", "empty_ap", "present_ap", "present_merged_ap")
        counts = ("studies", "truths", "found", "predicted", "right")
        labels.add_row(
            label,
            *(number(row[name]["0.5"]) for name in scores),
            *(str(row[name]) for name in counts),
        )
    return labels


def _study_table(figures: dict[str, Any]) -> "Table":
    from enteron.cli.console import number, table

    studies = table(
        "Studies (mAP at 0.5)",
        "study",
        "official",
        "empty",
        "present",
        "merged",
        "events",
        "true",
        "findings detected",
        "of",
        "false alarms",
    )
    for study, row in figures["videos"].items():
        findings = row["findings"]
        studies.add_row(
            study,
            *(number(row[name]["0.5"]) for name in ("map", "empty", "present", "present_merged")),
            str(row["predicted_events"]),
            str(row["truth_events"]),
            *(str(findings[name]) for name in ("found", "truths", "false_alarms")),
        )
    return studies

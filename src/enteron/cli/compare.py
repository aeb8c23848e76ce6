"""`enteron compare`: two models, presets or readers, with a truth or with each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enteron.files import json_text
from enteron.types import Annotation, Unit

if TYPE_CHECKING:
    from enteron.folders.predictions import Predictions
    from enteron.metrics.comparison import Difference, Judged


def compare(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="[TRUTH]", help="Annotation to judge both by, if any.", readable=False
        ),
    ],
    second: Annotated[Path, typer.Argument(metavar="A", help="One reader.", readable=False)],
    third: Annotated[
        Path | None, typer.Argument(metavar="B", help="The other.", readable=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    unit: Annotated[
        Unit, typer.Option(help="What the events count: frame numbers, or rows of the label file.")
    ] = Unit.FRAME,
) -> None:
    """Compare two readers: paired differences against a truth, or their agreement without one.

    A and B are readings, folders of readings, official JSON files or folders of labels. With two
    arguments there is no truth: a person may be compared with a person, or with a model.
    Example: [bold]enteron compare truth.json readings-a readings-b[/bold]
    """
    if third is None:
        _agreement(first, second, unit, as_json)
    else:
        _differences(first, second, third, unit, as_json)


# ---- With a truth


def _differences(truth: Path, a: Path, b: Path, unit: Unit, as_json: bool) -> None:
    from enteron.datasets.submission import read_truth
    from enteron.metrics.comparison import compare as compare_judged

    true_events = read_truth(truth, unit)
    sides = [_side(path, unit) for path in (a, b)]
    studies = _common_studies(true_events, *(side.annotations for side in sides))
    truths = [annotation for annotation in true_events if annotation.study in studies]
    differences = compare_judged(*(_judged(truths, side) for side in sides))
    left_out = len(true_events) - len(truths)
    if as_json:
        typer.echo(json_text(_difference_figures(differences, studies, left_out), indent=1))
    else:
        _show_differences(differences, len(studies), left_out)


def _judged(truths: list[Annotation], predictions: "Predictions") -> "Judged":
    from enteron.cli.evaluate import shown_by
    from enteron.metrics.comparison import Judged
    from enteron.metrics.evaluation import evaluate
    from enteron.metrics.lesion_evaluation import evaluate_lesions

    names = [truth.study for truth in truths]
    by_study = {annotation.study: annotation for annotation in predictions.annotations}
    evaluation = evaluate(truths, [by_study[name] for name in names], rates=predictions.rates)
    lesions = evaluate_lesions(
        truths, shown_by(predictions, names, None), evaluation.bootstrap, rates=predictions.rates
    )
    return Judged(evaluation, lesions)


def _difference_figures(
    differences: "Sequence[Difference]", studies: Sequence[str], left_out: int
) -> dict[str, Any]:
    return {
        "studies": list(studies),
        "left_out": left_out,
        "differences": {
            d.name: {
                "a": d.a,
                "b": d.b,
                "difference": d.difference,
                "interval": d.interval,
                "better": d.better or None,
            }
            for d in differences
        },
    }


def _show_differences(differences: "Sequence[Difference]", studies: int, left_out: int) -> None:
    from enteron.cli.console import NONE, console, number, table
    from enteron.errors import quantity

    rows = table(
        f"B against A on {quantity(studies, 'study', 'studies')}, 95 % intervals of the paired "
        "difference over studies",
        "", "A", "B", "B minus A", "interval", "better",
    )  # fmt: skip
    for d in differences:
        digits = 0 if (d.a or 0) > 100 else 3
        gap = NONE if d.difference is None else f"{d.difference:+.{digits}f}"
        spread = NONE
        if d.interval is not None:
            spread = f"{d.interval[0]:+.{digits}f} to {d.interval[1]:+.{digits}f}"
        rows.add_row(
            d.name, number(d.a, digits), number(d.b, digits), gap, spread, d.better or NONE
        )
    out = console()
    out.print(rows)
    out.print(
        "[dim]A dash under 'better': the interval contains 0, so these studies do not tell. With "
        f"{len(differences)} figures, one in twenty intervals misses by chance.[/dim]"
    )
    if left_out:
        out.print(
            f"[yellow]Note:[/yellow] {quantity(left_out, 'study', 'studies')} of the truth "
            "that A or B lack are left out."
        )


# ---- Without a truth


def _agreement(a: Path, b: Path, unit: Unit, as_json: bool) -> None:
    from enteron.metrics.comparison import agree, summarise_agreement

    sides = [_side(path, unit).annotations for path in (a, b)]
    studies = _common_studies(*sides)
    of_a, of_b = ({x.study: x for x in side} for side in sides)
    figures = summarise_agreement(agree([of_a[s] for s in studies], [of_b[s] for s in studies]))
    left_out = len(of_a.keys() ^ of_b.keys())
    if as_json:
        typer.echo(json_text({**figures, "left_out": left_out}, indent=1))
    else:
        _show_agreement(figures, left_out)


def _show_agreement(figures: dict[str, Any], left_out: int) -> None:
    from enteron.cli.console import console, number, table, with_interval
    from enteron.errors import quantity

    studies = quantity(len(figures["studies"]), "study", "studies")
    lesions = table(
        f"Lesions of both readers, {studies}",
        "finding", "of A", "also B's", "of B", "also A's", "share that both have",
    )  # fmt: skip
    for name, row in figures["lesions"].items():
        counts = (row["a"], row["shared_a"], row["b"], row["shared_b"])
        lesions.add_row(
            name,
            *(f"{count:,}" for count in counts),
            with_interval(row["agreement"], row["interval"]),
            style="bold" if name == "all" else "",
        )
    word = "rows" if figures["unit"] == "index" else "frames"
    kappas = table(f"Agreement on {word} (Cohen's kappa)", "label", "of A", "of B", "kappa")
    for label, row in {**figures["kappa"], "the region": figures["regions"]}.items():
        kappas.add_row(
            label,
            f"{row['frames_a']:,}",
            f"{row['frames_b']:,}",
            with_interval(row["kappa"], row["interval"]),
            style="bold" if label == "the region" else "",
        )
    borders = table(
        f"Where regions begin: difference in {word}",
        "region", "median", "90th percentile", "compared", "only A", "only B",
    )  # fmt: skip
    for region, row in figures["borders"].items():
        counts = (str(row[name]) for name in ("n", "only_a", "only_b"))
        borders.add_row(region, number(row["median"], 0), number(row["p90"], 0), *counts)
    out = console()
    for part in (lesions, kappas, borders):
        out.print(part)
        out.print()
    out.print(
        "[dim]Kappa is 1 for readers who always agree and 0 for agreement by chance. Intervals: "
        "95 %, over studies.[/dim]"
    )
    if left_out:
        out.print(
            f"[yellow]Note:[/yellow] {quantity(left_out, 'study', 'studies')} that only one "
            "of them has are left out."
        )


# ---- Both


def _side(path: Path, unit: Unit) -> "Predictions":
    """Events of a reader: a reading, a folder of readings, an official file, or labels."""
    from enteron.datasets.submission import read_truth
    from enteron.folders.predictions import Predictions, holds_readings, read_predictions

    if path.is_dir() and not holds_readings(path):
        return Predictions(read_truth(path, unit))
    return read_predictions(path, unit)


def _common_studies(*sides: Sequence[Annotation]) -> list[str]:
    """Studies that every side has, in the order of the first."""
    from enteron.errors import SubmissionError

    names = [{annotation.study for annotation in side} for side in sides]
    common = [a.study for a in sides[0] if all(a.study in other for other in names)]
    if not common:
        raise SubmissionError(
            "no study is in all of the files", "give readings of the same studies, by the same ids"
        )
    return common

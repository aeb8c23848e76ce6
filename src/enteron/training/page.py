"""What a person looks at: `training.html`, a page that needs no other file, and TensorBoard."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Reliability
from enteron.labels import COLOURS, LABELS, REGIONS
from enteron.training.loop import Step, TrainingListener
from enteron.training.results import CalibratedResults, EpochRecord, History, Validation

_COLUMNS = ("ap", "auc", "f1", "precision", "recall")


@dataclass(frozen=True)
class TrainingReport:
    """What the page shows."""

    facts: dict[str, str]
    history: History
    results: CalibratedResults
    prototypes: NDArray[np.float32] | None  # (17, 512)
    counts: NDArray[np.int64]  # (17,) training frames that show each label
    oversampling: NDArray[np.float64]  # (17,) as `sampling.oversampling` defines it
    split: str  # hash
    source_facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each of several sources: training studies, training frames, share of the draws,
    validation studies, validation frames."""


def training_page(report: TrainingReport) -> str:
    """`training.html` as text."""
    from jinja2 import Environment
    from markupsafe import Markup

    template = (files("enteron") / "training" / "training.html.j2").read_text(encoding="utf-8")
    history, results = report.history, report.results
    paper, likelihood = results.calibration.paper, results.calibration.likelihood
    assert paper.before is not None
    assert likelihood.after is not None
    prototypes = report.prototypes
    values: dict[str, Any] = {
        "facts": report.facts.items(),
        "epochs": [
            {"best": record == history.best, "cells": epoch_cells(record)}
            for record in history.epochs
        ],
        "labels": [
            {"label": label, "colour": COLOURS[label], "cells": label_cells(report, column)}
            for column, label in enumerate(LABELS)
        ],
        "means": mean_rows(results),
        "unknown": bool(results.metrics.unknown.any()),
        "sources": source_rows(report),
        "paper_temperature": f"{paper.temperature:g}",
        "likelihood_temperature": f"{likelihood.temperature:.2f}",
        "version": version("enteron"),
        "split": report.split,
        # Our own figures are inserted as markup; everything else is escaped.
        "curves": Markup(epoch_curves(history)),
        "reliability": Markup(reliability_diagram(paper.before, likelihood.after)),
        "confusion": Markup(confusion_matrix(results.confusion)),
        "cosines": None if prototypes is None else Markup(cosine_matrix(prototypes)),
    }
    return Environment(autoescape=True).from_string(template).render(values)


def epoch_cells(record: EpochRecord) -> list[str]:
    """A row of the paper's Table 3, with four more columns."""
    metrics = record.figures
    numbers = (
        record.train_loss,
        record.val_loss,
        record.val_classification,
        metrics.macro_ap,
        metrics.macro_ap_present,
        metrics.macro_f1,
        metrics.findings_ap,
        metrics.region_accuracy,
    )
    return [str(record.epoch), *("-" if n is None else f"{n:.4f}" for n in numbers)]


def label_cells(report: TrainingReport, column: int) -> list[str]:
    """A row of the paper's Table 2, with the label's training frames and oversampling."""
    metrics, factor = report.results.metrics, report.oversampling[column]
    unknown = [f"{metrics.unknown[column]:,}"] if metrics.unknown.any() else []
    return [
        *(_number(getattr(metrics, name)[column]) for name in _COLUMNS),
        f"{metrics.support[column]:,}",
        *unknown,
        f"{report.counts[column]:,}",
        "-" if math.isnan(factor) else f"{factor:.1f} times",
    ]


def mean_rows(results: CalibratedResults) -> list[list[str]]:
    """Macro means by both conventions for labels without positives (decision 31)."""
    metrics = results.metrics
    empty_cells = [""] * (4 if metrics.unknown.any() else 3)
    return [
        ["Mean of all 17", *(_number(metrics.macro(n, "zero")) for n in _COLUMNS), *empty_cells],
        [
            "Mean of those with frames",
            *(_number(metrics.macro(n, "left out")) for n in _COLUMNS),
            *empty_cells,
        ],
    ]


def source_rows(report: TrainingReport) -> list[list[str]]:
    """A row per source with its metrics in the best epoch; none for a single source."""
    best = report.history.best
    assert best is not None
    return [
        [
            source,
            *report.source_facts.get(source, ("-",) * 5),
            f"{metrics.macro_ap_present:.3f}",
            f"{metrics.findings_ap:.3f}",
            "-" if metrics.region_accuracy is None else f"{metrics.region_accuracy:.3f}",
        ]
        for source, metrics in best.sources.items()
    ]


def _number(value: float) -> str:
    """Three digits, or a dash where the value is undefined."""
    return "-" if math.isnan(value) else f"{value:.3f}"


_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays selectable
    "svg.hashsalt": "enteron",  # the same figure has the same bytes
}
BLUE, ORANGE, GREY = "#3a6fd8", "#e07b00", "#9a9a9a"


def epoch_curves(history: History) -> str:
    """Losses and validation metrics by epoch, with the best epoch marked."""
    epochs = [record.epoch for record in history.epochs]
    best = history.best
    assert best is not None
    with _figure(7.6, 2.7, 2) as (figure, axes):
        lines = (
            ("training", [r.train_loss for r in history.epochs], GREY),
            ("validation", [r.val_loss for r in history.epochs], BLUE),
        )
        _lines(axes[0], epochs, lines, "loss")
        lines = (
            ("mAP", [r.figures.macro_ap for r in history.epochs], BLUE),
            ("mAP, present labels", [r.figures.macro_ap_present for r in history.epochs], GREY),
            ("mean F1", [r.figures.macro_f1 for r in history.epochs], ORANGE),
        )
        _lines(axes[1], epochs, lines, "validation")
        axes[1].set_ylim(0, 1)
        for axis in axes:
            axis.axvline(best.epoch, color="#bbbbbb", linewidth=1, linestyle=":", zorder=0)
            axis.xaxis.get_major_locator().set_params(integer=True)
        return _svg(figure)


def reliability_diagram(before: Reliability, after: Reliability) -> str:
    """Share of frames that show the label against the score, before and after calibration."""
    with _figure(3.4, 3.2, 1) as (figure, axes):
        axis = axes[0]
        axis.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1, linestyle=":")
        for name, reliability, colour in (
            ("as trained", before, GREY),
            ("calibrated", after, BLUE),
        ):
            bins = [b for b in reliability.bins if b.count]
            axis.plot(
                [b.score for b in bins],
                [b.share for b in bins],
                color=colour,
                marker="o",
                markersize=3,
                linewidth=1,
                label=f"{name}, error {reliability.ece:.3f}",
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="score", ylabel="share with the label")
        axis.legend(loc="upper left")
        return _svg(figure)


def cosine_matrix(prototypes: NDArray[np.float32]) -> str:
    """Cosines between the prototypes (17, 512)."""
    unit = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    cosines = unit @ unit.T
    with _figure(5.4, 4.6, 1) as (figure, axes):
        axis = axes[0]
        image = axis.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1)
        ticks = range(len(LABELS))
        axis.set_xticks(ticks, LABELS, rotation=90, fontsize=7)
        axis.set_yticks(ticks, LABELS, fontsize=7)
        _colour_labels(axis)
        axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axis, shrink=0.7).outline.set_visible(False)
        return _svg(figure)


def confusion_matrix(confusion: NDArray[np.int64]) -> str:
    """Frames (5, 5) by true and most probable region, as shares of each true region."""
    total = confusion.sum(axis=1, keepdims=True)
    shares = confusion / np.maximum(total, 1)
    with _figure(4.2, 3.4, 1) as (figure, axes):
        axis = axes[0]
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        names = [f"{region} ({int(n):,})" for region, n in zip(REGIONS, total[:, 0], strict=True)]
        axis.set_xticks(range(len(REGIONS)), REGIONS, rotation=45, ha="right", fontsize=8)
        axis.set_yticks(range(len(REGIONS)), names, fontsize=8)
        axis.set(xlabel="most probable region", ylabel="true region (frames)")
        for (row, column), share in np.ndenumerate(shares):
            if confusion[row, column]:
                axis.text(
                    column,
                    row,
                    f"{100 * share:.0f} %" if share >= 0.005 else "< 1 %",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if share > 0.5 else "#333333",
                )
        axis.spines[:].set_visible(False)
        return _svg(figure)


def _lines(
    axis: Any, epochs: list[int], lines: tuple[tuple[str, list[float], str], ...], title: str
) -> None:
    for name, values, colour in lines:
        axis.plot(epochs, values, color=colour, marker="o", markersize=3, linewidth=1.4, label=name)
    axis.set(xlabel="epoch", title=title)
    axis.legend(fontsize=8)


def _colour_labels(axis: Any) -> None:
    for text in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        text.set_color(COLOURS[text.get_text()] if text.get_text() in LABELS else "#333333")


@contextmanager
def _figure(width: float, height: float, columns: int) -> Iterator[tuple[Any, Any]]:
    """A figure that needs no display and leaves matplotlib's settings unchanged."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(1, columns, squeeze=False)[0]


def _svg(figure: Any) -> str:
    """The figure as an <svg> element."""
    content = io.StringIO()
    figure.savefig(
        content, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    text = content.getvalue()
    return text[text.index("<svg") :]


class TensorBoardWriter(TrainingListener):
    """Writes event files for `tensorboard --logdir`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_start(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._steps = steps
        # Steps after the last checkpoint will run again: discard what a killed run wrote of them.
        self._writer = SummaryWriter(str(self._folder), purge_step=epoch * steps + step)

    def on_step(self, step: Step) -> None:
        for name, value in step.losses.items():
            self._writer.add_scalar(f"loss/{name}", value, step.overall)
        self._writer.add_scalar("step/learning rate", step.rate, step.overall)
        self._writer.add_scalar("step/gradient norm", step.norm, step.overall)

    def on_epoch_end(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        at = record.epoch * self._steps - 1
        self._writer.add_scalar("epoch/train loss", record.train_loss, at)
        self._writer.add_scalar("epoch/validation loss", record.val_loss, at)
        for name, value in record.figures.model_dump(exclude_none=True).items():
            self._writer.add_scalar(f"validation/{name.replace('_', ' ')}", value, at)
        for column, label in enumerate(LABELS):
            known = validation.truth.known[:, column]
            truth = validation.truth.present[known, column]
            if truth.any():
                scores = validation.scores[known, column]
                self._writer.add_pr_curve(f"precision-recall/{label}", truth, scores, at)
        self._writer.flush()

"""`training.html`: what a person sees of a training, in one file that needs nothing else."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron import __version__
from enteron.calibration.calibration import Calibration, Reliability, calibrated
from enteron.fitting.frames import fit_calibration
from enteron.fitting.labelled import LabelledStudy
from enteron.labels import COLOURS, LABELS, REGIONS
from enteron.metrics.frames import FrameMetrics, frame_metrics
from enteron.training.checkpoint import EpochRecord, History
from enteron.training.loop import Step, Validation
from enteron.training.sampling import Samples
from enteron.types import FrameAxis, Scores

_NEVER = 2.0  # a threshold that no probability reaches


@dataclass(frozen=True)
class Judgement:
    """Of the best epoch's averaged weights."""

    metrics: FrameMetrics  # calibrated, at each label's own threshold (the paper's Table 2)
    calibration: Calibration
    confusion: NDArray[np.int64]  # (5, 5) frames by true region and most probable region


def judgement(samples: Samples, validation: Validation) -> Judgement:
    """Calibrate on the validation studies, as the paper does, and compare with their labels."""
    studies = _studies(samples, validation)
    calibration = fit_calibration(studies)
    scores = np.concatenate([calibrated(study.scores, calibration.paper) for study in studies])
    truth = np.concatenate([study.truth for study in studies])
    chosen = (calibration.paper.thresholds[label] for label in LABELS)
    thresholds = np.array([_NEVER if t is None else t for t in chosen], dtype=np.float32)
    return Judgement(
        frame_metrics(truth, scores, thresholds), calibration, confusion(truth, scores)
    )


def confusion(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """(5, 5) frames by true region (rows) and most probable region; frames with one region."""
    count = len(REGIONS)
    clear = truth[:, :count].sum(axis=1) == 1
    true = truth[clear, :count].argmax(axis=1)
    said = scores[clear, :count].argmax(axis=1)
    return np.bincount(true * count + said, minlength=count**2).reshape(count, count)


def _studies(samples: Samples, validation: Validation) -> list[LabelledStudy]:
    """The validation as scores of studies."""
    made: list[LabelledStudy] = []
    place = samples.study[validation.samples]
    for number in np.unique(place):
        mine = place == number
        study = samples.studies[number]
        frames = study.stored[samples.row[validation.samples[mine]]]
        scores = Scores(study.study, FrameAxis(frames), validation.scores[mine])
        made.append(LabelledStudy(scores, validation.truth[mine]))
    return made


_QUIET: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "enteron",  # the same picture has the same bytes
}
BLUE, ORANGE, GREY = "#3a6fd8", "#e07b00", "#9a9a9a"


def curves(history: History) -> str:
    """Losses and figures by epoch, the best epoch marked."""
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
            ("macro F1", [r.figures.macro_f1 for r in history.epochs], ORANGE),
        )
        _lines(axes[1], epochs, lines, "validation")
        axes[1].set_ylim(0, 1)
        for axis in axes:
            axis.axvline(best.epoch, color="#bbbbbb", linewidth=1, linestyle=":", zorder=0)
            axis.xaxis.get_major_locator().set_params(integer=True)
        return _svg(figure)


def reliability_panel(before: Reliability, after: Reliability) -> str:
    """Share of true frames against the score, before and after calibration."""
    with _figure(3.4, 3.2, 1) as (figure, axes):
        axis = axes[0]
        axis.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1, linestyle=":")
        for name, found, colour in (("as trained", before, GREY), ("calibrated", after, BLUE)):
            bins = [b for b in found.bins if b.count]
            axis.plot(
                [b.score for b in bins],
                [b.share for b in bins],
                color=colour,
                marker="o",
                markersize=3,
                linewidth=1,
                label=f"{name}, error {found.ece:.3f}",
            )
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="score", ylabel="share that is true")
        axis.legend(loc="upper left")
        return _svg(figure)


def cosines_panel(prototypes: NDArray[np.float32]) -> str:
    """Cosines of the prototypes (17, 512) with each other."""
    unit = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    cosines = unit @ unit.T
    with _figure(5.4, 4.6, 1) as (figure, axes):
        axis = axes[0]
        image = axis.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1)
        places = range(len(LABELS))
        axis.set_xticks(places, LABELS, rotation=90, fontsize=7)
        axis.set_yticks(places, LABELS, fontsize=7)
        _colour_labels(axis)
        axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axis, shrink=0.7).outline.set_visible(False)
        return _svg(figure)


def confusion_panel(confusion: NDArray[np.int64]) -> str:
    """Frames by true and most probable region, as shares of each true region."""
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
    """A figure that needs no display and leaves nothing behind."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_QUIET):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(1, columns, squeeze=False)[0]


def _svg(figure: Any) -> str:
    """The figure as an element of a page."""
    content = io.StringIO()
    figure.savefig(
        content, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    text = content.getvalue()
    return text[text.index("<svg") :]


_COLUMNS = ("ap", "auc", "f1", "precision", "recall")


@dataclass(frozen=True)
class Lesson:
    """What the page tells."""

    facts: dict[str, str]
    history: History
    judgement: Judgement
    prototypes: NDArray[np.float32] | None  # (17, 512)
    counts: NDArray[np.int64]  # (17,) training frames that show each label
    oversampling: NDArray[np.float64]  # (17,)
    split: str


def page(lesson: Lesson) -> str:
    """The page as text."""
    from jinja2 import Environment
    from markupsafe import Markup

    template = (files("enteron") / "training" / "training.html.j2").read_text(encoding="utf-8")
    found, paper = lesson.judgement, lesson.judgement.calibration.paper
    before, after = paper.before, found.calibration.likelihood.after
    assert before is not None
    assert after is not None
    values: dict[str, Any] = {
        "facts": lesson.facts.items(),
        "epochs": [
            {"best": record == lesson.history.best, "cells": epoch_cells(record)}
            for record in lesson.history.epochs
        ],
        "labels": [
            {"label": label, "colour": COLOURS[label], "cells": label_cells(lesson, column)}
            for column, label in enumerate(LABELS)
        ],
        "means": mean_rows(found),
        "temperature": f"{paper.temperature:g}",
        "version": __version__,
        "split": lesson.split,
        # Pictures are our own markup; everything else is escaped.
        "curves": Markup(curves(lesson.history)),
        "reliability": Markup(reliability_panel(before, after)),
        "confusion": Markup(confusion_panel(found.confusion)),
        "cosines": None if lesson.prototypes is None else Markup(cosines_panel(lesson.prototypes)),
    }
    return Environment(autoescape=True).from_string(template).render(values)


def epoch_cells(record: EpochRecord) -> list[str]:
    """A row of the paper's Table 3, and three columns more."""
    figures = record.figures
    numbers = (
        record.train_loss,
        record.val_loss,
        figures.macro_ap,
        figures.macro_ap_present,
        figures.macro_f1,
        figures.findings_ap,
        figures.region_accuracy,
    )
    return [str(record.epoch), *(f"{number:.4f}" for number in numbers)]


def label_cells(lesson: Lesson, column: int) -> list[str]:
    """A row of the paper's Table 2, and what the label was trained on."""
    found = lesson.judgement.metrics
    return [
        *(shown(getattr(found, name)[column]) for name in _COLUMNS),
        f"{found.support[column]:,}",
        f"{lesson.counts[column]:,}",
        "-" if math.isnan(lesson.oversampling[column]) else f"{lesson.oversampling[column]:.1f} x",
    ]


def mean_rows(judgement: Judgement) -> list[list[str]]:
    """Macro means by both conventions for labels without positives (decision 31)."""
    found = judgement.metrics
    return [
        ["Macro avg.", *(shown(found.macro(n, "zero")) for n in _COLUMNS), "", "", ""],
        ["present labels", *(shown(found.macro(n, "left out")) for n in _COLUMNS), "", "", ""],
    ]


def shown(value: float) -> str:
    """A figure, or a dash where it is not defined."""
    return "-" if math.isnan(value) else f"{value:.3f}"


class Board:
    """Writes event files that `tensorboard --logdir` shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._steps = steps
        # What a killed run wrote after its last checkpoint will be written again.
        self._writer = SummaryWriter(str(self._folder), purge_step=epoch * steps + step)

    def stepped(self, step: Step) -> None:
        at = step.overall
        for name, value in step.losses.items():
            self._writer.add_scalar(f"loss/{name}", value, at)
        self._writer.add_scalar("step/learning rate", step.rate, at)
        self._writer.add_scalar("step/gradient norm", step.norm, at)

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        at = record.epoch * self._steps - 1
        self._writer.add_scalar("epoch/train loss", record.train_loss, at)
        self._writer.add_scalar("epoch/validation loss", record.val_loss, at)
        for name, value in record.figures.model_dump().items():
            self._writer.add_scalar(f"validation/{name.replace('_', ' ')}", value, at)
        for column, label in enumerate(LABELS):
            truth = validation.truth[:, column]
            if truth.any():
                scores = validation.scores[:, column]
                self._writer.add_pr_curve(f"precision-recall/{label}", truth, scores, at)
        self._writer.flush()

"""`training.html`: what a person sees of a training, in one file that needs nothing else."""

import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron import __version__
from enteron.labels import COLOURS, LABELS
from enteron.teaching.judgement import Judgement
from enteron.teaching.panels import confusion_panel, cosines_panel, curves, reliability_panel
from enteron.training.history import EpochRecord, History

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

    template = (files("enteron") / "teaching" / "training.html.j2").read_text(encoding="utf-8")
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

"""Pictures of a training, as SVG that a page can hold."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.value import Reliability
from enteron.labels import COLOURS, LABELS, REGIONS
from enteron.training.history import History

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

"""A fleet in figures: for the terminal and for the page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from enteron.errors import quantity
from enteron.fleet.catalogue import COLUMN_NAMES, Catalogue
from enteron.labels import COLUMN, FINDINGS

if TYPE_CHECKING:
    import polars as pl

STATES: Final = ("finished", "unfinished", "failed", "quarantined", "damaged")
CONFIDENT: Final = 0.8  # a finding of this confidence is counted apart
_BINS: Final = 24


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram."""

    low: float
    high: float
    count: int
    share: float  # of the highest bar


@dataclass(frozen=True)
class Histogram:
    """A distribution over studies."""

    title: str
    unit: str  # 'hours' or 'frames'
    studies: int
    median: float
    quartiles: tuple[float, float]
    bars: tuple[Bar, ...]
    beyond: int = 0  # studies above the last bar


@dataclass(frozen=True)
class FindingCount:
    """How often a finding occurs."""

    label: str
    studies: int  # with at least one event
    confident: int  # of these, with an event of at least CONFIDENT
    events: int
    share: float  # of the finished studies

    @property
    def column(self) -> int:
        """Column of the label, which selects the colour."""
        return COLUMN[self.label]


@dataclass(frozen=True)
class StoppedStudy:
    """A study that is not finished."""

    study: str
    state: str
    reason: str
    attempts: int | None


@dataclass(frozen=True)
class FleetFigures:
    """Everything that is counted."""

    states: dict[str, int]
    frames: int
    unreadable: int
    seconds: float  # of reading, over all studies
    complete: int  # studies in which the colon was recognised
    cut_off: int
    transit: tuple[Histogram, ...]
    findings: tuple[FindingCount, ...]
    stopped: tuple[StoppedStudy, ...]
    months: tuple[tuple[str, int], ...]
    devices: tuple[tuple[str, int], ...]
    models: int  # different ones

    @property
    def finished(self) -> int:
        """Studies that were read to the end."""
        return self.states.get("finished", 0)

    def sentences(self) -> list[str]:
        """What a person asks first."""
        if not self.finished:
            return ["No study is finished yet."]
        lines = [
            f"{self.frames:,} frames, {self.unreadable:,} of them unreadable; "
            f"{self.seconds / 3600:.1f} hours of reading.",
            f"Colon recognised in {self.complete:,} of "
            f"{quantity(self.finished, 'finished study', 'finished studies')}.",
        ]
        for histogram in self.transit:
            low, high = histogram.quartiles
            lines.append(
                f"{histogram.title}: median {histogram.median:,.1f} {histogram.unit} "
                f"({low:,.1f} to {high:,.1f}) in {quantity(histogram.studies, 'study', 'studies')}."
            )
        if self.models > 1:
            lines.append(f"The readings are of {self.models} different models.")
        return lines

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "states": self.states,
            "frames": self.frames,
            "unreadable": self.unreadable,
            "seconds": round(self.seconds, 1),
            "complete": self.complete,
            "findings": {count.label: count.studies for count in self.findings},
            "not_read": [
                {"study": row.study, "state": row.state, "reason": row.reason}
                for row in self.stopped
            ],
        }


def fleet_figures(catalogue: Catalogue) -> FleetFigures:
    """Count."""
    studies = catalogue.studies
    finished = studies.filter(studies["state"] == "finished")
    counted = catalogue.counts()
    stopped = studies.filter(studies["state"] != "finished").sort("state", "study")
    return FleetFigures(
        states={state: counted[state] for state in STATES if state in counted},
        frames=int(finished["frames"].sum() or 0),
        unreadable=int(finished["unreadable"].sum() or 0),
        seconds=float(finished["seconds"].sum() or 0.0),
        complete=int(finished["complete"].sum() or 0),
        cut_off=int(finished["cut_off"].sum() or 0),
        transit=tuple(
            histogram
            for name, title in (
                ("gastric", "Gastric transit"),
                ("small_bowel", "Small-bowel transit"),
            )
            if (histogram := _transit(finished, name, title)) is not None
        ),
        findings=_findings(finished),
        stopped=tuple(
            StoppedStudy(*row)
            for row in stopped.select("study", "state", "reason", "attempts").iter_rows()
        ),
        months=_counts(finished, "month"),
        devices=_counts(finished, "device"),
        models=finished["model"].n_unique() if finished.height else 0,
    )


def _counts(finished: "pl.DataFrame", column: str) -> tuple[tuple[str, int], ...]:
    counted = finished.group_by(column).len().sort(column)
    return tuple((value or "unknown", count) for value, count in counted.iter_rows())


def _findings(finished: "pl.DataFrame") -> tuple[FindingCount, ...]:
    counts: list[FindingCount] = []
    for label in FINDINGS:
        name = COLUMN_NAMES[label]
        events = finished[f"{name}_events"]
        studies = int((events > 0).sum())
        counts.append(
            FindingCount(
                label,
                studies,
                int((finished[name] >= CONFIDENT).sum() or 0),
                int(events.sum() or 0),
                studies / max(1, finished.height),
            )
        )
    return tuple(sorted(counts, key=lambda count: -count.studies))


def _transit(finished: "pl.DataFrame", name: str, title: str) -> Histogram | None:
    """A transit time in hours; in frames where no study has a known rate."""
    minutes = finished[f"{name}_minutes"].drop_nulls()
    if minutes.len():
        return histogram(title, "hours", minutes.to_numpy() / 60)
    frames = finished[f"{name}_frames"].drop_nulls()
    return histogram(title, "frames", frames.to_numpy()) if frames.len() else None


def histogram(title: str, unit: str, values: "np.ndarray[Any, Any]") -> Histogram:
    """A histogram up to the 99th percentile; what lies beyond is counted."""
    top = float(np.quantile(values, 0.99)) or 1.0
    width = _nice(top / _BINS)
    edges = np.arange(0, top + 1.0001 * width, width)
    counts, _ = np.histogram(values[values <= edges[-1]], edges)
    most = max(1, int(counts.max()))
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    bars = tuple(
        Bar(float(a), float(b), int(count), count / most)
        for a, b, count in zip(edges, edges[1:], counts, strict=False)
    )
    beyond = int((values > edges[-1]).sum())
    return Histogram(title, unit, len(values), middle, (low, high), bars, beyond)


def _nice(width: float) -> float:
    """The next of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(width)) if width > 0 else 1.0
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= width))

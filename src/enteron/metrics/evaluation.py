"""Evaluation of predicted events against true ones: every event metric that the project reports.

`evaluate` compares the annotations of the same studies and returns an `Evaluation`, which prints as
a table. `summarise` turns it into the dictionary that `enteron evaluate --json` prints.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.submission import require_known_studies, require_same_studies
from enteron.errors import SubmissionError, UnitError, quantity
from enteron.labels import LABELS, LANDMARKS, REGIONS
from enteron.metrics.honest import (
    IS_FINDING,
    Borders,
    Detection,
    detect_by_overlap,
    detect_by_tiou,
    region_borders,
)
from enteron.metrics.intervals import Interval
from enteron.metrics.official import TemporalScore, flatten, merge_touching, temporal_scores
from enteron.options import Options
from enteron.types import Annotation, Unit

if TYPE_CHECKING:
    import polars as pl

RateSource = Literal["option", "reading"]


class EvaluationOptions(Options):
    """How to evaluate."""

    rate: float | None = None
    """Frames (or rows) per second, in the unit of the events. None: the reading's, where it states
    one; without either there are no hours, and false alarms are counted per study."""

    resamples: int = 2000
    """Bootstrap resamples of the set of studies."""

    seed: int = 0
    """Seed of the resamples."""

    only_predicted: bool = False
    """Score only the studies that the prediction has; by default both sides must have the same."""


class StudyBootstrap:
    """Bootstrap over studies. All metrics share the resamples, so that differences are paired."""

    def __init__(
        self, studies: int, resamples: int = 2000, level: float = 0.95, seed: int = 0
    ) -> None:
        self.studies = studies
        self.resamples = resamples
        self.level = level
        self._drawn = np.random.default_rng(seed).integers(studies, size=(resamples, studies))

    def mean(self, values: NDArray[np.floating]) -> Interval | None:
        """Interval of the mean of (studies,) values; studies where it is NaN are left out."""
        defined = ~np.isnan(values)
        return self.ratio(np.where(defined, values, 0.0), defined)

    def interval(
        self, statistic: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    ) -> Interval | None:
        """Interval of any statistic; None for a single study, or where it is never defined.

        `statistic` takes (resamples, studies) how often each study was drawn, and returns
        (resamples,) values, NaN where it is not defined.
        """
        if self.studies < 2:
            return None
        times_drawn = np.stack([np.bincount(row, minlength=self.studies) for row in self._drawn])
        values = statistic(times_drawn)
        return self._quantiles(values)

    def ratio(
        self, numerator: NDArray[np.generic], denominator: NDArray[np.generic]
    ) -> Interval | None:
        """Interval of sum(numerator) / sum(denominator) over studies; None for a single study."""
        if self.studies < 2:
            return None
        denominators = denominator[self._drawn].sum(axis=1, dtype=np.float64)
        numerators = numerator[self._drawn].sum(axis=1, dtype=np.float64)
        return self._quantiles(
            np.where(denominators > 0, numerators / np.maximum(denominators, 1e-300), np.nan)
        )

    def ratio_difference(
        self,
        numerator_a: NDArray[np.generic],
        denominator_a: NDArray[np.generic],
        numerator_b: NDArray[np.generic],
        denominator_b: NDArray[np.generic],
    ) -> Interval | None:
        """Interval of B's ratio minus A's, both on the same resampled studies."""
        table = np.column_stack([numerator_a, denominator_a, numerator_b, denominator_b])

        def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
            top_a, bottom_a, top_b, bottom_b = np.moveaxis(sums, -1, 0)
            defined = (bottom_a > 0) & (bottom_b > 0)
            gap = top_b / np.where(defined, bottom_b, 1) - top_a / np.where(defined, bottom_a, 1)
            return np.where(defined, gap, np.nan)

        return self.statistic(table.astype(np.float64), difference)

    def statistic(
        self,
        table: NDArray[np.float64],
        function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> Interval | None:
        """Interval of a function of sums over studies; `table` is (studies, columns)."""
        if self.studies < 2:
            return None
        return self._quantiles(function(table[self._drawn].sum(axis=1)))

    def _quantiles(self, values: NDArray[np.float64]) -> Interval | None:
        """The interval of resampled values, where they are defined."""
        defined = values[~np.isnan(values)]
        if defined.size == 0:
            return None
        tail = (1 - self.level) / 2
        low, high = np.quantile(defined, (tail, 1 - tail))
        return float(low), float(high)


# ---- The result


@dataclass(frozen=True)
class DetectionFigures:
    """Events detected and false alarms; rates are None where they are not defined."""

    true_events: int
    detected: int  # true events that a prediction matches
    predicted: int
    correct: int  # predicted events that match a true one
    recall: float | None
    precision: float | None
    false_alarms_per_study: float
    false_alarms_per_hour: float | None  # over the studies of known recording time

    @property
    def false_alarms(self) -> int:
        return self.predicted - self.correct


@dataclass(frozen=True)
class OnsetFigures:
    """Absolute errors of region onsets, in the unit of the events; None where none is defined."""

    median: float | None
    p90: float | None  # 90th percentile
    compared: int  # onsets that both sides have
    missed: int  # regions that only the truth has
    invented: int  # regions that only the prediction has


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """Metrics of predicted events. Printing it shows the most important ones.

        evaluation.map[0.5], evaluation.empty_map[0.5]      # scores by tIoU threshold
        evaluation.findings.recall                          # of the nine findings, any overlap
        evaluation.table()                                  # a row per label

    Scores are kept per study and label in `official` and its companions.
    """

    studies: tuple[str, ...]
    unit: str
    official: list[TemporalScore]  # one per threshold, as in the next three lists
    empty: list[TemporalScore]  # an empty file on the same truth
    merged: list[TemporalScore]  # events merged per label on both sides, instead of cut
    whole_truth: list[TemporalScore]  # the merged truth as a prediction: the ceiling without cuts
    overlap: Detection  # by any overlap
    tiou: Detection  # one to one, at a tIoU of 0.5
    borders: Borders
    rates: NDArray[np.float64]  # (studies,) frames (or rows) per second; NaN: unknown
    lengths: NDArray[np.float64]  # (studies,) frames (or rows) that the truth spans
    rate_source: RateSource | None  # None: no study's rate is known
    truth_events: NDArray[np.int64]  # (studies,) events as the files list them
    predicted_events: NDArray[np.int64]
    bootstrap: StudyBootstrap
    warnings: tuple[str, ...] = field(default=())

    @property
    def map(self) -> dict[float, float]:
        """The official temporal mAP by tIoU threshold."""
        return {score.threshold: score.map for score in self.official}

    @property
    def empty_map(self) -> dict[float, float]:
        """The official score of an empty file on the same truth, by threshold."""
        return {score.threshold: score.map for score in self.empty}

    @property
    def present_map(self) -> dict[float, float]:
        """The mAP over the labels that a study's truth has, by threshold; NaN if none has any."""
        return {score.threshold: score.present_map for score in self.official}

    @property
    def present_merged_map(self) -> dict[float, float]:
        """`present_map` with touching events of a label merged on both sides."""
        return {score.threshold: score.present_map for score in self.merged}

    @property
    def whole_truth_map(self) -> dict[float, float]:
        """The official score of the truth itself with its events merged per label."""
        return {score.threshold: score.map for score in self.whole_truth}

    @property
    def findings(self) -> DetectionFigures:
        """The nine findings, detected by any overlap."""
        return _detection_figures(self.overlap, self.hours)

    @property
    def hours(self) -> NDArray[np.float64]:
        """(studies,) recording time of the truth; NaN where the frame rate is unknown."""
        return self.lengths / self.rates / 3600

    @property
    def findings_tiou(self) -> DetectionFigures:
        """The nine findings, detected one to one with a tIoU of at least 0.5."""
        return _detection_figures(self.tiou, self.hours)

    @property
    def region_onsets(self) -> OnsetFigures:
        """Errors of all region onsets; the first region of a study is left out."""
        return _onset_figures(self.borders)

    @property
    def timed(self) -> int:
        """Number of studies whose recording time is known."""
        return int((~np.isnan(self.rates)).sum())

    @property
    def rate(self) -> float | None:
        """Frames (or rows) per second, on average over time; None where no study's is known."""
        if not self.timed:
            return None
        known = ~np.isnan(self.rates)
        rates, hours = self.rates[known], self.hours[known]
        return float((rates * hours).sum() / hours.sum()) if hours.any() else float(rates[0])

    @property
    def rate_note(self) -> str:
        """The hours that false alarms are counted over, and where their frame rate is from."""
        if self.rate is None:
            return "The frame rate is unknown, so there are no rates per hour"
        known = self.rates[~np.isnan(self.rates)]
        average = " on average" if (known != known[0]).any() else ""
        source = {"option": "as given", "reading": "from the reading", None: ""}[self.rate_source]
        note = (
            f"{np.nansum(self.hours):.1f} hours at {self.rate:.4g} {self.unit_name}/s{average} "
            f"({source})"
        )
        if self.timed < len(self.studies):
            note += f"; the rate of {len(self.studies) - self.timed} of {len(self.studies)} "
            note += "studies is unknown, and they do not count in rates per hour"
        return note

    @property
    def unit_name(self) -> str:
        """What the events count, in the plural: 'frames' or 'rows'."""
        return "rows" if self.unit == Unit.INDEX else "frames"

    def table(self) -> "pl.DataFrame":
        """A row per label: its counts of events, rates, and AP at every threshold.

        Metrics that are not defined, such as the recall of a label that no study has, are null.
        """
        import polars as pl

        groups = {**dict.fromkeys(REGIONS, "region"), **dict.fromkeys(LANDMARKS, "landmark")}
        rows: list[dict[str, object]] = []
        for column, label in enumerate(LABELS):
            figures = _detection_figures(self.overlap, self.hours, columns=[column])
            row: dict[str, object] = {
                "label": label,
                "group": groups.get(label, "finding"),
                "studies": int(self.official[0].present[:, column].sum()),
                "true_events": figures.true_events,
                "detected": figures.detected,
                "predicted": figures.predicted,
                "correct": figures.correct,
                "recall": figures.recall,
                "precision": figures.precision,
                "false_alarms_per_study": figures.false_alarms_per_study,
                "false_alarms_per_hour": figures.false_alarms_per_hour,
            }
            for score, empty, merged in zip(self.official, self.empty, self.merged, strict=True):
                at = _key(score)
                row[f"ap_{at}"] = float(score.labels[column])
                row[f"empty_ap_{at}"] = float(empty.labels[column])
                row[f"present_ap_{at}"] = _number(score.present_labels[column])
                row[f"present_merged_ap_{at}"] = _number(merged.present_labels[column])
            rows.append(row)
        integers = ("studies", "true_events", "detected", "predicted", "correct")
        schema: dict[str, type[pl.DataType]] = dict.fromkeys(rows[0], pl.Float64)
        schema |= dict.fromkeys(("label", "group"), pl.String) | dict.fromkeys(integers, pl.Int64)
        return pl.DataFrame(rows, schema=schema)

    def __repr__(self) -> str:
        scores = ", ".join(f"{threshold:g}: {score:.3f}" for threshold, score in self.map.items())
        return f"Evaluation({quantity(len(self.studies), 'study', 'studies')}, map={{{scores}}})"

    def __str__(self) -> str:
        parts = [_counts_note(self), *(f"Note: {warning}." for warning in self.warnings)]
        parts += [_text(table) for table in _headline_tables(self)]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        notes = [_counts_note(self), *(f"Note: {warning}." for warning in self.warnings)]
        labels = _Table("Labels", tuple(self.table().columns), _cells(self.table().rows()))
        return (
            "<div>"
            + "".join(f"<p>{escape(note)}</p>" for note in notes)
            + "".join(_html(table) for table in _headline_tables(self))
            + f"<details><summary>Labels</summary>{_html(labels)}</details></div>"
        )


def _detection_figures(
    detection: Detection,
    hours: NDArray[np.float64],
    *,
    rows: slice = slice(None),
    columns: Sequence[int] | NDArray[np.bool_] = IS_FINDING,
) -> DetectionFigures:
    """Figures of some studies and labels together; by default of all studies' findings."""
    true_events, detected, predicted, correct = (
        int(counts[rows][:, columns].sum())
        for counts in (
            detection.true_events,
            detection.detected,
            detection.predicted,
            detection.correct,
        )
    )
    false_alarms = detection.false_alarms[rows][:, columns].sum(axis=1)
    known = ~np.isnan(hours[rows])
    return DetectionFigures(
        true_events,
        detected,
        predicted,
        correct,
        recall=_ratio(detected, true_events),
        precision=_ratio(correct, predicted),
        false_alarms_per_study=float(false_alarms.mean()),
        false_alarms_per_hour=_ratio(false_alarms[known].sum(), float(hours[rows][known].sum())),
    )


def _onset_figures(borders: Borders, columns: slice = slice(None)) -> OnsetFigures:
    errors = np.abs(borders.error[:, columns])
    errors = errors[~np.isnan(errors)]
    return OnsetFigures(
        median=float(np.median(errors)) if errors.size else None,
        p90=float(np.quantile(errors, 0.9)) if errors.size else None,
        compared=int(errors.size),
        missed=int(borders.missed[:, columns].sum()),
        invented=int(borders.invented[:, columns].sum()),
    )


def _ratio(part: float, total: float) -> float | None:
    return float(part / total) if total > 0 else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _key(score: TemporalScore) -> str:
    """The threshold as a name: '0.5'."""
    return f"{score.threshold:g}"


# ---- Computing it


def evaluate(
    truth: Sequence[Annotation],
    prediction: Sequence[Annotation],
    options: EvaluationOptions | None = None,
    *,
    rates: Mapping[str, float] | None = None,
) -> Evaluation:
    """Compare predicted events with true ones, study by study; both count in the same unit.

    `rates` are the frames per second of studies whose readings state them. `options.rate` replaces
    them; studies without either have no hours.
    """
    options = options or EvaluationOptions()
    pairs = _paired(truth, prediction, only_predicted=options.only_predicted)
    count = len(pairs)
    true = flatten(t.segments for t, _ in pairs)
    predicted = flatten(p.segments for _, p in pairs)
    merged_true, merged_predicted = merge_touching(true), merge_touching(predicted)
    no_spans = flatten([])
    warnings = _unit_warnings(pairs)
    if count < len(truth):
        warnings += (
            f"the prediction has {count} of the truth's "
            f"{quantity(len(truth), 'study', 'studies')}; the others are left out",
        )
    lengths = np.array([t.extent[1] - t.extent[0] for t, _ in pairs], dtype=np.float64)
    studies = tuple(t.study for t, _ in pairs)
    rate_source: RateSource | None = "option"
    if options.rate is not None:
        rates = dict.fromkeys(studies, options.rate)
    else:
        rates = rates or {}
        rate_source = "reading" if any(study in rates for study in studies) else None
    study_rates = np.array([rates.get(study, np.nan) for study in studies], dtype=np.float64)
    return Evaluation(
        studies=studies,
        unit=str(pairs[0][0].unit),
        official=temporal_scores(true, predicted, count),
        empty=temporal_scores(true, no_spans, count),
        merged=temporal_scores(merged_true, merged_predicted, count),
        whole_truth=temporal_scores(true, merged_true, count),
        overlap=detect_by_overlap(merged_true, merged_predicted, count),
        tiou=detect_by_tiou(merged_true, merged_predicted, count),
        borders=region_borders(true, predicted, count),
        rates=study_rates,
        lengths=lengths,
        rate_source=rate_source,
        truth_events=np.array([len(t.segments) for t, _ in pairs]),
        predicted_events=np.array([len(p.segments) for _, p in pairs]),
        bootstrap=StudyBootstrap(count, options.resamples, seed=options.seed),
        warnings=warnings,
    )


def _paired(
    truth: Sequence[Annotation], prediction: Sequence[Annotation], *, only_predicted: bool
) -> list[tuple[Annotation, Annotation]]:
    """Pairs of the same study, in the order of the truth."""
    if not truth:
        raise SubmissionError("the truth holds no study", "give a truth with at least one study")
    true = {annotation.study: annotation for annotation in truth}
    predicted = {annotation.study: annotation for annotation in prediction}
    if len(true) < len(truth):
        raise SubmissionError("the truth lists a study twice", "list each study once")
    if len(predicted) < len(prediction):
        raise SubmissionError("the prediction lists a study twice", "list each study once")
    if only_predicted:
        require_known_studies(true, predicted)
        true = {study: annotation for study, annotation in true.items() if study in predicted}
    else:
        require_same_studies(
            true, predicted, alternative="score only the predicted ones with --only-predicted"
        )
    if not true:
        raise SubmissionError(
            "the prediction holds no study", "give a prediction of at least one study"
        )
    unit = next(iter(true.values())).unit
    for annotation in (*true.values(), *prediction):
        if annotation.unit is not unit:
            raise UnitError(
                f"study {annotation.study} counts in '{annotation.unit}', the truth in '{unit}'",
                "index or frame? bring both to the same unit",
            )
    return [(annotation, predicted[study]) for study, annotation in true.items()]


def _unit_warnings(pairs: Sequence[tuple[Annotation, Annotation]]) -> tuple[str, ...]:
    """Guess whether rows were taken for frames: the official file does not say what it counts."""
    ratios = [p.extent[1] / t.extent[1] for t, p in pairs if t.segments and p.segments]
    if not ratios or 1 / 3 < (ratio := median(ratios)) < 3:
        return ()
    return (
        f"the predictions end at {ratio:.2g} times the end of the truth: index or frame? "
        "In most Galar studies frame = 5 * index",
    )


# ---- Tables for people


@dataclass(frozen=True)
class _Table:
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def _counts_note(e: Evaluation) -> str:
    return (
        f"Evaluation of {quantity(len(e.studies), 'study', 'studies')}: "
        f"{quantity(int(e.predicted_events.sum()), 'predicted event')}, "
        f"{quantity(int(e.truth_events.sum()), 'true event')}"
    )


def _headline_tables(e: Evaluation) -> list[_Table]:
    """The official score, what an empty file gets, findings and region onsets."""
    scores = (
        ("official", e.map),
        ("an empty file, on the same truth", e.empty_map),
        ("labels present in the truth only", e.present_map),
    )
    findings = (("any overlap", e.findings), ("tIoU 0.5", e.findings_tiou))
    onsets = e.region_onsets
    return [
        _Table(
            "Temporal mAP",
            ("", *(f"at {threshold:g}" for threshold in e.map)),
            [(name, *(_shown(_number(value)) for value in by.values())) for name, by in scores],
        ),
        _Table(
            f"Findings ({e.rate_note})",
            (
                "",
                "recall",
                "precision",
                "false alarms / study",
                "/ h",
                "detected",
                "of",
                "predicted",
            ),
            [
                (
                    name,
                    _shown(f.recall),
                    _shown(f.precision),
                    _shown(f.false_alarms_per_study, 2),
                    _shown(f.false_alarms_per_hour, 2),
                    *(str(count) for count in (f.detected, f.true_events, f.predicted)),
                )
                for name, f in findings
            ],
        ),
        _Table(
            f"Region onsets, error in {e.unit_name}",
            ("", "median", "90th percentile", "compared", "missed", "invented"),
            [
                (
                    "all regions",
                    _shown(onsets.median, 0),
                    _shown(onsets.p90, 0),
                    *(str(count) for count in (onsets.compared, onsets.missed, onsets.invented)),
                )
            ],
        ),
    ]


def _shown(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _cells(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    def cell(value: Any) -> str:
        return _shown(value) if value is None or isinstance(value, float) else str(value)

    return [tuple(cell(value) for value in row) for row in rows]


def _text(table: _Table) -> str:
    """Plain text: the first column to the left, numbers to the right."""
    columns = zip(table.header, *table.rows, strict=True)
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = [table.title]
    for first, *others in (table.header, *table.rows):
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _html(table: _Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return (
        f"<table><caption>{escape(table.title)}</caption>"
        f"<thead>{row(table.header, 'th')}</thead><tbody>{body}</tbody></table>"
    )


# ---- The dictionary of `enteron evaluate --json`: its keys are a contract (docs/metric.md)

Figures = dict[str, Any]


def summarise(evaluation: Evaluation) -> Figures:
    """Collect every metric by name; those that are not defined are None."""
    e = evaluation
    return {
        "map": {_key(s): s.map for s in e.official},
        "empty": {_key(s): s.map for s in e.empty},
        "present": {_key(s): _number(s.present_map) for s in e.official},
        "present_merged": {_key(s): _number(s.present_map) for s in e.merged},
        "whole_truth": {_key(s): s.map for s in e.whole_truth},
        "intervals": _intervals(e),
        "findings": {
            **_detection_summary(e, e.overlap),
            "tiou_0.5": _detection_summary(e, e.tiou),
            "hours": float(np.nansum(e.hours)) if e.timed else None,
            "rate": e.rate,
            "timed_studies": e.timed,
        },
        "boundaries": {
            **_onset_summary(e.region_onsets),
            "regions": {
                region: _onset_summary(_onset_figures(e.borders, slice(column, column + 1)))
                for column, region in enumerate(REGIONS)
            },
        },
        "counts": {
            "studies": len(e.studies),
            "truth_events": int(e.truth_events.sum()),
            "predicted_events": int(e.predicted_events.sum()),
        },
        "unit": e.unit,
        "warnings": list(e.warnings),
        "videos": {study: _study_summary(e, row) for row, study in enumerate(e.studies)},
        "labels": {label: _label_summary(e, column) for column, label in enumerate(LABELS)},
    }


def _intervals(e: Evaluation) -> Figures:
    def means(values_by_score: Sequence[NDArray[np.float64]]) -> dict[str, Interval | None]:
        keys = [_key(score) for score in e.official]
        return {
            key: e.bootstrap.mean(values) for key, values in zip(keys, values_by_score, strict=True)
        }

    pairs = list(zip(e.official, e.empty, strict=True))
    return {
        "level": e.bootstrap.level,
        "resamples": e.bootstrap.resamples,
        "map": means([s.studies for s in e.official]),
        "empty": means([s.studies for s in e.empty]),
        "map_minus_empty": means([s.studies - empty.studies for s, empty in pairs]),
        "present": means([s.present_studies for s in e.official]),
        "present_merged": means([s.present_studies for s in e.merged]),
    }


def _detection_summary(e: Evaluation, detection: Detection) -> Figures:
    figures = _detection_figures(detection, e.hours)
    true_events, detected, predicted, correct, false_alarms = (
        counts[:, IS_FINDING].sum(axis=1)
        for counts in (
            detection.true_events,
            detection.detected,
            detection.predicted,
            detection.correct,
            detection.false_alarms,
        )
    )
    known = ~np.isnan(e.hours)
    return {
        "recall": figures.recall,
        "precision": figures.precision,
        "false_alarms_per_study": figures.false_alarms_per_study,
        "false_alarms_per_hour": figures.false_alarms_per_hour,
        "truths": figures.true_events,
        "found": figures.detected,
        "predicted": figures.predicted,
        "false_alarms": figures.false_alarms,
        "intervals": {
            "recall": e.bootstrap.ratio(detected, true_events),
            "precision": e.bootstrap.ratio(correct, predicted),
            "false_alarms_per_study": e.bootstrap.mean(false_alarms.astype(np.float64)),
            "false_alarms_per_hour": e.bootstrap.ratio(
                np.where(known, false_alarms, 0), np.where(known, e.hours, 0.0)
            ),
        },
    }


def _onset_summary(figures: OnsetFigures) -> Figures:
    return {
        "median": figures.median,
        "p90": figures.p90,
        "n": figures.compared,
        "missed": figures.missed,
        "invented": figures.invented,
    }


def _study_summary(e: Evaluation, row: int) -> Figures:
    findings = _detection_figures(e.overlap, e.hours, rows=slice(row, row + 1))
    return {
        "map": {_key(s): float(s.studies[row]) for s in e.official},
        "empty": {_key(s): float(s.studies[row]) for s in e.empty},
        "present": {_key(s): _number(s.present_studies[row]) for s in e.official},
        "present_merged": {_key(s): _number(s.present_studies[row]) for s in e.merged},
        "truth_events": int(e.truth_events[row]),
        "predicted_events": int(e.predicted_events[row]),
        "hours": _number(float(e.hours[row])),
        "findings": {
            "truths": findings.true_events,
            "found": findings.detected,
            "false_alarms": findings.false_alarms,
            "recall": findings.recall,
            "false_alarms_per_hour": findings.false_alarms_per_hour,
        },
        "onset_error": {
            region: _number(float(e.borders.error[row, column]))
            for column, region in enumerate(REGIONS)
        },
    }


def _label_summary(e: Evaluation, column: int) -> Figures:
    figures = _detection_figures(e.overlap, e.hours, columns=[column])
    return {
        "ap": {_key(s): float(s.labels[column]) for s in e.official},
        "empty_ap": {_key(s): float(s.labels[column]) for s in e.empty},
        "present_ap": {_key(s): _number(s.present_labels[column]) for s in e.official},
        "present_merged_ap": {_key(s): _number(s.present_labels[column]) for s in e.merged},
        "studies": int(e.official[0].present[:, column].sum()),
        "truths": figures.true_events,
        "found": figures.detected,
        "predicted": figures.predicted,
        "right": figures.correct,
        "recall": figures.recall,
        "precision": figures.precision,
        "false_alarms_per_study": figures.false_alarms_per_study,
        "false_alarms_per_hour": figures.false_alarms_per_hour,
    }

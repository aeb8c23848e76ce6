"""Truth beside prediction: every figure that the project reports about events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.submission import require_same_studies
from enteron.errors import SubmissionError, UnitError
from enteron.labels import LABELS, REGIONS
from enteron.metrics.honest import (
    IS_FINDING,
    Borders,
    Detection,
    detect_by_overlap,
    detect_by_tiou,
    region_borders,
)
from enteron.metrics.official import TemporalScore, flatten, merge_touching, temporal_scores
from enteron.options import Options
from enteron.types import Annotation

Interval = tuple[float, float]


class StudyBootstrap:
    """The same resamples of studies for every figure, so that differences are paired."""

    def __init__(
        self, studies: int, resamples: int = 2000, level: float = 0.95, seed: int = 0
    ) -> None:
        self.studies = studies
        self.resamples = resamples
        self.level = level
        self._drawn = np.random.default_rng(seed).integers(studies, size=(resamples, studies))

    def mean(self, values: NDArray[np.floating]) -> Interval | None:
        """Interval of a mean of per-study values; studies where it is undefined are left out."""
        defined = ~np.isnan(values)
        return self.ratio(np.where(defined, values, 0.0), defined)

    def ratio(self, above: NDArray[np.generic], below: NDArray[np.generic]) -> Interval | None:
        """Interval of sum(above) / sum(below) over studies. None for a single study: no spread."""
        if self.studies < 2:
            return None
        total = below[self._drawn].sum(axis=1, dtype=np.float64)
        part = above[self._drawn].sum(axis=1, dtype=np.float64)
        ratios = part[total > 0] / total[total > 0]
        if ratios.size == 0:
            return None
        tail = (1 - self.level) / 2
        low, high = np.quantile(ratios, (tail, 1 - tail))
        return float(low), float(high)


NOMINAL_RATE = (
    2.0  # frames per second; capsules record 2 to 6, and neither Galar nor the format say
)


class EvaluationOptions(Options):
    """How to evaluate."""

    rate: float | None = None  # frames (or rows) per second of the events' unit; None: nominal
    resamples: int = 2000  # bootstrap draws of the set of studies
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """All figures, from which tables and JSON are made."""

    studies: tuple[str, ...]
    unit: str
    official: list[TemporalScore]  # one per threshold, as are the next three
    empty: list[TemporalScore]  # an empty file on the same truth
    merged: list[TemporalScore]  # both sides merged per label: whole stays instead of cut ones
    whole_truth: list[TemporalScore]  # the merged truth as a prediction: the ceiling without cuts
    overlap: Detection
    tiou: Detection
    borders: Borders
    hours: NDArray[np.float64]  # (studies,) length of the truth
    rate: float
    rate_assumed: bool
    truth_events: NDArray[np.int64]  # (studies,) events as the files have them
    predicted_events: NDArray[np.int64]
    bootstrap: StudyBootstrap
    warnings: tuple[str, ...] = field(default=())


def evaluate(
    truth: Sequence[Annotation],
    prediction: Sequence[Annotation],
    options: EvaluationOptions | None = None,
) -> Evaluation:
    """Compare predicted events with true ones, study by study; both in the same unit."""
    options = options or EvaluationOptions()
    pairs = _aligned(truth, prediction)
    count = len(pairs)
    true = flatten(t.segments for t, _ in pairs)
    predicted = flatten(p.segments for _, p in pairs)
    whole_true, whole_predicted = merge_touching(true), merge_touching(predicted)
    nothing = flatten([])
    rate = NOMINAL_RATE if options.rate is None else options.rate
    lengths = [t.extent[1] - t.extent[0] for t, _ in pairs]
    return Evaluation(
        studies=tuple(t.study for t, _ in pairs),
        unit=str(pairs[0][0].unit),
        official=temporal_scores(true, predicted, count),
        empty=temporal_scores(true, nothing, count),
        merged=temporal_scores(whole_true, whole_predicted, count),
        whole_truth=temporal_scores(true, whole_true, count),
        overlap=detect_by_overlap(whole_true, whole_predicted, count),
        tiou=detect_by_tiou(whole_true, whole_predicted, count),
        borders=region_borders(true, predicted, count),
        hours=np.array(lengths, dtype=np.float64) / rate / 3600,
        rate=rate,
        rate_assumed=options.rate is None,
        truth_events=np.array([len(t.segments) for t, _ in pairs]),
        predicted_events=np.array([len(p.segments) for _, p in pairs]),
        bootstrap=StudyBootstrap(count, options.resamples, seed=options.seed),
        warnings=_warnings(pairs),
    )


def _aligned(
    truth: Sequence[Annotation], prediction: Sequence[Annotation]
) -> list[tuple[Annotation, Annotation]]:
    """Pairs of the same study, in the order of the truth."""
    if not truth:
        raise SubmissionError("the truth holds no study", "give a truth with at least one study")
    given = {annotation.study: annotation for annotation in prediction}
    known = {annotation.study for annotation in truth}
    for side, annotations, ids in (("truth", truth, known), ("prediction", prediction, given)):
        if len(ids) < len(annotations):
            raise SubmissionError(f"the {side} lists a study twice", "list each study once")
    require_same_studies(known, given.keys())
    for annotation in (*truth, *prediction):
        if annotation.unit is not truth[0].unit:
            raise UnitError(
                f"study {annotation.study} counts in '{annotation.unit}', the truth in "
                f"'{truth[0].unit}'",
                "index or frame? bring both to the same unit",
            )
    return [(annotation, given[annotation.study]) for annotation in truth]


def _warnings(pairs: Sequence[tuple[Annotation, Annotation]]) -> tuple[str, ...]:
    """A guess at rows mistaken for frames: the official file does not say what it counts."""
    ratios = [p.extent[1] / t.extent[1] for t, p in pairs if t.segments and p.segments]
    if not ratios or 1 / 3 < (ratio := median(ratios)) < 3:
        return ()
    return (
        f"the predictions end at {ratio:.2g} times the end of the truth: index or frame? "
        "In most Galar studies frame = 5 * index",
    )


Figures = dict[str, Any]


def summarise(evaluation: Evaluation) -> Figures:
    """Every figure by name; undefined ones are None."""
    e = evaluation
    return {
        "map": {_key(s): s.map for s in e.official},
        "empty": {_key(s): s.map for s in e.empty},
        "present": {_key(s): _number(s.present_map) for s in e.official},
        "present_merged": {_key(s): _number(s.present_map) for s in e.merged},
        "whole_truth": {_key(s): s.map for s in e.whole_truth},
        "intervals": _intervals(e),
        "findings": _findings(e),
        "boundaries": _boundaries(e),
        "counts": {
            "studies": len(e.studies),
            "truth_events": int(e.truth_events.sum()),
            "predicted_events": int(e.predicted_events.sum()),
        },
        "unit": e.unit,
        "warnings": list(e.warnings),
        "videos": {study: _video(e, row) for row, study in enumerate(e.studies)},
        "labels": {label: _label(e, column) for column, label in enumerate(LABELS)},
    }


def _key(score: TemporalScore) -> str:
    return f"{score.threshold:g}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def _intervals(e: Evaluation) -> Figures:
    draw = e.bootstrap

    def means(rows: Sequence[NDArray[np.float64]]) -> dict[str, Interval | None]:
        keys = [_key(score) for score in e.official]
        return {key: draw.mean(values) for key, values in zip(keys, rows, strict=True)}

    pairs = list(zip(e.official, e.empty, strict=True))
    return {
        "level": draw.level,
        "resamples": draw.resamples,
        "map": means([s.studies for s in e.official]),
        "empty": means([s.studies for s in e.empty]),
        "map_minus_empty": means([s.studies - nothing.studies for s, nothing in pairs]),
        "present": means([s.present_studies for s in e.official]),
        "present_merged": means([s.present_studies for s in e.merged]),
    }


def _findings(e: Evaluation) -> Figures:
    return {
        **_detection(e, e.overlap),
        "tiou_0.5": _detection(e, e.tiou),
        "hours": float(e.hours.sum()),
        "rate": e.rate,
        "rate_assumed": e.rate_assumed,
    }


def _detection(e: Evaluation, d: Detection) -> Figures:
    truths, found, predicted, right, false = (
        counts[:, IS_FINDING].sum(axis=1)
        for counts in (d.truths, d.found, d.predicted, d.right, d.false_alarms)
    )
    return {
        "recall": _share(found.sum(), truths.sum()),
        "precision": _share(right.sum(), predicted.sum()),
        "false_alarms_per_hour": _share(false.sum(), e.hours.sum()),
        "truths": int(truths.sum()),
        "found": int(found.sum()),
        "predicted": int(predicted.sum()),
        "false_alarms": int(false.sum()),
        "intervals": {
            "recall": e.bootstrap.ratio(found, truths),
            "precision": e.bootstrap.ratio(right, predicted),
            "false_alarms_per_hour": e.bootstrap.ratio(false, e.hours),
        },
    }


def _boundaries(e: Evaluation) -> Figures:
    error = np.abs(e.borders.error)

    def spread(values: NDArray[np.float64]) -> Figures:
        known = values[~np.isnan(values)]
        if not known.size:
            return {"median": None, "p90": None, "n": 0}
        return {
            "median": float(np.median(known)),
            "p90": float(np.quantile(known, 0.9)),
            "n": int(known.size),
        }

    return {
        **spread(error),
        "missed": int(e.borders.missed.sum()),
        "invented": int(e.borders.invented.sum()),
        "regions": {
            region: {
                **spread(error[:, column]),
                "missed": int(e.borders.missed[:, column].sum()),
                "invented": int(e.borders.invented[:, column].sum()),
            }
            for column, region in enumerate(REGIONS)
        },
    }


def _video(e: Evaluation, row: int) -> Figures:
    d = e.overlap
    truths, found, false = (
        int(counts[row, IS_FINDING].sum()) for counts in (d.truths, d.found, d.false_alarms)
    )
    return {
        "map": {_key(s): float(s.studies[row]) for s in e.official},
        "empty": {_key(s): float(s.studies[row]) for s in e.empty},
        "present": {_key(s): _number(s.present_studies[row]) for s in e.official},
        "present_merged": {_key(s): _number(s.present_studies[row]) for s in e.merged},
        "truth_events": int(e.truth_events[row]),
        "predicted_events": int(e.predicted_events[row]),
        "hours": float(e.hours[row]),
        "findings": {
            "truths": truths,
            "found": found,
            "false_alarms": false,
            "recall": _share(found, truths),
            "false_alarms_per_hour": _share(false, float(e.hours[row])),
        },
        "onset_error": {
            region: _number(float(e.borders.error[row, column]))
            for column, region in enumerate(REGIONS)
        },
    }


def _label(e: Evaluation, column: int) -> Figures:
    d = e.overlap
    truths, found, predicted, right = (
        int(counts[:, column].sum()) for counts in (d.truths, d.found, d.predicted, d.right)
    )
    return {
        "ap": {_key(s): float(s.labels[column]) for s in e.official},
        "empty_ap": {_key(s): float(s.labels[column]) for s in e.empty},
        "present_ap": {_key(s): _number(s.present_labels[column]) for s in e.official},
        "present_merged_ap": {_key(s): _number(s.present_labels[column]) for s in e.merged},
        "studies": int(e.official[0].present[:, column].sum()),
        "truths": truths,
        "found": found,
        "predicted": predicted,
        "right": right,
        "recall": _share(found, truths),
        "precision": _share(right, predicted),
        "false_alarms_per_hour": _share(predicted - right, float(e.hours.sum())),
    }

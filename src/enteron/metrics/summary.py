"""An evaluation as plain figures, for `--json` and for tables."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enteron.labels import LABELS, REGIONS
from enteron.metrics.bootstrap import Interval
from enteron.metrics.evaluation import Evaluation
from enteron.metrics.honest import IS_FINDING, Detection
from enteron.metrics.temporal import TemporalScore

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

"""Presence and expected AP of every label, estimated on studies that were not fitted."""

from collections.abc import Sequence

import numpy as np

from enteron.calibration.labelled import Labelled
from enteron.calibration.value import Calibration, Silence
from enteron.decode.challenge import to_annotation
from enteron.decode.compose import decode
from enteron.decode.confidence import log_odds
from enteron.decode.presets import TRANSIT
from enteron.galar.table import LabelTable
from enteron.galar.truth import truth_events
from enteron.labels import LABELS
from enteron.metrics.spans import flatten
from enteron.metrics.temporal import temporal_scores
from enteron.priors import Priors
from enteron.tuning.logistic import fit_logistic
from enteron.types import Segment, Unit


def fit_silence(
    predictions: Sequence[tuple[Labelled, Calibration]], priors: Priors
) -> dict[str, Silence]:
    """For every label, from studies with the calibration of a fold that did not contain them.

    Only studies in which something was decoded for the label say what emitting it is worth. One
    study of AP 0 is added to each mean: with few studies silence is the safer error.
    """
    truths, decoded, best = [], [], []
    for study, calibration in predictions:
        events = decode(study.scores, TRANSIT, priors, calibration)
        truths.append(_true_segments(study))
        decoded.append(to_annotation(study.scores.study, Unit.FRAME, events, cut=True).segments)
        scores = {event.label: 0.0 for event in events}
        for event in events:
            scores[event.label] = max(scores[event.label], event.score or 0.0)
        best.append(scores)
    (score,) = temporal_scores(flatten(truths), flatten(decoded), len(predictions), [0.5])
    statistics: dict[str, Silence] = {}
    for column, label in enumerate(LABELS):
        present = score.present[:, column]
        spoken = np.array([label in scores for scores in best])
        x = np.array([log_odds(scores[label]) for scores in best if label in scores])
        intercept, slope = fit_logistic(x, present[spoken])
        worth = score.ap[present & spoken, column]
        statistics[label] = Silence(
            presence=float((present.sum() + 0.5) / (present.size + 1)),
            expected_ap=float(worth.sum() / (worth.size + 1)),
            intercept=intercept,
            slope=slope,
        )
    return statistics


def _true_segments(study: Labelled) -> tuple[Segment, ...]:
    """The study's official truth, in frames."""
    axis = study.scores.axis
    table = LabelTable(study.scores.study, axis, np.arange(len(axis)), study.truth)
    return truth_events(table, Unit.FRAME).segments

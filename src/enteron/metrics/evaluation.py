"""Truth beside prediction: every figure that the project reports about events."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from enteron.config import Options
from enteron.errors import SubmissionError, UnitError
from enteron.galar.submission import require_same_studies
from enteron.metrics.bootstrap import StudyBootstrap
from enteron.metrics.honest import (
    Borders,
    Detection,
    detect_by_overlap,
    detect_by_tiou,
    region_borders,
)
from enteron.metrics.spans import flatten, merge_touching
from enteron.metrics.temporal import TemporalScore, temporal_scores
from enteron.types import Annotation, U

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
    truth: Sequence[Annotation[U]],
    prediction: Sequence[Annotation[U]],
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
    truth: Sequence[Annotation[U]], prediction: Sequence[Annotation[U]]
) -> list[tuple[Annotation[U], Annotation[U]]]:
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


def _warnings(pairs: Sequence[tuple[Annotation[U], Annotation[U]]]) -> tuple[str, ...]:
    """A guess at rows mistaken for frames: the official file does not say what it counts."""
    ratios = [p.extent[1] / t.extent[1] for t, p in pairs if t.segments and p.segments]
    if not ratios or 1 / 3 < (ratio := median(ratios)) < 3:
        return ()
    return (
        f"the predictions end at {ratio:.2g} times the end of the truth: index or frame? "
        "In most Galar studies frame = 5 * index",
    )

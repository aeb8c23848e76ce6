"""Evaluation of frame scores against labels that may be unknown, over several studies.

Every figure is given twice: pooled over the frames of all studies, and as the mean over the studies
in which it is defined. Neighbouring frames are near-copies, so only the number of studies says how
sure a figure is: intervals resample studies. A figure that rests on a single study has none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.dataset import LabelledFrames
from enteron.datasets.submission import require_known_studies, require_same_studies
from enteron.errors import EnteronError, UnitError, quantity
from enteron.labels import LABELS
from enteron.metrics.evaluation import Interval, StudyBootstrap
from enteron.metrics.frames import allowed_share, areas, sensitivity_at
from enteron.types import FrameLabels, Scores, Unit

SPECIFICITY: Final = 0.9
LEAST_SCORED: Final = 0.5
"""Share of a study's labelled frames that must have scores. Frames that cannot be read have none;
when half are missing, the numbers mean something else."""

INTERVAL_BINS: Final = 1000
"""Intervals of pooled figures put scores into at most so many bins of equal counts. The figures
themselves use the scores as they are."""

Name = Literal["auc", "ap", "sensitivity"]
NAMES: Final[tuple[Name, ...]] = ("auc", "ap", "sensitivity")


@dataclass(frozen=True)
class Figure:
    """One metric of one label, or its mean over labels; None where it is not defined."""

    pooled: float | None  # over the frames of all studies
    pooled_interval: Interval | None
    mean: float | None  # over the studies in which it is defined
    mean_interval: Interval | None


@dataclass(frozen=True)
class LabelFigures:
    """The figures of one label."""

    present: int  # frames
    absent: int
    unknown: int  # left out
    studies: int  # that show the label
    compared: int  # studies with both frames that show it and frames that do not
    figures: Mapping[Name, Figure]
    by_study: Mapping[str, Mapping[Name, float]]  # of the compared studies


@dataclass(frozen=True)
class FrameEvaluation:
    """Frame metrics of several studies."""

    studies: tuple[str, ...]
    frames: int  # with labels and scores
    unscored: int  # with labels and without scores, left out
    specificity: float
    labels: Mapping[str, LabelFigures]
    macro: Mapping[Name, Figure]  # mean over the labels in which the figure is defined


@dataclass(frozen=True)
class _ScoredStudy:
    study: str
    labels: FrameLabels
    scores: NDArray[np.float32]  # (frames, 17)


def evaluate_frames(
    truth: Mapping[str, LabelledFrames],
    scores: Mapping[str, Scores],
    *,
    specificity: float = SPECIFICITY,
    only_predicted: bool = False,
    resamples: int = 2000,
    seed: int = 0,
) -> FrameEvaluation:
    """Compare scores with labels frame by frame; unknown labels are left out and counted."""
    if not 0 < specificity < 1:
        raise EnteronError(
            f"a specificity of {specificity:g} cannot be kept", "give a share between 0 and 1"
        )
    if only_predicted:
        require_known_studies(truth, scores)
        truth = {study: labelled for study, labelled in truth.items() if study in scores}
    else:
        require_same_studies(truth, scores, alternative="add --only-predicted")
    studies = [_scored_study(study, truth[study], scores[study]) for study in truth]
    bootstrap = StudyBootstrap(len(studies), resamples, seed=seed)
    labels = {
        label: _label_figures(studies, column, specificity, bootstrap)
        for column, label in enumerate(LABELS)
    }
    frames = sum(len(study.labels) for study in studies)
    return FrameEvaluation(
        studies=tuple(truth),
        frames=frames,
        unscored=sum(len(labelled.frames) for labelled in truth.values()) - frames,
        specificity=specificity,
        labels=labels,
        macro={name: _macro(labels, name, [s.study for s in studies], bootstrap) for name in NAMES},
    )


def _scored_study(study: str, labelled: LabelledFrames, scores: Scores) -> _ScoredStudy:
    if scores.unit is not Unit.FRAME:
        raise UnitError(
            f"the scores of study {study} count in '{scores.unit}' where labels count frames",
            "give scores with a column 'frame'",
        )
    _, rows, scored = np.intersect1d(
        labelled.frames, scores.axis.frames, assume_unique=True, return_indices=True
    )
    if rows.size < LEAST_SCORED * len(labelled.frames):
        raise EnteronError(
            f"study {study}: {rows.size:,} of {len(labelled.frames):,} labelled frames have scores",
            "index or frame? number scores by the frame's own number, and score every frame",
        )
    return _ScoredStudy(study, labelled.labels[rows], scores.values[scored])


def _label_figures(
    studies: Sequence[_ScoredStudy], column: int, specificity: float, bootstrap: StudyBootstrap
) -> LabelFigures:
    known = [study.labels.known[:, column] for study in studies]
    truths = [s.labels.present[k, column] for s, k in zip(studies, known, strict=True)]
    scores = [s.scores[k, column] for s, k in zip(studies, known, strict=True)]
    by_study: dict[str, dict[Name, float]] = {}
    for study, truth, score in zip(studies, truths, scores, strict=True):
        if truth.any() and not truth.all():
            by_study[study.study] = _metrics(truth, score, specificity)
    all_truth, all_scores = np.concatenate(truths), np.concatenate(scores)
    pooled: dict[Name, float] = dict.fromkeys(NAMES, float("nan"))
    pooled_intervals: dict[Name, Interval | None] = dict.fromkeys(NAMES)
    showing = sum(bool(truth.any()) for truth in truths)
    if all_truth.any() and not all_truth.all():
        pooled = _metrics(all_truth, all_scores, specificity)
        if showing > 1:
            pooled_intervals = _pooled_intervals(truths, scores, specificity, bootstrap)
    figures: dict[Name, Figure] = {}
    for name in NAMES:
        values = np.array(
            [by_study[s.study][name] if s.study in by_study else np.nan for s in studies]
        )
        figures[name] = Figure(
            _number(pooled[name]),
            pooled_intervals[name],
            _mean(values),
            bootstrap.mean(values) if len(by_study) > 1 else None,
        )
    return LabelFigures(
        present=int(all_truth.sum()),
        absent=int((~all_truth).sum()),
        unknown=sum(int((~k).sum()) for k in known),
        studies=showing,
        compared=len(by_study),
        figures=figures,
        by_study=by_study,
    )


def _metrics(
    truth: NDArray[np.bool_], score: NDArray[np.floating], specificity: float
) -> dict[Name, float]:
    ap, auc = areas(truth, score)
    return {"auc": auc, "ap": ap, "sensitivity": sensitivity_at(truth, score, specificity)}


def _pooled_intervals(
    truths: Sequence[NDArray[np.bool_]],
    scores: Sequence[NDArray[np.floating]],
    specificity: float,
    bootstrap: StudyBootstrap,
) -> dict[Name, Interval | None]:
    """Intervals of the pooled figures, from each study's counts of frames by score."""
    distinct = np.unique(np.concatenate(scores))
    if distinct.size > INTERVAL_BINS:
        shares = np.linspace(0, 1, INTERVAL_BINS)
        distinct = np.unique(np.quantile(np.concatenate(scores), shares, method="lower"))
    size = distinct.size
    counts = np.zeros((len(truths), 2, size))  # negatives, positives
    for study, (truth, score) in enumerate(zip(truths, scores, strict=True)):
        cells = np.searchsorted(distinct, score, side="right") - 1 + size * truth
        counts[study] = np.bincount(cells, minlength=2 * size).reshape(2, size)
    descending = counts[:, :, ::-1].reshape(len(truths), -1)
    computed: dict[Name, NDArray[np.float64]] = {}

    def resampled(name: Name) -> Interval | None:
        def statistic(times_drawn: NDArray[np.int64]) -> NDArray[np.float64]:
            if not computed:
                drawn = (times_drawn @ descending).reshape(len(times_drawn), 2, size)
                computed.update(binned_metrics(drawn[:, 0], drawn[:, 1], specificity))
            return computed[name]

        return bootstrap.interval(statistic)

    return {name: resampled(name) for name in NAMES}


def binned_metrics(
    negatives: NDArray[np.floating], positives: NDArray[np.floating], specificity: float
) -> dict[Name, NDArray[np.float64]]:
    """AUC, AP and sensitivity of (resamples, bins) counts by score, highest scores first.

    NaN in a resample without positives or without negatives.
    """
    true_positives = np.cumsum(positives, axis=1)
    false_positives = np.cumsum(negatives, axis=1)
    all_positives, all_negatives = true_positives[:, -1:], false_positives[:, -1:]
    defined = (all_positives[:, 0] > 0) & (all_negatives[:, 0] > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A tie of positives and negatives in a bin counts one half.
        area = (negatives * (true_positives - positives / 2)).sum(axis=1)
        auc = area / (all_positives * all_negatives)[:, 0]
        precision = np.nan_to_num(true_positives / (true_positives + false_positives))
        ap = (positives * precision).sum(axis=1) / all_positives[:, 0]
        limit = allowed_share(specificity) * all_negatives
        allowed = np.where(false_positives <= limit, true_positives, 0.0)
        sensitivity = allowed.max(axis=1, initial=0.0) / all_positives[:, 0]
    values: dict[Name, NDArray[np.float64]] = {"auc": auc, "ap": ap, "sensitivity": sensitivity}
    return {name: np.where(defined, value, np.nan) for name, value in values.items()}


def _macro(
    labels: Mapping[str, LabelFigures], name: Name, studies: list[str], bootstrap: StudyBootstrap
) -> Figure:
    """Mean over the labels in which the figure is defined.

    Only the mean over studies has an interval, and only where each of the labels has several
    studies: labels are averaged within each resample.
    """
    pooled = [f.pooled for row in labels.values() if (f := row.figures[name]).pooled is not None]
    compared = [row for row in labels.values() if row.by_study]
    means = [row.figures[name].mean for row in compared]
    table = np.array(
        [[row.by_study.get(study, {}).get(name, np.nan) for study in studies] for row in compared]
    ).reshape(len(compared), len(studies))
    present = ~np.isnan(table)

    def statistic(times_drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            by_label = (times_drawn @ np.where(present, table, 0).T) / (times_drawn @ present.T)
        drawn = ~np.isnan(by_label)
        total, count = np.where(drawn, by_label, 0).sum(axis=1), drawn.sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    return Figure(
        float(np.mean(pooled)) if pooled else None,
        None,
        float(np.mean([m for m in means if m is not None])) if means else None,
        bootstrap.interval(statistic) if compared and present.sum(axis=1).min() > 1 else None,
    )


def _mean(values: NDArray[np.float64]) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


# ---- For `enteron evaluate --json`


def summarise_frames(evaluation: FrameEvaluation) -> dict[str, Any]:
    """Every figure by name; those that are not defined are None."""
    return {
        "kind": "frames",
        "studies": len(evaluation.studies),
        "frames": evaluation.frames,
        "frames_without_scores": evaluation.unscored,
        "specificity": evaluation.specificity,
        "macro": {name: _summary(figure) for name, figure in evaluation.macro.items()},
        "labels": {
            label: {
                "present": row.present,
                "absent": row.absent,
                "unknown": row.unknown,
                "studies": row.studies,
                "compared_studies": row.compared,
                **{name: _summary(figure) for name, figure in row.figures.items()},
            }
            for label, row in evaluation.labels.items()
        },
        "videos": {
            study: {
                label: dict(row.by_study[study])
                for label, row in evaluation.labels.items()
                if study in row.by_study
            }
            for study in evaluation.studies
        },
    }


def _summary(figure: Figure) -> dict[str, Any]:
    return {
        "pooled": figure.pooled,
        "pooled_interval": figure.pooled_interval,
        "mean_over_studies": figure.mean,
        "mean_interval": figure.mean_interval,
    }


def describe_unscored(evaluation: FrameEvaluation) -> str | None:
    """A sentence about labelled frames without scores, if there are any."""
    if not evaluation.unscored:
        return None
    return f"{quantity(evaluation.unscored, 'labelled frame')} without scores are left out"

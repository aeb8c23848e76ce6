"""Fitting a context (`enteron.context`) on studies that did not train the model.

Weights of regions make the true region of a frame most likely among the five. Those of landmarks
make the labels most likely, with an offset and a slope of its own for every label and an offset for
every study: what is wanted is the order of frames, and calibration fits the rest later. So do those
of findings on excerpts of recordings; for whole recordings they are fixed (`OF_RECORDINGS`).

A capsule that the fitted studies do not show has noisier scores. So half of what is fitted on is
changed at random: noise on the scores, frames left out, time faster or slower.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from enteron.context import (
    GROUPS,
    LARGEST_WEIGHT,
    SCALES,
    Context,
    ContextGain,
    log_odds,
    positions,
    time_means,
)
from enteron.fitting.frames import LabelledStudy
from enteron.labels import COLUMN, FINDINGS, LANDMARKS
from enteron.metrics.frames import areas
from enteron.options import Options

LEAST_STUDIES: Final = 4
"""With fewer studies that know a group of labels nothing is fitted for it."""

LEAST_POSITIVES: Final = 20
"""Frames that must show a label for its AP to count in the comparison."""

OF_RECORDINGS: Final = {300.0: 1.0, 1000.0: 1.0, 3000.0: 1.0}
"""Weights of findings in whole recordings, by scale; a frame has 1, its study `OF_STUDY`. They are
not fitted. Studies of a capsule that trained the network have scores far surer than those of
another: what is best for them (nothing but the mean of an hour) is not best for the next hospital.
These were chosen on drawn studies of a capsule each that the network had not seen, PillCam and
Olympus in turn; anything near is as good (`enteron bench context_weights`)."""
OF_STUDY: Final = 2.0

_MOST_ROWS = 2000  # per study of those with landmarks or findings, and as many of the others


class ContextFit(Options):
    """How a context is fitted."""

    groups: tuple[str, ...] = ("findings",)
    """Labels that may be refined. Frames of regions gain most, but their events lose: the decoder
    sums the evidence of frames itself, and means blur the borders (`enteron bench decoders`)."""
    scales: tuple[float, ...] = SCALES
    fixed: bool = True
    """Whether findings of whole recordings have the weights `OF_RECORDINGS`. Those of excerpts are
    always fitted: the highest scores of an excerpt say nothing of its recording."""
    shrinkage: float = 1e-3
    """Weight of the squared weights."""
    offsets: float = 0.03
    """Weight of the squared offsets of studies."""
    noise: float = 1.0
    """Largest standard deviation of noise on log-odds, as an unseen capsule has it."""
    thinned: int = 5
    """Up to every so many-th frame is kept."""
    missing: float = 0.3
    """Largest share of single frames that are left out."""
    speed: float = 1.5
    """Time runs up to so many times faster or slower."""
    folds: int = 3
    seed: int = 0


@dataclass(frozen=True)
class FittedContext:
    """The context that was fitted, and the comparison that it rests on."""

    context: Context | None  # None: no group gained, or there were too few studies
    gains: dict[str, ContextGain]  # by group; none where too few studies know its labels


def choose_context(
    studies: Sequence[LabelledStudy], options: ContextFit | None = None
) -> FittedContext:
    """Fit a context; a group of labels has weights only where left-out studies gain by them.

    A study without any label is no help, and one may know some groups only.
    """
    asked = ContextFit() if options is None else options
    options = asked.model_copy(
        update={
            "scales": scales_within(asked.scales, studies),
            "fixed": asked.fixed and all(study.recording_frames is None for study in studies),
        }
    )
    gains: dict[str, ContextGain] = {}
    weights: dict[str, tuple[float, ...]] = {}
    for group in options.groups:
        knowing = _knowing(group, studies)
        if len(knowing) < LEAST_STUDIES or not options.scales:
            continue
        parts = [_part(group, study, number, options) for number, study in enumerate(knowing)]
        gain = _left_out_gain(group, knowing, parts, options)
        if gain is None:
            continue
        gains[group] = gain
        if gain.is_gain:
            weights[group] = _fitted(group, parts, options)
    if not weights:
        return FittedContext(None, gains)
    return FittedContext(_context(weights, options), gains)


def scales_within(scales: Sequence[float], studies: Sequence[LabelledStudy]) -> tuple[float, ...]:
    """The scales on which the studies have something to say: all, unless some are excerpts.

    An excerpt holds the lesions of a recording in runs of frames, and nothing of the time between.
    A mean that reaches beyond a run looks from lesion to lesion: it tells excerpts with lesions
    from those without, and would tell nothing in a recording. The limit is the length of the run
    in which the median frame lies.
    """
    excerpts = [study for study in studies if study.recording_frames is not None]
    if not excerpts:
        return tuple(scales)
    lengths: list[NDArray[np.float64]] = []
    for study in excerpts:
        where = positions(study.scores)
        borders = np.flatnonzero(np.diff(where) > min(scales)) + 1
        lengths += [np.full(run.size, run[-1] - run[0]) for run in np.split(where, borders)]
    limit = np.median(np.concatenate(lengths))
    return tuple(scale for scale in scales if scale <= limit)


def _context(weights: dict[str, tuple[float, ...]], options: ContextFit) -> Context:
    """A context with weights for some groups, and none for the others."""
    size = 1 + len(options.scales)
    of_group = {group: weights.get(group, (0.0,) * size) for group in GROUPS}
    of_study = sum(of_group["findings"][size:])  # one weight, or none
    return Context(
        scales=options.scales,
        study=of_study,
        **{group: own[:size] for group, own in of_group.items()},
    )


def _knowing(group: str, studies: Sequence[LabelledStudy]) -> list[LabelledStudy]:
    """The studies that know labels of a group: some frame shows one of them, or is known not to."""
    return [study for study in studies if study.labels.known[:, GROUPS[group]].any()]


def _left_out_gain(
    group: str,
    studies: Sequence[LabelledStudy],
    parts: Sequence["_Design"],
    options: ContextFit,
) -> ContextGain | None:
    """The comparison on left-out studies; None where there is nothing to compare."""
    folds = min(options.folds, len(studies))
    refined: list[tuple[LabelledStudy, NDArray[np.float32]]] = []
    for fold in range(folds):  # nothing is learnt of those left out even where weights are fixed
        weights = _fitted(group, [p for i, p in enumerate(parts) if i % folds != fold], options)
        context = _context({group: weights}, options)
        refined += [(study, context.refined(study.scores)) for study in studies[fold::folds]]
    before = _quality(group, [(study, study.scores.values) for study, _ in refined])
    after = _quality(group, refined)
    if before is None or after is None:
        return None
    return ContextGain(without=before, with_context=after)


def _quality(
    group: str, scored: Sequence[tuple[LabelledStudy, NDArray[np.float32]]]
) -> float | None:
    """Region accuracy, or the mean AP of the group's labels over all studies together."""
    columns = GROUPS[group]
    present = np.concatenate([study.labels.present[:, columns] for study, _ in scored])
    known = np.concatenate([study.labels.known[:, columns] for study, _ in scored])
    values = np.concatenate([scores[:, columns] for _, scores in scored])
    if group == "regions":
        rows = np.flatnonzero(present.any(axis=1))
        if rows.size == 0:
            return None
        return float(present[rows, values[rows].argmax(axis=1)].mean())
    precisions = [
        areas(present[k, label], values[k, label])[0]
        for label, k in enumerate(known.T)
        if present[:, label].sum() >= LEAST_POSITIVES and (k & ~present[:, label]).any()
    ]
    return float(np.mean(precisions)) if precisions else None


# ---- the fit of one group


def _fitted(group: str, parts: Sequence["_Design"], options: ContextFit) -> tuple[float, ...]:
    """Weight of the frame itself, of each mean and of the study, for the labels of a group."""
    if group == "findings" and options.fixed:
        return (0.0, *(OF_RECORDINGS.get(scale, 0.0) for scale in options.scales), OF_STUDY)
    data = _joined(parts)
    fit = _fit_regions if group == "regions" else _fit_labels
    weights = fit(data, options)
    return tuple(round(float(weight), 4) for weight in np.clip(weights, 0, LARGEST_WEIGHT))


@dataclass(frozen=True)
class _Design:
    """Rows of all studies, as they are and changed at random."""

    inputs: NDArray[np.float32]  # (n, labels, 1 + scales) log-odds and their means
    present: NDArray[np.bool_]  # (n, labels)
    known: NDArray[np.bool_]  # (n, labels)
    weights: NDArray[np.float64]  # (n,) every study counts alike
    study: NDArray[np.int64]  # (n,)


def _part(group: str, study: LabelledStudy, number: int, options: ContextFit) -> _Design:
    """The rows of one study, as they are and changed at random."""
    columns = GROUPS[group]
    odds, where, labels = (
        log_odds(study.scores.values)[:, columns],
        positions(study.scores),
        study.labels,
    )
    parts: list[_Design] = []
    for changed in (False, True):
        rng = np.random.default_rng([options.seed, number, changed])
        rows = np.arange(len(odds))
        values, at = odds, where
        if changed:
            rows = _kept_rows(len(odds), options, rng)
            noise = rng.random() * options.noise * rng.normal(size=(rows.size, odds.shape[1]))
            values = (odds[rows] + noise).astype(np.float32)
            at = where[rows] * math.exp((2 * rng.random() - 1) * math.log(options.speed))
        chosen, weights = _chosen_rows(labels.present[rows], rng)
        means = time_means(values, at, options.scales)[chosen]
        inputs = np.concatenate([values[chosen][:, None], means], axis=1).transpose(0, 2, 1)
        parts.append(
            _Design(
                np.ascontiguousarray(inputs),
                labels.present[rows][chosen][:, columns],
                labels.known[rows][chosen][:, columns],
                weights / weights.sum(),
                np.full(chosen.size, changed, np.int64),
            )
        )
    return _joined(parts, as_one=True)


def _joined(parts: Sequence[_Design], *, as_one: bool = False) -> _Design:
    """Several designs as one; `as_one`: their numbers of studies stay, else they are counted on."""
    weights = np.concatenate([part.weights for part in parts])
    numbers = [part.study + (0 if as_one else 2 * index) for index, part in enumerate(parts)]
    return _Design(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.known for part in parts]),
        weights / weights.mean(),
        np.concatenate(numbers),
    )


def _kept_rows(count: int, options: ContextFit, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of a study as if fewer frames had been stored, and some of them could not be read."""
    thinned = int(rng.integers(1, options.thinned + 1))
    rows = np.arange(int(rng.integers(thinned)), count, thinned)
    kept = rows[rng.random(rows.size) >= rng.random() * options.missing]
    return kept if kept.size else np.arange(count)


def _chosen_rows(
    present: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows that take part and what each stands for: a million of them would not fit into memory."""
    rare = present[:, [COLUMN[label] for label in (*LANDMARKS, *FINDINGS)]].any(axis=1)
    rows: list[NDArray[np.int64]] = []
    weights: list[NDArray[np.float64]] = []
    for part in (np.flatnonzero(rare), np.flatnonzero(~rare)):
        chosen = part
        if part.size > _MOST_ROWS:
            chosen = np.sort(rng.choice(part, _MOST_ROWS, replace=False))
        rows.append(chosen)
        weights.append(np.full(chosen.size, part.size / max(chosen.size, 1)))
    return np.concatenate(rows), np.concatenate(weights)


def _fit_regions(data: _Design, options: ContextFit) -> NDArray[np.float64]:
    """Weights that make the true region most likely among all."""
    single = (data.present.sum(axis=1) == 1) & data.known.all(axis=1)
    inputs = data.inputs[single].astype(np.float64)
    true = data.present[single].argmax(axis=1)
    rows = np.arange(true.size)
    share = data.weights[single] / max(data.weights[single].sum(), 1e-12)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = inputs[..., 0] + inputs @ weights
        logs = log_softmax(odds, axis=1)
        slope = np.exp(logs)
        slope[rows, true] -= 1
        gradient = np.einsum("nl,nlk->k", slope * share[:, None], inputs)
        value = -float(share @ logs[rows, true])
        return (
            value + options.shrinkage * float(weights @ weights),
            gradient + 2 * options.shrinkage * weights,
        )

    return _minimised(loss, inputs.shape[2], inputs.shape[2])


def _fit_labels(data: _Design, options: ContextFit) -> NDArray[np.float64]:
    """Weights that make the labels most likely; slopes, biases and offsets are thrown away."""
    positives = (data.weights[:, None] * (data.present & data.known)).sum(axis=0)
    shown = np.flatnonzero(positives > 0)
    size = data.inputs.shape[2]
    if shown.size == 0:
        return np.zeros(size)
    inputs = data.inputs[:, shown].astype(np.float64)
    present = data.present[:, shown].astype(np.float64)
    # Every label counts alike: by what its positives weigh.
    share = data.weights[:, None] * data.known[:, shown] / (positives[shown] * shown.size)
    count, studies = shown.size, int(data.study.max()) + 1

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, slopes, biases, offsets = np.split(
            parameters, [size, size + count, size + 2 * count]
        )
        offsets = offsets.reshape(studies, count)
        odds = inputs[..., 0] + inputs @ weights
        factor = np.exp(slopes)
        scaled = odds * factor + biases + offsets[data.study]
        value = float((share * (np.logaddexp(0, scaled) - present * scaled)).sum())
        error = share * (expit(scaled) - present)
        by_study = np.zeros((studies, count))
        np.add.at(by_study, data.study, error)
        value += options.shrinkage * float(weights @ weights)
        value += 1e-3 * float(slopes @ slopes) + options.offsets * float((offsets**2).mean())
        return value, np.concatenate(
            [
                np.einsum("nl,nlk->k", error * factor, inputs) + 2 * options.shrinkage * weights,
                (error * odds * factor).sum(axis=0) + 2e-3 * slopes,
                error.sum(axis=0),
                (by_study + 2 * options.offsets * offsets / offsets.size).ravel(),
            ]
        )

    return _minimised(loss, size, size + 2 * count + studies * count)[:size]


def _minimised(
    loss: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
    weights: int,
    parameters: int,
) -> NDArray[np.float64]:
    """The parameters of the smallest loss; the first are weights, which are not negative."""
    bounds = [(0.0, LARGEST_WEIGHT)] * weights + [(None, None)] * (parameters - weights)
    result = minimize(
        loss, np.zeros(parameters), jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": 100},
    )  # fmt: skip
    return np.asarray(result.x)

"""What lies between two frames: the estimate of `enteron.inference.coarse_to_fine`, fitted.

Full readings of studies say what a coarse one would have missed. For every stride the readings are
thinned as a coarse reading would do it, with the clips that it would have, and every gap between
two neighbours becomes an example: what both ends show, and whether a frame between them crosses
the level of a label in the full reading. Two logistic curves, one for appearing and one for
disappearing, are fitted to all labels together; each label has a constant of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration, logit
from enteron.decoding import DecodeOptions, preset
from enteron.decoding.findings import median_run_length
from enteron.decoding.pipeline import decision_thresholds, frame_calibration
from enteron.errors import LabelError, ModelError
from enteron.folders.model import (
    CALIBRATION,
    LoadedModel,
    calibration_hash,
    decoding_priors,
    load_calibration,
    open_model,
    save_coarse,
)
from enteron.folders.reading import EMBEDDINGS, load_reading
from enteron.inference.coarse_to_fine import (
    STRIDES,
    WATCHED,
    CoarseEstimate,
    CoarseOptions,
    CoarsePolicy,
    Refinement,
    WatchedLabel,
    differences,
    gap_terms,
    nearest_rows,
)
from enteron.inference.score import Head, borrowed_probabilities, score_study
from enteron.inference.store import Embeddings, open_embeddings
from enteron.inference.views import ViewSet
from enteron.labels import COLUMN, FINDINGS
from enteron.model.options import FEATURES
from enteron.priors import Priors
from enteron.types import FrameAxis

LISTED_SHARE: Final = 0.005
"""Frames that a level lets through where a threshold would let through fewer: the list of
suspicious frames shows pictures below every threshold, and 100 of 20,000 are this share."""

_RIDGE = 1.0  # of the constants of labels, and of the slopes
_MOST_EXAMPLES = 400_000  # per curve; more are thinned evenly


@dataclass(frozen=True)
class FullReading:
    """A study of which every frame was encoded and scored."""

    embeddings: Embeddings
    log_odds: NDArray[np.float32]  # (readable rows, 17) of the raw scores
    row_frames: float  # frames of the recording from one row to the next

    @property
    def numbers(self) -> NDArray[np.int64]:
        return self.embeddings.frames[self.embeddings.readable]

    def refined(self, refinement: Refinement) -> NDArray[np.floating]:
        """(readable rows, 17) log-odds as decoders see them."""
        where = self.numbers.astype(np.float64) * (self.row_frames / FrameAxis(self.numbers).step)
        return refinement.refined(self.log_odds, where, self.row_frames)


def full_reading(
    head: Head, embeddings: Embeddings, row_frames: float, views: ViewSet
) -> FullReading:
    """Score the stored embeddings of a full reading."""
    scores = score_study(head, embeddings, views=views)
    return FullReading(embeddings, logit(scores.values), row_frames)


def fit_readings(model: Path, folders: Sequence[Path]) -> CoarseEstimate:
    """Fit the estimate of a model on reading folders of other studies, and store it beside it.

    Every frame of these readings has to be encoded, by this model's encoder.
    """
    loaded = open_model(model)
    calibrated = (model / CALIBRATION).exists()
    calibration = load_calibration(model) if calibrated else Calibration()
    readings = [_open_reading(loaded, folder) for folder in folders]
    refinement = refinement_of(calibration, decoding_priors(calibration, model))
    estimate = fit_coarse(
        loaded.head,
        readings,
        watched_levels(calibration, readings, refinement),
        weights=loaded.record.weights_hash,
        calibration=calibration_hash(model) if calibrated else None,
        refinement=refinement,
    )
    save_coarse(estimate, model)
    return estimate


def _open_reading(model: LoadedModel, folder: Path) -> FullReading:
    reading = load_reading(folder)
    embeddings = open_embeddings(folder / EMBEDDINGS, check=False)
    if embeddings.key.backbone != model.record.backbone_hash:
        raise ModelError(
            f"the reading of study {reading.study} was made with another encoder",
            "give readings that were made with this model",
        )
    if embeddings.key.coarse is not None or embeddings.key.redundancy is not None:
        raise LabelError(
            f"the reading of study {reading.study} left out frames itself",
            "read the study again without --coarse, --minutes and --skip-redundant",
        )
    runtime = reading.run.runtime
    views: ViewSet = "flip" if runtime is None or runtime.views is None else runtime.views
    return full_reading(model.head, embeddings, reading.scores.row_frames, views)


def refinement_of(calibration: Calibration, priors: Priors) -> Refinement:
    """What `transit` makes of scores before they meet thresholds."""
    return Refinement(
        context=frame_calibration(preset("transit"), calibration).context,
        windows={label: median_run_length(label, priors) for label in FINDINGS},
    )


def watched_levels(
    calibration: Calibration,
    readings: Sequence[FullReading],
    refinement: Refinement,
    decoding: DecodeOptions | None = None,
) -> dict[str, float]:
    """Log-odds of scores, after context, from which on a frame matters, by landmark or finding.

    The threshold of events. For findings, where fewer frames reach it than the list of pictures may
    show, the log-odds that `LISTED_SHARE` of the frames reach. Labels that are never reported and
    in no list are missing.
    """
    decoding = preset("transit") if decoding is None else decoding
    frames = frame_calibration(decoding, calibration)
    thresholds = decision_thresholds(decoding, calibration)
    everything = np.concatenate([reading.refined(refinement) for reading in readings])
    levels: dict[str, float] = {}
    for label in WATCHED:
        threshold = thresholds.get(label)
        level = np.inf
        if threshold is not None:
            calibrated = float(logit(np.array([threshold]))[0])
            level = (calibrated - frames.bias[label]) * frames.temperature_of(label)
        if label in FINDINGS and label not in calibration.unproven:
            listed = float(np.quantile(everything[:, COLUMN[label]], 1 - LISTED_SHARE))
            level = min(level, listed)
        if np.isfinite(level):
            levels[label] = round(float(level), 6)
    return levels


@dataclass(frozen=True)
class _Gaps:
    """Gaps of one thinned reading."""

    ends: NDArray[np.floating]  # (gaps, 2, 17) log-odds of both ends, as a coarse reading has them
    most: NDArray[np.float32]  # (gaps, 17) log-odds of the frames between, in the full reading
    least: NDArray[np.float32]
    difference: NDArray[np.float64]
    frames: NDArray[np.float64]


def _gaps(
    head: Head, reading: FullReading, stride: int, offset: int, refinement: Refinement
) -> _Gaps:
    """Thin a reading to every `stride`-th row from `offset` on; gaps in the numbering are none."""
    embeddings = reading.embeddings
    readable = embeddings.readable[offset:]
    numbers, log_odds = embeddings.frames[readable], reading.refined(refinement)[offset:]
    step = int(np.diff(embeddings.frames).min()) if len(embeddings) > 1 else 1
    nothing = _NOTHING.model_copy(update={"refinement": refinement})
    policy = CoarsePolicy(CoarseOptions(stride=stride), nothing, reading.row_frames)
    grid = policy.first_rows(numbers, step)
    features = np.asarray(embeddings.features[readable[grid]], np.float32)
    source = nearest_rows(grid, readable.size)
    ends = logit(borrowed_probabilities(head, features, source))
    ends = policy.refined(grid, ends, source, numbers, step)
    start, stop = grid[:-1], grid[1:]
    inside = (stop - start > 1) & (numbers[stop] - numbers[start] == (stop - start) * step)
    plain = embeddings.view("plain")
    difference = differences(features[:, plain, :FEATURES])
    # Every other piece of `reduceat` lies between two rows of the grid.
    borders = np.column_stack([start[inside] + 1, stop[inside]]).ravel()
    return _Gaps(
        np.stack([ends[:-1][inside], ends[1:][inside]], axis=1),
        np.maximum.reduceat(log_odds, borders, axis=0)[::2],
        np.minimum.reduceat(log_odds, borders, axis=0)[::2],
        difference[inside],
        (stop - start)[inside].astype(np.float64) * reading.row_frames,
    )


_NOTHING = CoarseEstimate(
    weights="0" * 64,
    labels={},
    appears=(0.0,) * 5,
    disappears=(0.0,) * 5,
    studies=1,
    rows=1,
    densest=1,
    sparsest=1,
)


def fit_coarse(
    head: Head,
    readings: Sequence[FullReading],
    levels: Mapping[str, float],
    *,
    weights: str,
    calibration: str | None = None,
    refinement: Refinement | None = None,
) -> CoarseEstimate:
    """Fit the estimate on full readings of studies that it is not going to be used on."""
    refinement = Refinement() if refinement is None else refinement
    parts = [
        _gaps(head, reading, stride, offset, refinement)
        for reading in readings
        for stride in STRIDES
        for offset in (0, stride // 2)
        if reading.log_odds.shape[0] > 2 * stride
    ]
    parts = [part for part in parts if part.frames.size]
    if not parts:
        raise LabelError(
            "these readings are too short to say what lies between two frames",
            "give readings of whole studies",
        )
    labels = list(levels)
    appearing = [_examples(parts, label, levels[label], above=False) for label in labels]
    vanishing = [_examples(parts, label, levels[label], above=True) for label in labels]
    appears, appears_offsets = _fit_curve(appearing, rising=1.0)
    disappears, disappears_offsets = _fit_curve(vanishing, rising=-1.0)
    return CoarseEstimate(
        weights=weights,
        calibration=calibration,
        refinement=refinement,
        labels={
            label: WatchedLabel(
                level=levels[label], appears=appears_offsets[k], disappears=disappears_offsets[k]
            )
            for k, label in enumerate(labels)
        },
        appears=appears,
        disappears=disappears,
        studies=len(readings),
        rows=sum(len(reading.log_odds) for reading in readings),
        densest=min(reading.row_frames for reading in readings),
        sparsest=max(reading.row_frames for reading in readings),
    )


_Examples = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Terms (gaps, 5), and whether a frame between the ends crosses the level."""


def _examples(parts: Sequence[_Gaps], label: str, level: float, *, above: bool) -> _Examples:
    """Gaps of one label with both ends above its level, or both below."""
    column = COLUMN[label]
    terms: list[NDArray[np.float64]] = [np.empty((0, 5))]
    crossed: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    for part in parts:
        margin = part.ends[:, :, column].astype(np.float64) - level
        high, low = margin.max(axis=1), margin.min(axis=1)
        used = low >= 0 if above else high < 0
        found = part.least[:, column] < level if above else part.most[:, column] >= level
        terms.append(gap_terms(high[used], low[used], part.difference[used], part.frames[used]))
        crossed.append(found[used])
    return np.concatenate(terms), np.concatenate(crossed)


def _fit_curve(
    examples: Sequence[_Examples], rising: float
) -> tuple[tuple[float, ...], list[float]]:
    """Coefficients common to all labels, and a constant for each.

    `rising`: the sign of the effect of margins where there are too few examples to learn it.
    """
    from scipy.optimize import minimize

    terms = np.concatenate([part[0] for part in examples])
    crossed = np.concatenate([part[1] for part in examples])
    group = np.repeat(np.arange(len(examples)), [len(part[0]) for part in examples])
    prior = np.array([-2.0, 0.5 * rising, 0.5 * rising, 0.3, 0.3])
    if terms.shape[0] > _MOST_EXAMPLES:
        # Examples without a crossing, far below the level, are plenty and alike.
        kept = np.unique(np.linspace(0, terms.shape[0] - 1, _MOST_EXAMPLES).astype(np.int64))
        kept = np.union1d(kept, np.flatnonzero(crossed))
        weight = np.full(kept.size, terms.shape[0] / _MOST_EXAMPLES)
        weight[crossed[kept]] = 1.0
        terms, crossed, group = terms[kept], crossed[kept], group[kept]
    else:
        weight = np.ones(terms.shape[0])

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        common, own = x[:5], x[5:]
        z = terms @ common + own[group]
        p = 1 / (1 + np.exp(-np.clip(z, -500, 500)))
        value = (weight * (np.logaddexp(0, z) - crossed * z)).sum()
        slope = weight * (p - crossed)
        value += _RIDGE * (((common - prior)[1:] ** 2).sum() + (own**2).sum()) / 2
        of_common = terms.T @ slope
        of_common[1:] += _RIDGE * (common - prior)[1:]
        of_own = np.bincount(group, slope, minlength=len(examples)) + _RIDGE * own
        return float(value), np.concatenate([of_common, of_own])

    start = np.concatenate([prior, np.zeros(len(examples))])
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B").x if terms.size else start
    rounded = [round(float(x), 6) for x in fitted]
    return tuple(rounded[:5]), rounded[5:]

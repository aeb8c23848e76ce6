"""What lies between two frames: the estimate of `enteron.inference.coarse_to_fine`, fitted.

Full readings of studies say what a coarse one would have missed. For every stride the readings are
thinned as a coarse reading would do it, with the clips that it would have, and every gap between
two neighbours becomes an example: what both ends show, and whether a frame between them crosses
the level of a label in the full reading. Two logistic curves, one for appearing and one for
disappearing, are fitted to all labels together; each label has a constant of its own.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration, logit
from enteron.decoding import DecodeOptions, preset
from enteron.decoding.findings import Candidate, event_confidence, median_run_length
from enteron.decoding.pipeline import decision_thresholds, frame_calibration, lower_share
from enteron.errors import EnteronError, LabelError, ModelError, StudyError
from enteron.fitting.glance import GlanceFit, SmallStudy, fit_glance, left_out_guesses
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
    TERMS,
    WATCHED,
    CoarseEstimate,
    CoarseOptions,
    CoarsePolicy,
    Gaps,
    Refinement,
    WatchedLabel,
    nearest_rows,
    with_clips,
)
from enteron.inference.glance import SMALL, glance_content, small_picture
from enteron.inference.pictures import prepared_frames, study_fields
from enteron.inference.score import Head, clip_offsets, encoded_probabilities, score_study
from enteron.inference.store import Embeddings, open_embeddings
from enteron.inference.views import ViewSet
from enteron.labels import COLUMN, FINDINGS
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing
from enteron.priors import Priors
from enteron.progress import Progress, SilentProgress
from enteron.study import Study, open_study
from enteron.study.content import sampled_hash
from enteron.study.search import search
from enteron.types import FrameAxis

LISTED_SHARE: Final = 0.005
"""Frames that a level lets through where a threshold would let through fewer: the list of
suspicious frames shows pictures below every threshold, and 100 of 20,000 are this share."""

UNREPORTED_STAKE: Final = 0.1
"""Of labels that only the list shows: what a picture of them is worth beside a sure event."""

_FOLDS = 3
_RIDGE = 1.0  # of the constants of labels, and of the slopes
_NEAR = 2.0  # log-odds from a threshold within which errors of what is expected count
_UNKNOWN_DOUBT = 1.0  # mean square error where nothing is known of it
_MOST_EXAMPLES = 400_000  # per curve; more are thinned evenly


@dataclass(frozen=True)
class FullReading:
    """A study of which every frame was encoded and scored."""

    embeddings: Embeddings
    log_odds: NDArray[np.float32]  # (readable rows, 17) of the raw scores
    row_frames: float  # frames of the recording from one row to the next
    guesses: NDArray[np.float32]  # (readable rows, 17) of the glance

    @property
    def numbers(self) -> NDArray[np.int64]:
        return self.embeddings.frames[self.embeddings.readable]

    @property
    def where(self) -> NDArray[np.float64]:
        """(readable rows,) where they lie in time, in frames of the recording."""
        return self.numbers.astype(np.float64) * (self.row_frames / FrameAxis(self.numbers).step)

    def refined(self, refinement: Refinement) -> NDArray[np.floating]:
        """(readable rows, 17) log-odds as decoders see them."""
        return refinement.refined(self.log_odds, self.where, self.row_frames)


def full_reading(
    head: Head, embeddings: Embeddings, row_frames: float, views: ViewSet
) -> FullReading:
    """Score the stored embeddings of a full reading; no guesses yet, which count as 0."""
    log_odds = logit(score_study(head, embeddings, views=views).values)
    return FullReading(embeddings, log_odds, row_frames, np.zeros_like(log_odds))


def fit_readings(
    model: Path,
    folders: Sequence[Path],
    studies: Sequence[Path],
    options: GlanceFit | None = None,
    progress: Progress | None = None,
) -> CoarseEstimate:
    """Fit glance and estimate of a model on reading folders of other studies; store them beside it.

    Every frame of these readings has to be encoded, by this model's encoder. `studies` are the
    studies, or folders of them: their pictures are compared with those that were read.
    """
    progress = SilentProgress() if progress is None else progress
    loaded = open_model(model)
    calibrated = (model / CALIBRATION).exists()
    calibration = load_calibration(model) if calibrated else Calibration()
    readings = [_open_reading(loaded, folder) for folder in folders]
    found = _find_studies(readings, studies)
    with ExitStack() as stack:
        small = [
            _small_study(
                reading,
                stack.enter_context(study),
                loaded.record.backbone.preprocessing,
                stack,
                progress,
            )
            for reading, study in zip(readings, found, strict=True)
        ]
        guesses = left_out_guesses(small, _folds(len(small)), options, progress)
        glance = fit_glance(small, options, progress)
    readings = [replace(r, guesses=g) for r, g in zip(readings, guesses, strict=True)]
    refinement = refinement_of(calibration, decoding_priors(calibration, model))
    content = glance_content(glance)
    estimate = fit_coarse(
        loaded.head,
        readings,
        watched_labels(calibration, readings, refinement),
        weights=loaded.record.weights_hash,
        calibration=calibration_hash(model) if calibrated else None,
        glance=hashlib.sha256(content).hexdigest(),
        refinement=refinement,
    )
    save_coarse(estimate, content, model)
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


def _find_studies(readings: Sequence[FullReading], roots: Sequence[Path]) -> list[Study]:
    """The study of every reading: the one with its frames whose files have the same content."""
    paths: list[Path] = []
    for root in roots:
        paths += search(root, lambda _: False).studies if root.is_dir() else [root]
    found: dict[int, Study] = {}
    for path in paths:
        for number, reading in enumerate(readings):
            if number in found:
                continue
            frames = reading.embeddings.frames
            with suppress(EnteronError):  # other studies of the folder may be damaged
                only = frames if path.is_dir() else None
                study = open_study(path, study_id=reading.embeddings.record.study, only=only)
                if np.array_equal(study.numbers, frames) and (
                    sampled_hash(study.files()) == reading.embeddings.key.samples
                ):
                    found[number] = study
                    break
    for number, reading in enumerate(readings):
        if number not in found:
            raise StudyError(
                f"no study given has the pictures of study {reading.embeddings.record.study}",
                "give the study that was read, or a folder that holds it, with --studies",
            )
    return [found[number] for number in range(len(readings))]


def _small_study(
    reading: FullReading,
    study: Study,
    preprocessing: Preprocessing,
    stack: ExitStack,
    progress: Progress,
) -> SmallStudy:
    """Small pictures of all frames that were read, in a file without a name: pictures of patients.

    They are gone when the stack is closed.
    """
    readable = set(reading.numbers.tolist())
    file = stack.enter_context(TemporaryFile())  # noqa: SIM115
    count = 0
    with progress.task("Small pictures", len(study)) as advance:
        for frame in prepared_frames(study, 0, preprocessing, study_fields(study, preprocessing)):
            if frame.number in readable:
                if frame.image is None:
                    raise StudyError(
                        f"frame {frame.number} of study {study.id} could be read then and cannot "
                        "be read now",
                        "read the study again",
                    )
                file.write(small_picture(frame.image).tobytes())
                count += 1
            advance(1)
    file.flush()
    pictures = np.memmap(file, np.uint8, "r", shape=(count, SMALL, SMALL, 3))
    return SmallStudy(pictures, reading.log_odds)


def _folds(studies: int) -> list[list[int]]:
    """Groups of studies that are left out in turn."""
    count = min(_FOLDS, studies)
    return [list(range(first, studies, count)) for first in range(count)]


def refinement_of(calibration: Calibration, priors: Priors) -> Refinement:
    """What `transit` makes of scores before they meet thresholds."""
    context = frame_calibration(preset("transit"), calibration).context
    if context is not None and context.study:
        raise ModelError(
            "the context of this model's calibration looks at whole studies, and coarse to fine "
            "decides a piece at a time",
            "calibrate the model without it",
        )
    return Refinement(
        context=context,
        windows={label: median_run_length(label, priors) for label in FINDINGS},
    )


def watched_labels(
    calibration: Calibration,
    readings: Sequence[FullReading],
    refinement: Refinement,
    decoding: DecodeOptions | None = None,
) -> dict[str, WatchedLabel]:
    """Levels of landmarks and findings, in log-odds of scores as decoders see them.

    The level is the threshold of events. For findings it is the probability that `LISTED_SHARE` of
    the frames reach with any finding, where that is lower: the list of pictures shows them. Labels
    that are neither reported nor as probable as that anywhere are missing.
    """
    decoding = preset("transit") if decoding is None else decoding
    frames = frame_calibration(decoding, calibration)
    thresholds = decision_thresholds(decoding, calibration)
    low = lower_share(decoding, calibration)
    refined = [reading.refined(refinement) for reading in readings]
    listed = [label for label in FINDINGS if label not in calibration.unproven]
    temperature = np.array([frames.temperature_of(label) for label in listed])
    bias = np.array([frames.bias[label] for label in listed])
    columns = [COLUMN[label] for label in listed]
    # Log-odds after calibration, of the most probable finding of every frame.
    highest = np.concatenate([values[:, columns] / temperature + bias for values in refined])
    list_level = float(np.quantile(highest.max(axis=1), 1 - LISTED_SHARE))
    labels: dict[str, WatchedLabel] = {}
    for label in WATCHED:
        threshold = thresholds.get(label)
        level = floor = np.inf
        of_events: float | None = None
        stake = UNREPORTED_STAKE
        if threshold is not None:
            level, floor = logit(np.array([threshold, low * threshold])).tolist()
            if label in FINDINGS:
                of_events = level
                candidate = Candidate(label, 0, 1, threshold, threshold, 0.0)
                stake = max(event_confidence(candidate, calibration), UNREPORTED_STAKE)
            else:
                stake = 1.0
        if label in listed and (highest[:, listed.index(label)] >= list_level).any():
            level = min(level, list_level)
        if np.isfinite(level):
            own, spread = frames.bias[label], frames.temperature_of(label)
            labels[label] = WatchedLabel(
                level=round((level - own) * spread, 6),
                floor=round((min(level, floor) - own) * spread, 6),
                stake=round(stake, 4),
                threshold=None if of_events is None else round((of_events - own) * spread, 6),
            )
    return labels


@dataclass(frozen=True)
class _Thinned:
    """A reading of which only some rows are encoded, and what the others are like in the full one.

    Gaps in the numbering are no gaps.
    """

    gaps: Gaps
    refined: NDArray[np.floating]  # (n, 17) of the full reading, as decoders see them
    scored: NDArray[np.floating]  # (n, 17) of the full reading, of single frames


def _thinned(
    head: Head, reading: FullReading, stride: int, offset: int, refinement: Refinement
) -> _Thinned:
    """Thin a reading to every `stride`-th row from `offset` on, with the rows of their clips."""
    embeddings = reading.embeddings
    readable = embeddings.readable[offset:]
    numbers = embeddings.frames[readable]
    step = int(np.diff(embeddings.frames).min()) if len(embeddings) > 1 else 1
    nothing = _NOTHING.model_copy(update={"refinement": refinement})
    policy = CoarsePolicy(CoarseOptions(stride=stride), nothing, reading.row_frames)
    grid = with_clips(policy.first_rows(numbers, step), clip_offsets(head))
    features = np.asarray(embeddings.features[readable[grid]], np.float32)
    source = nearest_rows(grid, readable.size)
    scored = logit(encoded_probabilities(head, features, source))
    plain = features[:, embeddings.view("plain"), :FEATURES]
    guesses, where = reading.guesses[offset:], reading.where[offset:]
    return _Thinned(
        policy.gaps(grid, scored, plain, guesses, where),
        reading.refined(refinement)[offset:],
        reading.log_odds[offset:],
    )


_NOTHING = CoarseEstimate(
    weights="0" * 64,
    glance="0" * 64,
    labels={},
    appears=(0.0,) * TERMS,
    disappears=(0.0,) * TERMS,
    tops=(0.0,) * TERMS,
    studies=1,
    rows=1,
    densest=1,
    sparsest=1,
)


def fit_coarse(
    head: Head,
    readings: Sequence[FullReading],
    labels: Mapping[str, WatchedLabel],
    *,
    weights: str,
    glance: str,
    calibration: str | None = None,
    refinement: Refinement | None = None,
) -> CoarseEstimate:
    """Fit the estimate on full readings of studies that it is not going to be used on.

    `weights`, `glance` and `calibration` are the hashes of what made the readings.
    """
    refinement = Refinement() if refinement is None else refinement
    curves = [[_NO_EXAMPLES for _ in labels] for _ in range(3)]
    doubts = {label: np.zeros(2) for label in labels}
    for reading, stride in product(readings, STRIDES):
        for offset in (0, stride // 2):
            if reading.log_odds.shape[0] <= 2 * stride:
                continue
            part = _thinned(head, reading, stride, offset, refinement)
            for label in doubts:
                reach = refinement.reach(label, reading.row_frames)
                doubts[label] += _doubt(part, COLUMN[label], labels[label].threshold, reach)
            for number, (label, watched) in enumerate(labels.items()):
                examples = _examples(part, COLUMN[label], watched)
                for curve, (terms, crossed) in zip(curves, examples, strict=True):
                    before = curve[number]
                    curve[number] = (
                        np.concatenate([before[0], terms.astype(np.float32)]),
                        np.concatenate([before[1], crossed]),
                    )
    if not any(terms.size for curve in curves for terms, _ in curve):
        raise LabelError(
            "these readings are too short to say what lies between two frames",
            "give readings of whole studies",
        )
    appears, appears_offsets = _fit_curve(curves[0], rising=1.0)
    disappears, disappears_offsets = _fit_curve(curves[1], rising=-1.0)
    tops, tops_offsets = _fit_curve(curves[2], rising=1.0)
    return CoarseEstimate(
        weights=weights,
        calibration=calibration,
        glance=glance,
        refinement=refinement,
        labels={
            label: watched.model_copy(
                update={
                    "appears": appears_offsets[k],
                    "disappears": disappears_offsets[k],
                    "tops": tops_offsets[k],
                    "doubt": 0.0 if watched.threshold is None else _mean_doubt(doubts[label]),
                }
            )
            for k, (label, watched) in enumerate(labels.items())
        },
        appears=appears,
        disappears=disappears,
        tops=tops,
        studies=len(readings),
        rows=sum(len(reading.log_odds) for reading in readings),
        densest=min(reading.row_frames for reading in readings),
        sparsest=max(reading.row_frames for reading in readings),
    )


_Examples = tuple[NDArray[np.floating], NDArray[np.bool_]]
"""Terms (gaps, 6), and whether what they foretell is so."""

_NO_EXAMPLES: _Examples = (np.empty((0, TERMS), np.float32), np.empty(0, np.bool_))


def _examples(
    part: _Thinned, column: int, watched: WatchedLabel
) -> tuple[_Examples, _Examples, _Examples]:
    """Of a label: gaps none of whose ends shows it, those both of whose do, those with any."""
    gaps = part.gaps
    of_label = gaps.of_label(column, watched.level, watched.floor)
    none, both = of_label.shown == 0, of_label.shown == 2
    most = gaps.most(part.refined[:, column])
    least = gaps.least(part.refined[:, column])
    single = gaps.most_inside(part.scored[:, column])
    return (
        (of_label.appears[none], most[none] >= watched.level),
        (of_label.disappears[both], least[both] < watched.floor),
        (of_label.tops[~none], single[~none] > of_label.best[~none]),
    )


def _doubt(part: _Thinned, column: int, threshold: float | None, reach: int) -> NDArray[np.float64]:
    """Squared errors of what is expected near a threshold, and the shares that they are due to."""
    if threshold is None:
        return np.zeros(2)
    share = part.gaps.unencoded_share(reach)
    expected, true = part.gaps.refined[:, column], part.refined[:, column]
    near = (share > 0) & (np.abs(expected - threshold) < _NEAR)
    return np.array([((expected - true)[near] ** 2).sum(), share[near].sum()])


def _mean_doubt(sums: NDArray[np.float64]) -> float:
    """The mean square error where nothing is encoded; a broad one where nothing is known."""
    error, share = sums + np.array([_UNKNOWN_DOUBT, 1.0])
    return round(float(error / share), 4)


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
    prior = np.array([-2.0, 0.5 * rising, 0.5 * rising, 0.3, 0.3, 0.5 * rising])
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
        common, own = x[:TERMS], x[TERMS:]
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
    return tuple(rounded[:TERMS]), rounded[TERMS:]

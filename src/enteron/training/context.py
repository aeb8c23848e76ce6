"""Teaching the context head: whole studies, scored by networks that had not seen them.

A network knows its own training studies too well: a head that learnt from those scores would trust
scores of new studies as much. So the training studies are dealt into folds, a network is trained
without each of them, and its scores of what it did not see teach the context head.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from enteron.datasets.splits import divide
from enteron.errors import TrainingError, quantity
from enteron.inference.score import Head
from enteron.labels import ANATOMY, LABELS
from enteron.model.context import frame_positions, log_odds
from enteron.model.context_layers import ContextLayers
from enteron.model.network import Network
from enteron.model.options import FEATURES
from enteron.model.preprocessing import window_rows
from enteron.progress import Advance, Progress, SilentProgress
from enteron.training.checkpoint import load_fitted, save_fitted
from enteron.training.distributed import Processes
from enteron.training.features import FeatureSource, StudyFeatures
from enteron.training.loop import TrainingLoop
from enteron.training.losses import asymmetric_focal, smooth_labels
from enteron.training.options import ContextTrainingOptions, LossOptions, TrainingOptions
from enteron.training.results import ValidationMetrics, validation_metrics
from enteron.training.sampling import StudySamples, generator, seed_of
from enteron.types import FrameAxis, FrameLabels, Scores

CONTEXT = "context"
"""Before the names of what a training keeps of the context head until it is finished."""

_BLOCK = 4096  # windows scored at a time
_LARGEST_STEP = 4.0  # of log-probabilities between neighbours, as in MS-TCN's truncated loss


@dataclass(frozen=True)
class ContextStudy:
    """The readable frames of a study, in the order of time."""

    study: str
    logits: NDArray[np.float32]  # (n, views, 17) of the network
    embeddings: NDArray[np.float32]  # (n, views, 512); (n, views, 0) where only scores are known
    positions: NDArray[np.float64]  # (n,) in original frames
    labels: FrameLabels  # of the n frames; what no sample says is unknown

    def __len__(self) -> int:
        return self.positions.size

    def rows(self, rows: NDArray[np.int64]) -> "ContextStudy":
        """Some of the frames, in the order of time."""
        return replace(
            self,
            logits=self.logits[rows],
            embeddings=self.embeddings[rows],
            positions=self.positions[rows],
            labels=self.labels[rows],
        )


@dataclass(frozen=True)
class ContextResult:
    """What the context head is worth on the validation studies."""

    without: ValidationMetrics
    with_context: ValidationMetrics


def context_study(head: Head, stored: StudyFeatures, frames_per_row: float | None) -> ContextStudy:
    """A study with stored features, scored view by view."""
    options, samples, features, readable = (
        head.options,
        stored.samples,
        stored.features,
        stored.readable,
    )
    windows = window_rows(readable.size, options.neighbour_step, options.frames)
    views = features.shape[1]
    logits = np.empty((readable.size, views, len(LABELS)), np.float32)
    embeddings = np.empty((readable.size, views, FEATURES), np.float32)
    for start in range(0, readable.size, _BLOCK):
        block = windows[start : start + _BLOCK]
        stop, first = start + len(block), int(block.min())
        read = np.asarray(features[readable[first:stop]], np.float32)
        embeddings[start:stop] = read[start - first :, :, :FEATURES]
        for view in range(views):
            of_view = np.ascontiguousarray(read[:, view])
            logits[start:stop, view] = log_odds(head.probabilities(of_view, block - first))
    return ContextStudy(
        samples.study,
        logits,
        embeddings,
        frame_positions(samples.stored[readable], FrameAxis(samples.stored).step, frames_per_row),
        _labels_of(samples, readable),
    )


def _labels_of(samples: StudySamples, readable: NDArray[np.int64]) -> FrameLabels:
    """Labels of all readable frames; those that are no samples are unknown."""
    known_samples = samples.restricted_to(readable)
    shape = (readable.size, samples.labels.present.shape[1])
    present, known = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    present[known_samples.rows] = known_samples.labels.present
    known[known_samples.rows] = known_samples.labels.known
    return FrameLabels(present, known)


def findings_study(samples: StudySamples, scores: Scores) -> ContextStudy:
    """A study of which only scores of findings are known, from layers that had not seen it."""
    _, rows, own = np.intersect1d(
        scores.axis.frames, samples.stored[samples.rows], assume_unique=True, return_indices=True
    )
    present, known = (np.zeros(scores.values.shape, np.bool_) for _ in range(2))
    present[rows], known[rows] = samples.labels.present[own], samples.labels.known[own]
    known[:, : len(ANATOMY)] = False
    return ContextStudy(
        samples.study,
        log_odds(scores.values)[:, None],
        np.empty((len(scores.axis), 1, 0), np.float32),
        frame_positions(scores.axis.frames, scores.axis.step, None),
        FrameLabels(present & known, known),
    )


def fit_context(
    studies: Sequence[ContextStudy],
    layers: ContextLayers,
    options: ContextTrainingOptions,
    losses: LossOptions,
    *,
    seed: int,
    advance: Advance | None = None,
) -> None:
    """Fit the head to studies; the result depends on them, the options and the seed only."""
    studies = [study for study in studies if study.labels.known.any()]
    if not studies:
        raise TrainingError(
            "no study has a labelled frame that the context head could learn from",
            "give labelled studies, or train without `model.context`",
        )
    _set_scales(layers, studies)
    layers.requires_grad_(True)
    parameters = list(layers.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "context"))
        _start(layers)
        optimiser = torch.optim.AdamW(parameters, lr=options.rate, weight_decay=options.decay)
        average = [torch.zeros_like(parameter) for parameter in parameters]
        averaged = 0
        for step in range(options.steps):
            torch.manual_seed(seed_of(seed, "context step", step))  # of dropout
            factor = 0.5 * (1 + math.cos(math.pi * step / options.steps))
            for group in optimiser.param_groups:
                group["lr"] = options.rate * factor
            rng = generator(seed, "context crops", step)
            optimiser.zero_grad(set_to_none=True)
            for _ in range(options.crops):
                crop = _augmented(_crop(studies, options, rng), options, rng)
                loss = _loss(layers, crop, options, losses, rng) / options.crops
                loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            if step >= options.steps // 2:  # the mean of the second half is steadier than its end
                averaged += 1
                for total, parameter in zip(average, parameters, strict=True):
                    total += parameter.detach()
            if advance is not None:
                advance(1)
    with torch.no_grad():
        for total, parameter in zip(average, parameters, strict=True):
            parameter.copy_(total / averaged)
    if not all(parameter.isfinite().all() for parameter in parameters):
        raise TrainingError(
            "the context head did not converge", "lower `rate` in the table `context`"
        )
    layers.requires_grad_(False)
    layers.eval()


def teach_context(
    network: Network,
    start: Network,
    train: FeatureSource,
    val: FeatureSource,
    options: TrainingOptions,
    *,
    frames_per_row: Mapping[str, float | None],
    evidence: Sequence[ContextStudy] = (),
    folder: Path | None = None,
    progress: Progress | None = None,
    processes: Processes | None = None,
    device: torch.device | None = None,
) -> ContextResult:
    """Fit the context head of a trained network.

    `start` is the network before its training, from which a network is trained for every fold;
    `folder` keeps their checkpoints and what was fitted, so that nothing is done twice.
    `frames_per_row`: by study, for those that were shortened. `evidence`: studies whose findings
    come from local evidence of layers that had not seen them.
    """
    processes, progress = processes or Processes(), progress or SilentProgress()
    layers = network.context_layers
    assert layers is not None
    if not (folder is not None and load_fitted(folder, CONTEXT, layers)):
        studies = [
            *_left_out_studies(
                start,
                train,
                val,
                options,
                frames_per_row=frames_per_row,
                folder=folder,
                progress=progress,
                processes=processes,
                device=device,
            ),
            *evidence,
        ]
        with progress.task("Fitting the context head", options.context.steps, "steps") as advance:
            fit_context(
                studies, layers, options.context, options.losses, seed=options.seed, advance=advance
            )
        if folder is not None and processes.is_first:
            save_fitted(folder, CONTEXT, layers)
    return _validate(network, val, frames_per_row)


def _left_out_studies(
    start: Network,
    train: FeatureSource,
    val: FeatureSource,
    options: TrainingOptions,
    *,
    frames_per_row: Mapping[str, float | None],
    folder: Path | None,
    progress: Progress,
    processes: Processes,
    device: torch.device | None,
) -> list[ContextStudy]:
    """The training studies, each scored by a network that was trained without it."""
    by_id = {study.samples.study: study for study in train.studies}
    if len(by_id) < 2:
        raise TrainingError(
            "the context head needs two training studies, since each is scored by a network that "
            f"did not see it, and there is {len(by_id)}",
            "give more studies, or train without `model.context`",
        )
    shows = {name: study.samples.labels.present_counts > 0 for name, study in by_id.items()}
    parts = divide(list(by_id), min(options.context.folds, len(by_id)), options.seed, shows)
    frames, step = options.model.frames, options.model.neighbour_step
    studies: list[ContextStudy] = []
    for number, part in enumerate(parts, start=1):
        progress.message(
            f"Scores for the context head, fold {number} of {len(parts)}: "
            f"{quantity(len(part), 'training study', 'training studies')} left out."
        )
        others = [study for name, study in by_id.items() if name not in part]
        fold = TrainingLoop(
            copy.deepcopy(start),
            FeatureSource(others, frames, step),
            val,
            options,
            folder=None if folder is None else folder / f"{CONTEXT}-{number}",
            progress=progress,
            processes=processes,
            device=device,
        )
        scorer = fold.run().network
        studies += [context_study(scorer, by_id[name], frames_per_row.get(name)) for name in part]
    return studies


def _validate(
    network: Network, val: FeatureSource, frames_per_row: Mapping[str, float | None]
) -> ContextResult:
    """Metrics of the validation studies with the context head and without, of their first view."""
    context = network.context
    assert context is not None
    truth, plain, refined = [], [], []
    for stored in val.studies:
        study = context_study(network, stored, frames_per_row.get(stored.samples.study))
        known = np.flatnonzero(study.labels.known.any(axis=1))
        before = expit(study.logits[:, 0])
        after = context.refine(before, context.project(study.embeddings[:, 0]), study.positions)
        truth.append(study.labels[known])
        plain.append(before[known])
        refined.append(after[known])
    labels = FrameLabels.concatenate(truth)
    return ContextResult(
        without=validation_metrics(labels, np.concatenate(plain)),
        with_context=validation_metrics(labels, np.concatenate(refined)),
    )


def _set_scales(layers: ContextLayers, studies: Sequence[ContextStudy]) -> None:
    """Mean and spread of the embeddings, every study alike."""
    if layers.project is None:
        return
    means = np.stack([study.embeddings.mean(axis=(0, 1), dtype=np.float64) for study in studies])
    squares = np.stack(
        [np.square(study.embeddings, dtype=np.float64).mean(axis=(0, 1)) for study in studies]
    )
    mean = means.mean(axis=0)
    spread = np.sqrt(np.maximum(squares.mean(axis=0) - mean**2, 1e-12))
    layers.feature_mean[:] = torch.from_numpy(mean)
    layers.feature_scale[:] = torch.from_numpy(np.maximum(spread, 1e-3))


def _start(layers: ContextLayers) -> None:
    """Initial weights from the seed; the outputs start at 0, as no change of any score."""
    for module in layers.modules():
        if isinstance(module, torch.nn.Linear):
            module.reset_parameters()
    for branch in (layers.anatomy, layers.findings):
        torch.nn.init.zeros_(branch.out.weight)
        torch.nn.init.zeros_(branch.out.bias)


def _crop(
    studies: Sequence[ContextStudy], options: ContextTrainingOptions, rng: np.random.Generator
) -> ContextStudy:
    """A study, or a long part of it."""
    study = studies[int(rng.integers(len(studies)))]
    if len(study) <= options.rows:
        return study
    start = int(rng.integers(len(study) - options.rows + 1))
    return study.rows(np.arange(start, start + options.rows))


def _augmented(
    crop: ContextStudy, options: ContextTrainingOptions, rng: np.random.Generator
) -> ContextStudy:
    """The crop with frames missing, a span missing, at another speed; a view of each frame."""
    keep = np.ones(len(crop), np.bool_)
    thinned = int(rng.integers(1, options.thinned + 1))
    keep[:] = False
    keep[int(rng.integers(thinned)) :: thinned] = True
    keep &= rng.random(len(crop)) >= rng.random() * options.missing
    if rng.random() < options.spans:
        length = int(len(crop) * rng.random() * 0.2)
        start = int(rng.integers(len(crop) - length + 1))
        keep[start : start + length] = False
    if keep.sum() < 2:
        keep[:] = True
    crop = crop.rows(np.flatnonzero(keep))
    speed = math.exp((2 * rng.random() - 1) * math.log(options.speed))
    view = int(rng.integers(crop.logits.shape[1]))
    return replace(
        crop,
        positions=crop.positions * speed,
        logits=crop.logits[:, view : view + 1],
        embeddings=crop.embeddings[:, view : view + 1],
    )


def _loss(
    layers: ContextLayers,
    crop: ContextStudy,
    options: ContextTrainingOptions,
    losses: LossOptions,
    rng: np.random.Generator,
) -> torch.Tensor:
    """The classification loss of a crop, and the truncated smoothing loss of MS-TCN."""
    layers.train()
    logits = layers(
        torch.from_numpy(crop.logits[:, 0]),
        None if layers.project is None else torch.from_numpy(crop.embeddings[:, 0]),
        crop.positions,
        options.dropout,
    )
    targets = torch.from_numpy(crop.labels.present).float()
    known = torch.from_numpy(crop.labels.known)
    if options.loss == "cross-entropy":
        weights = known.float() / known.sum().clamp(min=1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, targets, weight=weights, reduction="sum"
        )
    else:
        loss = asymmetric_focal(
            logits,
            smooth_labels(targets, losses.smoothing),
            known,
            gamma_positive=losses.gamma_positive,
            gamma_negative=losses.gamma_negative,
            margin=losses.margin,
            soft_targets=losses.soft_targets,
        )
    if options.smoothing:
        log_probabilities = torch.nn.functional.logsigmoid(logits)
        steps = log_probabilities[1:] - log_probabilities[:-1].detach()
        loss = loss + options.smoothing * steps.square().clamp(max=_LARGEST_STEP**2).mean()
    return loss

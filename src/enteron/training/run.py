"""A training from its plan to the model folder. Start reading here.

plan.py       which studies, options and priors (checked before anything heavy is loaded)
sampling.py   labelled frames as samples; which samples an epoch draws
batches.py    batches of samples, from features.py (frozen) or pictures.py (full)
loop.py       epochs and validations, with learner.py (one step) and checkpoint.py
results.py    metrics on validation frames
page.py       training.html and TensorBoard
"""

import os
from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import TrainingError
from enteron.files import make_folder, write_text
from enteron.folders.model import (
    CHECKPOINT,
    HISTORY,
    PRIORS,
    TENSORBOARD,
    TRAINING,
    TRAINING_PAGE,
    save_model,
)
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.labels import LABELS
from enteron.model.network import Network, start_network
from enteron.priors import save_priors
from enteron.progress import Progress, SilentProgress
from enteron.training.augmentation import Augmentation
from enteron.training.batches import BatchSource
from enteron.training.distributed import Processes, process_group, training_device
from enteron.training.features import FeatureSource, StudyFeatures, store_features
from enteron.training.loop import TrainingListener, TrainingLoop, TrainingResult
from enteron.training.options import Regime, TrainingOptions
from enteron.training.page import TensorBoardWriter, TrainingReport, training_page
from enteron.training.pictures import ClipOptions, ClipSource
from enteron.training.plan import TrainingPlan, is_started, mark_finished, mark_started
from enteron.training.results import EpochRecord, calibrated_results
from enteron.training.sampling import Samples, StudySamples, oversampling, sample_weights

_TRAINED_PARTS: dict[Regime, str] = {
    "full": "backbone and head",
    "frozen": "head only (the backbone keeps its pretrained weights)",
}


def run_training(plan: TrainingPlan, progress: Progress) -> EpochRecord:
    """Train and write the model folder; returns the best epoch.

    Under torchrun every process calls this with its own copy of the plan. No process passes
    `process_group` before all have made their plans, so none finds a folder that another started.
    """
    out, options = plan.request.out, plan.request.options
    device = training_device()
    with process_group(device) as processes:
        if not processes.is_first:
            progress = SilentProgress()
        elif not is_started(out):
            mark_started(plan)
        processes.barrier()
        network = start_network(options.model, options.seed)
        if options.regime == "frozen":
            train, val = feature_sources(plan, network, processes, progress)
        else:
            train, val = clip_sources(plan, network)
        _report_data(plan, train, val, progress)
        _report_compute(options, processes, device, progress)
        listeners: list[TrainingListener] = []
        if processes.is_first:
            listeners.append(TensorBoardWriter(out / TRAINING / TENSORBOARD))
        result = TrainingLoop(
            network,
            train,
            val,
            options,
            folder=out / CHECKPOINT,
            progress=progress,
            listeners=listeners,
            processes=processes,
            device=device,
        ).run()
        if processes.is_first:
            _write_model_folder(plan, result, train, val)
        processes.barrier()
        return result.best


def feature_sources(
    plan: TrainingPlan, network: Network, processes: Processes, progress: Progress
) -> tuple[BatchSource, BatchSource]:
    """Training and validation features; processes share the studies that are not encoded yet."""
    options = plan.request.options
    # Not the runtime `auto`: it may choose int8, which is too coarse to train on, and may choose
    # differently when the training resumes.
    encoder = make_encoder(network.backbone, default_runtime(network.backbone))
    share = [*plan.train, *plan.val][processes.rank :: processes.size]
    total = sum(samples.stored.size for samples in share)
    with progress.task("Encoding", total, "frames") as advance:
        for samples in share:
            entry = plan.studies[samples.study]
            store_features(entry, samples, encoder, plan.features, options, advance)
    processes.barrier()

    def open_features(samples: StudySamples) -> StudyFeatures:
        entry = plan.studies[samples.study]
        return store_features(entry, samples, encoder, plan.features, options, lambda _: None)

    def source(part: list[StudySamples], name: str) -> FeatureSource:
        studies = [open_features(samples) for samples in part]
        features = FeatureSource(studies, options.model.frames, options.model.neighbour_step)
        if len(features.samples) == 0:
            raise TrainingError(
                f"none of the {len(features.unreadable)} labelled frames of '{name}' can be read",
                "check the images with `enteron check`",
            )
        return features

    return source(plan.train, "train"), source(plan.val, "val")


def clip_sources(plan: TrainingPlan, network: Network) -> tuple[BatchSource, BatchSource]:
    """Training clips with augmentation, validation clips without."""
    options = plan.request.options
    preprocessing = network.backbone.spec.preprocessing
    changes = options.augmentation
    augmentation = Augmentation(changes, preprocessing.size) if changes.enabled else None
    workers = min(options.workers, os.cpu_count() or 1)
    cache = plan.features if options.data.keep_squares else None

    def source(part: list[StudySamples], augmentation: Augmentation | None) -> ClipSource:
        studies = [plan.studies[samples.study].open() for samples in part]
        clip_options = ClipOptions(
            options.model.frames, options.model.neighbour_step, preprocessing, augmentation
        )
        return ClipSource(Samples(part), studies, clip_options, workers, cache)

    return source(plan.train, augmentation), source(plan.val, None)


def _report_data(
    plan: TrainingPlan, train: BatchSource, val: BatchSource, progress: Progress
) -> None:
    """Report the size of the data, unreadable frames, and labels that are missing or rare."""
    samples, split = train.samples, plan.split
    progress.message(
        f"Training on {_counted(len(split.train), 'study')}, {len(samples):,} frames; validating "
        f"on {_counted(len(split.val), 'study')}, {len(val.samples):,} frames (split {split.hash})."
    )
    unreadable = len(train.unreadable | val.unreadable)
    if unreadable:
        progress.message(f"Left out because unreadable: {_counted(unreadable, 'frame')}.")
    missing = [label for label, n in zip(LABELS, samples.counts, strict=True) if n == 0]
    if missing:
        progress.message(
            f"No training frame shows {', '.join(missing)}: the model cannot learn "
            f"{'it' if len(missing) == 1 else 'them'}."
        )
    rarest = int(np.where(samples.counts > 0, samples.counts, len(samples) + 1).argmin())
    progress.message(
        f"Rarest label: {LABELS[rarest]}, {_counted(int(samples.counts[rarest]), 'frame')}, drawn "
        f"{_oversampling(plan.request.options, samples)[rarest]:.1f} times as often as in the data."
    )


def _report_compute(
    options: TrainingOptions, processes: Processes, device: torch.device, progress: Progress
) -> None:
    """Report which parts are trained, on what."""
    precision = options.precision if device.type == "cuda" else "fp32"
    progress.message(
        f"Backbone {options.model.backbone}; training: {_TRAINED_PARTS[options.regime]}; "
        f"{device.type}, {precision}, {_counted(processes.size, 'process')}."
    )


def _write_model_folder(
    plan: TrainingPlan, result: TrainingResult, train: BatchSource, val: BatchSource
) -> None:
    """Write everything; `model.json` comes last, then the checkpoints are deleted."""
    out, options = plan.request.out, plan.request.options
    make_folder(out / TRAINING)
    report = _training_report(plan, result, train, val)
    write_text(out / TRAINING / TRAINING_PAGE, training_page(report))
    write_text(out / TRAINING / HISTORY, result.history.model_dump_json(indent=1) + "\n")
    if plan.priors is not None:
        save_priors(plan.priors, out / PRIORS)
    counts = zip(LABELS, train.samples.counts, strict=True)
    save_model(
        out,
        result.network,
        split_hash=plan.split.hash,
        training=_summary(plan, result, train, val),
        frames_by_label={label: int(count) for label, count in counts},
        results={n.replace("_", " "): v for n, v in result.best.figures.model_dump().items()},
    )
    mark_finished(out, options)


def _summary(
    plan: TrainingPlan, result: TrainingResult, train: BatchSource, val: BatchSource
) -> dict[str, Any]:
    """The training in `model.json`: counts and devices, never names of studies."""
    options = plan.request.options
    return {
        "studies": len(plan.split.train),
        "frames": len(train.samples),
        "devices": _devices(plan),
        "validation studies": len(plan.split.val),
        "validation frames": len(val.samples),
        "unreadable frames left out": result.unreadable,
        "trained": _TRAINED_PARTS[options.regime],
        "epochs": len(result.history.epochs),
        "best epoch": result.best.epoch,
        "seed": options.seed,
    }


def _devices(plan: TrainingPlan) -> str:
    """The capsules of the training studies with the number of studies of each."""
    entries = (plan.studies[study] for study in plan.split.train)
    systems = Counter(
        "unknown" if entry.metadata is None else entry.metadata.system for entry in entries
    )
    return ", ".join(f"{system} ({count})" for system, count in sorted(systems.items()))


def _training_report(
    plan: TrainingPlan, result: TrainingResult, train: BatchSource, val: BatchSource
) -> TrainingReport:
    options, split, prototypes = plan.request.options, plan.split, result.network.prototypes
    batches = f", in {options.accumulate} batches" if options.accumulate > 1 else ""
    return TrainingReport(
        facts={
            "Training studies": f"{len(split.train)}, {len(train.samples):,} frames",
            "Validation studies": f"{len(split.val)}, {len(val.samples):,} frames",
            "Capsules of the training studies": _devices(plan),
            "Unreadable frames left out": f"{result.unreadable:,}",
            "Backbone": options.model.backbone,
            "Trained": _TRAINED_PARTS[options.regime],
            "Frames per training step": f"{options.batch * options.accumulate:,}{batches}",
            "Best epoch": f"{result.best.epoch} of {len(result.history.epochs)}",
            "Seed": str(options.seed),
        },
        history=result.history,
        results=calibrated_results(val.samples, result.validation),
        prototypes=None if prototypes is None else prototypes.directions.detach().cpu().numpy(),
        counts=train.samples.counts,
        oversampling=_oversampling(options, train.samples),
        split=split.hash,
    )


def _oversampling(options: TrainingOptions, samples: Samples) -> NDArray[np.float64]:
    labels = samples.labels
    weights = sample_weights(labels) if options.sampler.balanced else np.ones(len(labels))
    return oversampling(labels, weights)


def _counted(count: int, noun: str) -> str:
    plural = {"study": "studies", "process": "processes"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"

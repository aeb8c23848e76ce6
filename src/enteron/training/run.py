"""A training from its plan to the model folder. Start reading here.

plan.py       which studies, options and priors (checked before anything heavy is loaded)
sampling.py   labelled frames as samples; which samples an epoch draws
patches.py    local evidence, taught by boxes, where the model has it
batches.py    batches of samples, from features.py (frozen) or pictures.py (full)
loop.py       epochs and validations, with learner.py (one step) and checkpoint.py
results.py    metrics on validation frames
page.py       training.html and TensorBoard
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from enteron.errors import TrainingError
from enteron.files import make_folder, write_text
from enteron.folders.left_out import LEFT_OUT, write_left_out
from enteron.folders.model import (
    CHECKPOINT,
    HISTORY,
    PRIORS,
    TENSORBOARD,
    TRAINING,
    TRAINING_PAGE,
    save_model,
)
from enteron.inference.runtimes import default_runtime, make_encoder, make_map_encoder
from enteron.labels import FINDINGS, LABELS
from enteron.locks import folder_lock
from enteron.model.backbones import Backbone
from enteron.model.network import EvidenceTerm, Network, start_network
from enteron.priors import save_priors
from enteron.progress import Progress, SilentProgress
from enteron.study.fingerprint import study_fingerprint
from enteron.training.augmentation import Augmentation
from enteron.training.batches import BatchSource, clip_spacings
from enteron.training.checkpoint import load_evidence, save_evidence
from enteron.training.distributed import Processes, process_group, training_device
from enteron.training.features import FeatureSource, StudyFeatures, store_features
from enteron.training.loop import TrainingListener, TrainingLoop, TrainingResult
from enteron.training.options import Regime, TrainingOptions
from enteron.training.page import TensorBoardWriter, TrainingReport, training_page
from enteron.training.patches import (
    PatchSamples,
    evidence_scales,
    fit_local_evidence,
    left_out_evidence,
    mean_over_clips,
    patch_samples,
    teaching_rows,
    teaching_studies,
)
from enteron.training.pictures import ClipOptions, ClipSource
from enteron.training.plan import (
    TrainingPlan,
    is_started,
    mark_finished,
    mark_started,
    require_new_folder,
)
from enteron.training.results import EpochRecord, ValidationMetrics, calibrated_results
from enteron.training.sampling import Samples, StudySamples, draw_weights, oversampling
from enteron.types import DataKind, StudyFingerprint, TrainingSource

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
    device = training_device(plan.request.accelerator)
    with process_group(device) as processes, _claimed(plan, processes):
        if not processes.is_first:
            progress = SilentProgress()
        elif not is_started(out):
            mark_started(plan)
        processes.barrier()
        identities = _identities(plan) if processes.is_first else {}
        network = start_network(options.model, options.seed)
        if options.model.local_evidence:
            teach_local_evidence(plan, network, processes, progress)
        if options.regime == "frozen":
            train, val = feature_sources(plan, network, processes, progress)
        else:
            train, val = clip_sources(plan, network)
        _report_data(plan, train, val, progress)
        _report_compute(plan, processes, device, network.backbone, progress)
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
            _write_model_folder(plan, result, train, val, identities)
        processes.barrier()
        return result.best


@contextmanager
def _claimed(plan: TrainingPlan, processes: Processes) -> Iterator[None]:
    """Hold the lock of the model folder, which only the first process writes to."""
    out = plan.request.out
    if not processes.is_first:
        yield
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"cannot create folder '{out.name}' ({error.strerror})", "give another folder"
        ) from error
    with folder_lock(out):
        # Another process may have started or finished a training here since the plan was made.
        if not (plan.request.resume and is_started(out)):
            require_new_folder(out)
        yield


def teach_local_evidence(
    plan: TrainingPlan, network: Network, processes: Processes, progress: Progress
) -> None:
    """Fit the evidence of patches, before any frame is encoded for the head.

    The embeddings depend on it. The first process fits it and stores it beside the checkpoints.
    """
    evidence, term, options = network.backbone.evidence, network.evidence, plan.request.options
    assert evidence is not None
    assert term is not None
    alone = options.model.findings == "evidence"
    taught = torch.nn.ModuleList([evidence, term]) if alone else evidence
    folder = plan.request.out / CHECKPOINT
    if processes.is_first and not load_evidence(folder, taught):
        rows = teaching_rows(teaching_studies(plan), plan.boxes, options.patches.frames)
        with progress.task("Encoding patches", sum(r.size for r in rows), "frames") as advance:
            samples = patch_samples(plan, make_map_encoder(network.backbone), advance=advance)
        with progress.task("Fitting patches", options.patches.steps, "steps") as advance:
            fit_local_evidence(
                samples, options.patches, seed=options.seed, evidence=evidence, advance=advance
            )
        if alone:
            _fit_scales(plan, samples, term, progress)
        save_evidence(folder, taught)
    processes.barrier()
    if not processes.is_first:
        load_evidence(folder, taught)
    progress.message(f"Local evidence: {_box_counts(plan)}.")


def _fit_scales(
    plan: TrainingPlan, samples: PatchSamples, term: EvidenceTerm, progress: Progress
) -> None:
    """Fit the scales of evidence on left-out studies, and store what those studies get."""
    options = plan.request.options
    steps = options.patches.steps * options.patches.folds
    with progress.task("Leaving studies out", steps, "steps") as advance:
        evidence = left_out_evidence(samples, options.patches, seed=options.seed, advance=advance)
    studies, model = teaching_studies(plan), options.model
    evidence = mean_over_clips(evidence, samples, studies, model.frames, model.neighbour_step)
    scales, biases = evidence_scales(evidence, samples)
    term.scale.copy_(torch.from_numpy(scales))
    term.bias.copy_(torch.from_numpy(biases))
    folder = plan.request.out / TRAINING / LEFT_OUT
    make_folder(folder)
    for index in np.unique(samples.study):
        rows = np.flatnonzero(samples.study == index)
        probabilities = expit(scales * evidence[rows] + biases)
        write_left_out(folder, studies[index].study, samples.frame[rows], probabilities)


def _box_counts(plan: TrainingPlan) -> str:
    """Boxes and studies with boxes of each finding."""
    counts = [
        (finding, [sum(box.label == finding for box in boxes) for boxes in plan.boxes.values()])
        for finding in FINDINGS
    ]
    return ", ".join(
        f"{finding} {_counted(sum(per_study), 'box')} of "
        f"{_counted(sum(n > 0 for n in per_study), 'study')}"
        for finding, per_study in counts
        if sum(per_study)
    )


def feature_runtime(plan: TrainingPlan, backbone: Backbone) -> str:
    """The runtime that encodes frames for a frozen training."""
    return plan.request.runtime or default_runtime(backbone, plan.request.accelerator)


def feature_sources(
    plan: TrainingPlan, network: Network, processes: Processes, progress: Progress
) -> tuple[BatchSource, BatchSource]:
    """Training and validation features; processes share the studies that are not encoded yet."""
    options = plan.request.options
    encoder = make_encoder(network.backbone, feature_runtime(plan, network.backbone))
    taught = _head_samples(plan)
    share = [*taught, *plan.val][processes.rank :: processes.size]
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

    return source(taught, "train"), source(plan.val, "val")


def _head_samples(plan: TrainingPlan) -> list[StudySamples]:
    """What teaches the head: everything, or anatomy where findings come from evidence alone."""
    if plan.request.options.model.findings == "head":
        return plan.train
    return [samples for study in plan.train if len(samples := study.of_anatomy())]


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
    samples, split = _training_samples(plan, train), plan.split
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
    absent = samples.labels.known_counts - samples.counts
    shown_only = (samples.counts > 0) & (absent == 0)
    always = [label for label, only in zip(LABELS, shown_only, strict=True) if only]
    if always and not samples.labels.is_complete:
        progress.message(
            f"Warning: no training frame is known not to show {', '.join(always)}: the model "
            "cannot learn the difference. Add data in which "
            f"{'it is' if len(always) == 1 else 'they are'} absent."
        )
    _report_labels_without_validation(samples, val.samples, progress)
    drawn = train.samples
    rarest = int(np.where(drawn.counts > 0, drawn.counts, len(drawn) + 1).argmin())
    progress.message(
        f"Rarest label: {LABELS[rarest]}, {_counted(int(drawn.counts[rarest]), 'frame')}, drawn "
        f"{_oversampling(plan.request.options, drawn)[rarest]:.1f} times as often as in the data."
    )


def _training_samples(plan: TrainingPlan, train: BatchSource) -> Samples:
    """Every labelled frame that teaches the head or local evidence."""
    if plan.request.options.model.findings == "head":
        return train.samples
    return Samples(plan.train)


def _report_labels_without_validation(train: Samples, val: Samples, progress: Progress) -> None:
    """Warn of labels that no validation frame shows: calibration will switch them off."""
    for label, training, validating in zip(LABELS, train.counts, val.counts, strict=True):
        if training and not validating:
            progress.message(
                f"Warning: {label}: {_counted(int(training), 'training frame')}, none in "
                "validation: it will never be reported. Label it in another study, or give a split "
                "that has it on both sides."
            )


def _report_compute(
    plan: TrainingPlan,
    processes: Processes,
    device: torch.device,
    backbone: Backbone,
    progress: Progress,
) -> None:
    """Report which parts are trained, on what."""
    options = plan.request.options
    precision = options.precision if device.type == "cuda" else "fp32"
    frozen = options.regime == "frozen"
    encoded = f", encoded by {feature_runtime(plan, backbone)}" if frozen else ""
    progress.message(
        f"Backbone {options.model.backbone}{encoded}; training: {_TRAINED_PARTS[options.regime]}; "
        f"{device.type}, {precision}, {_counted(processes.size, 'process')}."
    )


@dataclass(frozen=True)
class _StudyIdentity:
    fingerprint: StudyFingerprint
    is_drawn: bool  # as the study itself says, wherever its folder lies


def _identities(plan: TrainingPlan) -> dict[str, _StudyIdentity]:
    """Of the training studies, taken at the start: their files may be gone at the end."""
    identities: dict[str, _StudyIdentity] = {}
    for study_id in plan.split.train:
        with plan.studies[study_id].open() as study:
            is_drawn = study.metadata.frames_per_row is not None
            identities[study_id] = _StudyIdentity(study_fingerprint(study), is_drawn)
    return identities


def training_sources(
    plan: TrainingPlan, samples: Samples, drawn: Mapping[str, bool]
) -> tuple[TrainingSource, ...]:
    """The datasets of a training, and whether their pictures are drawings.

    A root of `enteron phantom` says so, and so does each of its studies, if it was moved elsewhere.
    `drawn` says it by the id of a study.
    """
    sources: list[TrainingSource] = []
    for source in plan.sources:
        # The names of a single source's studies are their ids; its samples bear no title.
        own = [s for s in samples.studies if len(plan.sources) == 1 or s.source == source.title]
        kinds = {source.dataset.synthetic or drawn.get(study.study, False) for study in own}
        kind: DataKind = "real frames"
        if kinds == {True} or (not kinds and source.dataset.synthetic):
            kind = "drawings"
        elif True in kinds:
            kind = "drawings and real frames"
        sources.append(
            TrainingSource(
                title=source.title,
                kind=kind,
                studies=len(own),
                frames=sum(len(study) for study in own),
                labels=_taught_labels(plan, own),
            )
        )
    return tuple(sources)


def _write_model_folder(
    plan: TrainingPlan,
    result: TrainingResult,
    train: BatchSource,
    val: BatchSource,
    identities: Mapping[str, _StudyIdentity],
) -> None:
    """Write everything; `model.json` comes last, then the checkpoints are deleted."""
    out, options = plan.request.out, plan.request.options
    make_folder(out / TRAINING)
    report = _training_report(plan, result, train, val)
    write_text(out / TRAINING / TRAINING_PAGE, training_page(report))
    write_text(out / TRAINING / HISTORY, result.history.model_dump_json(indent=1) + "\n")
    if plan.priors is not None:
        save_priors(plan.priors, out / PRIORS)
    counts = zip(LABELS, _training_samples(plan, train).counts, strict=True)
    save_model(
        out,
        result.network,
        split_hash=plan.split.hash,
        training_studies=tuple(identity.fingerprint for identity in identities.values()),
        spacings=clip_spacings(train.samples, options.model.frames, options.model.neighbour_step),
        sources=training_sources(
            plan,
            _training_samples(plan, train),
            {study: known.is_drawn for study, known in identities.items()},
        ),
        training=_summary(plan, result, train, val),
        frames_by_label={label: int(count) for label, count in counts},
        results=_results(result.best),
    )
    mark_finished(out, options)


def _results(best: EpochRecord) -> dict[str, float]:
    """The metrics of the best epoch, over all validation frames and by source."""
    results = {n.replace("_", " "): v for n, v in _defined(best.figures).items()}
    for source, figures in best.sources.items():
        results |= {f"{source}: {n.replace('_', ' ')}": v for n, v in _defined(figures).items()}
    return results


def _defined(figures: ValidationMetrics) -> dict[str, float]:
    return figures.model_dump(exclude_none=True)


def _summary(
    plan: TrainingPlan, result: TrainingResult, train: BatchSource, val: BatchSource
) -> dict[str, Any]:
    """The training in `model.json`: counts and devices, never names of studies."""
    options = plan.request.options
    return {
        "studies": len(plan.split.train),
        "frames": len(_training_samples(plan, train)),
        "data": _data_titles(plan, train),
        "devices": _devices(plan),
        "validation studies": len(plan.split.val),
        "validation frames": len(val.samples),
        "unreadable frames left out": result.unreadable,
        **_unknown_share(_training_samples(plan, train)),
        **({"local evidence": _box_counts(plan)} if plan.boxes else {}),
        "trained": _TRAINED_PARTS[options.regime],
        "epochs": len(result.history.epochs),
        "best epoch": result.best.epoch,
        "seed": options.seed,
    }


def _taught_labels(plan: TrainingPlan, studies: Sequence[StudySamples]) -> tuple[str, ...]:
    """What training studies teach: labels that their frames show.

    Where findings come from evidence alone, frames teach anatomy, and boxes teach findings.
    """
    by_boxes = plan.request.options.model.findings == "evidence"
    taught = {box.label for study in studies for box in plan.boxes.get(study.study, ())}
    for study in studies:
        counts = (study.of_anatomy() if by_boxes else study).labels.present_counts
        taught |= {label for label, count in zip(LABELS, counts, strict=True) if count}
    return tuple(label for label in LABELS if label in taught)


def _data_titles(plan: TrainingPlan, train: BatchSource) -> str:
    """The datasets with their training studies and frames; never the names of their folders."""
    if len(plan.sources) == 1:
        return plan.sources[0].title
    return ", ".join(
        f"{source} ({_counted(int(facts[0]), 'study')}, {facts[1]} frames, drawn {facts[2]})"
        for source, facts in _source_facts(plan, train, None).items()
    )


def _unknown_share(samples: Samples) -> dict[str, str]:
    labels = samples.labels
    if labels.is_complete:
        return {}
    return {
        "labels unknown": f"{100 * (1 - labels.known.mean()):.0f} % of all labels of all frames"
    }


def _source_facts(
    plan: TrainingPlan, train: BatchSource, val: BatchSource | None
) -> dict[str, tuple[str, ...]]:
    """Studies, frames and share of the draws of each source, and what of it validates."""
    if len(plan.sources) == 1:
        return {}
    samples = train.samples
    weights = draw_weights(samples.labels, plan.request.options.sampler, samples.source_index)
    facts: dict[str, tuple[str, ...]] = {}
    for source in (source.title for source in plan.sources):
        studies, frames = _source_size(_training_samples(plan, train), source)
        drawn = _source_size(samples, source)[1] / len(samples)
        if weights is not None and source in samples.sources:
            own = samples.source_index == samples.sources.index(source)
            drawn = float(weights[own].sum() / weights.sum())
        row = (str(studies), f"{frames:,}", f"{100 * drawn:.0f} %")
        if val is not None:
            studies, frames = _source_size(val.samples, source)
            row += (str(studies), f"{frames:,}")
        facts[source] = row
    return facts


def _source_size(samples: Samples, source: str) -> tuple[int, int]:
    """Studies and frames of a source."""
    own = [study for study in samples.studies if study.source == source]
    return len(own), sum(len(study) for study in own)


def _devices(plan: TrainingPlan) -> str:
    """The capsules of the training studies with the number of studies of each."""
    entries = (plan.studies[study] for study in plan.split.train)
    systems = Counter(entry.device or "unknown" for entry in entries)
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
            **({"Local evidence": _box_counts(plan)} if plan.boxes else {}),
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
        source_facts=_source_facts(plan, train, val),
    )


def _oversampling(options: TrainingOptions, samples: Samples) -> NDArray[np.float64]:
    weights = draw_weights(samples.labels, options.sampler, samples.source_index)
    return oversampling(samples.labels, np.ones(len(samples)) if weights is None else weights)


def _counted(count: int, noun: str) -> str:
    plural = {"study": "studies", "process": "processes", "box": "boxes"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"

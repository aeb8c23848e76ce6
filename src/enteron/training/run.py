"""From a plan to a model folder."""

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.files import write_text
from enteron.folders.model import save_model
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.metrics.frames import FrameMetrics, frame_metrics
from enteron.model.network import Network, start_network
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Source
from enteron.training.checkpoint import EpochRecord, Figures
from enteron.training.company import Company, Silence
from enteron.training.distributed import Processes, joined, training_device
from enteron.training.features import StoredWindows, stored_study
from enteron.training.loop import Outcome, Training, Watcher, Watchers
from enteron.training.options import TrainingOptions
from enteron.training.page import Board, Lesson, judgement, page
from enteron.training.pictures import ClipOptions, PictureClips
from enteron.training.plan import CHECKPOINT, TRAINING, Plan, begin, finish, is_begun
from enteron.training.sampling import Samples, StudySamples, oversampling, sample_weights

_FINDINGS = [COLUMN[label] for label in FINDINGS]


def judge(truth: NDArray[np.bool_], scores: NDArray[np.float32]) -> Figures:
    """The figures of the epoch table, from (n, 17) truth and scores."""
    found = frame_metrics(truth, scores)
    return Figures(
        macro_ap=found.macro("ap", "zero"),
        macro_ap_present=found.macro("ap", "left out"),
        macro_f1=found.macro("f1", "zero"),
        findings_ap=findings_ap(found),
        region_accuracy=region_accuracy(truth, scores),
    )


def findings_ap(found: FrameMetrics) -> float:
    """Mean AP of the findings that have positives; 0 when there are none."""
    present = [column for column in _FINDINGS if found.support[column] > 0]
    return float(found.ap[present].mean()) if present else 0.0


def region_accuracy(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Share of the frames whose most probable region is a true one."""
    said = scores[:, : len(REGIONS)].argmax(axis=1)
    return float(truth[np.arange(len(truth)), said].mean())


def picture_sources(plan: Plan, network: Network) -> tuple[Source, Source]:
    """Clips of pictures, those that train changed at random."""
    options = plan.request.options
    prepared = network.backbone.spec.preprocessing
    changes = options.augmentation
    augmentation = Augmentation(changes, prepared.size) if changes.enabled else None
    workers = min(options.workers, os.cpu_count() or 1)

    def clips(part: list[StudySamples], augmentation: Augmentation | None) -> PictureClips:
        opened = [plan.studies[samples.study].open() for samples in part]
        how = ClipOptions(
            options.model.frames, options.model.neighbour_step, prepared, augmentation
        )
        kept = plan.features if options.data.keep_squares else None
        return PictureClips(Samples(part), opened, how, workers, kept)

    return clips(plan.train, augmentation), clips(plan.val, None)


def stored_sources(
    plan: Plan, network: Network, processes: Processes, company: Company
) -> tuple[Source, Source]:
    """Windows of stored features; processes share the studies that are still to be encoded."""
    options = plan.request.options
    # Never `auto`: int8 may do for reading, not for what everything is learnt from, and a training
    # that goes on after a kill might get another runtime.
    encoder = make_encoder(network.backbone, default_runtime(network.backbone))
    mine = [*plan.train, *plan.val][processes.rank :: processes.size]
    total = sum(samples.stored.size for samples in mine)
    with company.counting("Encoding", total, "frames") as advance:
        for samples in mine:
            entry = plan.studies[samples.study]
            stored_study(entry, samples, encoder, plan.features, options, advance)
    processes.wait()

    def windows(part: list[StudySamples]) -> StoredWindows:
        found = [
            stored_study(
                plan.studies[samples.study],
                samples,
                encoder,
                plan.features,
                options,
                lambda _: None,
            )
            for samples in part
        ]
        return StoredWindows(found, options.model.frames, options.model.neighbour_step)

    return windows(plan.train), windows(plan.val)


PAGE = "training.html"
HISTORY = "history.json"
BOARD = "board"


def teach(plan: Plan, company: Company) -> EpochRecord:
    """Train, and write the model folder; the best epoch.

    Under torchrun every process calls this with the same plan. None passes `joined` before all
    have made theirs, so nobody finds the folder begun by another.
    """
    device = training_device()
    with joined(device) as processes:
        company = company if processes.first else Silence()
        if processes.first and not is_begun(plan.request.out):
            begin(plan.request.out, plan.request.options, plan.split)
        processes.wait()
        options = plan.request.options
        network = start_network(options.model, options.seed)
        if options.regime == "frozen":
            train, val = stored_sources(plan, network, processes, company)
        else:
            train, val = picture_sources(plan, network)
        _tell(plan, train, val, processes, device, company)
        watchers: list[Watcher] = [company]
        if processes.first:
            watchers.append(Board(plan.request.out / TRAINING / BOARD))
        outcome = Training(
            network,
            train,
            val,
            options,
            judge,
            Watchers(*watchers),
            plan.request.out / CHECKPOINT,
            processes,
            device,
        ).run()
        best = outcome.history.best
        assert best is not None
        if processes.first:
            _write(plan, outcome, best, train, val)
        processes.wait()
        return best


def _tell(
    plan: Plan,
    train: Source,
    val: Source,
    processes: Processes,
    device: torch.device,
    company: Company,
) -> None:
    """In plain words what is about to happen."""
    samples, split, options = train.samples, plan.split, plan.request.options
    company.say(
        f"Training on {_many(len(split.train), 'study')}, {len(samples):,} frames; validating "
        f"on {_many(len(split.val), 'study')}, {len(val.samples):,} frames (split {split.hash})."
    )
    lost = len(train.unreadable | val.unreadable)
    if lost:
        company.say(f"Left out, since they cannot be read: {_many(lost, 'frame')}.")
    missing = [label for label, n in zip(LABELS, samples.counts, strict=True) if n == 0]
    if missing:
        company.say(f"No training frame shows {', '.join(missing)}: that cannot be learnt here.")
    rarest = int(np.where(samples.counts > 0, samples.counts, len(samples) + 1).argmin())
    company.say(
        f"Rarest label: {LABELS[rarest]}, {_many(int(samples.counts[rarest]), 'frame')}, drawn "
        f"{_oversampling(options, train)[rarest]:.1f} times as often as in the data."
    )
    what = "head only, features stored" if options.regime == "frozen" else "whole network"
    precision = options.precision if device.type == "cuda" else "fp32"
    where = _many(processes.size, "process")
    company.say(f"{options.model.backbone}, {what}; {device.type}, {precision}, {where}.")


def _write(plan: Plan, outcome: Outcome, best: EpochRecord, train: Source, val: Source) -> None:
    """The model folder; the record goes last, and checkpoints go when it is there."""
    out, options, split = plan.request.out, plan.request.options, plan.split
    samples = train.samples
    prototypes = outcome.network.prototypes
    lesson = Lesson(
        facts={
            "Studies that trained": f"{len(split.train)}, {len(samples):,} frames",
            "Studies that validated": f"{len(split.val)}, {len(val.samples):,} frames",
            "Unreadable frames left out": f"{outcome.unreadable:,}",
            "Backbone": f"{options.model.backbone}, {options.regime}",
            "Batch": f"{options.batch} x {options.accumulate}",
            "Best epoch": f"{best.epoch} of {len(outcome.history.epochs)}",
            "Seed": str(options.seed),
        },
        history=outcome.history,
        judgement=judgement(val.samples, outcome.validation),
        prototypes=None if prototypes is None else prototypes.directions.detach().cpu().numpy(),
        counts=samples.counts,
        oversampling=_oversampling(options, train),
        split=split.hash,
    )
    (out / TRAINING).mkdir(exist_ok=True)
    write_text(out / TRAINING / PAGE, page(lesson))
    write_text(out / TRAINING / HISTORY, outcome.history.model_dump_json(indent=1) + "\n")
    save_model(
        out,
        outcome.network,
        split_hash=split.hash,
        training=_summary(plan, outcome, best, train, val),
        results={n.replace("_", " "): v for n, v in best.figures.model_dump().items()},
    )
    finish(out, options)


def _summary(
    plan: Plan, outcome: Outcome, best: EpochRecord, train: Source, val: Source
) -> dict[str, Any]:
    """What `model.json` says about the data: counts, never names of studies."""
    counts = zip(LABELS, train.samples.counts, strict=True)
    return {
        "studies": len(plan.split.train),
        "frames": len(train.samples),
        "validation studies": len(plan.split.val),
        "validation frames": len(val.samples),
        "unreadable frames left out": outcome.unreadable,
        "frames by label": {label: int(count) for label, count in counts},
        "regime": plan.request.options.regime,
        "epochs": len(outcome.history.epochs),
        "best epoch": best.epoch,
        "seed": plan.request.options.seed,
    }


def _oversampling(options: TrainingOptions, train: Source) -> NDArray[np.float64]:
    labels = train.samples.labels
    weights = sample_weights(labels) if options.sampler.balanced else np.ones(len(labels))
    return oversampling(labels, weights)


def _many(count: int, noun: str) -> str:
    plural = {"study": "studies", "process": "processes"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"

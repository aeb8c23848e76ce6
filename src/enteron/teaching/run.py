"""From a plan to a model folder."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.files import write_text
from enteron.labels import LABELS
from enteron.model.folder import save_model
from enteron.model.start import start_network
from enteron.teaching import folder
from enteron.teaching.board import Board
from enteron.teaching.company import Company, Silence
from enteron.teaching.figures import judge
from enteron.teaching.judgement import judgement
from enteron.teaching.page import Lesson, page
from enteron.teaching.plan import Plan
from enteron.teaching.sources import picture_sources, stored_sources
from enteron.training.batches import Source
from enteron.training.history import EpochRecord
from enteron.training.loop import Outcome, Training
from enteron.training.options import TrainingOptions
from enteron.training.processes import Processes, joined, training_device
from enteron.training.sampler import oversampling, sample_weights
from enteron.training.watching import Watcher, Watchers

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
        if processes.first and not folder.is_begun(plan.request.out):
            folder.begin(plan.request.out, plan.request.options, plan.split)
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
            watchers.append(Board(plan.request.out / folder.TRAINING / BOARD))
        outcome = Training(
            network,
            train,
            val,
            options,
            judge,
            Watchers(*watchers),
            plan.request.out / folder.CHECKPOINT,
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
    (out / folder.TRAINING).mkdir(exist_ok=True)
    write_text(out / folder.TRAINING / PAGE, page(lesson))
    write_text(out / folder.TRAINING / HISTORY, outcome.history.model_dump_json(indent=1) + "\n")
    save_model(
        out,
        outcome.network,
        split_hash=split.hash,
        training=_summary(plan, outcome, best, train, val),
        results={n.replace("_", " "): v for n, v in best.figures.model_dump().items()},
    )
    folder.finish(out, options)


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

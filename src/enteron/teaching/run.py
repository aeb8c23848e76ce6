"""From a data root to a model folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from enteron.errors import TrainingError
from enteron.files import write_text
from enteron.galar.splits import Split
from enteron.labels import LABELS
from enteron.model.folder import save_model
from enteron.model.start import start_network
from enteron.teaching import folder
from enteron.teaching.board import Board
from enteron.teaching.company import Company, Silence
from enteron.teaching.data import choose_split, usable_studies
from enteron.teaching.figures import judge
from enteron.teaching.judgement import judgement
from enteron.teaching.page import Lesson, page
from enteron.teaching.sources import picture_sources, read_samples, stored_sources
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


@dataclass(frozen=True)
class Request:
    """What is to be trained, and where the model goes."""

    root: Path
    out: Path
    options: TrainingOptions
    split: Path | None = None  # none: a seeded one
    features: Path | None = None  # where features are stored; none: in the model folder
    resume: bool = False


def teach(request: Request, company: Company) -> EpochRecord:
    """Train, and write the model folder; the best epoch."""
    device = training_device()
    with joined(device) as processes:
        return _Lessons(request, company if processes.first else Silence(), processes, device).run()


class _Lessons:
    def __init__(
        self, request: Request, company: Company, processes: Processes, device: torch.device
    ) -> None:
        self.request, self.company = request, company
        self.processes, self.device = processes, device
        self.options, self.out = request.options, request.out

    def run(self) -> EpochRecord:
        studies = usable_studies(self.request.root)
        split = self._split(studies)
        parts = read_samples(studies, split, self.options, self.company)
        self._write_beginning(split)
        network = start_network(self.options.model, self.options.seed)
        if self.options.regime == "frozen":
            place = self.request.features or self.out / folder.FEATURES
            train, val = stored_sources(
                studies, parts, network, self.options, place, self.processes, self.company
            )
        else:
            train, val = picture_sources(studies, parts, network, self.options)
        self._tell(train, val, split)
        watchers: list[Watcher] = [self.company]
        if self.processes.first:
            watchers.append(Board(self.out / folder.TRAINING / BOARD))
        training = Training(
            network,
            train,
            val,
            self.options,
            judge,
            Watchers(*watchers),
            self.out / folder.CHECKPOINT,
            self.processes,
            self.device,
        )
        outcome = training.run()
        best = outcome.history.best
        assert best is not None
        if self.processes.first:
            self._write_model(outcome, best, train, val, split)
        self.processes.wait()
        return best

    def _split(self, studies: dict[str, Any]) -> Split:
        """A new split, or the one that the interrupted training has."""
        if self.request.resume and folder.is_begun(self.out):
            stored, split = folder.begun(self.out)
            if self.request.split is not None and _hash(self.request.split) != split.hash:
                raise TrainingError(
                    f"'{self.out.name}' is being trained on another split",
                    "leave --split out, or train into another folder",
                )
            if stored != self.options.model_copy(update={"workers": stored.workers}):
                differing = next(
                    name
                    for name in TrainingOptions.model_fields
                    if getattr(stored, name) != getattr(self.options, name)
                )
                raise TrainingError(
                    f"the training in '{self.out.name}' was begun with another '{differing}'",
                    "resume with the same options or with none, or train into another folder",
                )
            return split
        folder.require_new(self.out)
        return choose_split(studies, self.options, self.request.split)

    def _write_beginning(self, split: Split) -> None:
        # Nobody may write before everybody has looked: the folder must be new for all of them.
        self.processes.wait()
        if self.processes.first and not folder.is_begun(self.out):
            folder.begin(self.out, self.options, split)
        self.processes.wait()

    def _tell(self, train: Source, val: Source, split: Split) -> None:
        say, samples = self.company.say, train.samples
        say(
            f"Training on {_many(len(split.train), 'study')}, {len(samples):,} frames; validating "
            f"on {_many(len(split.val), 'study')}, {len(val.samples):,} frames "
            f"(split {split.hash})."
        )
        if lost := len(train.unreadable | val.unreadable):
            say(f"{_many(lost, 'frame')} cannot be read and are left out.")
        missing = [label for label, n in zip(LABELS, samples.counts, strict=True) if n == 0]
        if missing:
            say(f"No training frame shows {', '.join(missing)}: that cannot be learnt here.")
        rarest = int(np.where(samples.counts > 0, samples.counts, len(samples) + 1).argmin())
        factor = _oversampling(self.options, train)[rarest]
        say(
            f"Rarest label: {LABELS[rarest]}, {_many(int(samples.counts[rarest]), 'frame')}, drawn "
            f"{factor:.1f} times as often as in the data."
        )
        where = f"{self.processes.size} processes" if self.processes.size > 1 else "1 process"
        precision = self.options.precision if self.device.type == "cuda" else "fp32"
        what = "head only, features stored" if self.options.regime == "frozen" else "whole network"
        say(f"{self.options.model.backbone}, {what}; {self.device.type}, {precision}, {where}.")

    def _write_model(
        self, outcome: Outcome, best: EpochRecord, train: Source, val: Source, split: Split
    ) -> None:
        samples, found = train.samples, judgement(val.samples, outcome.validation)
        summary: dict[str, Any] = {
            "studies": len(split.train),
            "frames": len(samples),
            "validation studies": len(split.val),
            "validation frames": len(val.samples),
            "unreadable frames left out": outcome.unreadable,
            "frames by label": {
                label: int(n) for label, n in zip(LABELS, samples.counts, strict=True)
            },
            "regime": self.options.regime,
            "epochs": len(outcome.history.epochs),
            "best epoch": best.epoch,
            "seed": self.options.seed,
        }
        figures = {k.replace("_", " "): v for k, v in best.figures.model_dump().items()}
        prototypes = outcome.network.prototypes
        lesson = Lesson(
            facts={
                "Studies that trained": f"{len(split.train)}, {len(samples):,} frames",
                "Studies that validated": f"{len(split.val)}, {len(val.samples):,} frames",
                "Unreadable frames left out": f"{outcome.unreadable:,}",
                "Backbone": f"{self.options.model.backbone}, {self.options.regime}",
                "Batch": f"{self.options.batch} x {self.options.accumulate}",
                "Best epoch": f"{best.epoch} of {len(outcome.history.epochs)}",
                "Seed": str(self.options.seed),
            },
            history=outcome.history,
            judgement=found,
            prototypes=None if prototypes is None else prototypes.directions.detach().cpu().numpy(),
            counts=samples.counts,
            oversampling=_oversampling(self.options, train),
            split=split.hash,
        )
        training = self.out / folder.TRAINING
        training.mkdir(exist_ok=True)
        write_text(training / PAGE, page(lesson))
        write_text(training / HISTORY, outcome.history.model_dump_json(indent=1) + "\n")
        save_model(
            self.out, outcome.network, split_hash=split.hash, training=summary, results=figures
        )
        folder.finish(self.out, self.options)


def _oversampling(options: TrainingOptions, train: Source) -> np.ndarray:
    labels = train.samples.labels
    weights = sample_weights(labels) if options.sampler.balanced else np.ones(len(labels))
    return oversampling(labels, weights)


def _hash(split: Path) -> str:
    from enteron.galar.splits import load_split

    return load_split(split).hash


def _many(count: int, noun: str) -> str:
    plural = {"study": "studies"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"

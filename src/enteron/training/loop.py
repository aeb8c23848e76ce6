"""The loop: epochs of steps, a validation after each, checkpoints on the way."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import ConfigError, TrainingError
from enteron.labels import LABELS
from enteron.model.network import Network
from enteron.training.augmentation import mix, mixing_share
from enteron.training.batches import Batch, Draw, Source
from enteron.training.checkpoint import (
    EpochRecord,
    Figures,
    History,
    Progress,
    drop_older,
    has_checkpoint,
    load_best,
    load_checkpoint,
    save_best,
    save_checkpoint,
)
from enteron.training.distributed import Processes
from enteron.training.learner import Learner, rate_factor
from enteron.training.losses import Losses, positive_weights
from enteron.training.options import TrainingOptions
from enteron.training.sampling import Sampler, seed_of, share


@dataclass(frozen=True)
class Validation:
    """Scores beside the truth, in the order of the source's samples."""

    samples: NDArray[np.int64]  # those that could be read
    truth: NDArray[np.bool_]  # (n, 17)
    scores: NDArray[np.float32]  # (n, 17) probabilities
    loss: float


@torch.inference_mode()
def validate(learner: Learner, network: Network, source: Source) -> Validation:
    """Score every sample once, each process a share of the batches; all get all scores."""
    network.eval()
    processes, count = learner.processes, len(source.samples)
    order = np.arange(count)
    size = learner.options.batch
    draws = [Draw(order[at : at + size], None) for at in range(0, count, size)]
    # Processes fill rows of one array each and add the arrays: the others' rows are 0.
    scores = torch.zeros(count, len(LABELS) + 1, dtype=torch.float64, device=learner.device)
    sums = torch.zeros(2, dtype=torch.float64, device=learner.device)
    for batch in source.batches(draws[processes.rank :: processes.size]):
        if len(batch.samples) == 0:
            continue
        targets = batch.targets.to(learner.device)
        with learner.precision():
            outputs = network(source.prepare(batch.inputs.to(learner.device)))
        losses = learner.losses(network, outputs, targets, smoothing=0.0)
        rows = torch.from_numpy(batch.samples).to(learner.device)
        scores[rows, :-1] = outputs.logits.double().sigmoid()
        scores[rows, -1] = 1
        sums += torch.stack((losses.total.double() * len(rows), losses.total.new_tensor(len(rows))))
    scores, sums = processes.sum(scores).cpu(), processes.sum(sums).cpu()
    read = scores[:, -1] > 0
    samples = order[read.numpy()]
    return Validation(
        samples=samples,
        truth=source.samples.labels[samples],
        scores=scores[read, :-1].float().numpy(),
        loss=float(sums[0] / sums[1]),
    )


@dataclass(frozen=True)
class Step:
    """One step of the optimiser."""

    epoch: int  # from 1
    number: int  # of the step within the epoch, from 1
    steps: int  # of an epoch
    overall: int  # steps since the beginning of the training
    samples: int  # clips of this step, over all processes
    losses: dict[str, float]  # the total and its parts before weighting, of this process
    rate: float  # learning rate of the head
    norm: float  # of the gradient before clipping


class Watcher(Protocol):
    """Somebody who watches."""

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        """Training begins, or goes on, after `epoch` epochs and `step` steps of the next."""
        ...

    def stepped(self, step: Step) -> None:
        """A step is done."""
        ...

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        """An epoch is done and validated; `best` when none before was better."""
        ...


class Watchers:
    """Several of them."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        for watcher in self._watchers:
            watcher.began(epoch, step, epochs, steps)

    def stepped(self, step: Step) -> None:
        for watcher in self._watchers:
            watcher.stepped(step)

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        for watcher in self._watchers:
            watcher.judged(record, best, validation)


Judge = Callable[[NDArray[np.bool_], NDArray[np.float32]], Figures]
"""How good scores (n, 17) are beside the truth (n, 17)."""


@dataclass(frozen=True)
class Outcome:
    """What came of a training."""

    network: Network  # averaged weights of the best epoch
    history: History
    validation: Validation  # of those weights
    unreadable: int  # samples that were left out


class Training:
    """One training, new or resumed. `folder` holds its checkpoints; none: nothing is kept."""

    def __init__(
        self,
        network: Network,
        train: Source,
        val: Source,
        options: TrainingOptions,
        judge: Judge,
        watcher: Watcher,
        folder: Path | None,
        processes: Processes | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.options, self.folder, self._watcher, self._judge = options, folder, watcher, judge
        self.processes = processes or Processes()
        self.device = device or torch.device("cpu")
        _require_even_shares(options.batch, self.processes.size)
        self.train, self.val = train, val
        samples = train.samples
        self.sampler = Sampler(
            samples.labels, options.sampler, options.batch, options.accumulate, options.seed
        )
        weight = positive_weights(torch.from_numpy(samples.counts), len(samples))
        self.learner = Learner(network, options, weight, self.processes, self.device)
        self.progress = Progress(options=options, data=_data_hash(train, val))
        self._best: dict[str, torch.Tensor] = {}  # averaged weights of the best epoch
        if folder is not None and has_checkpoint(folder):
            self._resume(folder)

    def run(self) -> Outcome:
        """Train to the end."""
        group = self.options.accumulate
        self._watcher.began(
            self.progress.epoch,
            self.progress.batch // group,
            self.options.epochs,
            self.sampler.steps,
        )
        if self.progress.epoch == self.progress.batch == 0:
            self._save()
        while self.progress.epoch < self.options.epochs and not self._stale():
            self._epoch()
            self._judge_epoch()
        return self._outcome()

    def _epoch(self) -> None:
        """The batches of one epoch that are left, a step after every `accumulate` of them."""
        epoch, done = self.progress.epoch, self.progress.batch
        draws = self._draws(epoch)[done:]
        group, seen = self.options.accumulate, 0
        for number, batch in enumerate(self.train.batches(draws), start=done):
            losses, count = self._learn(epoch, number, batch)
            seen += count
            self.progress = self.progress.model_copy(
                update={"batch": number + 1, "loss": self.progress.loss + losses["total"]}
            )
            if (number + 1) % group == 0:
                step = number // group
                overall = epoch * self.sampler.steps + step
                factor = rate_factor(
                    overall, self.options.epochs * self.sampler.steps, self.options.schedule
                )
                norm = self.learner.update(overall, factor)
                rate = factor * self.options.optimiser.head_rate
                self._watcher.stepped(
                    Step(epoch + 1, step + 1, self.sampler.steps, overall, seen, losses, rate, norm)
                )
                seen = 0
                if (step + 1) % self.options.checkpoint_steps == 0 and number + 1 < len(
                    draws
                ) + done:
                    self._save()

    def _draws(self, epoch: int) -> list[Draw]:
        """Our share of every batch, each sample with the seed of its place."""
        whole = self.sampler.epoch(epoch)
        places = np.arange(whole.size).reshape(whole.shape)
        mine = [share(array, self.processes.rank, self.processes.size) for array in (whole, places)]
        return [
            Draw(samples, _seeds(self.options.seed, epoch, where))
            for samples, where in zip(*mine, strict=True)
        ]

    def _learn(self, epoch: int, number: int, batch: Batch) -> tuple[dict[str, float], int]:
        """Forward and backward of one batch; its losses and its size over all processes."""
        options, learner = self.options, self.learner
        here = len(batch.samples)
        count = here
        if self.processes.size > 1:  # a GPU would wait for its own answer otherwise
            count = int(self.processes.sum(torch.tensor([here], device=self.device)))
        if count < 2:  # nothing that could be normalised: all of it was unreadable
            return dict.fromkeys(_PARTS, 0.0), 0
        # Dropout is the only thing that draws from torch's own generator from here on.
        torch.manual_seed(seed_of(options.seed, "batch", epoch, number))
        inputs = self.train.prepare(batch.inputs.to(self.device, non_blocking=True))
        targets = batch.targets.to(self.device, non_blocking=True)
        inputs, targets = mix(
            inputs, targets, mixing_share(options.mixup, options.seed, epoch, number)
        )
        losses = learner.forward(inputs, targets)
        parts = torch.stack([getattr(losses, part).detach().float() for part in _PARTS])
        parts[: len(_OF_SAMPLES)] *= here / count
        parts[len(_OF_SAMPLES) :] /= self.processes.size
        broken = float(self.processes.sum((~parts.isfinite().all()).float().reshape(1)))
        if broken:
            raise self._broken(epoch, number, batch, inputs, losses)
        values = dict(zip(_PARTS, self.processes.sum(parts).tolist(), strict=True))
        learner.backward(losses, here / count)
        return {"total": values["data"] + values["structure"], **values}, count

    def _broken(
        self, epoch: int, number: int, batch: Batch, inputs: torch.Tensor, losses: Losses
    ) -> TrainingError:
        """The loss is not a number: say where, and which frames are to blame if any are."""
        where = f"epoch {epoch + 1}, batch {number + 1}"
        samples = self.train.samples
        wrong = ~inputs.flatten(1).isfinite().all(dim=1).cpu().numpy()
        if wrong.any():
            return TrainingError(
                f"{where}: the features of {samples.names(batch.samples[wrong])} are not finite",
                "delete the stored features of those studies and run again",
            )
        if losses.total.isfinite():
            return TrainingError(
                f"{where}: another process met a loss that is not finite", "see it"
            )
        return TrainingError(
            f"{where}: the loss is {losses.total.item()}, in the batch of "
            f"{samples.names(batch.samples)}",
            "look at those frames, or train with a lower learning rate",
        )

    def _judge_epoch(self) -> None:
        validation = validate(self.learner, self.learner.average.network, self.val)
        epoch = self.progress.epoch + 1
        record = EpochRecord(
            epoch=epoch,
            train_loss=self.progress.loss / self.sampler.batches,
            val_loss=validation.loss,
            figures=self._judge(validation.truth, validation.scores),
        )
        history = History(epochs=(*self.progress.history.epochs, record))
        best = history.best == record
        if best and self.folder is not None and self.processes.first:
            save_best(self.folder, epoch, self.learner.average.tensors)
        if best:
            self._best = {n: t.clone() for n, t in self.learner.average.tensors.items()}
        self.progress = self.progress.model_copy(
            update={"epoch": epoch, "batch": 0, "loss": 0.0, "history": history}
        )
        self._save()
        self._watcher.judged(record, best, validation)

    def _outcome(self) -> Outcome:
        """The average goes back to its best epoch, and is scored once more."""
        with torch.no_grad():
            for name, tensor in self.learner.average.tensors.items():
                tensor.copy_(self._best[name])
        network = self.learner.average.network
        validation = validate(self.learner, network, self.val)
        self._gather_unreadable()
        return Outcome(network, self.progress.history, validation, len(self.progress.unreadable))

    def _stale(self) -> bool:
        return self.progress.history.stale(self.options.patience)

    def _save(self) -> None:
        self._gather_unreadable()
        if self.folder is None or not self.processes.first:
            return
        self.progress = self.progress.model_copy(update={"scaler": self.learner.scaling()})
        save_checkpoint(self.folder, self.progress, self.learner.tensors())
        best = self.progress.history.best
        if best is not None:
            drop_older(self.folder, best.epoch)

    def _gather_unreadable(self) -> None:
        here = {*self.progress.unreadable, *self.train.unreadable, *self.val.unreadable}
        met = self.processes.union(here)
        self.progress = self.progress.model_copy(update={"unreadable": tuple(sorted(met))})

    def _resume(self, folder: Path) -> None:
        stored, tensors = load_checkpoint(folder)
        for name in TrainingOptions.model_fields:
            before, now = getattr(stored.options, name), getattr(self.options, name)
            if before != now and name != "workers":  # who reads the pictures changes nothing
                raise TrainingError(
                    f"the checkpoint was made with other options: '{name}' differs",
                    "resume with the same options, or train into another folder",
                )
        if stored.data != self.progress.data:
            raise TrainingError(
                "the checkpoint was made on other samples: studies, frames or labels changed",
                "restore the data, or train into another folder",
            )
        self.learner.load(tensors)
        self.learner.load_scaling(stored.scaler)
        self.progress = stored
        best = stored.history.best
        if best is not None:
            self._best = load_best(folder, best.epoch)


_OF_SAMPLES = ("data", "classification", "contrastive")
_PARTS = (*_OF_SAMPLES, "structure", "orthogonality", "angular")


def _seeds(seed: int, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([seed_of(seed, "clip", epoch, int(p)) for p in places], dtype=np.int64)


def _data_hash(train: Source, val: Source) -> str:
    return f"{train.samples.hash()}-{val.samples.hash()}"


def _require_even_shares(batch: int, size: int) -> None:
    """Mixup pairs neighbours of a batch, which must be in the same hands."""
    if batch % (2 * size):
        raise ConfigError(
            f"a batch of {batch} has no even share for each of {size} processes",
            f"give a multiple of {2 * size}",
        )

"""The training loop: epochs of steps, a validation after each epoch, checkpoints in between."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import ConfigError, TrainingError
from enteron.labels import LABELS
from enteron.model.network import Network
from enteron.progress import Progress, SilentProgress
from enteron.training.augmentation import mixup, mixup_weight
from enteron.training.batches import Batch, BatchSource, Draw
from enteron.training.checkpoint import (
    TrainingState,
    delete_older_best,
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
from enteron.training.results import (
    EpochRecord,
    History,
    Validation,
    ValidationMetrics,
    validation_metrics,
)
from enteron.training.sampling import Sampler, process_share, seed_of
from enteron.types import FrameLabels

Metrics = Callable[[FrameLabels, NDArray[np.float32]], ValidationMetrics]
"""Metrics of scores (n, 17), given the truth."""


@dataclass(frozen=True)
class Step:
    """One finished step of the optimiser."""

    epoch: int  # from 1
    number: int  # of the step within the epoch, from 1
    steps: int  # per epoch
    overall: int  # steps since the start of the training, from 0
    samples: int  # clips of this step, over all processes
    losses: dict[str, float]  # the total and its parts, of the step's last batch
    rate: float  # learning rate of the head
    norm: float  # of the gradient before clipping


class TrainingListener(Protocol):
    """Receives the numbers of a training as it runs. The methods do nothing unless overridden."""

    def on_start(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        """Training starts, or resumes after `epoch` epochs and `step` steps of the next."""

    def on_step(self, step: Step) -> None:
        """A step has finished."""

    def on_epoch_end(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        """An epoch has been validated; `best`: it is better than all before."""


@dataclass(frozen=True)
class TrainingResult:
    """What a training produced."""

    network: Network  # averaged weights of the best epoch
    history: History
    best: EpochRecord
    validation: Validation  # of the best epoch's averaged weights
    unreadable: int  # samples that were left out


class TrainingLoop:
    """A training, new or resumed from the checkpoint in `folder`."""

    def __init__(
        self,
        network: Network,
        train: BatchSource,
        val: BatchSource,
        options: TrainingOptions,
        *,
        folder: Path | None = None,
        progress: Progress | None = None,
        listeners: Sequence[TrainingListener] = (),
        processes: Processes | None = None,
        device: torch.device | None = None,
        metrics: Metrics = validation_metrics,
    ) -> None:
        """`folder`: of checkpoints; None: none are written."""
        self.train, self.val, self.options, self.folder = train, val, options, folder
        self.processes = processes or Processes()
        self.device = device or torch.device("cpu")
        self._progress = progress or SilentProgress()
        self._listeners, self._metrics = tuple(listeners), metrics
        _require_even_shares(options.batch, self.processes.size)
        samples = train.samples
        self.sampler = Sampler(
            samples.labels,
            options.sampler,
            options.batch,
            options.accumulate,
            options.seed,
            samples.source_index,
        )
        labels = samples.labels
        positive_weight = positive_weights(
            torch.from_numpy(labels.present_counts),
            torch.from_numpy(labels.known_counts),
            options.losses.largest_weight,
        )
        self.learner = Learner(network, options, positive_weight, self.processes, self.device)
        self.state = TrainingState(
            options=options, data=f"{train.samples.hash()}-{val.samples.hash()}"
        )
        self._best_weights: dict[str, torch.Tensor] = {}  # averaged weights of the best epoch
        if folder is not None and has_checkpoint(folder):
            self._resume(folder)

    def run(self) -> TrainingResult:
        """Train all remaining epochs, or until validation stops improving."""
        self._report_start()
        if self.state.epoch == self.state.batch == 0:
            self._save()
        while self.state.epoch < self.options.epochs and not self._should_stop():
            started = time.perf_counter()
            clips = self._train_epoch()
            self._validate_epoch(clips, started)
        return self._result()

    def _report_start(self) -> None:
        epoch, step = self.state.epoch, self.state.batch // self.options.accumulate
        epochs, steps = self.options.epochs, self.sampler.steps
        if step:
            self._progress.message(
                f"Resuming in epoch {epoch + 1} of {epochs}, after step {step} of {steps}."
            )
        elif epoch:
            self._progress.message(f"Resuming after epoch {epoch} of {epochs}.")
        for listener in self._listeners:
            listener.on_start(epoch, step, epochs, steps)

    def _train_epoch(self) -> int:
        """Train on the remaining batches of an epoch; the number of clips they had."""
        epoch, done, group = self.state.epoch, self.state.batch, self.options.accumulate
        draws = self._draws(epoch)[done:]
        steps, clips = self.sampler.steps, 0
        title = f"Epoch {epoch + 1} of {self.options.epochs}"
        with self._progress.task(title, steps, "steps") as advance:
            advance(done // group)
            losses: dict[str, float] | None = None  # of the step's last batch with readable frames
            step_clips = 0
            for number, batch in enumerate(self.train.batches(draws), start=done):
                batch_losses, count = self._train_batch(epoch, number, batch)
                self._count_batch(batch_losses)
                if batch_losses is not None:
                    losses = batch_losses
                step_clips += count
                if (number + 1) % group:
                    continue
                step = number // group
                if losses is not None:  # else there is no gradient
                    self._update(epoch, step, step_clips, losses)
                advance(1)
                clips, step_clips, losses = clips + step_clips, 0, None
                last = step + 1 == steps  # the epoch's last step is saved with its validation
                if (step + 1) % self.options.checkpoint_steps == 0 and not last:
                    self._save()
        return clips

    def _draws(self, epoch: int) -> list[Draw]:
        """What this process reads of every batch, each sample with a seed from its position."""
        batches = self.sampler.epoch(epoch)
        positions = np.arange(batches.size).reshape(batches.shape)
        rank, size = self.processes.rank, self.processes.size
        return [
            Draw(samples, _clip_seeds(self.options.seed, epoch, sample_positions))
            for samples, sample_positions in zip(
                process_share(batches, rank, size),
                process_share(positions, rank, size),
                strict=True,
            )
        ]

    def _train_batch(
        self, epoch: int, number: int, batch: Batch
    ) -> tuple[dict[str, float] | None, int]:
        """Forward and backward pass of a batch; its losses and its size, over all processes.

        None for a batch with fewer than two readable frames, which cannot be batch-normalised.
        """
        options, learner = self.options, self.learner
        size = count = len(batch.samples)
        if self.processes.size > 1:  # otherwise a GPU would only wait for its own sum
            count = int(self.processes.sum(torch.tensor([size], device=self.device)))
        if count < 2:
            return None, 0
        # From here on only dropout draws from torch's global generator.
        torch.manual_seed(seed_of(options.seed, "batch", epoch, number))
        inputs = self.train.prepare(batch, self.device)
        targets = batch.targets.to(self.device, non_blocking=True)
        known = batch.known.to(self.device, non_blocking=True)
        weight = mixup_weight(options.mixup, options.seed, epoch, number)
        inputs, targets, known = mixup(inputs, targets, known, weight)
        losses = learner.forward(inputs, targets, known)
        share = self._share_of_known(known)
        parts = torch.stack([getattr(losses, part).detach().float() for part in _PARTS])
        parts[: len(_SAMPLE_PARTS)] *= share
        parts[len(_SAMPLE_PARTS) :] /= self.processes.size
        if float(self.processes.sum((~parts.isfinite().all()).float().reshape(1))):
            raise self._not_finite(epoch, number, batch, inputs, losses)
        values = dict(zip(_PARTS, self.processes.sum(parts).tolist(), strict=True))
        learner.backward(losses, share)
        return {"total": values["data"] + values["structure"], **values}, count

    def _share_of_known(self, known: torch.Tensor) -> float:
        """The share of a batch's known labels that this process has; 0 if nothing is known."""
        if self.processes.size == 1:
            return 1.0
        own = known.sum().reshape(1)
        here, everywhere = int(own), int(self.processes.sum(own.clone()))
        return here / everywhere if everywhere else 0.0

    def _count_batch(self, losses: dict[str, float] | None) -> None:
        state = self.state
        changes = {"skipped": state.skipped + 1} if losses is None else {}
        loss = state.loss + (0.0 if losses is None else losses["total"])
        self.state = state.model_copy(update={"batch": state.batch + 1, "loss": loss, **changes})

    def _update(self, epoch: int, step: int, clips: int, losses: dict[str, float]) -> None:
        """A step of the optimiser, reported to the listeners."""
        options, steps = self.options, self.sampler.steps
        overall = epoch * steps + step
        factor = rate_factor(overall, options.epochs * steps, options.schedule)
        norm = self.learner.update(overall, factor)
        rate = factor * options.optimiser.head_rate
        for listener in self._listeners:
            listener.on_step(Step(epoch + 1, step + 1, steps, overall, clips, losses, rate, norm))

    def _not_finite(
        self, epoch: int, number: int, batch: Batch, inputs: torch.Tensor, losses: Losses
    ) -> TrainingError:
        """The error for a loss that is not finite, with the batch or the frames that caused it."""
        where = f"epoch {epoch + 1}, batch {number + 1}"
        samples = self.train.samples
        bad_inputs = ~inputs.flatten(1).isfinite().all(dim=1).cpu().numpy()
        if bad_inputs.any():
            frames = samples.describe(batch.samples[bad_inputs])
            return TrainingError(
                f"{where}: the features of {frames} are not finite",
                "delete the stored features of those studies and run again",
            )
        if losses.total.isfinite():
            return TrainingError(
                f"{where}: another process reported a non-finite loss", "see the output of that one"
            )
        return TrainingError(
            f"{where}: the loss is {losses.total.item()}, in the batch of "
            f"{samples.describe(batch.samples)}",
            "look at those frames, or train with a lower learning rate",
        )

    def _validate_epoch(self, clips: int, started: float) -> None:
        """Validate the averaged weights, save a checkpoint and report the epoch."""
        epoch, batches, skipped = self.state.epoch + 1, self.sampler.batches, self.state.skipped
        if skipped == batches:
            raise TrainingError(
                f"epoch {epoch}: none of the {batches} batches had two readable frames",
                "check the images with `enteron check`, then run again with --resume",
            )
        validation = validate(self.learner, self.learner.average.network, self.val)
        record = EpochRecord(
            epoch=epoch,
            train_loss=self.state.loss / (batches - skipped),
            val_loss=validation.loss,
            val_classification=validation.classification,
            figures=self._metrics(validation.truth, validation.scores),
            sources=self._metrics_by_source(validation),
        )
        history = History(epochs=(*self.state.history.epochs, record))
        best = history.best == record
        if best:
            averaged = self.learner.average.tensors
            if self.folder is not None and self.processes.is_first:
                save_best(self.folder, epoch, averaged)
            self._best_weights = {name: tensor.clone() for name, tensor in averaged.items()}
        self.state = self.state.model_copy(
            update={"epoch": epoch, "batch": 0, "skipped": 0, "loss": 0.0, "history": history}
        )
        self._save()
        rate = clips / (time.perf_counter() - started)
        self._progress.message(_epoch_line(record, best, rate, skipped))
        for listener in self._listeners:
            listener.on_epoch_end(record, best, validation)

    def _metrics_by_source(self, validation: Validation) -> dict[str, ValidationMetrics]:
        """The metrics of each source's validation frames; empty for a single source."""
        samples = self.val.samples
        if len(samples.sources) < 2:
            return {}
        source_index = samples.source_index[validation.samples]
        metrics: dict[str, ValidationMetrics] = {}
        for index, source in enumerate(samples.sources):
            rows = np.flatnonzero(source_index == index)
            if rows.size:
                metrics[source] = self._metrics(validation.truth[rows], validation.scores[rows])
        return metrics

    def _result(self) -> TrainingResult:
        """The averaged network with the weights of its best epoch, validated once more."""
        best = self.state.history.best
        assert best is not None
        with torch.no_grad():
            for name, tensor in self.learner.average.tensors.items():
                tensor.copy_(self._best_weights[name])
        network = self.learner.average.network
        validation = validate(self.learner, network, self.val)
        self._gather_unreadable()
        unreadable = len(self.state.unreadable)
        return TrainingResult(network, self.state.history, best, validation, unreadable)

    def _should_stop(self) -> bool:
        return self.state.history.should_stop(self.options.patience)

    def _save(self) -> None:
        self._gather_unreadable()
        if self.folder is None or not self.processes.is_first:
            return
        self.state = self.state.model_copy(update={"scaler": self.learner.scaler_state()})
        save_checkpoint(self.folder, self.state, self.learner.state())
        best = self.state.history.best
        if best is not None:
            delete_older_best(self.folder, best.epoch)

    def _gather_unreadable(self) -> None:
        """Collect the unreadable samples of all processes in the state."""
        frames = {*self.state.unreadable, *self.train.unreadable, *self.val.unreadable}
        all_frames = tuple(sorted(self.processes.union(frames)))
        self.state = self.state.model_copy(update={"unreadable": all_frames})

    def _resume(self, folder: Path) -> None:
        stored, tensors = load_checkpoint(folder)
        for name in TrainingOptions.model_fields:
            before, now = getattr(stored.options, name), getattr(self.options, name)
            if before != now and name != "workers":  # workers do not change the result
                raise TrainingError(
                    f"the checkpoint was made with other options: '{name}' differs",
                    "resume with the same options, or train into another folder",
                )
        if stored.data != self.state.data:
            raise TrainingError(
                "the checkpoint was made on other samples: studies, frames or labels changed",
                "restore the data, or train into another folder",
            )
        self.learner.load_state(tensors)
        self.learner.load_scaler_state(stored.scaler)
        self.state = stored
        best = stored.history.best
        if best is not None:
            self._best_weights = load_best(folder, best.epoch)


_SAMPLE_PARTS = ("data", "classification", "contrastive")  # means over samples
_PARTS = (*_SAMPLE_PARTS, "structure", "orthogonality", "angular")


@torch.inference_mode()
def validate(learner: Learner, network: Network, source: BatchSource) -> Validation:
    """Score every sample once; processes share the batches, and all return all scores."""
    network.eval()
    processes, count = learner.processes, len(source.samples)
    order = np.arange(count)
    size = learner.options.batch
    draws = [Draw(order[at : at + size], None) for at in range(0, count, size)]
    # Each process fills its rows of an array of zeros; the sum of the arrays has all rows. The
    # last column marks the rows that were read.
    scores = torch.zeros(count, len(LABELS) + 1, dtype=torch.float64, device=learner.device)
    # Of both losses times the known labels of a batch in frames (17 labels a frame), and of these.
    sums = torch.zeros(3, dtype=torch.float64, device=learner.device)
    for batch in source.batches(draws[processes.rank :: processes.size]):
        if len(batch.samples) == 0:
            continue
        targets = batch.targets.to(learner.device)
        with learner.autocast():
            outputs = network(source.prepare(batch, learner.device))
        known = batch.known.to(learner.device)
        losses = learner.losses(network, outputs, targets, known, smoothing=0.0)
        rows = torch.from_numpy(batch.samples).to(learner.device)
        scores[rows, :-1] = outputs.logits.double().sigmoid()
        scores[rows, -1] = 1
        frames = known.sum().double() / len(LABELS)
        both = torch.stack((losses.total, losses.classification)).double() * frames
        sums += torch.cat((both, frames[None]))
    scores, sums = processes.sum(scores).cpu(), processes.sum(sums).cpu()
    read = scores[:, -1] > 0
    if not read.any():
        raise TrainingError(
            f"none of the {count} validation frames can be read",
            "check the images with `enteron check`, then run again with --resume",
        )
    samples = order[read.numpy()]
    return Validation(
        samples=samples,
        truth=source.samples.labels[samples],
        scores=scores[read, :-1].float().numpy(),
        loss=float(sums[0] / sums[2].clamp(min=1 / len(LABELS))),
        classification=float(sums[1] / sums[2].clamp(min=1 / len(LABELS))),
    )


def _epoch_line(record: EpochRecord, best: bool, rate: float, skipped: int) -> str:
    metrics = record.figures
    parts = [
        f"epoch {record.epoch:2}: train loss {record.train_loss:.4f}",
        f"val loss {record.val_loss:.4f}"
        + (
            ""
            if record.val_classification is None
            else f" (classification {record.val_classification:.4f})"
        ),
        f"mAP {metrics.macro_ap:.4f}",
        f"macro F1 {metrics.macro_f1:.4f}",
        f"findings {metrics.findings_ap:.3f}",
    ]
    if metrics.region_accuracy is not None:
        parts.append(f"regions {metrics.region_accuracy:.3f}")
    parts[-1] += f" ({rate:.0f} clips/s)"
    if best:
        parts.append("best so far")
    if skipped:
        noun = "batch" if skipped == 1 else "batches"
        parts.append(f"{skipped} {noun} skipped for lack of readable frames")
    return ", ".join(parts)


def _clip_seeds(seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([seed_of(seed, "clip", epoch, int(p)) for p in positions], dtype=np.int64)


def _require_even_shares(batch: int, size: int) -> None:
    """Mixup pairs neighbours of a batch, so each process needs an even number of its samples."""
    if batch % (2 * size):
        raise ConfigError(
            f"a batch of {batch} has no even share for each of {size} processes",
            f"give a multiple of {2 * size}",
        )

"""Checkpoints: one file, whole or not there, from which training goes on to the same bytes.

Tensors in safetensors, everything else as JSON in the same file's header. Random states are not
among it: every step seeds itself (see `randomness`), so the step's number is enough.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from enteron.errors import EnteronError, TrainingError
from enteron.files import write_bytes
from enteron.options import Options, parse_json_options
from enteron.training.options import TrainingOptions


class Figures(Options):
    """How good scores of validation frames are."""

    macro_ap: float
    """Mean AP of the 17 labels, 0 for those without positives, as in the paper."""
    macro_ap_present: float
    """Mean AP of the labels that have positives."""
    macro_f1: float
    """Mean F1 of the 17 labels at a threshold of one half, 0 for those without positives."""
    findings_ap: float
    """Mean AP of the findings that have positives; 0 when there are none."""
    region_accuracy: float
    """Share of the frames whose most probable region is a true one."""


class EpochRecord(Options):
    """One row of the epoch table."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean over the epoch's batches, as it was minimised."""
    val_loss: float
    """The same objective on validation frames with averaged weights, without smoothing."""
    figures: Figures
    """Of averaged weights on validation frames."""


class History(Options):
    """Epochs so far."""

    epochs: tuple[EpochRecord, ...] = ()
    """In order."""

    @property
    def best(self) -> EpochRecord | None:
        """The first epoch with the largest macro AP (decision 31)."""
        return max(self.epochs, key=lambda record: record.figures.macro_ap, default=None)

    def stale(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought nothing better."""
        best = self.best
        if patience is None or best is None:
            return False
        return self.epochs[-1].epoch - best.epoch >= patience


FILE = "state.safetensors"
_HEADER = "enteron"
_AGAIN = "train again without --resume, into another folder"
Tensors = Mapping[str, torch.Tensor]


class Progress(Options):
    """How far training is; together with the tensors, everything that the next step needs."""

    format: Literal[1] = 1
    """Version of the file's layout."""
    options: TrainingOptions
    """What was asked for."""
    data: str
    """Of the samples that train and validate."""
    epoch: int = 0
    """Epochs that are finished."""
    batch: int = 0
    """Batches of the next epoch that are finished."""
    loss: float = 0.0
    """Sum of their losses."""
    history: History = History()
    """Of the finished epochs."""
    unreadable: tuple[tuple[str, int], ...] = ()
    """Study and frame of samples that could not be read so far."""
    scaler: dict[str, Any] = Field(default_factory=dict)
    """State of the gradients' scaling, in fp16 only."""


def save_checkpoint(folder: Path, progress: Progress, tensors: Tensors) -> None:
    """Replace the checkpoint by a newer one; when that fails the old one is still there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        header = {_HEADER: progress.model_dump_json()}
        write_bytes(folder / FILE, save(_plain(tensors), metadata=header))
    except (EnteronError, OSError) as error:
        raise _unwritten(folder, error) from error


def load_checkpoint(folder: Path) -> tuple[Progress, dict[str, torch.Tensor]]:
    """The last checkpoint."""
    progress = read_progress(folder)
    with safe_open(folder / FILE, framework="pt") as file:
        return progress, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_progress(folder: Path) -> Progress:
    """The last checkpoint without its tensors."""
    try:
        with safe_open(folder / FILE, framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"the checkpoint '{FILE}' cannot be read", _AGAIN) from error
    if header is None:
        raise TrainingError(f"'{FILE}' is not a checkpoint of enteron", _AGAIN)
    return parse_json_options(Progress, header, FILE, _AGAIN)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is something to resume."""
    return (folder / FILE).exists()


def save_best(folder: Path, epoch: int, tensors: Tensors) -> None:
    """Keep the averaged weights of an epoch. Older ones stay until a checkpoint names this one."""
    try:
        write_bytes(folder / _best(epoch), save(_plain(tensors)))
    except EnteronError as error:
        raise _unwritten(folder, error) from error


def load_best(folder: Path, epoch: int) -> dict[str, torch.Tensor]:
    """The averaged weights of the best epoch."""
    try:
        with safe_open(folder / _best(epoch), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise TrainingError(
            f"the weights of the best epoch, '{_best(epoch)}', cannot be read", _AGAIN
        ) from error


def drop_older(folder: Path, epoch: int) -> None:
    """Remove the weights of epochs that are no longer the best."""
    for path in folder.glob("best-*.safetensors"):
        if path.name != _best(epoch):
            path.unlink(missing_ok=True)


def _best(epoch: int) -> str:
    return f"best-{epoch}.safetensors"


def _plain(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _unwritten(folder: Path, error: Exception) -> TrainingError:
    said = error.problem if isinstance(error, EnteronError) else f"{error}"
    if not has_checkpoint(folder):
        return TrainingError(
            f"the first checkpoint was not saved: {said}", "make room on the disk and run again"
        )
    last = read_progress(folder)
    return TrainingError(
        f"a checkpoint was not saved: {said}",
        f"make room on the disk and run again with --resume; the last one (epoch "
        f"{last.epoch + 1}, after {last.batch} batches) is whole",
    )

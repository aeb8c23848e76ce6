"""Checkpoints: one file, replaced atomically, from which a training resumes to the same bytes.

Tensors are in safetensors; everything else is JSON in the same file's header. No random state is
stored: every batch derives its seeds from its number (`sampling.seed_of`).
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
from enteron.model.weights import read_weights
from enteron.options import Options, parse_json_options
from enteron.training.options import TrainingOptions
from enteron.training.results import History

STATE = "state.safetensors"
EVIDENCE = "evidence.safetensors"  # local evidence, from the moment it is fitted
_HEADER = "enteron"
_TRAIN_AGAIN = "train again without --resume, into another folder"
Tensors = Mapping[str, torch.Tensor]


class TrainingState(Options):
    """How far a training is; with the tensors, everything that the next step needs."""

    format: Literal[1] = 1
    """Version of the file's layout."""
    options: TrainingOptions
    """Options of the training."""
    data: str
    """Hash of the samples that train and validate."""
    epoch: int = 0
    """Finished epochs."""
    batch: int = 0
    """Finished batches of the next epoch."""
    skipped: int = 0
    """Those of the finished batches that had fewer than two readable frames."""
    loss: float = 0.0
    """Sum of the losses of the other finished batches."""
    history: History = History()
    """Results of the finished epochs."""
    unreadable: tuple[tuple[str, int], ...] = ()
    """Study and frame number of samples that could not be read so far."""
    scaler: dict[str, Any] = Field(default_factory=dict)
    """State of the gradient scaling; empty unless the precision is fp16."""


def save_checkpoint(folder: Path, state: TrainingState, tensors: Tensors) -> None:
    """Replace the checkpoint by a newer one; if writing fails, the old one stays."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        header = {_HEADER: state.model_dump_json()}
        write_bytes(folder / STATE, save(_on_cpu(tensors), metadata=header))
    except (EnteronError, OSError) as error:
        raise _write_error(folder, error) from error


def load_checkpoint(folder: Path) -> tuple[TrainingState, dict[str, torch.Tensor]]:
    """The last checkpoint."""
    state = read_state(folder)
    with safe_open(folder / STATE, framework="pt") as file:
        return state, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_state(folder: Path) -> TrainingState:
    """The last checkpoint without its tensors."""
    try:
        with safe_open(folder / STATE, framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"the checkpoint '{STATE}' cannot be read", _TRAIN_AGAIN) from error
    if header is None:
        raise TrainingError(f"'{STATE}' is not a checkpoint of enteron", _TRAIN_AGAIN)
    return parse_json_options(TrainingState, header, STATE, _TRAIN_AGAIN)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return (folder / STATE).exists()


def save_best(folder: Path, epoch: int, tensors: Tensors) -> None:
    """Store the averaged weights of the best epoch so far.

    Older ones stay until a checkpoint records this epoch as the best.
    """
    try:
        write_bytes(folder / _best_name(epoch), save(_on_cpu(tensors)))
    except EnteronError as error:
        raise _write_error(folder, error) from error


def load_best(folder: Path, epoch: int) -> dict[str, torch.Tensor]:
    """The averaged weights of the best epoch."""
    try:
        with safe_open(folder / _best_name(epoch), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise TrainingError(
            f"the weights of the best epoch, '{_best_name(epoch)}', cannot be read", _TRAIN_AGAIN
        ) from error


def delete_older_best(folder: Path, epoch: int) -> None:
    """Delete the averaged weights of all epochs but the best one, `epoch`."""
    for path in folder.glob("best-*.safetensors"):
        if path.name != _best_name(epoch):
            path.unlink(missing_ok=True)


def save_evidence(folder: Path, evidence: torch.nn.Module) -> None:
    """Store fitted local evidence: a resumed training takes it as it is."""
    try:
        write_bytes(folder / EVIDENCE, save(_on_cpu(evidence.state_dict())))
    except EnteronError as error:
        raise _write_error(folder, error) from error


def load_evidence(folder: Path, evidence: torch.nn.Module) -> bool:
    """Load what `save_evidence` stored; false where nothing is stored yet."""
    path = folder / EVIDENCE
    if not path.exists():
        return False
    evidence.load_state_dict(read_weights(path, evidence.state_dict(), _TRAIN_AGAIN))
    return True


def _best_name(epoch: int) -> str:
    return f"best-{epoch}.safetensors"


def _on_cpu(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _write_error(folder: Path, error: Exception) -> TrainingError:
    cause = error.problem if isinstance(error, EnteronError) else f"{error}"
    if not has_checkpoint(folder):
        return TrainingError(
            f"the first checkpoint was not saved: {cause}", "free disk space and run again"
        )
    last = read_state(folder)
    return TrainingError(
        f"a checkpoint was not saved: {cause}",
        f"free disk space and run again with --resume; the last checkpoint (epoch "
        f"{last.epoch + 1}, after {last.batch} batches) is intact",
    )

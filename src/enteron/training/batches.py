"""Batches: what a source of training data hands to the loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.model.preprocessing import window_rows
from enteron.training.sampling import Samples


@dataclass(frozen=True)
class Draw:
    """Samples of one batch that this process is to fetch."""

    samples: NDArray[np.int64]
    seeds: NDArray[np.int64] | None  # one per sample, for its random changes; none: as it is


@dataclass(frozen=True)
class Batch:
    """Samples as tensors; those that could not be read are missing."""

    samples: NDArray[np.int64]  # (n,)
    inputs: torch.Tensor  # clips (n, frames, 3, size, size) uint8, or windows (n, frames, 512)
    targets: torch.Tensor  # (n, 17) float32, 0 or 1


class Source(Protocol):
    """Where batches come from: stored features, or pictures."""

    @property
    def samples(self) -> Samples:
        """All there are, readable ones as far as is known."""
        ...

    @property
    def unreadable(self) -> set[tuple[str, int]]:
        """Study and frame of samples that were left out."""
        ...

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw, in order."""
        ...

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        """A batch's inputs, on the device, as the network wants them."""
        ...


def clip_rows(samples: Samples, frames: int, step: int) -> NDArray[np.int64]:
    """Stored rows (n, frames) of every sample's clip (decision 1)."""
    rows = [window_rows(study.stored.size, step, frames)[study.rows] for study in samples.studies]
    return np.concatenate([np.empty((0, frames), np.int64), *rows])


def targets_of(samples: Samples, chosen: NDArray[np.int64]) -> torch.Tensor:
    """Labels (n, 17) as float32."""
    return torch.from_numpy(samples.labels[chosen].astype(np.float32))

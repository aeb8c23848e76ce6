"""Batches: what a source of training data gives to the loop.

There are two sources: `features.FeatureSource` (frozen regime) and `pictures.ClipSource` (full
regime).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.inference.spacing import Spacing
from enteron.model.preprocessing import window_rows
from enteron.training.sampling import Samples


@dataclass(frozen=True)
class Draw:
    """The samples of one batch that this process is to read."""

    samples: NDArray[np.int64]
    seeds: NDArray[np.int64] | None  # augmentation seed of each sample; None: no augmentation


@dataclass(frozen=True)
class Batch:
    """A draw as tensors, without the samples that could not be read."""

    samples: NDArray[np.int64]  # (n,)
    inputs: torch.Tensor  # clips (n, frames, 3, size, size) uint8, or windows (n, frames, 512)
    targets: torch.Tensor  # (n, 17) float32, 0 or 1; 0 where unknown
    known: torch.Tensor  # (n, 17) bool
    erased: torch.Tensor | None = None  # (n, 4) rectangle to blank in each clip, where augmented


class BatchSource(Protocol):
    """Reads samples into batches."""

    @property
    def samples(self) -> Samples:
        """All samples, without those already known to be unreadable."""
        ...

    @property
    def unreadable(self) -> set[tuple[str, int]]:
        """Study and frame number of the samples that were left out so far."""
        ...

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw, in order."""
        ...

    def prepare(self, batch: Batch, device: torch.device) -> torch.Tensor:
        """A batch's inputs on the device, as the network takes them."""
        ...


def clip_rows(samples: Samples, frames: int, step: int) -> NDArray[np.int64]:
    """(n, frames) stored rows of every sample's clip (decision 1)."""
    rows = [window_rows(study.stored.size, step, frames)[study.rows] for study in samples.studies]
    return np.concatenate([np.empty((0, frames), np.int64), *rows])


def clip_spacings(samples: Samples, frames: int, step: int) -> tuple[Spacing, ...]:
    """How far apart the last two frames of clips are in the recording, the commonest first.

    Clips at the start of a study, which repeat its first frame, do not count. At most ten spacings
    are listed, and none that fewer than one clip in a thousand has.
    """
    if frames == 1:
        return ()
    numbers = [
        study.stored[window_rows(study.stored.size, step, frames)[study.rows]]
        for study in samples.studies
    ]
    clips = np.concatenate([np.empty((0, frames), np.int64), *numbers])
    apart, counts = np.unique(clips[:, -1] - clips[:, -2], return_counts=True)
    apart, counts = apart[apart > 0], counts[apart > 0]
    shares = counts / max(counts.sum(), 1)
    order = np.lexsort((apart, -counts))[:10]
    return tuple(
        Spacing(frames=int(apart[i]), share=round(float(shares[i]), 4))
        for i in order
        if shares[i] >= 0.001
    )


def make_batch(
    samples: Samples,
    chosen: NDArray[np.int64],
    inputs: torch.Tensor,
    erased: torch.Tensor | None = None,
) -> Batch:
    """The chosen samples with their inputs and labels."""
    labels = samples.labels[chosen]
    targets = torch.from_numpy(labels.present.astype(np.float32))
    return Batch(chosen, inputs, targets, torch.from_numpy(labels.known.copy()), erased)

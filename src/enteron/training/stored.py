"""The frozen regime's source: windows of features that were stored once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.training.batches import Batch, Draw, clip_rows, targets_of
from enteron.training.samples import Samples, StudySamples

PLAIN = 0
"""The view of the pictures as they are comes first."""


@dataclass(frozen=True)
class StoredStudy:
    """A study's features beside its samples."""

    samples: StudySamples
    features: NDArray[np.floating]  # (stored frames, views, 512), in memory or mapped
    readable: NDArray[np.bool_]  # (stored frames,)


class StoredWindows:
    """Windows straight from arrays. A sample whose window has an unreadable frame is left out."""

    def __init__(self, studies: Sequence[StoredStudy], frames: int, step: int) -> None:
        self._features = [study.features for study in studies]
        self.unreadable: set[tuple[str, int]] = set()
        self.samples = Samples([self._usable(study, frames, step) for study in studies])
        self._rows = clip_rows(self.samples, frames, step)

    def _usable(self, stored: StoredStudy, frames: int, step: int) -> StudySamples:
        samples = stored.samples
        if len(stored.features) != samples.stored.size:
            raise StudyError(
                f"study {samples.study} has {samples.stored.size} frames, its stored features "
                f"{len(stored.features)}",
                "delete the stored features of that study and run again",
            )
        broken = np.logical_not(
            stored.readable[clip_rows(Samples([samples]), frames, step)].all(axis=1)
        )
        lost = samples.stored[samples.rows[broken]]
        self.unreadable.update((samples.study, int(frame)) for frame in lost)
        return samples.without(broken)

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw; a seed chooses among the stored views."""
        for draw in draws:
            windows = torch.from_numpy(self._windows(draw))
            yield Batch(draw.samples, windows, targets_of(self.samples, draw.samples))

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def _windows(self, draw: Draw) -> NDArray[np.float32]:
        """(n, frames, 512), gathered study by study."""
        rows = self._rows[draw.samples]
        made = np.empty((*rows.shape, self._features[0].shape[2]), np.float32)
        place = self.samples.study[draw.samples]
        for number in np.unique(place):
            mine = np.flatnonzero(place == number)
            features = self._features[number]
            if draw.seeds is None:
                view = np.full(mine.size, PLAIN)
            else:
                view = draw.seeds[mine] % features.shape[1]
            made[mine] = features[rows[mine], view[:, None]]
        return made

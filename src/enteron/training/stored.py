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
    readable: NDArray[np.int64]  # rows that have features


class StoredWindows:
    """Windows straight from arrays.

    As when a study is scored, an unreadable frame counts as if it had not been stored: it is no
    sample, and windows reach over it.
    """

    def __init__(self, studies: Sequence[StoredStudy], frames: int, step: int) -> None:
        for study in studies:
            _require_fit(study)
        self._features = [study.features for study in studies]
        self.samples = Samples([study.samples.readable(study.readable) for study in studies])
        stored = [
            study.readable[rows]
            for study, rows in zip(
                studies, _by_study(self.samples, clip_rows(self.samples, frames, step)), strict=True
            )
        ]
        self._rows = np.concatenate([np.empty((0, frames), np.int64), *stored])  # in the arrays
        self.unreadable = {
            (study.samples.study, int(study.samples.stored[row]))
            for study in studies
            for row in np.setdiff1d(study.samples.rows, study.readable)
        }

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


def _by_study(samples: Samples, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    borders = np.cumsum([len(study) for study in samples.studies])[:-1]
    return np.split(rows, borders)


def _require_fit(stored: StoredStudy) -> None:
    if len(stored.features) != stored.samples.stored.size:
        raise StudyError(
            f"study {stored.samples.study} has {stored.samples.stored.size} frames, its stored "
            f"features {len(stored.features)}",
            "delete the stored features of that study and run again",
        )

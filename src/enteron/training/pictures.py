"""The full regime's source: clips of pictures, read and changed by worker processes."""

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from enteron.errors import EnteronError
from enteron.model.preprocessing import Preprocessing
from enteron.study.source import Study
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Batch, Draw, clip_rows, targets_of
from enteron.training.samples import Samples
from enteron.training.squares import Squares

AHEAD = 2
"""Batches that every worker prepares before they are asked for."""


@dataclass(frozen=True)
class ClipOptions:
    """How clips are made of a study's pictures."""

    frames: int
    step: int
    preprocessing: Preprocessing
    augmentation: Augmentation | None


@dataclass(frozen=True)
class _Read:
    """A worker's answer. Errors travel as values: torch cannot raise ours again by itself."""

    clips: torch.Tensor  # (n, frames, 3, size, size) uint8
    kept: torch.Tensor  # (n,) which of the draw they are
    error: EnteronError | None = None


class PictureClips:
    """Clips of pictures. A sample with an unreadable frame in its clip is left out and counted."""

    def __init__(
        self,
        samples: Samples,
        studies: Sequence[Study],
        options: ClipOptions,
        workers: int,
        kept: Path | None = None,
    ) -> None:
        """`kept`: a folder for decoded pictures; none: they are decoded every time."""
        self.samples = samples
        self.unreadable: set[tuple[str, int]] = set()
        self._squares = [Squares(study, options.preprocessing, kept) for study in studies]
        self._rows = clip_rows(samples, options.frames, options.step)
        self._options = options
        self._workers = workers

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw, in order, read ahead by the workers."""
        for squares in self._squares:
            squares.close()  # an open video must not be shared between processes
        reader = _Reader(self._squares, self.samples.study, self._rows, self._options, draws)
        ahead = AHEAD if self._workers else None
        # One item is a whole batch, so nothing is collated and little is sent between processes.
        loader = DataLoader(
            reader,
            batch_size=None,
            num_workers=min(self._workers, max(len(draws), 1)),
            prefetch_factor=ahead,
            multiprocessing_context=_clean_processes() if self._workers and draws else None,
            worker_init_fn=_begin if self._workers else None,
        )
        for draw, read in zip(draws, loader, strict=True):
            if read.error is not None:
                raise read.error
            kept = read.kept.numpy()
            for sample in np.setdiff1d(draw.samples, draw.samples[kept]):
                study = self.samples.studies[self.samples.study[sample]].study
                self.unreadable.add((study, self.samples.frame(int(sample))))
            samples = draw.samples[kept]
            yield Batch(samples, read.clips, targets_of(self.samples, samples))

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        """Bytes to the numbers that the backbone wants; (n, frames, 3, size, size)."""
        return self._options.preprocessing.normalise(inputs)


class _Reader(Dataset[_Read]):
    def __init__(
        self,
        squares: Sequence[Squares],
        study: NDArray[np.int64],  # (n,) of every sample
        rows: NDArray[np.int64],  # (n, frames)
        options: ClipOptions,
        draws: Sequence[Draw],
    ) -> None:
        self._squares, self._study, self._rows, self._options = squares, study, rows, options
        self._draws = draws

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, number: int) -> _Read:
        try:
            return self._read(self._draws[number])
        except EnteronError as error:
            return _Read(torch.empty(0), torch.empty(0, dtype=torch.int64), error)

    def _read(self, draw: Draw) -> _Read:
        options = self._options
        rows, places = self._rows[draw.samples], self._study[draw.samples]
        # Neighbouring samples of a validation share frames, and rare ones are drawn repeatedly.
        squares: dict[tuple[int, int], torch.Tensor | None] = {}
        for study, row in {
            (int(s), int(r)) for s, clip in zip(places, rows, strict=True) for r in clip
        }:
            squares[study, row] = self._squares[study].read(row)
        clips: list[torch.Tensor] = []
        kept: list[int] = []
        for place, study in enumerate(places):
            frames = [squares[int(study), int(row)] for row in rows[place]]
            whole = [frame for frame in frames if frame is not None]
            if len(whole) < len(frames):
                continue
            clip = torch.stack(whole)
            if options.augmentation is not None and draw.seeds is not None:
                clip = options.augmentation(clip, int(draw.seeds[place]))
            clips.append(clip)
            kept.append(place)
        size = options.preprocessing.size
        empty = torch.empty((0, options.frames, 3, size, size), dtype=torch.uint8)
        return _Read(torch.stack(clips) if clips else empty, torch.tensor(kept, dtype=torch.int64))


def _clean_processes() -> BaseContext:
    """How workers are started: forked off a process without threads, not off this one.

    Forking this process is torch's default, and the child of a process with threads may wait for
    ever for a lock that one of them held. The server imports torch once: workers start at once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _begin(worker: int) -> None:
    """The workers already share out the cores."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)

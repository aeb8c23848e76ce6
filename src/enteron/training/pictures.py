"""The full regime's source: clips of pictures, read and changed by worker processes."""

import multiprocessing
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from enteron.errors import EnteronError, TrainingError
from enteron.model.preprocessing import Preprocessing
from enteron.study.study import Study
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Batch, Draw, clip_rows, targets_of
from enteron.training.sampling import Samples, seed_of

_ABSENT = 0


class Squares:
    """A study's pictures as squares of bytes, kept in a file where one is given.

    Any number of processes may read and fill the file: a picture counts as kept once its checksum
    stands beside it, so one that was half written, or lost with the power, is decoded again.
    """

    def __init__(self, study: Study, preprocessing: Preprocessing, folder: Path | None) -> None:
        self.study = study
        self._preprocessing = preprocessing
        self._shape = (len(study), 3, preprocessing.size, preprocessing.size)
        self._path = None if folder is None else folder / f"{study.id}-{self._key()}.squares"
        self._kept: tuple[NDArray[np.uint32], NDArray[np.uint8]] | None = None

    def read(self, row: int) -> torch.Tensor | None:
        """The picture of a stored row (3, size, size), or None where it cannot be read."""
        if self._path is None:
            return self._decoded(row)
        sums, pixels = self._opened(self._path)
        if sums[row] != _ABSENT:
            square = np.array(pixels[row])
            if _checksum(square) == sums[row]:
                return torch.from_numpy(square)
        made = self._decoded(row)
        if made is not None:
            pixels[row] = made.numpy()
            sums[row] = _checksum(pixels[row])  # after the pixels, which it vouches for
        return made

    def close(self) -> None:
        """Release what is open; a process that is started next opens its own."""
        self.study.close()
        self._kept = None

    def _decoded(self, row: int) -> torch.Tensor | None:
        image = self.study.frame(int(self.study.numbers[row])).image
        if image is None:
            return None
        picture = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
        return self._preprocessing.resize_and_crop(picture)[0].contiguous()

    def _opened(self, path: Path) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Checksums and pixels, mapped; the file takes room only as it is filled."""
        if self._kept is None:
            count, size = self._shape[0], int(np.prod(self._shape))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.truncate(4 * count + size)
            except OSError as error:
                raise TrainingError(
                    f"'{path.name}' cannot be written ({error.strerror})",
                    "make room for 150 kB a picture, or leave `keep_squares` out",
                ) from error
            sums = np.memmap(path, np.uint32, "r+", shape=(count,))
            pixels = np.memmap(path, np.uint8, "r+", offset=4 * count, shape=self._shape)
            self._kept = sums, pixels
        return self._kept

    def _key(self) -> str:
        """Of what the pixels depend on: another preprocessing or another study has another file."""
        sizes = ",".join(map(str, self.study.file_stamps()[:, 0]))
        frames = ",".join(map(str, self.study.numbers))
        return f"{seed_of(self._preprocessing.hash(), frames, sizes):016x}"


def _checksum(square: NDArray[np.uint8]) -> int:
    """CRC-32, never 0, which stands for absence."""
    return zlib.crc32(np.ascontiguousarray(square).data) or 1


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

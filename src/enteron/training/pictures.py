"""Batches of the full regime: clips of images, read and augmented by worker processes."""

import math
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
from enteron.inference.pictures import study_fields
from enteron.model.preprocessing import Preprocessing
from enteron.study.content import sampled_hash
from enteron.study.field_of_view import Circle
from enteron.study.study import Study
from enteron.training.augmentation import Augmentation, ErasedBox, erase
from enteron.training.batches import Batch, Draw, clip_rows, make_batch
from enteron.training.sampling import Samples, seed_of

PREFETCH = 2
"""Batches that each worker prepares ahead."""
_ABSENT = 0


class StudyPictures:
    """Pictures of a study, decoded each time, or kept in a file as squares if a folder is given.

    Any number of processes may read and fill the file. A square counts as stored once its checksum
    is written; one that is only partly written, or damaged, is decoded again.
    """

    def __init__(
        self, study: Study, preprocessing: Preprocessing, folder: Path | None, side: int
    ) -> None:
        """`side`: of the squares that are kept; that of the preprocessing where nothing crops."""
        self.study = study
        self._preprocessing = preprocessing
        self._fields = study_fields(study, preprocessing)
        self._kept = preprocessing.model_copy(update={"size": side})
        self._shape = (len(study), 3, side, side)
        self._path = None if folder is None else folder / f"{study.id}-{self._key()}.squares"
        self._arrays: tuple[NDArray[np.uint32], NDArray[np.uint8]] | None = None

    def image(self, row: int) -> torch.Tensor | None:
        """The image (3, size, size) of a row as in inference, or None if it cannot be read."""
        if self._path is not None and self._kept == self._preprocessing:
            return self._kept_square(self._path, row)
        return self._square(row, self._preprocessing)

    def original(self, row: int) -> torch.Tensor | None:
        """The picture (3, height, width) to crop from, or the square that is kept of it."""
        if self._path is not None:
            return self._kept_square(self._path, row)
        decoded = self._decode(row)
        if decoded is None:
            return None
        return torch.from_numpy(self._preprocessing.unresized(*decoded))

    def _kept_square(self, path: Path, row: int) -> torch.Tensor | None:
        checksums, pixels = self._open(path)
        if checksums[row] != _ABSENT:
            stored = np.array(pixels[row])
            if _checksum(stored) == checksums[row]:
                return torch.from_numpy(stored)
        image = self._square(row, self._kept)
        if image is not None:
            pixels[row] = image.numpy()
            checksums[row] = _checksum(pixels[row])  # only after the pixels it covers
        return image

    def close(self) -> None:
        """Close the study and the file; a worker process that starts next opens its own."""
        self.study.close()
        self._arrays = None

    def _square(self, row: int, preprocessing: Preprocessing) -> torch.Tensor | None:
        decoded = self._decode(row)
        if decoded is None:
            return None
        return torch.from_numpy(preprocessing.resize_and_crop(*decoded))

    def _decode(self, row: int) -> tuple[NDArray[np.uint8], Circle | None] | None:
        """The picture (height, width, 3) and its field of view, where borders are masked."""
        image = self.study.frame(int(self.study.numbers[row])).image
        if image is None:
            return None
        circle = None if self._fields is None else self._fields.circle(image)
        return image, circle

    def _open(self, path: Path) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Checksums and pixels, memory-mapped; the sparse file takes up space as it is filled."""
        if self._arrays is None:
            count, size = self._shape[0], int(np.prod(self._shape))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.truncate(4 * count + size)
            except OSError as error:
                raise TrainingError(
                    f"'{path.name}' cannot be written ({error.strerror})",
                    f"free {math.prod(self._shape[1:]) / 1000:.0f} kB of disk space per image, or "
                    "set `keep_squares` to false",
                ) from error
            checksums = np.memmap(path, np.uint32, "r+", shape=(count,))
            pixels = np.memmap(path, np.uint8, "r+", offset=4 * count, shape=self._shape)
            self._arrays = checksums, pixels
        return self._arrays

    def _key(self) -> str:
        """Hash of preprocessing, frame numbers and samples of the files: what pixels depend on."""
        content = sampled_hash(self.study.files())
        frames = ",".join(map(str, self.study.numbers))
        return f"{seed_of(self._kept.images_hash(), frames, content):016x}"


def _checksum(pixels: NDArray[np.uint8]) -> int:
    """CRC-32, with 1 instead of 0, which marks an absent image."""
    return zlib.crc32(np.ascontiguousarray(pixels).data) or 1


@dataclass(frozen=True)
class ClipOptions:
    """How clips are made of a study's images."""

    frames: int
    step: int
    preprocessing: Preprocessing
    augmentation: Augmentation | None


class ClipSource:
    """Clips of images. A sample with an unreadable frame in its clip is left out and counted."""

    def __init__(
        self,
        samples: Samples,
        studies: Sequence[Study],
        options: ClipOptions,
        workers: int,
        cache: Path | None = None,
    ) -> None:
        """`cache`: folder for squares; None: every picture is decoded each time."""
        self.samples = samples
        self.unreadable: set[tuple[str, int]] = set()
        preprocessing, augmentation = options.preprocessing, options.augmentation
        side = preprocessing.size if augmentation is None else augmentation.kept_side
        self._pictures = [StudyPictures(study, preprocessing, cache, side) for study in studies]
        self._rows = clip_rows(samples, options.frames, options.step)
        self._options = options
        self._workers = workers

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw, in order, read ahead by the workers."""
        for pictures in self._pictures:
            pictures.close()  # processes must not share an open video
        clips = _ClipDataset(
            self._pictures, self.samples.study_index, self._rows, self._options, draws
        )
        # One item is a complete batch, so nothing is collated and little passes between processes.
        loader = DataLoader(
            clips,
            batch_size=None,
            num_workers=min(self._workers, max(len(draws), 1)),
            prefetch_factor=PREFETCH if self._workers else None,
            multiprocessing_context=_forkserver() if self._workers and draws else None,
            worker_init_fn=_limit_threads if self._workers else None,
        )
        for draw, read in zip(draws, loader, strict=True):
            if read.error is not None:
                raise read.error
            samples = draw.samples[read.kept.numpy()]
            for sample in np.setdiff1d(draw.samples, samples):
                study = self.samples.studies[self.samples.study_index[sample]].study
                self.unreadable.add((study, self.samples.frame(int(sample))))
            yield make_batch(self.samples, samples, read.clips, read.erased)

    def prepare(self, batch: Batch, device: torch.device) -> torch.Tensor:
        """Normalise uint8 clips (n, frames, 3, size, size), and erase (decision 14)."""
        inputs = batch.inputs.to(device, non_blocking=True)
        clips = self._options.preprocessing.normalise(inputs)
        return clips if batch.erased is None else erase(clips, batch.erased)


@dataclass(frozen=True)
class _ReadClips:
    """What a worker returns. An error is a value, since torch cannot raise ours again."""

    clips: torch.Tensor  # (n, frames, 3, size, size) uint8
    kept: torch.Tensor  # (n,) their positions in the draw
    erased: torch.Tensor | None = None  # (n, 4) rectangles, where augmented
    error: EnteronError | None = None


class _ClipDataset(Dataset[_ReadClips]):
    def __init__(
        self,
        pictures: Sequence[StudyPictures],
        study_index: NDArray[np.int64],  # (n,) of every sample
        rows: NDArray[np.int64],  # (n, frames)
        options: ClipOptions,
        draws: Sequence[Draw],
    ) -> None:
        self._pictures, self._study_index, self._rows = pictures, study_index, rows
        self._options, self._draws = options, draws

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, number: int) -> _ReadClips:
        try:
            return self._read(self._draws[number])
        except EnteronError as error:
            return _ReadClips(torch.empty(0), torch.empty(0, dtype=torch.int64), error=error)

    def _read(self, draw: Draw) -> _ReadClips:
        augmentation = self._options.augmentation if draw.seeds is not None else None
        rows, studies = self._rows[draw.samples], self._study_index[draw.samples]
        # Each image once: neighbouring samples share frames, and rare ones are drawn repeatedly.
        images: dict[tuple[int, int], torch.Tensor | None] = {}
        for study, row in {
            (int(s), int(r)) for s, clip in zip(studies, rows, strict=True) for r in clip
        }:
            pictures = self._pictures[study]
            images[study, row] = (
                pictures.image(row) if augmentation is None else pictures.original(row)
            )
        clips: list[torch.Tensor] = []
        kept: list[int] = []
        erased: list[ErasedBox] = []
        for position, study in enumerate(studies):
            frames = [images[int(study), int(row)] for row in rows[position]]
            readable = [frame for frame in frames if frame is not None]
            if len(readable) < len(frames):
                continue
            if augmentation is None or draw.seeds is None:
                clips.append(torch.stack(readable))
            else:
                clip, box = augmentation(readable, int(draw.seeds[position]))
                clips.append(clip)
                erased.append(box)
            kept.append(position)
        size = self._options.preprocessing.size
        empty = torch.empty((0, self._options.frames, 3, size, size), dtype=torch.uint8)
        return _ReadClips(
            torch.stack(clips) if clips else empty,
            torch.tensor(kept, dtype=torch.int64),
            None if augmentation is None else torch.tensor(erased).reshape(-1, 4),
        )


def _forkserver() -> BaseContext:
    """Start workers from a server process without threads instead of forking this process.

    A fork of a process with threads, torch's default, may wait forever for a lock that one of
    these threads held. The server imports torch once, so workers start quickly.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _limit_threads(worker: int) -> None:
    """One thread per worker: the workers already use all cores."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)

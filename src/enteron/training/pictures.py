"""Batches of the full regime: clips of images, read and augmented by worker processes."""

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
from enteron.study.study import Study
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Batch, Draw, clip_rows, make_batch
from enteron.training.sampling import Samples, seed_of

PREFETCH = 2
"""Batches that each worker prepares ahead."""
_ABSENT = 0


class ImageCache:
    """Resized images of a study, stored in a file if a folder is given.

    Any number of processes may read and fill the file. An image counts as stored once its checksum
    is written; one that is only partly written, or damaged, is decoded again.
    """

    def __init__(self, study: Study, preprocessing: Preprocessing, folder: Path | None) -> None:
        self.study = study
        self._preprocessing = preprocessing
        self._fields = study_fields(study, preprocessing)
        self._shape = (len(study), 3, preprocessing.size, preprocessing.size)
        self._path = None if folder is None else folder / f"{study.id}-{self._key()}.squares"
        self._arrays: tuple[NDArray[np.uint32], NDArray[np.uint8]] | None = None

    def read(self, row: int) -> torch.Tensor | None:
        """The image (3, size, size) of a stored row, or None if it cannot be read."""
        if self._path is None:
            return self._decode(row)
        checksums, pixels = self._open(self._path)
        if checksums[row] != _ABSENT:
            stored = np.array(pixels[row])
            if _checksum(stored) == checksums[row]:
                return torch.from_numpy(stored)
        image = self._decode(row)
        if image is not None:
            pixels[row] = image.numpy()
            checksums[row] = _checksum(pixels[row])  # only after the pixels it covers
        return image

    def close(self) -> None:
        """Close the study and the file; a worker process that starts next opens its own."""
        self.study.close()
        self._arrays = None

    def _decode(self, row: int) -> torch.Tensor | None:
        image = self.study.frame(int(self.study.numbers[row])).image
        if image is None:
            return None
        circle = None if self._fields is None else self._fields.circle(image)
        return torch.from_numpy(self._preprocessing.resize_and_crop(image, circle))

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
                    "free 150 kB of disk space per image, or set `keep_squares` to false",
                ) from error
            checksums = np.memmap(path, np.uint32, "r+", shape=(count,))
            pixels = np.memmap(path, np.uint8, "r+", offset=4 * count, shape=self._shape)
            self._arrays = checksums, pixels
        return self._arrays

    def _key(self) -> str:
        """Hash of preprocessing, frame numbers and samples of the files: what pixels depend on."""
        content = sampled_hash(self.study.files())
        frames = ",".join(map(str, self.study.numbers))
        return f"{seed_of(self._preprocessing.images_hash(), frames, content):016x}"


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
        """`cache`: folder for resized images; None: every image is decoded each time."""
        self.samples = samples
        self.unreadable: set[tuple[str, int]] = set()
        self._images = [ImageCache(study, options.preprocessing, cache) for study in studies]
        self._rows = clip_rows(samples, options.frames, options.step)
        self._options = options
        self._workers = workers

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw, in order, read ahead by the workers."""
        for images in self._images:
            images.close()  # processes must not share an open video
        clips = _ClipDataset(
            self._images, self.samples.study_index, self._rows, self._options, draws
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
            yield make_batch(self.samples, samples, read.clips)

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise uint8 clips (n, frames, 3, size, size) for the backbone."""
        return self._options.preprocessing.normalise(inputs)


@dataclass(frozen=True)
class _ReadClips:
    """What a worker returns. An error is a value, since torch cannot raise ours again."""

    clips: torch.Tensor  # (n, frames, 3, size, size) uint8
    kept: torch.Tensor  # (n,) their positions in the draw
    error: EnteronError | None = None


class _ClipDataset(Dataset[_ReadClips]):
    def __init__(
        self,
        images: Sequence[ImageCache],
        study_index: NDArray[np.int64],  # (n,) of every sample
        rows: NDArray[np.int64],  # (n, frames)
        options: ClipOptions,
        draws: Sequence[Draw],
    ) -> None:
        self._images, self._study_index, self._rows = images, study_index, rows
        self._options, self._draws = options, draws

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, number: int) -> _ReadClips:
        try:
            return self._read(self._draws[number])
        except EnteronError as error:
            return _ReadClips(torch.empty(0), torch.empty(0, dtype=torch.int64), error)

    def _read(self, draw: Draw) -> _ReadClips:
        options = self._options
        rows, studies = self._rows[draw.samples], self._study_index[draw.samples]
        # Each image once: neighbouring samples share frames, and rare ones are drawn repeatedly.
        images: dict[tuple[int, int], torch.Tensor | None] = {}
        for study, row in {
            (int(s), int(r)) for s, clip in zip(studies, rows, strict=True) for r in clip
        }:
            images[study, row] = self._images[study].read(row)
        clips: list[torch.Tensor] = []
        kept: list[int] = []
        for position, study in enumerate(studies):
            frames = [images[int(study), int(row)] for row in rows[position]]
            readable = [frame for frame in frames if frame is not None]
            if len(readable) < len(frames):
                continue
            clip = torch.stack(readable)
            if options.augmentation is not None and draw.seeds is not None:
                clip = options.augmentation(clip, int(draw.seeds[position]))
            clips.append(clip)
            kept.append(position)
        size = options.preprocessing.size
        empty = torch.empty((0, options.frames, 3, size, size), dtype=torch.uint8)
        return _ReadClips(
            torch.stack(clips) if clips else empty, torch.tensor(kept, dtype=torch.int64)
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

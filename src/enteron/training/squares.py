"""Decoded pictures kept on disk: what is read again need not be decoded again."""

import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.errors import TrainingError
from enteron.model.preprocessing import Preprocessing
from enteron.study.source import Study
from enteron.training.randomness import seed_of

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
        return self._preprocessing.square(picture)[0].contiguous()

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

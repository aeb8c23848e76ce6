"""Packs: small frames of a study that cannot be read at any place quickly, made once.

A pack is a file of JPEG pictures in the order of the study's frames:

    `enteronP` | length, JSON (what it is of) | for every frame: length, JPEG (none: length 0) |
    uint64 offsets of all frames | `enteronQ`

While it is made it has the suffix `.part` and no offsets; the frames that are in it can be read
already, and a killed run goes on after the last complete one.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from enteron.errors import EnteronError
from enteron.files import NO_LIMIT, open_file, open_in_place

BEGIN: Final = b"enteronP"
END: Final = b"enteronQ"
_LENGTH: Final = struct.Struct("<I")
_LONGEST: Final = 1 << 24  # bytes of one picture; more is damage
SYNCED: Final = 2_000  # frames after which what was written is brought to the disk


class PackKey(BaseModel):
    """What a pack was made of; a pack with another key is made again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    content: str | None
    frames: int
    side: int
    masked: bool


class Pack:
    """A pack on disk, finished or growing. Reading is safe from several threads."""

    def __init__(self, path: Path, key: PackKey) -> None:
        self._path, self.key = path, key
        self._part = path.with_name(f"{path.name}.part")
        self._offsets: NDArray[np.uint64] | list[int] = []
        self._file: IO[bytes] | None = None
        self._stopped = threading.Event()
        self._open_finished()

    @property
    def complete(self) -> bool:
        """Whether every frame is in it."""
        return isinstance(self._offsets, np.ndarray)

    @property
    def done(self) -> int:
        """Frames that are in it."""
        return self.key.frames if self.complete else max(0, len(self._offsets) - 1)

    def read(self, row: int) -> bytes | None:
        """The JPEG of a row; None where the frame is unreadable, or not in the pack yet."""
        if not 0 <= row < self.done or self._file is None:
            return None
        start, stop = int(self._offsets[row]), int(self._offsets[row + 1])
        data = os.pread(self._file.fileno(), stop - start, start)
        if len(data) < stop - start or stop - start < _LENGTH.size:
            return None
        return data[_LENGTH.size :] or None

    def holds(self, row: int) -> bool:
        """Whether the pack can answer for a row."""
        return row < self.done

    def make(self, frames: Callable[[int], Iterator[bytes | None]]) -> None:
        """Write what is missing; `frames` gives the JPEG of every frame from a row on."""
        if self.complete:
            return
        file = self._open_part()
        self._file = file
        try:
            for jpeg in frames(self.done):
                if self._stopped.is_set():
                    return
                content = jpeg or b""
                file.seek(int(self._offsets[-1]))
                file.write(_LENGTH.pack(len(content)) + content)
                file.flush()
                assert isinstance(self._offsets, list)
                self._offsets.append(self._offsets[-1] + _LENGTH.size + len(content))
                if len(self._offsets) % SYNCED == 0:
                    os.fsync(file.fileno())
            if self.done == self.key.frames:
                self._finish(file)
        except OSError as error:
            raise EnteronError(
                f"the pack of study {self.key.study} cannot be written ({error.strerror})",
                "free some disk space and open the study again",
            ) from error

    def stop(self) -> None:
        """End the work; it goes on where it ended when it is started again."""
        self._stopped.set()

    def close(self) -> None:
        """Close the file."""
        self.stop()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _finish(self, file: IO[bytes]) -> None:
        offsets = np.array(self._offsets, "<u8")
        file.seek(int(offsets[-1]))
        file.write(offsets.tobytes() + END)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
        self._part.replace(self._path)
        self._offsets = offsets

    def _head(self) -> bytes:
        text = self.key.model_dump_json().encode()
        return BEGIN + _LENGTH.pack(len(text)) + text

    def _open_finished(self) -> None:
        try:
            file = open_file(self._path, NO_LIMIT, "open the study again")
        except EnteronError:
            return
        head = self._head()
        size = os.fstat(file.fileno()).st_size
        table = 8 * (self.key.frames + 1)
        tail = os.pread(file.fileno(), table + len(END), max(0, size - table - len(END)))
        if os.pread(file.fileno(), len(head), 0) != head or tail[-len(END) :] != END:
            file.close()
            return
        offsets = np.frombuffer(tail[: -len(END)], "<u8").astype(np.uint64)
        if int(offsets[0]) != len(head) or int(offsets[-1]) + table + len(END) != size:
            file.close()
            return
        self._file, self._offsets = file, offsets

    def _open_part(self) -> IO[bytes]:
        """The growing file, behind the last frame that is complete in it."""
        file = open_in_place(self._part)
        head = self._head()
        size = os.fstat(file.fileno()).st_size
        if os.pread(file.fileno(), len(head), 0) != head:
            file.truncate(0)
            file.seek(0)
            file.write(head)
            file.flush()
            size = len(head)
        offsets = [len(head)]
        while len(offsets) <= self.key.frames:
            start = offsets[-1]
            stated = os.pread(file.fileno(), _LENGTH.size, start)
            if len(stated) < _LENGTH.size:
                break
            (length,) = _LENGTH.unpack(stated)
            if length > _LONGEST or start + _LENGTH.size + length > size:
                break
            offsets.append(start + _LENGTH.size + length)
        self._offsets = offsets
        return file

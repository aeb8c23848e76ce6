"""A store while it is being made: features appended chunk by chunk, a journal beside them.

A chunk counts once its line stands in the journal, and the line is written after its features are
on the disk. Whatever a killed run left behind that is cut off or damaged.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.config import Options, parse_json_options
from enteron.errors import ConfigError, EnteronError
from enteron.files import write_bytes
from enteron.inference.store import (
    Embeddings,
    Probe,
    StoreKey,
    StoreRecord,
    array_header,
    checksum,
    closing_bytes,
    open_embeddings,
    require_key,
)
from enteron.model.options import FEATURES

_REMEDY = "delete it to start again"


class _Opening(Options):
    """First line of a journal."""

    key: StoreKey
    chunk: int
    rows: int


class Chunk(Options):
    """A line of the journal: a chunk whose features are on the disk."""

    checksum: int
    """CRC-32 of its features."""
    source: tuple[int, ...]
    """For each row, the row whose picture its features are of; -1 where unreadable."""
    problems: dict[int, str] = Field(default_factory=dict)
    """Why frames are unreadable, by frame number."""
    probes: tuple[Probe, ...] = ()
    """Redundant rows that were encoded all the same."""


class UnfinishedStore:
    """Takes chunks in order, from `done` on, and closes into a store at the end."""

    def __init__(
        self, path: Path, key: StoreKey, study: str, frames: NDArray[np.int64], chunk: int
    ) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._journal = path.with_name(path.name + ".journal")
        self._opening = _Opening(key=key, chunk=chunk, rows=len(frames))
        self._study = study
        self._frames = frames
        self._header = array_header(len(frames), len(key.views), key.precision)
        self._row_bytes = len(key.views) * FEATURES * np.dtype(key.precision).itemsize
        self._chunks: list[Chunk] = []
        self._journal_bytes = 0  # of the journal's lines that hold
        self._features: IO[bytes] | None = None
        self._lines: IO[bytes] | None = None

    @property
    def done(self) -> int:
        """Rows that are safe."""
        return min(len(self._chunks) * self._opening.chunk, self._opening.rows)

    @property
    def problems(self) -> dict[int, str]:
        """Why frames that are done could not be read, by frame number."""
        return {number: why for chunk in self._chunks for number, why in chunk.problems.items()}

    def begin(self) -> None:
        """Open what an earlier run left, or start anew."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._journal.exists() and self._part.exists():
                self._keep()
            self._open()
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def add(self, features: NDArray[np.floating], chunk: Chunk) -> None:
        """Features (rows, views, 512) of the next chunk, in the store's precision."""
        assert self._features is not None
        assert self._lines is not None
        first, last = self._frames[self.done], self._frames[self.done + len(features) - 1]
        try:
            self._features.write(features.tobytes())
            _to_disk(self._features)
            self._lines.write((chunk.model_dump_json() + "\n").encode())
            _to_disk(self._lines)
        except OSError as error:
            raise EnteronError(
                f"the embeddings of frames {first} to {last} of study {self._study} could not be "
                f"written ({error.strerror})",
                "make room on the disk and run again: it goes on from there",
            ) from error
        self._chunks.append(chunk)

    def finish(self) -> Embeddings:
        """Close the file, give it its name, and open it."""
        assert self._features is not None
        source = np.array([row for c in self._chunks for row in c.source], dtype=np.int32)
        record = StoreRecord(
            key=self._opening.key,
            study=self._study,
            chunk=self._opening.chunk,
            checksums=tuple(c.checksum for c in self._chunks),
            problems=self.problems,
            probes=tuple(probe for c in self._chunks for probe in c.probes),
        )
        try:
            self._features.write(closing_bytes(record, self._frames, source))
            _to_disk(self._features)
            self.close()
            self._part.replace(self._path)
            _folder_to_disk(self._path.parent)
            self._journal.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        return open_embeddings(self._path, self._opening.key, check=False)

    def forget_from(self, row: int) -> None:
        """Give up the chunk of this row and those behind it, so that another run makes them."""
        self.close()
        lines = self._journal.read_bytes().split(b"\n")
        kept = lines[: 1 + row // self._opening.chunk]
        write_bytes(self._journal, b"".join(line + b"\n" for line in kept))
        self._chunks, self._journal_bytes = [], 0  # until `begin` looks again

    def close(self) -> None:
        """Let go of the files; what is safe stays."""
        for file in (self._features, self._lines):
            if file is not None:
                try:
                    file.close()
                except OSError:  # a full disk again: what could not be flushed is not safe anyway
                    continue
        self._features = self._lines = None

    def _keep(self) -> None:
        """Take over the chunks of an earlier run whose features are whole; refuse another key."""
        lines = self._journal.read_bytes().split(b"\n")[:-1]  # behind the last break: cut off
        if not lines:
            return
        name = self._journal.name
        found = parse_json_options(_Opening, lines[0].decode(), name, _REMEDY)
        require_key(found.key, self._opening.key, name)
        with self._part.open("rb") as part:
            if found != self._opening or part.read(len(self._header)) != self._header:
                return
            self._journal_bytes = len(lines[0]) + 1
            for line in lines[1:]:
                try:
                    chunk = parse_json_options(Chunk, line.decode(), name, _REMEDY)
                except (ConfigError, UnicodeDecodeError):
                    break
                features = part.read(len(chunk.source) * self._row_bytes)
                if zlib.crc32(features) != chunk.checksum:
                    break
                self._chunks.append(chunk)
                self._journal_bytes += len(line) + 1

    def _open(self) -> None:
        """Both files, cut back to what is kept."""
        self._part.touch()
        self._features = self._part.open("r+b")
        self._features.truncate(len(self._header) + self.done * self._row_bytes)
        self._features.write(self._header)
        self._features.seek(0, os.SEEK_END)
        _to_disk(self._features)
        self._journal.touch()
        self._lines = self._journal.open("r+b")
        self._lines.truncate(self._journal_bytes)
        self._lines.seek(0, os.SEEK_END)
        if not self._journal_bytes:
            self._lines.write((self._opening.model_dump_json() + "\n").encode())
        _to_disk(self._lines)


def started_key(path: Path) -> StoreKey | None:
    """The key of a finished or unfinished store at this place, or none."""
    if path.exists():
        return open_embeddings(path, check=False).key
    journal = path.with_name(path.name + ".journal")
    try:
        first = journal.read_bytes().split(b"\n")[0]
        return parse_json_options(_Opening, first.decode(), journal.name, _REMEDY).key
    except (OSError, ConfigError, UnicodeDecodeError):
        return None


def make_chunk(
    features: NDArray[np.floating],
    source: Sequence[int],
    problems: Mapping[int, str],
    probes: Sequence[Probe],
) -> Chunk:
    """The journal's line for features (rows, views, 512)."""
    return Chunk(
        checksum=checksum(features),
        source=tuple(source),
        problems=dict(problems),
        probes=tuple(probes),
    )


def _unwritable(path: Path, error: OSError) -> EnteronError:
    return EnteronError(
        f"'{path.name}' could not be written ({error.strerror})",
        "make room on the disk, or give a folder that you may write to, and run again",
    )


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _folder_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

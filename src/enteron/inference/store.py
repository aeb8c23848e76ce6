"""Embeddings of a study in one file: a plain `.npy` that knows where it came from.

    numpy header | features (rows, views, 512) | frames int64 | source int32 | JSON | length | mark

`numpy.load(path, mmap_mode="r")` reads the features of such a file and stops before the rest. The
end is written last and closes the file: without it a file is not an embedding store.
"""

import io
import json
import math
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import ConfigError, EnteronError, ModelError
from enteron.files import write_bytes
from enteron.model.options import FEATURES
from enteron.options import Options, parse_json_options

SUFFIX = ".npy"
UNREADABLE = -1
_MARK = b"enteron1"
_END = struct.Struct("<Q8s")  # bytes of JSON, mark
_AGAIN = "delete the file and run again"

Precision = Literal["float32", "float16"]


class StoreKey(Options):
    """What embeddings depend on. They are only ever used under the key they were made with."""

    backbone: str
    """Hash of the encoder's weights."""
    preprocessing: str
    """Hash of the preprocessing."""
    runtime: str
    """Runtime and precision of the encoder."""
    views: tuple[str, ...]
    """What was done to each picture: `plain`, `flipped`, names of augmented views."""
    precision: Precision
    """How features are stored."""
    redundancy: float | None
    """Distance below which a frame takes its twin's embedding; none when every frame is encoded."""
    study: str
    """Hash of frame numbers and file sizes."""


_MEANING = {
    "backbone": "weights",
    "preprocessing": "preprocessing of pictures",
    "runtime": "runtime",
    "views": "views of each picture",
    "precision": "precision",
    "redundancy": "limit for redundant frames",
    "study": "files of the study",
}


def require_key(found: StoreKey, wanted: StoreKey, name: str, *, extra_views: bool = False) -> None:
    """Refuse embeddings of another key, naming what differs.

    With `extra_views` the store may hold more views than the wanted ones.
    """
    if extra_views and set(wanted.views) <= set(found.views):
        wanted = wanted.model_copy(update={"views": found.views})
    for field, meaning in _MEANING.items():
        one, other = getattr(found, field), getattr(wanted, field)
        if one != other:
            raise ModelError(
                f"'{name}' holds embeddings made with other {meaning} ({_short(one)}, "
                f"now {_short(other)})",
                "delete it to make them again, or write to another folder",
            )


def _short(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 24 else text[:12] + "…"


class Probe(Options):
    """A redundant frame that was encoded all the same, to see what its twin would have cost."""

    row: int
    twin: int


class StoreRecord(Options):
    """The JSON at the end of a store."""

    key: StoreKey
    study: str
    """Id of the study."""
    chunk: int
    """Rows of a chunk."""
    checksums: tuple[int, ...]
    """CRC-32 of the features of each chunk."""
    problems: dict[int, str] = Field(default_factory=dict)
    """Why frames are unreadable, by frame number."""
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A finished store, its features mapped and not read."""

    record: StoreRecord
    frames: NDArray[np.int64]  # (rows,) number of every frame, unreadable ones included
    source: NDArray[np.int32]  # (rows,) row whose picture the features are of; -1: unreadable
    features: NDArray[np.floating[Any]]  # (rows, views, 512); NaN where unreadable

    def __len__(self) -> int:
        return self.frames.size

    @property
    def key(self) -> StoreKey:
        """What they were made with."""
        return self.record.key

    @property
    def readable(self) -> NDArray[np.int64]:
        """Rows that have features."""
        return np.flatnonzero(self.source != UNREADABLE)

    @property
    def redundant(self) -> int:
        """Rows that took the embedding of an earlier row."""
        own = np.arange(len(self))
        return int(((self.source != own) & (self.source != UNREADABLE)).sum())

    def view(self, name: str) -> int:
        """Place of a view among the stored ones."""
        if name not in self.key.views:
            raise ModelError(
                f"the embeddings of study {self.record.study} have no view '{name}'",
                "make them again with it; stored are " + ", ".join(self.key.views),
            )
        return self.key.views.index(name)


def checksum(features: NDArray[np.floating[Any]]) -> int:
    """CRC-32 of features as they are stored."""
    return zlib.crc32(features.tobytes())


def array_header(rows: int, views: int, precision: Precision) -> bytes:
    """The numpy header of a store's features."""
    kind = np.dtype(precision).newbyteorder("<")
    header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False}
    content = io.BytesIO()
    npy.write_array_header_1_0(content, {**header, "shape": (rows, views, FEATURES)})
    return content.getvalue()


def closing_bytes(
    record: StoreRecord, frames: NDArray[np.int64], source: NDArray[np.int32]
) -> bytes:
    """Everything after the features."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True).encode()
    arrays = frames.astype("<i8").tobytes() + source.astype("<i4").tobytes()
    return arrays + text + _END.pack(len(text), _MARK)


def open_embeddings(
    path: Path, key: StoreKey | None = None, *, check: bool = True, extra_views: bool = False
) -> Embeddings:
    """A finished store; refused when it is cut off, damaged, or made under another key.

    `check` reads the features once to compare their checksums (a second per gigabyte). With
    `extra_views` the store may hold more views than the key names.
    """
    try:
        shape, kind, offset, record, tail = _layout(path)
    except EnteronError:
        raise
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(f"'{path.name}' is not a whole store of embeddings", _AGAIN) from error
    if key is not None:
        require_key(record.key, key, path.name, extra_views=extra_views)
    rows = shape[0]
    features = np.memmap(path, dtype=kind, mode="r", offset=offset, shape=shape)
    frames = np.frombuffer(tail, dtype="<i8", count=rows).astype(np.int64)
    source = np.frombuffer(tail, dtype="<i4", count=rows, offset=8 * rows).astype(np.int32)
    if check:
        for place, wanted in enumerate(record.checksums):
            part = slice(place * record.chunk, (place + 1) * record.chunk)
            if checksum(features[part]) != wanted:
                first, last = frames[part][0], frames[part][-1]
                raise ModelError(
                    f"'{path.name}' is damaged between frames {first} and {last}", _AGAIN
                )
    return Embeddings(record, frames, source, features)


def _layout(
    path: Path,
) -> tuple[tuple[int, int, int], np.dtype[Any], int, StoreRecord, bytes]:
    """Shape, type and place of the features, the record, and the bytes of the small arrays."""
    with path.open("rb") as file:
        size = path.stat().st_size
        npy.read_magic(file)
        shape, _, kind = npy.read_array_header_1_0(file)
        offset = file.tell()
        file.seek(size - _END.size)
        length, mark = _END.unpack(file.read(_END.size))
        after = offset + math.prod(shape) * kind.itemsize
        if mark != _MARK or len(shape) != 3 or after + 12 * shape[0] + length + _END.size != size:
            raise ValueError("the closing part does not fit")
        file.seek(after)
        tail = file.read(12 * shape[0])
        text = file.read(length).decode()
    record = parse_json_options(StoreRecord, text, path.name, _AGAIN)
    chunks = -(-shape[0] // record.chunk)
    if len(record.checksums) != chunks or shape[1:] != (len(record.key.views), FEATURES):
        raise ValueError("the record does not fit the features")
    return (shape[0], shape[1], shape[2]), kind, offset, record, tail


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

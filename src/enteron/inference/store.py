"""Stores of embeddings: one `.npy` file per study, finished or partial.

A finished store is a plain numpy file with a footer:

    numpy header | features (rows, views, 512) | frames int64 | source int32 | JSON | length | magic

`numpy.load(path, mmap_mode="r")` reads the features and ignores the footer. The footer is written
last: a file without it is not a store.

While a store is being made it consists of two files. `<name>.part` holds the header and the
features so far. `<name>.journal` holds one JSON line for the key and one for every chunk, written
after the chunk's features are on the disk. Anything after the last journalled chunk is discarded.
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
"""In `Embeddings.source`: the frame could not be read."""

_MAGIC = b"enteron1"
_FOOTER_END = struct.Struct("<Q8s")  # length of the JSON in bytes, magic
_DELETE_STORE = "delete the file and run again"
_DELETE_JOURNAL = "delete it to start again"

Precision = Literal["float32", "float16"]


# ---- the key


class StoreKey(Options):
    """Everything that embeddings depend on. A store is used only under the key it was made with."""

    backbone: str
    """Hash of the encoder's weights."""
    preprocessing: str
    """Hash of the preprocessing."""
    runtime: str
    """Runtime and precision of the encoder."""
    views: tuple[str, ...]
    """What was done to each image: `plain`, `flipped`, names of augmented views."""
    precision: Precision
    """How features are stored."""
    redundancy: float | None
    """Limit of redundancy, in grey levels; none when every frame is encoded."""
    study: str
    """Hash of frame numbers and file sizes."""


_KEY_FIELDS = {
    "backbone": "weights",
    "preprocessing": "preprocessing of pictures",
    "runtime": "runtime",
    "views": "views of each picture",
    "precision": "precision",
    "redundancy": "limit for redundant frames",
    "study": "files of the study",
}


def require_key(
    stored: StoreKey, required: StoreKey, name: str, *, extra_views: bool = False
) -> None:
    """Refuse a store with another key; the message names the first field that differs.

    With `extra_views` the store may hold more views than the required ones.
    """
    if extra_views and set(required.views) <= set(stored.views):
        required = required.model_copy(update={"views": stored.views})
    for field, description in _KEY_FIELDS.items():
        stored_value, required_value = getattr(stored, field), getattr(required, field)
        if stored_value != required_value:
            raise ModelError(
                f"'{name}' holds embeddings made with other {description} "
                f"({_shorten(stored_value)}, now {_shorten(required_value)})",
                "delete it to compute them again, or write to another folder",
            )


def _shorten(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 24 else text[:12] + "…"


# ---- a finished store


class Probe(Options):
    """A redundant frame that was encoded anyway, to measure what skipping it would have changed.

    The field names are part of the file format.
    """

    row: int
    """Row of the frame."""
    twin: int
    """Row of the earlier frame whose embedding it would have taken."""


class StoreRecord(Options):
    """The JSON in a store's footer."""

    key: StoreKey
    study: str
    """Id of the study."""
    chunk: int
    """Rows per chunk."""
    checksums: tuple[int, ...]
    """CRC-32 of the features of each chunk."""
    problems: dict[int, str] = Field(default_factory=dict)
    """Why frames could not be read, by frame number."""
    probes: tuple[Probe, ...] = ()
    """Redundant rows that were encoded anyway."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A finished store; its features are memory-mapped."""

    record: StoreRecord
    frames: NDArray[np.int64]  # (rows,) number of every frame, unreadable ones included
    source: NDArray[np.int32]  # (rows,) row whose image the features are of; -1: unreadable
    features: NDArray[np.floating[Any]]  # (rows, views, 512); NaN where unreadable

    def __len__(self) -> int:
        return self.frames.size

    @property
    def key(self) -> StoreKey:
        """What the embeddings depend on."""
        return self.record.key

    @property
    def readable(self) -> NDArray[np.int64]:
        """Rows that have features."""
        return np.flatnonzero(self.source != UNREADABLE)

    @property
    def redundant(self) -> int:
        """Number of rows that took the embedding of an earlier row."""
        rows = np.arange(len(self))
        return int(((self.source != rows) & (self.source != UNREADABLE)).sum())

    def view(self, name: str) -> int:
        """Index of a view along the second axis of the features."""
        if name not in self.key.views:
            raise ModelError(
                f"the embeddings of study {self.record.study} have no view '{name}'",
                "compute them again with it; stored are " + ", ".join(self.key.views),
            )
        return self.key.views.index(name)


def open_embeddings(
    path: Path, key: StoreKey | None = None, *, check: bool = True, extra_views: bool = False
) -> Embeddings:
    """Open a finished store; refuse it when it is cut off, damaged, or made under another key.

    `check` reads the features once to compare their checksums (a second per gigabyte). With
    `extra_views` the store may hold more views than the key names.
    """
    try:
        layout = _read_layout(path)
    except EnteronError:
        raise
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(
            f"'{path.name}' is not a complete store of embeddings", _DELETE_STORE
        ) from error
    record = layout.record
    if key is not None:
        require_key(record.key, key, path.name, extra_views=extra_views)
    features = np.memmap(
        path, dtype=layout.dtype, mode="r", offset=layout.offset, shape=layout.shape
    )
    rows = layout.shape[0]
    frames = np.frombuffer(layout.arrays, dtype="<i8", count=rows).astype(np.int64)
    source = np.frombuffer(layout.arrays, dtype="<i4", count=rows, offset=8 * rows)
    if check:
        for index, checksum in enumerate(record.checksums):
            chunk = slice(index * record.chunk, (index + 1) * record.chunk)
            if _checksum(features[chunk]) != checksum:
                first, last = frames[chunk][0], frames[chunk][-1]
                raise ModelError(
                    f"'{path.name}' is damaged between frames {first} and {last}", _DELETE_STORE
                )
    return Embeddings(record, frames, source.astype(np.int32), features)


@dataclass(frozen=True)
class _Layout:
    """A store's header and footer."""

    shape: tuple[int, int, int]  # of the features: rows, views, 512
    dtype: np.dtype[Any]  # of the features
    offset: int  # of the features, in bytes
    record: StoreRecord
    arrays: bytes  # frame numbers and source rows


def _read_layout(path: Path) -> _Layout:
    """Everything but the features; a ValueError where the parts do not fit together."""
    with path.open("rb") as file:
        size = path.stat().st_size
        npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file)
        offset = file.tell()
        file.seek(size - _FOOTER_END.size)
        length, magic = _FOOTER_END.unpack(file.read(_FOOTER_END.size))
        footer = offset + math.prod(shape) * dtype.itemsize
        if len(shape) != 3 or magic != _MAGIC:
            raise ValueError("there is no footer")
        arrays_size = (8 + 4) * shape[0]
        if footer + arrays_size + length + _FOOTER_END.size != size:
            raise ValueError("the footer does not match the size of the file")
        file.seek(footer)
        arrays = file.read(arrays_size)
        text = file.read(length).decode()
    record = parse_json_options(StoreRecord, text, path.name, _DELETE_STORE)
    chunks = -(-shape[0] // record.chunk)
    if len(record.checksums) != chunks or shape[1:] != (len(record.key.views), FEATURES):
        raise ValueError("the record does not match the features")
    return _Layout((shape[0], shape[1], shape[2]), dtype, offset, record, arrays)


def _header(rows: int, views: int, precision: Precision) -> bytes:
    """The numpy header of the features."""
    dtype = np.dtype(precision).newbyteorder("<")
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    content = io.BytesIO()
    npy.write_array_header_1_0(content, {**header, "shape": (rows, views, FEATURES)})
    return content.getvalue()


def _footer(record: StoreRecord, frames: NDArray[np.int64], source: NDArray[np.int32]) -> bytes:
    """Everything after the features."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True).encode()
    arrays = frames.astype("<i8").tobytes() + source.astype("<i4").tobytes()
    return arrays + text + _FOOTER_END.pack(len(text), _MAGIC)


def _checksum(features: NDArray[np.floating[Any]]) -> int:
    """CRC-32 of features as they are stored."""
    return zlib.crc32(features.tobytes())


# ---- a partial store


class _JournalHeader(Options):
    """First line of a journal."""

    key: StoreKey
    chunk: int
    rows: int


class Chunk(Options):
    """A line of the journal: a chunk whose features are on the disk."""

    checksum: int
    """CRC-32 of its features."""
    source: tuple[int, ...]
    """For each row, the row whose image its features are of; -1 where unreadable."""
    problems: dict[int, str] = Field(default_factory=dict)
    """Why frames could not be read, by frame number."""
    probes: tuple[Probe, ...] = ()
    """Redundant rows that were encoded anyway."""


def make_chunk(
    features: NDArray[np.floating],
    source: Sequence[int],
    problems: Mapping[int, str],
    probes: Sequence[Probe],
) -> Chunk:
    """The journal's line for features (rows, views, 512)."""
    return Chunk(
        checksum=_checksum(features),
        source=tuple(source),
        problems=dict(problems),
        probes=tuple(probes),
    )


class PartialStore:
    """A store in the making: chunks are added in order, and `finish` turns it into a store."""

    def __init__(
        self, path: Path, key: StoreKey, study: str, frames: NDArray[np.int64], chunk: int
    ) -> None:
        self._path = path
        self._part_path = path.with_name(path.name + ".part")
        self._journal_path = _journal_path(path)
        self._journal_header = _JournalHeader(key=key, chunk=chunk, rows=len(frames))
        self._study = study
        self._frames = frames
        self._npy_header = _header(len(frames), len(key.views), key.precision)
        self._row_bytes = len(key.views) * FEATURES * np.dtype(key.precision).itemsize
        self._chunks: list[Chunk] = []
        self._journal_bytes = 0  # length of the journal's valid lines
        self._part: IO[bytes] | None = None
        self._journal: IO[bytes] | None = None

    @property
    def done(self) -> int:
        """Number of rows that are on the disk."""
        return min(len(self._chunks) * self._journal_header.chunk, self._journal_header.rows)

    @property
    def problems(self) -> dict[int, str]:
        """Why frames of the chunks so far could not be read, by frame number."""
        return {number: why for chunk in self._chunks for number, why in chunk.problems.items()}

    def open(self) -> None:
        """Resume an earlier run, or start a new one; refuse an earlier run with another key."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._journal_path.exists() and self._part_path.exists():
                self._load_journal()
            self._open_files()
        except OSError as error:
            raise _write_error(self._path, error) from error

    def add(self, features: NDArray[np.floating], chunk: Chunk) -> None:
        """Append the features (rows, views, 512) of the next chunk, in the store's precision."""
        assert self._part is not None
        assert self._journal is not None
        first, last = self._frames[self.done], self._frames[self.done + len(features) - 1]
        try:
            self._part.write(features.tobytes())
            _sync(self._part)
            self._journal.write((chunk.model_dump_json() + "\n").encode())
            _sync(self._journal)
        except OSError as error:
            raise EnteronError(
                f"the embeddings of frames {first} to {last} of study {self._study} could not be "
                f"written ({error.strerror})",
                "free some disk space and run again; it resumes at these frames",
            ) from error
        self._chunks.append(chunk)

    def finish(self) -> Embeddings:
        """Write the footer, give the file its final name, and open it."""
        assert self._part is not None
        source = np.array([row for c in self._chunks for row in c.source], dtype=np.int32)
        record = StoreRecord(
            key=self._journal_header.key,
            study=self._study,
            chunk=self._journal_header.chunk,
            checksums=tuple(c.checksum for c in self._chunks),
            problems=self.problems,
            probes=tuple(probe for c in self._chunks for probe in c.probes),
        )
        try:
            self._part.write(_footer(record, self._frames, source))
            _sync(self._part)
            self.close()
            self._part_path.replace(self._path)
            _sync_folder(self._path.parent)
            self._journal_path.unlink(missing_ok=True)
        except OSError as error:
            raise _write_error(self._path, error) from error
        return open_embeddings(self._path, record.key, check=False)

    def discard_from(self, row: int) -> None:
        """Remove the chunk of this row and all later ones. `open` again before adding chunks."""
        self.close()
        lines = self._journal_path.read_bytes().split(b"\n")
        kept = lines[: 1 + row // self._journal_header.chunk]
        write_bytes(self._journal_path, b"".join(line + b"\n" for line in kept))
        self._chunks, self._journal_bytes = [], 0

    def close(self) -> None:
        """Close the files; journalled chunks stay on the disk."""
        for file in (self._part, self._journal):
            if file is not None:
                try:
                    file.close()
                except OSError:  # a full disk: what could not be flushed is not journalled
                    continue
        self._part = self._journal = None

    def _load_journal(self) -> None:
        """Take over the journalled chunks of an earlier run, up to the first damaged one."""
        lines = self._journal_path.read_bytes().split(b"\n")[:-1]  # the last has no line break
        if not lines:
            return
        name = self._journal_path.name
        header = parse_json_options(_JournalHeader, lines[0].decode(), name, _DELETE_JOURNAL)
        require_key(header.key, self._journal_header.key, name)
        with self._part_path.open("rb") as part:
            npy_header = part.read(len(self._npy_header))
            if header != self._journal_header or npy_header != self._npy_header:
                return
            self._journal_bytes = len(lines[0]) + 1
            for line in lines[1:]:
                try:
                    chunk = parse_json_options(Chunk, line.decode(), name, _DELETE_JOURNAL)
                except (ConfigError, UnicodeDecodeError):
                    break
                features = part.read(len(chunk.source) * self._row_bytes)
                if zlib.crc32(features) != chunk.checksum:
                    break
                self._chunks.append(chunk)
                self._journal_bytes += len(line) + 1

    def _open_files(self) -> None:
        """Open both files, truncated to the chunks that are kept."""
        self._part_path.touch()
        self._part = self._part_path.open("r+b")
        self._part.truncate(len(self._npy_header) + self.done * self._row_bytes)
        self._part.write(self._npy_header)
        self._part.seek(0, os.SEEK_END)
        _sync(self._part)
        self._journal_path.touch()
        self._journal = self._journal_path.open("r+b")
        self._journal.truncate(self._journal_bytes)
        self._journal.seek(0, os.SEEK_END)
        if not self._journal_bytes:
            self._journal.write((self._journal_header.model_dump_json() + "\n").encode())
        _sync(self._journal)


def started_key(path: Path) -> StoreKey | None:
    """The key of a finished or partial store at this path, or None."""
    if path.exists():
        return open_embeddings(path, check=False).key
    journal = _journal_path(path)
    try:
        line = journal.read_bytes().split(b"\n")[0]
        return parse_json_options(_JournalHeader, line.decode(), journal.name, _DELETE_JOURNAL).key
    except (OSError, ConfigError, UnicodeDecodeError):
        return None


def _journal_path(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _write_error(path: Path, error: OSError) -> EnteronError:
    return EnteronError(
        f"'{path.name}' could not be written ({error.strerror})",
        "free some disk space, or give a folder that you may write to, and run again",
    )


def _sync(file: IO[bytes]) -> None:
    """Make sure that the content is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make sure that a renamed file is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

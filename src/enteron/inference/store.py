"""Stores of embeddings: one `.npy` file per study, finished or partial.

A finished store is a plain numpy file with a footer; `width` is 512, or 521 with local evidence:

    numpy header | features (rows, views, width) | frames int64 | source int32 | digests of files |
    JSON | length | checksum | magic

`numpy.load(path, mmap_mode="r")` reads the features and ignores the footer. The footer is written
last: a file without it is not a store. Everything has a checksum: the features chunk by chunk, the
rest as a whole.

While a store is being made it consists of two files. `<name>.part` holds the header and the
features so far. `<name>.journal` holds one JSON line for the key and one for every chunk, written
after the chunk's features are on the disk. Anything after the last journalled chunk is discarded.
The journal is locked while it is written.

`<name>.stamps` beside a store says which files were compared with it last. It saves reading them
again while nobody writes to them, and may be deleted.
"""

import io
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from enteron.errors import ConfigError, EnteronError, ModelError
from enteron.files import NO_LIMIT, open_file, open_in_place, write_text
from enteron.locks import file_lock
from enteron.model.options import EVIDENCE, FEATURES
from enteron.options import Options, parse_json_options, without_defaults
from enteron.study.content import DIGEST_BYTES, StudyContent, as_digests

SUFFIX = ".npy"
UNREADABLE = -1
"""In `Embeddings.source`: the frame could not be read."""

_MAGIC = b"enteron2"
_OLD_MAGIC = b"enteron1"
_FOOTER_END = struct.Struct("<QI8s")  # length of the JSON in bytes, CRC-32 of header and footer
_DTYPES = {"<f4": "float32", "<f2": "float16"}
_WIDTHS = (FEATURES, FEATURES + EVIDENCE)  # the second with local evidence
_DELETE_STORE = "delete the file and run again"
_DELETE_JOURNAL = "delete it to start again"

Precision = Literal["float32", "float16"]


# ---- the key


class StoreKey(Options):
    """Everything that embeddings depend on. A store is used only under the key it was made with."""

    backbone: str
    """Hash of the encoder's weights."""
    preprocessing: str
    """Hash of the preprocessing, its resampling included (`Preprocessing.images_hash`)."""
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
    samples: str
    """Hash of sampled bytes of every file."""
    field: str | None = None
    """Circle inside the field of view, measured on a sample of frames; none where borders stay."""
    quantisation: str | None = None
    """Hash of the stored graph where its numbers depend on more than the weights: scales of int8,
    measured on pictures when the model was packed."""
    coarse: str | None = None
    """Hash of the policy that chose the frames to encode; none where every frame is encoded."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "field", "quantisation", "coarse")


_KEY_FIELDS = {
    "backbone": "weights",
    "preprocessing": "preprocessing of pictures",
    "runtime": "runtime",
    "views": "views of each picture",
    "precision": "precision",
    "redundancy": "limit for redundant frames",
    "study": "files of the study",
    "samples": "content of the study's files",
    "field": "field of view of the capsule",
    "quantisation": "quantisation of the encoder",
    "coarse": "choice of frames to encode",
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
    content: str | None = None
    """Hash of the content of the study's files; none for a source without files."""
    files: int = Field(default=0, ge=0)
    """Number of files whose digests are stored."""
    per_row: bool = False
    """Whether every frame is a file of its own."""
    chunk: int = Field(ge=1)
    """Rows per chunk."""
    checksums: tuple[int, ...]
    """CRC-32 of the features of each chunk."""
    problems: dict[int, str] = Field(default_factory=dict)
    """Why frames could not be read, by frame number."""
    probes: tuple[Probe, ...] = ()
    """Redundant rows that were encoded anyway."""
    missed: float | None = Field(default=None, ge=0)
    """Expected number of gaps between encoded rows with something in them that neither shows."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "missed")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """A finished store; its features are memory-mapped."""

    record: StoreRecord
    frames: NDArray[np.int64]  # (rows,) number of every frame, unreadable ones included
    source: NDArray[np.int32]  # (rows,) row whose image the features are of; -1: unreadable
    features: NDArray[np.floating[Any]]  # (rows, views, width); NaN where unreadable
    content: StudyContent | None = None  # the files that the embeddings were made of

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
    def encoded(self) -> NDArray[np.bool_]:
        """(rows,) whether a row's features are of its own image."""
        return self.source == np.arange(len(self))

    @property
    def redundant(self) -> int:
        """Number of rows that took the embedding of another row."""
        rows = np.arange(len(self))
        return int(((self.source != rows) & (self.source != UNREADABLE)).sum())

    @property
    def appearance(self) -> NDArray[np.floating[Any]]:
        """(readable rows, 512) what frames look like: no mirror images, no local evidence."""
        plain = self.features[:, self.view("plain"), :FEATURES]
        return plain if self.readable.size == len(self) else plain[self.readable]

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
    if check:
        _check_features(path.name, layout, features)
    return Embeddings(record, layout.frames, layout.source, features, layout.content)


def _check_features(name: str, layout: "_Layout", features: NDArray[np.floating[Any]]) -> None:
    """Compare every chunk with its checksum; NaN belongs where a frame is unreadable, only."""
    record, frames = layout.record, layout.frames
    for index, checksum in enumerate(record.checksums):
        chunk = slice(index * record.chunk, (index + 1) * record.chunk)
        rows = features[chunk]
        readable = layout.source[chunk] != UNREADABLE
        finite = bool(np.isfinite(rows[readable]).all() and np.isnan(rows[~readable]).all())
        if _checksum(rows) != checksum or not finite:
            first, last = frames[chunk][0], frames[chunk][-1]
            raise ModelError(
                f"'{name}' is damaged between frames {first} and {last}", _DELETE_STORE
            )


@dataclass(frozen=True)
class _Layout:
    """A store's header and footer."""

    shape: tuple[int, int, int]  # of the features: rows, views, width
    dtype: np.dtype[Any]  # of the features
    offset: int  # of the features, in bytes
    record: StoreRecord
    frames: NDArray[np.int64]  # (rows,)
    source: NDArray[np.int32]  # (rows,)
    content: StudyContent


def _read_layout(path: Path) -> _Layout:
    """Everything but the features; a ValueError where the parts do not fit together."""
    with open_file(path, NO_LIMIT, _DELETE_STORE, error=ModelError) as file:
        size = os.fstat(file.fileno()).st_size
        _require_magic(file, size, path.name)
        file.seek(0)
        shape, fortran_order, descr = _read_npy_header(file)
        # Before anything is mapped: other types would turn the file's bytes into other numbers,
        # and `object` into pointers.
        if descr not in _DTYPES or fortran_order or len(shape) != 3 or min(shape) < 1:
            raise ModelError(
                f"'{path.name}' holds '{descr}' of shape {shape} where embeddings are <f4 or <f2 "
                "(rows, views, width)",
                _DELETE_STORE,
            )
        dtype = np.dtype(descr)
        rows, views, width = shape
        offset = file.tell()
        file.seek(size - _FOOTER_END.size)
        length, checksum, _ = _FOOTER_END.unpack(file.read(_FOOTER_END.size))
        footer = offset + math.prod(shape) * dtype.itemsize
        if footer + (8 + 4) * rows + length + _FOOTER_END.size > size:
            raise ValueError("the footer does not match the size of the file")
        file.seek(0)
        header = file.read(offset)
        file.seek(footer)
        arrays = file.read(size - footer - length - _FOOTER_END.size)
        text = file.read(length)
    if zlib.crc32(text, zlib.crc32(arrays, zlib.crc32(header))) != checksum:
        raise ModelError(f"'{path.name}' is damaged after its features", _DELETE_STORE)
    record = parse_json_options(StoreRecord, text.decode(), path.name, _DELETE_STORE)
    if views != len(record.key.views) or width not in _WIDTHS:
        raise ValueError("the record does not match the features")
    if _DTYPES[descr] != record.key.precision:
        raise ValueError("the record states another precision")
    if len(record.checksums) != -(-rows // record.chunk):
        raise ValueError("the record does not match the number of chunks")
    if len(arrays) != (8 + 4) * rows + DIGEST_BYTES * record.files:
        raise ValueError("the footer does not match the number of files")
    if record.files != (rows if record.per_row else min(record.files, 1)):
        raise ValueError("the number of files does not match the rows")
    frames = np.frombuffer(arrays, "<i8", rows).astype(np.int64)
    source = np.frombuffer(arrays, "<i4", rows, 8 * rows).astype(np.int32)
    digests = np.frombuffer(arrays, np.uint8, offset=(8 + 4) * rows).reshape(-1, DIGEST_BYTES)
    content = StudyContent(frames, digests, record.per_row)
    if content.hash != record.content:
        raise ValueError("the hash of the content does not match the digests")
    _require_rows(frames, source, record)
    return _Layout((rows, views, width), dtype, offset, record, frames, source, content)


_NPY_HEADER = re.compile(
    rb"\{'descr': '([^']{1,20})', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9]{1,12}(?:, [0-9]{1,12})*),?\), \} *\n"
)


def _read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, str]:
    """Shape, order and type that numpy's header states, as numpy writes it; nothing is evaluated.

    numpy's own parser raises errors of many kinds for damaged headers.
    """
    if npy.read_magic(file) != (1, 0):
        raise ValueError("the numpy header has another version")
    (length,) = struct.unpack("<H", file.read(2))
    match = _NPY_HEADER.fullmatch(file.read(length))
    if match is None:
        raise ValueError("the numpy header is not one that enteron writes")
    shape = tuple(int(number) for number in match[3].split(b", "))
    return shape, match[2] == b"True", match[1].decode("latin-1")


def _require_magic(file: IO[bytes], size: int, name: str) -> None:
    file.seek(max(size - len(_MAGIC), 0))
    magic = file.read(len(_MAGIC))
    if magic == _OLD_MAGIC:
        raise ModelError(
            f"'{name}' was made by an older version of enteron, which did not record the content "
            "of the study's files",
            "delete it to compute the embeddings again",
        )
    if magic != _MAGIC:
        raise ValueError("there is no footer")


def _require_rows(
    frames: NDArray[np.int64], source: NDArray[np.int32], record: StoreRecord
) -> None:
    """Refuse rows that contradict themselves."""
    rows = np.arange(frames.size)
    encoded = np.where(source == UNREADABLE, rows, source)  # an unreadable row has no source
    if not (np.diff(frames) > 0).all():
        raise ValueError("frame numbers do not increase")
    # Coarse to fine takes the nearest row, which may be a later one.
    last = rows if record.key.coarse is None else np.full_like(rows, frames.size - 1)
    if not ((source >= UNREADABLE) & (source <= last)).all():
        raise ValueError("a row has a later row as its source")
    if (
        not (encoded[encoded] == encoded).all()
        or (source[encoded] == UNREADABLE)[source != UNREADABLE].any()
    ):
        raise ValueError("the source of a row has another source")
    if set(record.problems) != set(frames[source == UNREADABLE].tolist()):
        raise ValueError("the unreadable frames are not those that have a reason")
    for probe in record.probes:
        if not 0 <= probe.twin < probe.row < frames.size:
            raise ValueError("a probe lies outside the rows")


def _header(rows: int, views: int, width: int, precision: Precision) -> bytes:
    """The numpy header of the features."""
    dtype = np.dtype(precision).newbyteorder("<")
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    content = io.BytesIO()
    npy.write_array_header_1_0(content, {**header, "shape": (rows, views, width)})
    return content.getvalue()


def _footer(header: bytes, record: StoreRecord, content: StudyContent, source: Any) -> bytes:
    """Everything after the features."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True).encode()
    arrays = content.numbers.astype("<i8").tobytes() + np.asarray(source, "<i4").tobytes()
    arrays += content.digests.tobytes()
    checksum = zlib.crc32(text, zlib.crc32(arrays, zlib.crc32(header)))
    return arrays + text + _FOOTER_END.pack(len(text), checksum, _MAGIC)


def _checksum(features: NDArray[np.floating[Any]]) -> int:
    """CRC-32 of features as they are stored."""
    return zlib.crc32(features.tobytes())


# ---- a partial store


class _JournalHeader(Options):
    """First line of a journal."""

    key: StoreKey
    chunk: int = Field(ge=1)
    rows: int = Field(ge=1)
    per_row: bool
    """Whether every frame is a file of its own."""


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
    files: tuple[str, ...] = ()
    """Digests of the files of its rows; of a video its only one, as soon as it is known."""
    stamps: tuple[str, ...] = ()
    """Tokens of the stamps of these files when they were read; empty where not reliable."""
    missed: float | None = Field(default=None, ge=0)
    """Its part of `StoreRecord.missed`."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "missed")


def make_chunk(
    features: NDArray[np.floating],
    source: Sequence[int],
    problems: Mapping[int, str],
    probes: Sequence[Probe],
    files: Sequence[bytes] = (),
    stamps: Sequence[str] = (),
    missed: float | None = None,
) -> Chunk:
    """The journal's line for features (rows, views, width)."""
    return Chunk(
        checksum=_checksum(features),
        source=tuple(source),
        problems=dict(problems),
        probes=tuple(probes),
        files=tuple(digest.hex() for digest in files),
        stamps=tuple(stamps),
        missed=missed,
    )


class PartialStore:
    """A store in the making: chunks are added in order, and `finish` turns it into a store.

    `open` takes over the chunks of an earlier run, `truncate` keeps those that are still valid.
    """

    def __init__(
        self,
        path: Path,
        key: StoreKey,
        study: str,
        frames: NDArray[np.int64],
        chunk: int,
        *,
        per_row: bool = False,
        width: int = FEATURES,
    ) -> None:
        self._path = path
        self._part_path = path.with_name(path.name + ".part")
        self._journal_path = _journal_path(path)
        self._header = _JournalHeader(key=key, chunk=chunk, rows=len(frames), per_row=per_row)
        self._study = study
        self._frames = frames
        self._npy_header = _header(len(frames), len(key.views), width, key.precision)
        self._row_bytes = len(key.views) * width * np.dtype(key.precision).itemsize
        self._chunks: list[Chunk] = []
        self._line_ends: list[int] = []  # of the journal's valid lines, in bytes
        self._rewrite = False  # whether the journal's header has to change
        self._part: IO[bytes] | None = None
        self._journal: IO[bytes] | None = None
        self._lock = ExitStack()

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The chunks that are on the disk."""
        return self._chunks

    @property
    def done(self) -> int:
        """Number of rows that are on the disk."""
        return min(len(self._chunks) * self._header.chunk, self._header.rows)

    @property
    def problems(self) -> dict[int, str]:
        """Why frames of the chunks so far could not be read, by frame number."""
        return {number: why for chunk in self._chunks for number, why in chunk.problems.items()}

    def open(self) -> None:
        """Take over the chunks of an earlier run; refuse an earlier run with another key.

        The samples of files may differ: which chunks that concerns, digests decide.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(file_lock(self._journal_path, f"'{self._path.name}'"))
            self._journal = open_in_place(self._journal_path)
            self._part = open_in_place(self._part_path)
            self._load_journal(self._journal, self._part)
        except OSError as error:
            raise _write_error(self._path, error) from error

    def truncate(self, rows: int) -> None:
        """Keep the chunks before the one of this row, and continue there."""
        assert self._part is not None
        assert self._journal is not None
        kept = len(self._chunks) if rows >= self.done else rows // self._header.chunk
        self._chunks = self._chunks[:kept]
        self._line_ends = self._line_ends[: kept + 1]
        try:
            if self._rewrite or not self._line_ends:
                self._write_journal(self._journal)
            self._journal.truncate(self._line_ends[-1])
            self._journal.seek(0, os.SEEK_END)
            _sync(self._journal)
            self._part.seek(0)
            self._part.write(self._npy_header)
            self._part.truncate(len(self._npy_header) + self.done * self._row_bytes)
            self._part.seek(0, os.SEEK_END)
            _sync(self._part)
        except OSError as error:
            raise _write_error(self._path, error) from error

    def add(self, features: NDArray[np.floating], chunk: Chunk) -> None:
        """Append the features (rows, views, width) of the next chunk, in the store's precision."""
        assert self._part is not None
        assert self._journal is not None
        first, last = self._frames[self.done], self._frames[self.done + len(features) - 1]
        line = _line(chunk)
        try:
            self._part.write(features.tobytes())
            _sync(self._part)
            self._journal.write(line)
            _sync(self._journal)
        except OSError as error:
            raise EnteronError(
                f"the embeddings of frames {first} to {last} of study {self._study} could not be "
                f"written ({error.strerror})",
                "free some disk space and run again; it resumes at these frames",
            ) from error
        self._chunks.append(chunk)
        self._line_ends.append(self._line_ends[-1] + len(line))

    def finish(self, video: bytes | None = None) -> Embeddings:
        """Write the footer, check all of the file, give it its final name, and open it.

        `video` is the digest of a study's only file.
        """
        assert self._part is not None
        source = [row for c in self._chunks for row in c.source]
        digests = [] if video is None else [video]
        if self._header.per_row:
            digests = [bytes.fromhex(text) for c in self._chunks for text in c.files]
        content = StudyContent(self._frames, as_digests(digests), self._header.per_row)
        record = StoreRecord(
            key=self._header.key,
            study=self._study,
            content=content.hash,
            files=len(digests),
            per_row=self._header.per_row,
            chunk=self._header.chunk,
            checksums=tuple(c.checksum for c in self._chunks),
            problems=self.problems,
            probes=tuple(probe for c in self._chunks for probe in c.probes),
            missed=_sum_missed(self._chunks),
        )
        try:
            self._part.write(_footer(self._npy_header, record, content, source))
            _sync(self._part)
            _forget(self._part)
            self._check_part(record)
            self._part_path.replace(self._path)
            _sync_folder(self._path.parent)
            self._journal_path.unlink(missing_ok=True)
            self.close()
        except OSError as error:
            raise _write_error(self._path, error) from error
        return open_embeddings(self._path, record.key, check=False)

    def close(self) -> None:
        """Close the files and release the lock; journalled chunks stay on the disk."""
        for file in (self._part, self._journal):
            if file is not None:
                try:
                    file.close()
                except OSError:  # a full disk: what could not be flushed is not journalled
                    continue
        self._part = self._journal = None
        self._lock.close()

    def abandon(self) -> None:
        """Remove both files: another process has finished the store in the meantime."""
        self._part_path.unlink(missing_ok=True)
        self._journal_path.unlink(missing_ok=True)
        self.close()

    def _check_part(self, record: StoreRecord) -> None:
        """Read everything back from the disk, as whoever uses the store will."""
        try:
            if open_embeddings(self._part_path, record.key).record == record:
                return
            problem = f"'{self._part_path.name}' is not the file that was written"
        except EnteronError as error:
            problem = error.problem
        raise EnteronError(
            f"the embeddings of study {self._study} are not on the disk as they were computed "
            f"({problem})",
            "run again, which repeats the damaged part; if that does not help, check the disk, and "
            "that no other program writes to this folder",
        )

    def _load_journal(self, journal: IO[bytes], part: IO[bytes]) -> None:
        """Take over the journalled chunks of an earlier run, up to the first damaged one."""
        lines = journal.read().split(b"\n")[:-1]  # the last has no line break
        if not lines:
            return
        name = self._journal_path.name
        header = _parse_header(lines[0], name)
        same_samples = {"samples": self._header.key.samples}
        key = header.key.model_copy(update=same_samples)
        require_key(key, self._header.key, name)
        npy_header = part.read(len(self._npy_header))
        if header.model_copy(update={"key": key}) != self._header or npy_header != self._npy_header:
            return
        self._rewrite = header != self._header
        self._line_ends = [len(lines[0]) + 1]
        for line in lines[1:]:
            try:
                chunk = parse_json_options(Chunk, line.decode(), name, _DELETE_JOURNAL)
            except (ConfigError, UnicodeDecodeError):
                break
            features = part.read(len(chunk.source) * self._row_bytes)
            if not self._is_next(chunk) or zlib.crc32(features) != chunk.checksum:
                break
            self._chunks.append(chunk)
            self._line_ends.append(self._line_ends[-1] + len(line) + 1)

    def _is_next(self, chunk: Chunk) -> bool:
        """Whether a journalled chunk fits the rows that come next."""
        first = self.done
        rows = range(first, min(first + self._header.chunk, self._header.rows))
        files = len(rows) if self._header.per_row else min(len(chunk.files), 1)
        stamps = len(rows) if self._header.per_row else min(len(chunk.stamps), 1)
        later = None if self._header.key.coarse is None else rows[-1] if rows else first
        return (
            0 < len(rows) == len(chunk.source)
            and (len(chunk.files), len(chunk.stamps)) == (files, stamps)
            and all(len(text) == 2 * DIGEST_BYTES and _is_hex(text) for text in chunk.files)
            and all(
                s == UNREADABLE or first <= s <= (r if later is None else later)
                for r, s in zip(rows, chunk.source, strict=True)
            )
            and all(s == UNREADABLE or chunk.source[s - first] == s for s in chunk.source)
        )

    def _write_journal(self, journal: IO[bytes]) -> None:
        """Write all lines. A crash meanwhile costs chunks, not their correctness."""
        journal.seek(0)
        self._line_ends = []
        for line in (_line(self._header), *(_line(chunk) for chunk in self._chunks)):
            journal.write(line)
            self._line_ends.append(journal.tell())
        self._rewrite = False


def _sum_missed(chunks: Sequence[Chunk]) -> float | None:
    known = [chunk.missed for chunk in chunks if chunk.missed is not None]
    return round(math.fsum(known), 6) if known else None


def started_key(path: Path) -> StoreKey | None:
    """The key of a finished or partial store at this path, or None."""
    if path.exists():
        return open_embeddings(path, check=False).key
    journal = _journal_path(path)
    try:
        with open_file(journal, NO_LIMIT, _DELETE_STORE, error=ModelError) as file:
            return _parse_header(file.readline().removesuffix(b"\n"), journal.name).key
    except (OSError, EnteronError):
        return None


def _line(content: Options) -> bytes:
    return (content.model_dump_json() + "\n").encode()


def _parse_header(line: bytes, name: str) -> _JournalHeader:
    """The first line of a journal."""
    try:
        return parse_json_options(_JournalHeader, line.decode(), name, _DELETE_JOURNAL)
    except (ConfigError, UnicodeDecodeError) as error:
        raise ModelError(
            f"'{name}' is damaged, or was made by an older version of enteron", _DELETE_JOURNAL
        ) from error


def _is_hex(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")


# ---- the stamps beside a store


class _StampsFile(Options):
    """`<name>.stamps`: stamps of the files whose content was compared with a store."""

    content: str
    """Hash of that content."""
    stamps: tuple[str, ...]
    """A token for every file; empty where its stamp is not reliable."""


def read_stamps(path: Path, content: StudyContent) -> list[str]:
    """Tokens of the files that were last compared with the store; empty where unknown."""
    unknown = [""] * len(content.digests)
    try:
        text = _stamps_path(path).read_text(encoding="utf-8")
        stored = parse_json_options(_StampsFile, text, _stamps_path(path).name, "delete it")
    except (OSError, UnicodeDecodeError, ConfigError):
        return unknown  # then every file is read again
    if stored.content != content.hash or len(stored.stamps) != len(unknown):
        return unknown
    return list(stored.stamps)


def write_stamps(path: Path, content: StudyContent, stamps: Sequence[str]) -> None:
    """Note that files with these stamps have this content."""
    if content.hash is not None:
        stored = _StampsFile(content=content.hash, stamps=tuple(stamps))
        write_text(_stamps_path(path), stored.model_dump_json() + "\n")


def _stamps_path(path: Path) -> Path:
    return path.with_name(path.name + ".stamps")


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


def _forget(file: IO[bytes]) -> None:
    """Drop a synced file from memory, so that reading it again asks the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_folder(folder: Path) -> None:
    """Make sure that a renamed file is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

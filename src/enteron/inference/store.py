"""Embeddings of a study in one file: a plain `.npy` that knows where it came from.

    numpy header | features (rows, views, 512) | frames int64 | source int32 | JSON | length | mark

`numpy.load(path, mmap_mode="r")` reads the features of such a file and stops before the rest. The
end is written last and closes the file: without it a file is not an embedding store.
"""

import io
import json
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import Field

from enteron.config import Options, parse_json_options
from enteron.errors import EnteronError, ModelError
from enteron.model.options import FEATURES

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


def require_key(found: StoreKey, wanted: StoreKey, name: str) -> None:
    """Refuse embeddings of another key, naming what differs."""
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


def open_embeddings(path: Path, key: StoreKey | None = None, *, check: bool = True) -> Embeddings:
    """A finished store; refused when it is cut off, damaged, or made under another key.

    `check` reads the features once to compare their checksums (a second per gigabyte).
    """
    try:
        shape, kind, offset, record, tail = _layout(path)
    except EnteronError:
        raise
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(f"'{path.name}' is not a whole store of embeddings", _AGAIN) from error
    if key is not None:
        require_key(record.key, key, path.name)
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

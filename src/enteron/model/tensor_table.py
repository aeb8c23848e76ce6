"""The table at the start of a safetensors file: names, types, shapes and places of its tensors.

It is checked against the file before anything is allocated, and needs neither torch nor the
library.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from enteron.errors import ModelError, shown
from enteron.files import WEIGHTS_LIMIT, decode_text, open_file, parse_json

_LARGEST_HEADER = 10_000_000  # bytes; BiomedCLIP's has 40,000
_MOST_TENSORS = 20_000
_MOST_DIMENSIONS = 8
_METADATA = "__metadata__"

ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
"""Bytes of a number of each type that is read."""


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as the table lists it."""

    dtype: str  # one of ITEM_BYTES
    shape: tuple[int, ...]
    begin: int  # bytes from the start of the file
    end: int


def read_table(path: Path) -> dict[str, TensorEntry]:
    """The table, checked against the size of the file."""
    try:
        with open_file(path, WEIGHTS_LIMIT, "copy it again", error=ModelError) as file:
            return _checked_table(file, path.name)
    except ValueError as error:
        raise ModelError(
            f"'{path.name}' is not a complete safetensors file (its header {error})",
            "copy it again",
        ) from error


def _checked_table(file: BinaryIO, name: str) -> dict[str, TensorEntry]:
    source = f"the header of '{name}'"
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(_LARGEST_HEADER, size - 8):
        raise ValueError("is longer than the file, or longer than any model needs")
    text = decode_text(file.read(length), source, "copy it again", error=ModelError)
    table = parse_json(text, source, "copy it again", error=ModelError)
    if not isinstance(table, dict):
        raise ValueError("is not a table")  # noqa: TRY004
    metadata = table.pop(_METADATA, None)
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("has metadata that are not a table")
    if not 0 < len(table) <= _MOST_TENSORS:
        raise ValueError(f"lists {len(table):,} tensors")
    data = 8 + length  # where the numbers start
    entries = {tensor: _checked_entry(tensor, entry, data) for tensor, entry in table.items()}
    # Tensors lie one after the other, from the header to the end of the file.
    position = data
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != position:
            raise ValueError("lists tensors that overlap, or bytes that belong to none")
        position = entry.end
    if position != size:
        raise ValueError("does not fit the size of the file")
    return entries


def _checked_entry(name: str, entry: object, data: int) -> TensorEntry:
    """A line of the table: type and shape, and where the numbers lie."""
    shown_name = shown(name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"does not say type, shape and place of {shown_name}")
    dtype, shape, offsets = (entry[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"gives {shown_name} a type of numbers that enteron does not read")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"gives {shown_name} a shape that is none")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"gives {shown_name} a place that is none")
    if offsets[1] - offsets[0] != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"gives {shown_name} more or fewer bytes than its shape has")
    return TensorEntry(dtype, tuple(shape), data + offsets[0], data + offsets[1])


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)

"""Parquet files: their footer and page headers, checked before anything is decoded.

A parquet file of a megabyte can claim, and unpack to, more rows than memory holds; its reader
believes it. So what a file will unpack to is added up first, from the claims of every page that is
going to be read (Apache Parquet format 2, Thrift's compact protocol).
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from enteron.errors import EnteronError, shorten
from enteron.files import MAX_COLUMNS, MAX_ROWS, MIB

_MAGIC = b"PAR1"
_MAX_FOOTER = 8 * MIB
_MAX_UNPACKED = 512 * MIB  # of the columns that are read: MAX_ROWS rows take 320 MiB
_MAX_GROUPS = 10_000

_NUMBERS = (0, 1, 2, 4, 5)  # physical types: boolean, int32, int64, float, double
_TYPE_NAMES = {3: "time stamps", 6: "text or bytes", 7: "bytes"}
_REPEATED = 2


@dataclass(frozen=True)
class Parquet:
    """What the footer of a flat parquet file says."""

    rows: int
    columns: dict[str, int]  # physical type by name, in file order
    metadata: dict[str, str]
    groups: tuple[tuple[int, dict[str, dict[int, Any]]], ...]  # rows, and chunk by column


def read_footer(content: bytes, source: str) -> Parquet:
    """Read the footer and check it against the limits."""
    damaged = EnteronError(
        f"{source} cannot be read (it is no parquet file, or not a complete one)",
        "check that it is complete, or write it again",
    )
    if len(content) < 12 or not (content.startswith(_MAGIC) and content.endswith(_MAGIC)):
        raise damaged
    (length,) = struct.unpack("<I", content[-8:-4])
    if not 0 < length <= len(content) - 12:
        raise damaged
    if length > _MAX_FOOTER:
        raise EnteronError(f"{source} has a footer of {length:,} bytes", "write it again")
    try:
        fields, _ = _struct(content, len(content) - 8 - length, len(content) - 8)
        footer = _footer(fields, source)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as failure:
        raise damaged from failure
    if footer.rows > MAX_ROWS:
        raise EnteronError(
            f"{source} has {footer.rows:,} rows", f"a file of scores has at most {MAX_ROWS:,}"
        )
    if len(footer.columns) > MAX_COLUMNS or len(footer.groups) > _MAX_GROUPS:
        raise EnteronError(
            f"{source} has {len(footer.columns):,} columns in {len(footer.groups):,} row groups",
            "write it again, with a row per frame and a column per label",
        )
    return footer


def require_columns(content: bytes, footer: Parquet, names: Collection[str], source: str) -> None:
    """Refuse columns that are not numbers, or that unpack to more than their rows."""
    for name in names:
        kind = footer.columns[name]
        if kind not in _NUMBERS:
            raise EnteronError(
                f"{source}: column '{shorten(name)}' is not a column of numbers but "
                f"of {_TYPE_NAMES.get(kind, 'something else')}",
                "scores are numbers from 0 to 1",
            )
    try:
        unpacked = sum(
            _unpacked_size(content, group[name], rows)
            for rows, group in footer.groups
            for name in names
        )
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as failure:
        raise EnteronError(
            f"{source} cannot be read (its pages do not fit its footer)",
            "check that it is complete, or write it again",
        ) from failure
    if unpacked > _MAX_UNPACKED:
        raise EnteronError(
            f"{source} unpacks to {unpacked / MIB:,.0f} MiB",
            f"its {footer.rows:,} rows need less; write it again",
        )


def _footer(fields: dict[int, Any], source: str) -> Parquet:
    """FileMetaData: 2 schema, 3 rows, 4 row groups, 5 metadata."""
    root, *elements = fields[2]
    columns: dict[str, int] = {}
    for element in elements:
        name = element[4].decode()
        if element.get(5) or element.get(3) == _REPEATED:
            raise EnteronError(
                f"{source}: column '{shorten(name)}' is nested",
                "give one number per frame and column",
            )
        if name in columns:
            raise ValueError("a column occurs twice")
        columns[name] = int(element[1])
    if root.get(5) != len(columns):
        raise ValueError("the schema is not a table")
    groups = tuple((int(group[3]), _chunks(group, columns)) for group in fields.get(4, []))
    rows = int(fields[3])
    if rows < 0 or any(count < 0 for count, _ in groups) or sum(c for c, _ in groups) != rows:
        raise ValueError("row groups do not add up")
    pairs = [(pair[1].decode(), pair[2].decode()) for pair in fields.get(5, []) if 2 in pair]
    return Parquet(rows, columns, dict(pairs), groups)


def _chunks(group: dict[int, Any], columns: dict[str, int]) -> dict[str, dict[int, Any]]:
    """ColumnMetaData of a row group, in the order of the schema."""
    chunks = {}
    for name, chunk in zip(columns, group[1], strict=True):
        if 1 in chunk or chunk[3][3] != [name.encode()] or chunk[3][1] != columns[name]:
            raise ValueError("a chunk lies in another file, or is of another column")
        chunks[name] = chunk[3]
    return chunks


def _unpacked_size(content: bytes, chunk: dict[int, Any], rows: int) -> int:
    """Bytes that a column chunk unpacks to, from the headers of all its pages."""
    if chunk[5] != rows:
        raise ValueError("a chunk has another number of values than its row group")
    offset = min(chunk[9], chunk.get(11) or chunk[9])
    end = offset + chunk[7]
    if not 4 <= offset <= end <= len(content):
        raise ValueError("a chunk lies outside of the file")
    unpacked = values = 0
    while values < rows:
        page, start = _struct(content, offset, end)
        offset = start + page[3]
        if page[2] < 0 or page[3] < 0 or offset > end:
            raise ValueError("a page lies outside of its chunk")
        unpacked += page[2]
        if page[1] in (0, 3):  # data pages of version 1 and 2
            count = page[5 if page[1] == 0 else 8][1]
            if count <= 0:
                raise ValueError("a page without values")
            values += count
        elif page[1] == 2 and not 0 <= page[7][1] <= page[2] + rows:  # a dictionary
            raise ValueError("a dictionary with more values than bytes")
    if values != rows:
        raise ValueError("pages have more values than their row group")
    return unpacked + 8 * rows


# ---- Thrift's compact protocol

_MAX_NESTING = 12


def _struct(data: bytes, offset: int, end: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their number, and the offset after it."""
    if depth > _MAX_NESTING:
        raise ValueError("nests too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        if offset >= end:
            raise ValueError("cut off")
        head = data[offset]
        offset += 1
        if head == 0:
            return fields, offset
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            value, offset = _varint(data, offset, end)
            number = _signed(value)
        if kind in (1, 2):
            fields[number] = kind == 1
        else:
            fields[number], offset = _value(data, offset, end, kind, depth)


def _value(data: bytes, offset: int, end: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):  # booleans in lists, and bytes
        if offset >= end:
            raise ValueError("cut off")
        return data[offset], offset + 1
    if kind in (4, 5, 6):
        value, offset = _varint(data, offset, end)
        return _signed(value), offset
    if kind == 7:
        if offset + 8 > end:
            raise ValueError("cut off")
        return struct.unpack("<d", data[offset : offset + 8])[0], offset + 8
    if kind == 8:
        length, offset = _varint(data, offset, end)
        if offset + length > end:
            raise ValueError("cut off")
        return data[offset : offset + length], offset + length
    if kind in (9, 10):
        return _list(data, offset, end, depth)
    if kind == 12:
        return _struct(data, offset, end, depth + 1)
    raise ValueError("an unknown type")


def _list(data: bytes, offset: int, end: int, depth: int) -> tuple[list[Any], int]:
    if offset >= end:
        raise ValueError("cut off")
    count, kind = data[offset] >> 4, data[offset] & 15
    offset += 1
    if count == 15:
        count, offset = _varint(data, offset, end)
    if count > end - offset:  # every element takes a byte at least
        raise ValueError("cut off")
    items: list[Any] = []
    for _ in range(count):
        item, offset = _value(data, offset, end, kind, depth + 1)
        items.append(item)
    return items, offset


def _varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= end:
            raise ValueError("cut off")
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError("a number of more than 64 bits")


def _signed(value: int) -> int:
    """Zigzag: 0, 1, 2, 3 stand for 0, -1, 1, -2."""
    return (value >> 1) ^ -(value & 1)

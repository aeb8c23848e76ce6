"""A table in parquet: one file, or a folder of parts when it is large; and SQL over tables.

Rows belong to a part by the hash of their `folder`, so that an update writes the parts it concerns.
"""

import io
import re
import shutil
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from enteron.errors import EnteronError, nearest, shorten
from enteron.files import make_folder, write_bytes

if TYPE_CHECKING:
    import polars as pl

PART_ROWS: Final = 50_000
"""A table of more rows is divided into parts."""


class PartitionedTable:
    """A table on the disk, at `path`: a file, or a folder of parts, by its number of rows."""

    def __init__(self, path: Path, schema: Mapping[str, Any], part_rows: int = PART_ROWS) -> None:
        self._path, self._schema, self._part_rows = path, dict(schema), part_rows

    def read(self) -> "pl.DataFrame | None":
        """All rows; None where there is no table, or one of another version or damaged."""
        import polars as pl

        files = sorted(self._path.glob("part-*.parquet")) if self._path.is_dir() else [self._path]
        if not files or not files[0].exists():
            return None
        if self._path.is_dir() and len(files) != _stated_parts(files[0]):
            return None
        try:
            table = pl.concat([pl.read_parquet(file) for file in files])
        except (OSError, pl.exceptions.PolarsError):
            return None  # it is derived: whoever asks makes it again
        return table if dict(table.schema) == self._schema else None

    def write(self, table: "pl.DataFrame", changed: Collection[str]) -> None:
        """Store all rows; of a table in parts, those that hold rows of the changed folders."""
        parts = 1
        while table.height > parts * self._part_rows:
            parts *= 2
        if parts == 1:
            if self._path.is_dir():
                shutil.rmtree(self._path)
            write_bytes(self._path, _parquet(table))
            return
        same = self._path.is_dir() and _parts_in(self._path) == parts
        touched = {part_of(folder, parts) for folder in changed} if same else set(range(parts))
        target = self._path if same else self._path.with_name(f".{self._path.name}.new")
        if not same:
            shutil.rmtree(target, ignore_errors=True)
            make_folder(target)
        folders = table["folder"].unique().to_list()
        numbers = {folder: part_of(folder, parts) for folder in folders}
        column = table["folder"].replace_strict(numbers, default=0)
        for part in sorted(touched):
            rows = table.filter(column == part)
            write_bytes(target / f"part-{part:03d}-of-{parts:03d}.parquet", _parquet(rows))
        if not same:
            if self._path.is_dir():
                shutil.rmtree(self._path)
            else:
                self._path.unlink(missing_ok=True)
            target.rename(self._path)


def part_of(folder: str, parts: int) -> int:
    """The part of a folder's rows."""
    return zlib.crc32(folder.encode(errors="surrogateescape")) % parts


def _stated_parts(file: Path) -> int:
    match = re.fullmatch(r"part-\d+-of-(\d+)\.parquet", file.name)
    return 0 if match is None else int(match[1])


def _parts_in(folder: Path) -> int:
    files = list(folder.glob("part-*.parquet"))
    return len(files) if files and len(files) == _stated_parts(files[0]) else 0


def _parquet(table: "pl.DataFrame") -> bytes:
    content = io.BytesIO()
    table.write_parquet(content, compression="zstd")
    return content.getvalue()


# ---- SQL


def run_sql(query: str, tables: "Mapping[str, pl.DataFrame]") -> "pl.DataFrame":
    """The answer to a SELECT over the named tables; without FROM, over the first of them."""
    import polars as pl

    first = next(iter(tables))
    text = _with_from(query.strip().rstrip(";"), first)
    if re.match(r"(?is)\s*(?:select|with)\b", text) is None:
        raise EnteronError(
            f"'{shorten(query.strip(), 40)}' is not a query", "begin with SELECT, as in the example"
        )
    context = pl.SQLContext(dict(tables), eager=True)
    try:
        answer = context.execute(text)
    except pl.exceptions.PolarsError as error:
        raise _query_error(error, tables) from error
    assert isinstance(answer, pl.DataFrame)
    return answer


def _with_from(query: str, table: str) -> str:
    if re.search(r"(?i)\bfrom\b", query):
        return query
    clause = re.search(r"(?i)\b(?:where|group\s+by|order\s+by|limit|having)\b", query)
    end = len(query) if clause is None else clause.start()
    return f"{query[:end].rstrip()} FROM {table} {query[end:]}".rstrip()


def _query_error(error: Exception, tables: "Mapping[str, pl.DataFrame]") -> EnteronError:
    import polars as pl

    message = shorten(str(error).splitlines()[0].strip().rstrip("."), 160)
    columns = [name for table in tables.values() for name in table.columns]
    if isinstance(error, pl.exceptions.ColumnNotFoundError):
        match = re.search(r"[\"'`]?([\w ]+)[\"'`]?", message)
        name = "" if match is None else match[1].split()[-1]
        named = re.search(r"\"([^\"]+)\"|'([^']+)'", message)
        if named is not None:
            name = named[1] or named[2]
        return EnteronError(f"there is no column '{shorten(name)}'", nearest(name, columns))
    if "relation" in message or "table" in message.lower():
        return EnteronError(
            f"the query cannot be answered ({message})", f"the tables are {', '.join(tables)}"
        )
    return EnteronError(
        f"the query cannot be answered ({message})",
        "write it as in the example; columns are listed by `enteron fleet query DIR --columns`",
    )

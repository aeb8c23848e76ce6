"""CSV files as tables of numbers or text, read within limits and by the header's names."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from enteron.errors import EnteronError, LabelError, quantity, shorten
from enteron.files import (
    CSV_LIMIT,
    MAX_COLUMNS,
    MAX_ROWS,
    decode_text,
    read_bytes,
)

_MOST_HEADER = 2**20  # bytes of the first line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose header was read and whose size was checked; its cells were not."""

    source: str  # what messages call the file
    rows: bytes  # everything after the header
    header: tuple[str, ...]  # names of all columns, without stray blanks and quotes
    separator: str
    error: type[EnteronError]

    def floats(self, names: Sequence[str]) -> pl.DataFrame | None:
        """These columns as numbers, empty cells as nulls; None if a cell is not a number."""
        try:
            return self._read(names, pl.Float64)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None

    def text(self, names: Sequence[str]) -> pl.DataFrame:
        """These columns as text; what is not a table is refused."""
        try:
            return self._read(names, pl.String)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as failure:
            reason = shorten(str(failure).partition("\n")[0], 120)
            raise self.error(
                f"{self.source} cannot be read as a table ({reason})",
                "check that every row has as many cells as the header",
            ) from failure

    def _read(self, names: Sequence[str], dtype: type[pl.DataType]) -> pl.DataFrame:
        if not self.rows.strip():
            return pl.DataFrame(schema=dict.fromkeys(names, dtype))
        # Numbers stand for the names, which polars would read in its own way (quotes, repetition).
        columns = [str(column) for column in range(len(self.header))]
        needed = {columns[self.header.index(name)]: name for name in names}
        schema = {column: dtype if column in needed else pl.String for column in columns}
        table = pl.read_csv(
            self.separator.join(columns).encode() + b"\n" + self.rows,
            separator=self.separator,
            schema=schema,
            columns=list(needed),
        )
        return table.select(pl.col(column).alias(name) for column, name in needed.items())


def read_csv_table(
    path: Path,
    remedy: str,
    *,
    source: str | None = None,
    separator: str = ",",
    error: type[EnteronError] = LabelError,
) -> CsvTable:
    """Read a CSV file and its header; binary files, and tables beyond the limits, are refused."""
    source = path.name if source is None else source
    content = read_bytes(path, CSV_LIMIT, remedy, source=source, error=error)
    content = content.removeprefix(_BYTE_ORDER_MARK)
    if b"\0" in content:
        raise error(f"{source} cannot be read (not UTF-8)", remedy)
    line, _, rows = content.partition(b"\n")
    header: list[str] = []
    if len(line) <= _MOST_HEADER:
        text = decode_text(line.rstrip(b"\r"), source, remedy, error=error)
        try:
            header = next(csv.reader([text], delimiter=separator), [])
        except csv.Error as failure:
            raise error(f"{source} cannot be read ({failure})", remedy) from failure
    if len(line) > _MOST_HEADER or len(header) > MAX_COLUMNS:
        raise error(
            f"{source} has more than {MAX_COLUMNS:,} columns", "give a table with a row per frame"
        )
    if rows.count(b"\n") > MAX_ROWS:
        raise error(f"{source} has more than {MAX_ROWS:,} rows", "no study has that many frames")
    _require_equal_rows(rows, len(header), separator, source, remedy, error)
    return CsvTable(source, rows, tuple(name.strip() for name in header), separator, error)


def _require_equal_rows(
    rows: bytes, cells: int, separator: str, source: str, remedy: str, error: type[EnteronError]
) -> None:
    """Refuse a row with more or fewer cells than the header: polars fills or drops them."""
    counts: Iterator[int]
    if b'"' in rows:
        text = decode_text(rows, source, remedy, error=error)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        counts = (len(row) or cells for row in reader)
    else:
        mark = separator.encode()
        lines = io.BytesIO(rows)
        counts = (line.count(mark) + 1 if line.strip() else cells for line in lines)
    try:
        wrong = next(((n, line) for line, n in enumerate(counts, 2) if n != cells), None)
    except csv.Error as failure:
        raise error(f"{source} cannot be read as a table ({failure})", remedy) from failure
    if wrong is not None:
        raise error(
            f"{source}, line {wrong[1]}, has {quantity(wrong[0], 'cell')} where the header has "
            f"{cells}",
            "check that every row has as many cells as the header",
        )

"""CSV files as cells of text, with messages that name the line and the column."""

import csv
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import polars as pl

from enteron.datasets.csv_table import read_csv_table
from enteron.errors import EnteronError, LabelError, nearest, shorten
from enteron.files import CSV_LIMIT, open_file
from enteron.study.folder import MAX_NUMBER

_REMEDY = "give a CSV file in UTF-8 that you may read"


class TextTable:
    """The rows of a CSV file by column name. Stray blanks of headers and cells are dropped."""

    def __init__(self, path: Path, *, separator: str = ",") -> None:
        self.name = path.name
        table = read_csv_table(path, _REMEDY, separator=separator)
        self.columns = list(table.header)
        if not any(self.columns):
            raise LabelError(f"{self.name} is empty", "name its columns in the first line")
        repeated = next((name for name, n in Counter(self.columns).items() if n > 1), None)
        if repeated is not None:
            raise LabelError(
                f"{self.name} has two columns '{shorten(repeated)}'", "keep one of them"
            )
        cells = table.text(self.columns)
        self._cells = cells.with_columns(pl.all().str.strip_chars().fill_null(""))

    def __len__(self) -> int:
        return self._cells.height

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def where(self, row: int) -> str:
        """The place of a row, for messages."""
        return f"{self.name}, line {row + 2}"

    def column(self, name: str) -> list[str]:
        """All cells of a column."""
        return self._cells[name].to_list()

    def require_columns(
        self, needed: Collection[str], others: Collection[str] | None = None
    ) -> None:
        """Refuse a table that lacks a column, or that has one beside `needed` and `others`."""
        for name in needed:
            if name not in self.columns:
                similar = nearest(name, [c for c in self.columns if c not in needed] or needed)
                remedy = (
                    f"{similar} by it" if similar.startswith("did") else "add it to the first line"
                )
                raise LabelError(f"{self.name} has no column '{name}'", remedy)
        if others is None:
            return
        for name in self.columns:
            if name not in needed and name not in others:
                choices = [c for c in (*needed, *others) if c not in self.columns]
                raise LabelError(
                    f"{self.name} has a column '{name}' that is not known",
                    f"{nearest(name, choices)}, or remove it",
                )

    def require_rows(self) -> None:
        """Refuse a table without rows."""
        if len(self) == 0:
            raise LabelError(f"{self.name} has no rows", "give one row per frame")

    def frame_numbers(self, name: str) -> list[int]:
        """A column of frame numbers."""
        numbers: list[int] = []
        for row, cell in enumerate(self.column(name)):
            number = int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 19 else -1
            if not 0 <= number <= MAX_NUMBER:
                raise LabelError(
                    f"{self.where(row)}: '{name}' is {shown(cell)}",
                    f"'{name}' is a whole number from 0 on",
                )
            numbers.append(number)
        return numbers

    def pixel(self, row: int, name: str, cell: str) -> float:
        """A cell with a coordinate in pixels."""
        try:
            value = float(cell)
        except ValueError:
            value = float("nan")
        if not abs(value) < MAX_NUMBER:  # NaN compares false
            raise LabelError(
                f"{self.where(row)}: '{name}' is {shown(cell)}", f"'{name}' is a number of pixels"
            )
        return value


def shown(cell: str) -> str:
    """A cell's text for a message."""
    text = cell if len(cell) <= 40 else f"{cell[:37]}…"
    return f"'{text}'" if cell else "empty"


def header_of(path: Path, separator: str = ",") -> list[str]:
    """The column names of a file; empty for one that is not a table."""
    try:
        with open_file(path, CSV_LIMIT, _REMEDY) as file:
            line = file.readline(100_000).decode("utf-8-sig")
        return [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
    except (EnteronError, OSError, UnicodeDecodeError, csv.Error):
        return []

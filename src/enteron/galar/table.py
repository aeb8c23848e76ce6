"""Galar's label files: one CSV per study, one row per stored frame."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.errors import LabelError
from enteron.labels import LABELS, REGIONS
from enteron.study.folder import MAX_NUMBER
from enteron.types import FrameAxis

# The files carry more: `section` (text), technical columns in six studies, labels outside the 17.
# They also differ in column order. So columns are taken by name, and the others are left alone.
NEEDED = ("frame", "index", *LABELS)


@dataclass(frozen=True)
class LabelTable:
    """The labels of one study, a row per stored frame, ascending.

    `frame` is the number in the image's file name, `index` the row number. In 58 of Galar's 80
    studies the two differ by a factor of five, and labels belong to images by `frame` only.
    """

    study: str
    axis: FrameAxis  # `frame` of every row
    index: NDArray[np.int64]  # `index` of every row
    values: NDArray[np.bool_]  # (rows, 17), columns in the order of LABELS
    updated: bool = False  # from the dataset's corrected labels

    def __len__(self) -> int:
        return len(self.axis)

    def region_counts(self) -> NDArray[np.int64]:
        """How many regions each row names; one, but for a few slips of the annotators."""
        return self.values[:, : len(REGIONS)].sum(axis=1)


def read_label_table(path: Path, *, study: str | None = None, updated: bool = False) -> LabelTable:
    """Read a label file by column name; anything but 0 and 1 in a label's cell is an error."""
    study = path.stem if study is None else study
    header = _header(path, study)
    try:
        table = pl.read_csv(
            path,
            columns=[header[name] for name in NEEDED],
            schema_overrides={header[name]: pl.Float64 for name in NEEDED},
        )
    except pl.exceptions.PolarsError as error:
        raise _first_wrong_cell(path, study, header) from error
    table = table.select([pl.col(header[name]).alias(name) for name in NEEDED])
    if table.height == 0:
        raise LabelError(
            f"the labels of study {study} have no rows", "check that the file is whole"
        )
    cells = table.to_numpy()  # (rows, 2 + 17) float64; an empty cell is NaN
    labels = cells[:, 2:]
    counters = cells[:, :2]
    whole = (counters >= 0) & (counters <= MAX_NUMBER) & (counters == np.floor(counters))
    if not (whole.all() and ((labels == 0) | (labels == 1)).all()):
        raise _first_wrong_cell(path, study, header)
    return _ordered(study, counters.astype(np.int64), labels.astype(np.bool_), updated)


def _ordered(
    study: str, counters: NDArray[np.int64], labels: NDArray[np.bool_], updated: bool
) -> LabelTable:
    frames, index = counters[:, 0], counters[:, 1]
    if (np.diff(frames) <= 0).any():
        order = np.argsort(frames, kind="stable")
        frames, index, labels = frames[order], index[order], labels[order]
        repeated = frames[1:][np.diff(frames) == 0]
        if repeated.size:
            raise LabelError(
                f"the labels of study {study} name frame {repeated[0]} twice",
                "keep one row for each frame",
            )
    if (np.diff(index) <= 0).any():
        row = int(np.argmax(np.diff(index) <= 0)) + 1
        raise LabelError(
            f"in the labels of study {study}, 'index' falls from {index[row - 1]} to {index[row]} "
            f"while 'frame' rises to {frames[row]}",
            "'index' is the row number and must rise with 'frame'",
        )
    return LabelTable(study, FrameAxis(frames), np.ascontiguousarray(index), labels, updated)


def _header(path: Path, study: str) -> dict[str, str]:
    """Column names without stray blanks -> as the file spells them."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(
            f"the labels of study {study} cannot be read ({error})", "give a CSV file in UTF-8"
        ) from error
    spelt = line.rstrip("\r\n").split(",")
    header: dict[str, str] = {}
    for name in spelt:
        plain = name.strip().strip('"').strip()
        if plain in header:
            raise LabelError(
                f"the labels of study {study} have two columns '{plain}'", "keep one of them"
            )
        header[plain] = name.strip('"')
    missing = [name for name in NEEDED if name not in header]
    if missing:
        hint = (
            " (it is separated by semicolons, as the test set's files are)" if ";" in line else ""
        )
        raise LabelError(
            f"the labels of study {study} have no column '{missing[0]}'{hint}",
            "a label file has the columns frame, index and the 17 labels, separated by commas",
        )
    return header


def _first_wrong_cell(path: Path, study: str, header: dict[str, str]) -> LabelError:
    """Find what the fast reader stumbled over, to name its row and column."""
    try:
        text = pl.read_csv(path, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        return LabelError(
            f"the labels of study {study} are not a table ({str(error).splitlines()[0]})",
            "check that every row has as many cells as the header",
        )
    for name in NEEDED:
        cell = pl.col(header[name]).str.strip_chars().cast(pl.Float64, strict=False)
        if name in LABELS:
            good, wanted = cell.is_in([0.0, 1.0]), "label cells are 0 or 1"
        else:
            good = (cell >= 0) & (cell <= MAX_NUMBER) & (cell == cell.floor())
            wanted = f"'{name}' is a whole number"
        wrong = text.select(good.fill_null(value=False).not_().arg_true()).to_series()
        if wrong.len():
            row = int(wrong[0])
            value = text[header[name]][row]
            shown = "empty" if value is None else f"'{value}'"
            return LabelError(
                f"the labels of study {study}, line {row + 2}: '{name}' is {shown}", wanted
            )
    return LabelError(
        f"the labels of study {study} cannot be read as numbers", "check for quotes and blanks"
    )

"""Galar's label files: reading them, joining them with images, and making true events of them.

A label file is a CSV per study with one row per stored frame.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.datasets.csv_table import CsvTable, read_csv_table
from enteron.errors import LabelError, UnitError, shorten
from enteron.labels import LABELS, REGIONS
from enteron.study.folder import MAX_NUMBER
from enteron.types import Annotation, FrameAxis, Segment, Unit

# The files have more columns: `section` (text), technical ones in six studies, labels outside the
# 17. Their order differs too. So columns are taken by name, and others are ignored.
NEEDED_COLUMNS = ("frame", *LABELS)
ROW_NUMBER = "index"  # optional: without it rows are numbered in the order of their frames

# Galar's own files reach more than 99 %. A join on the wrong column reaches about 20 %.
REQUIRED_COVERAGE = 0.99

_BITS = 1 << np.arange(len(LABELS), dtype=np.int64)  # encode a set of labels as an integer


# ---- Reading


@dataclass(frozen=True)
class LabelTable:
    """The labels of one study, one row per stored frame, in ascending order.

    `frame` is the number in the image's file name, `index` the row number. In 58 of Galar's 80
    studies the two differ by a factor of five. Labels belong to images by `frame` only.
    """

    study: str
    axis: FrameAxis  # `frame` of every row
    index: NDArray[np.int64]  # `index` of every row
    values: NDArray[np.bool_]  # (rows, 17), columns in the order of LABELS
    updated: bool = False  # from the dataset's corrected labels

    def __len__(self) -> int:
        return len(self.axis)

    def region_counts(self) -> NDArray[np.int64]:
        """(rows,) number of regions that each row names; 1, but for a few annotation errors."""
        return self.values[:, : len(REGIONS)].sum(axis=1)


def read_label_table(path: Path, *, study: str | None = None, updated: bool = False) -> LabelTable:
    """Read a label file by column name; a label's cell must be 0 or 1."""
    study = path.stem if study is None else study
    file = _read_file(path, study)
    table = file.floats(_columns_of(file.header))
    if table is None:
        raise _first_wrong_cell(file, study)
    if table.height == 0:
        raise LabelError(
            f"the labels of study {study} have no rows", "copy the file again from its source"
        )
    if ROW_NUMBER not in file.header:
        row_numbers = pl.Series(ROW_NUMBER, np.argsort(np.argsort(table["frame"], kind="stable")))
        table = table.insert_column(1, row_numbers.cast(pl.Float64))
    cells = table.to_numpy()  # (rows, 2 + 17) float64; an empty cell is NaN
    numbers, labels = cells[:, :2], cells[:, 2:]
    valid_numbers = (numbers >= 0) & (numbers <= MAX_NUMBER) & (numbers == np.floor(numbers))
    if not (valid_numbers.all() and ((labels == 0) | (labels == 1)).all()):
        raise _first_wrong_cell(file, study)
    return _sorted_table(study, numbers.astype(np.int64), labels.astype(np.bool_), updated)


def _columns_of(header: Sequence[str]) -> tuple[str, ...]:
    """The columns that are read, in the order of the table."""
    row_number = (ROW_NUMBER,) if ROW_NUMBER in header else ()
    return ("frame", *row_number, *LABELS)


def _sorted_table(
    study: str, numbers: NDArray[np.int64], labels: NDArray[np.bool_], updated: bool
) -> LabelTable:
    """Sort the rows by frame; `numbers` are (rows, 2), frame and index."""
    frames, index = numbers[:, 0], numbers[:, 1]
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


def _read_file(path: Path, study: str) -> CsvTable:
    """The file, after its header was checked."""
    source, remedy = f"the labels of study {study}", "give a CSV file in UTF-8 that you may read"
    file = read_csv_table(path, remedy, source=source)
    repeated = next((name for name, n in Counter(file.header).items() if n > 1), None)
    if repeated is not None:
        raise LabelError(f"{source} have two columns '{shorten(repeated)}'", "keep one of them")
    missing = [name for name in NEEDED_COLUMNS if name not in file.header]
    if missing:
        semicolons = any(";" in name for name in file.header)
        hint = " (it is separated by semicolons, as the test set's files are)" if semicolons else ""
        raise LabelError(
            f"{source} have no column '{missing[0]}'{hint}",
            "a label file has the columns frame and the 17 labels, separated by commas",
        )
    return file


def _first_wrong_cell(file: CsvTable, study: str) -> LabelError:
    """Find the cell that the fast reader refused, to name its row and column."""
    names = _columns_of(file.header)
    text = file.text(names)
    for name in names:
        cell = pl.col(name).str.strip_chars().cast(pl.Float64, strict=False)
        if name in LABELS:
            valid, remedy = cell.is_in([0.0, 1.0]), "label cells are 0 or 1"
        else:
            valid = (cell >= 0) & (cell <= MAX_NUMBER) & (cell == cell.floor())
            remedy = f"'{name}' is a whole number"
        invalid_rows = text.select(valid.fill_null(value=False).not_().arg_true()).to_series()
        if invalid_rows.len():
            row = int(invalid_rows[0])
            value = text[name][row]
            shown = "empty" if value is None else f"'{shorten(value)}'"
            return LabelError(
                f"the labels of study {study}, line {row + 2}: '{name}' is {shown}", remedy
            )
    return LabelError(
        f"the labels of study {study} cannot be read as numbers", "check for quotes and blanks"
    )


# ---- Joining with images


@dataclass(frozen=True)
class Join:
    """Label rows joined with images, and those of either side that have no partner."""

    study: str
    frames: NDArray[np.int64]  # frame numbers with an image and a label row, ascending
    values: NDArray[np.bool_]  # (frames, 17) labels of these
    labels_without_image: NDArray[np.int64]  # frame numbers
    images_without_label: NDArray[np.int64]  # frame numbers

    @property
    def coverage(self) -> float:
        """Share of label rows that have an image."""
        return self.frames.size / (self.frames.size + self.labels_without_image.size)


def join_labels(table: LabelTable, images: NDArray[np.int64]) -> Join:
    """Join a study's labels with its image numbers, whatever the coverage."""
    labelled = table.axis.frames
    frames, rows, _ = np.intersect1d(labelled, images, assume_unique=True, return_indices=True)
    return Join(
        study=table.study,
        frames=frames,
        values=table.values[rows],
        labels_without_image=np.setdiff1d(labelled, images, assume_unique=True),
        images_without_label=np.setdiff1d(images, labelled, assume_unique=True),
    )


def require_fit(join: Join, table: LabelTable, images: NDArray[np.int64]) -> None:
    """Refuse labels that fit too few images; the message compares both and guesses the mistake."""
    if join.coverage >= REQUIRED_COVERAGE:
        return
    remedy = "give the labels of this study, or download the missing images"
    if np.isin(table.index, images).mean() >= REQUIRED_COVERAGE:
        remedy = (
            "its 'index' does fit: were the images renumbered by row? name them by the number in "
            "the 'frame' column"
        )
    raise LabelError(
        f"the labels of study {table.study} do not fit its images: {join.frames.size} of "
        f"{len(table)} label rows have an image ({describe_numbers(table.axis.frames)} in the "
        f"labels, {describe_numbers(images)} in the images; "
        f"{join.labels_without_image.size} rows without, "
        f"the first is frame {join.labels_without_image[0]})",
        remedy,
    )


def describe_numbers(numbers: NDArray[np.int64]) -> str:
    """Describe frame numbers in a few words: 'frames 0 to 500 in steps of 5'."""
    if numbers.size == 0:
        return "no frames"
    if numbers.size == 1:
        return f"frame {numbers[0]}"
    step = int(np.median(np.diff(numbers)))
    steps = f" in steps of {step}" if step > 1 else ""
    return f"frames {numbers[0]} to {numbers[-1]}{steps}"


# ---- True events


def truth_events(table: LabelTable, unit: Unit) -> Annotation:
    """Make the official truth of a study: one segment per run of an identical label set.

    Rows without any label make segments with an empty set, as in the official files. In frames, a
    row lasts up to the next stored frame, so that a study stored at every fifth frame has the same
    overlaps in both units. A gap in the numbering ends a run: its frames have no labels.
    """
    if unit is Unit.FRAME:
        starts, stops = table.axis.frames, table.axis.ends()
        return Annotation(table.study, Unit.FRAME, _segments(table.values, starts, stops))
    if unit is Unit.INDEX:
        segments = _segments(table.values, table.index, table.index + 1)
        return Annotation(table.study, Unit.INDEX, segments)
    raise UnitError(f"'{unit}' is not a unit of events", "use 'frame' or 'index'")


def _segments(
    values: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[Segment, ...]:
    sets = values @ _BITS
    changes = (np.diff(sets) != 0) | (starts[1:] != stops[:-1])
    first_rows = np.concatenate(([0], np.flatnonzero(changes) + 1))
    last_rows = np.concatenate((first_rows[1:], [sets.size])) - 1
    labels_of_set: dict[int, tuple[str, ...]] = {}
    segments: list[Segment] = []
    for first, last in zip(first_rows.tolist(), last_rows.tolist(), strict=True):
        code = int(sets[first])
        if code not in labels_of_set:
            labels_of_set[code] = tuple(LABELS[column] for column in np.flatnonzero(values[first]))
        segments.append(Segment(int(starts[first]), int(stops[last]), labels_of_set[code]))
    return tuple(segments)

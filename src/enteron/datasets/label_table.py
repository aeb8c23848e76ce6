"""Galar's label files: one CSV per study, one row per stored frame."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.errors import LabelError, UnitError
from enteron.labels import LABELS, REGIONS
from enteron.study.folder import MAX_NUMBER
from enteron.types import Annotation, FrameAxis, Segment, Unit

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


# Galar's own files reach more than 99 %. A join on the wrong column reaches about 20 %.
REQUIRED_COVERAGE = 0.99


@dataclass(frozen=True)
class Join:
    """Which label row belongs to which image, and what found no partner."""

    study: str
    frames: NDArray[np.int64]  # numbers that have both an image and a label row, ascending
    values: NDArray[np.bool_]  # (frames, 17) labels of those
    labels_without_image: NDArray[np.int64]  # frame numbers
    images_without_label: NDArray[np.int64]  # frame numbers

    @property
    def coverage(self) -> float:
        """Share of label rows that have an image."""
        return self.frames.size / (self.frames.size + self.labels_without_image.size)


def join_labels(table: LabelTable, images: NDArray[np.int64]) -> Join:
    """Join a study's labels with its image numbers, whatever the coverage."""
    rows = table.axis.frames
    frames, row, _ = np.intersect1d(rows, images, assume_unique=True, return_indices=True)
    return Join(
        study=table.study,
        frames=frames,
        values=table.values[row],
        labels_without_image=np.setdiff1d(rows, images, assume_unique=True),
        images_without_label=np.setdiff1d(images, rows, assume_unique=True),
    )


def require_fit(join: Join, table: LabelTable, images: NDArray[np.int64]) -> None:
    """Refuse labels that do not fit their images, with both numbers and a guess at the mistake."""
    if join.coverage >= REQUIRED_COVERAGE:
        return
    remedy = "give the labels of this study, or fetch the images that are missing"
    if np.isin(table.index, images).mean() >= REQUIRED_COVERAGE:
        remedy = (
            "its 'index' does fit: were the images renumbered by row? their names must carry "
            "the number of the 'frame' column"
        )
    raise LabelError(
        f"the labels of study {table.study} do not fit its images: {join.frames.size} of "
        f"{len(table)} label rows have an image ({span(table.axis.frames)} in the labels, "
        f"{span(images)} in the images; {join.labels_without_image.size} rows without, "
        f"the first is frame {join.labels_without_image[0]})",
        remedy,
    )


def span(numbers: NDArray[np.int64]) -> str:
    """Frame numbers in a few words: 'frames 0 to 500 in steps of 5'."""
    if numbers.size == 0:
        return "no frames"
    if numbers.size == 1:
        return f"frame {numbers[0]}"
    step = int(np.median(np.diff(numbers)))
    steps = f" in steps of {step}" if step > 1 else ""
    return f"frames {numbers[0]} to {numbers[-1]}{steps}"


_BITS = 1 << np.arange(len(LABELS), dtype=np.int64)


def truth_events(table: LabelTable, unit: Unit) -> Annotation:
    """The official truth of a study: one segment per run of an identical label set.

    Rows without any label make segments too, with an empty set, as in the official files.

    In frames a row holds up to the next stored frame, so that a study stored at every fifth frame
    has the same overlaps in both units. A hole in the numbering ends a run: nothing is known there.
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
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    last = np.concatenate((first[1:], [sets.size])) - 1
    names: dict[int, tuple[str, ...]] = {}
    segments: list[Segment] = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        code = int(sets[begin])
        if code not in names:
            names[code] = _named(values[begin])
        segments.append(Segment(int(starts[begin]), int(stops[end]), names[code]))
    return tuple(segments)


def _named(row: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(label for label, on in zip(LABELS, row, strict=True) if on)

"""Scores from a file that any model may have written: parquet or CSV."""

import io
from pathlib import Path

import numpy as np
import polars as pl

from enteron.errors import EnteronError, nearest
from enteron.files import write_bytes
from enteron.labels import LABELS
from enteron.options import Options, parse_json_options
from enteron.types import FrameAxis, Scores, Unit

SUFFIXES = (".parquet", ".csv")


_MARK = "enteron"


class _Known(Options):
    """What a parquet file of ours says beside its columns."""

    study: str | None = None
    frames_per_row: float | None = None


def read_scores(path: Path, study: str | None = None, stride: int | None = None) -> Scores:
    """Scores with a `frame` or `index` column and one column per label; others are left alone.

    `frame` is preferred where both are there. Rows become frames when `stride`, the number of
    original frames per row, is given; a `frame` column needs none. Columns that were thresholded
    to 0 and 1 are scores like others.
    """
    table = _table(path)
    known = _known(path)
    name = (known.study or path.stem) if study is None else study
    columns = {column.strip(): column for column in table.columns}
    unit = Unit.FRAME if "frame" in columns else Unit.INDEX
    if unit not in columns:
        raise EnteronError(
            f"{path.name} has neither a column 'frame' nor 'index'",
            "give the frame's number (or the row's) for every row",
        )
    for label in LABELS:
        if label not in columns:
            others = [c for c in columns if c not in LABELS]
            raise EnteronError(
                f"{path.name} has no column '{label}'",
                nearest(label, others) if others else "give one column for each of the 17 labels",
            )
    numbers = _numbers(table, columns[unit], path.name)
    if unit is Unit.INDEX and stride is not None:
        numbers, unit = numbers * stride, Unit.FRAME
    values = np.column_stack([_floats(table, columns[label], path.name) for label in LABELS])
    times = _floats(table, columns["time"], path.name) if "time" in columns else None
    values = values.astype(np.float32)
    axis = FrameAxis(numbers, unit)
    return Scores(name, axis, values, times, known.frames_per_row)


def write_scores(path: Path, scores: Scores) -> None:
    """`scores.parquet`: frame, time if known, 17 columns; whole or not at all."""
    columns: dict[str, np.ndarray] = {"frame": scores.axis.frames}
    if scores.times is not None:
        columns["time"] = scores.times
    columns |= {label: scores.column(label) for label in LABELS}
    known = _Known(study=scores.study, frames_per_row=scores.frames_per_row)
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, metadata={_MARK: known.model_dump_json()})
    write_bytes(path, content.getvalue())


def is_written_by_enteron(path: Path) -> bool:
    """Whether a file of scores is a model's raw output that `write_scores` wrote."""
    return path.suffix.lower() == ".parquet" and _MARK in pl.read_parquet_metadata(path)


def find_score_files(folder: Path) -> dict[str, Path]:
    """Score files of a folder by study: one file each, named by the study's id."""
    if not folder.is_dir():
        raise EnteronError(
            f"'{folder.name}' is not a folder", "give a folder with one file of scores per study"
        )
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES:
            if path.stem in found:
                raise EnteronError(
                    f"study {path.stem} has two files of scores", "keep the parquet or the CSV"
                )
            found[path.stem] = path
    if not found:
        raise EnteronError(
            f"the folder '{folder.name}' holds no scores",
            "give parquet or CSV files, one per study",
        )
    return found


def _known(path: Path) -> _Known:
    """Of a file that enteron wrote its metadata; of others nothing."""
    if path.suffix.lower() != ".parquet":
        return _Known()
    text = pl.read_parquet_metadata(path).get(_MARK)
    if text is None:
        return _Known()
    return parse_json_options(_Known, text, path.name, "write the scores again")


def _table(path: Path) -> pl.DataFrame:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise EnteronError(
            f"{path.name} is neither parquet nor CSV", "give scores as .parquet or .csv"
        )
    if not path.is_file():
        raise EnteronError(f"there is no file {path.name}", "give a file of scores that exists")
    try:
        table = pl.read_parquet(path) if suffix == ".parquet" else pl.read_csv(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise EnteronError(
            f"{path.name} cannot be read ({str(error).splitlines()[0]})",
            "check that it is whole, and in UTF-8 if it is a CSV",
        ) from error
    if table.height == 0:
        raise EnteronError(f"{path.name} has no rows", "give one row per frame")
    return table


def _floats(table: pl.DataFrame, column: str, source: str) -> np.ndarray:
    """A column of numbers; empty cells become NaN, which is refused with its frame later."""
    try:
        numbers = table[column].cast(pl.Float64)
    except pl.exceptions.PolarsError as error:
        raise EnteronError(
            f"{source}: column '{column}' is not a column of numbers",
            "scores are numbers from 0 to 1",
        ) from error
    return numbers.fill_null(float("nan")).to_numpy()


def _numbers(table: pl.DataFrame, column: str, source: str) -> np.ndarray:
    numbers = _floats(table, column, source)
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)).all():
        raise EnteronError(
            f"{source}: '{column}' is not a whole number in every row",
            "number the rows by frame or by index, from 0",
        )
    return numbers.astype(np.int64)

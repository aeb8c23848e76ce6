"""Files of scores: `scores.parquet` of a reading, and parquet or CSV files of any other model."""

import io
from pathlib import Path

import numpy as np
import polars as pl

from enteron.errors import EnteronError, nearest
from enteron.files import write_bytes
from enteron.ids import is_dataset_id, neutral_id, require_study_id
from enteron.labels import LABELS
from enteron.options import Options, parse_json_options
from enteron.types import FrameAxis, Scores, Unit

SUFFIXES = (".parquet", ".csv")

_METADATA_KEY = "enteron"


class ScoreMetadata(Options):
    """Metadata of a parquet file that enteron wrote; empty for files of other programs."""

    study: str | None = None
    frames_per_row: float | None = None


def read_scores(path: Path, study: str | None = None, stride: int | None = None) -> Scores:
    """Read a file with a `frame` or `index` column and one column per label; others are ignored.

    `frame` is preferred where both exist. With `stride`, the number of original frames per row, an
    `index` column is converted to frames. Columns of zeros and ones are valid scores.
    """
    table = _table(path)
    metadata = read_score_metadata(path)
    columns = {column.strip(): column for column in table.columns}
    unit = Unit.FRAME if "frame" in columns else Unit.INDEX
    if unit not in columns:
        raise EnteronError(
            f"{path.name} has neither a column 'frame' nor 'index'",
            "add a column with the number of each row's frame",
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
    name = study
    if name is None:  # the file's name may be a patient's
        default = (
            path.stem
            if is_dataset_id(path.stem)
            else neutral_id([numbers.tobytes(), values.tobytes()])
        )
        name = default if metadata.study is None else metadata.study
    require_study_id(name, f"{path.name}: the study's id" if study is None else "the study's id")
    return Scores(name, axis, values, times, metadata.frames_per_row)


def write_scores(path: Path, scores: Scores) -> None:
    """Write `scores.parquet` atomically: frame, time if known, 17 columns."""
    columns: dict[str, np.ndarray] = {"frame": scores.axis.frames}
    if scores.times is not None:
        columns["time"] = scores.times
    columns |= {label: scores.column(label) for label in LABELS}
    metadata = ScoreMetadata(study=scores.study, frames_per_row=scores.frames_per_row)
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(
        content, metadata={_METADATA_KEY: metadata.model_dump_json()}
    )
    write_bytes(path, content.getvalue())


def is_written_by_enteron(path: Path) -> bool:
    """Whether a file of scores is a model's raw output that `write_scores` wrote."""
    return path.suffix.lower() == ".parquet" and _METADATA_KEY in pl.read_parquet_metadata(path)


def find_score_files(folder: Path) -> dict[str, Path]:
    """Find one file of scores per study in a folder, named by the study's id."""
    if not folder.is_dir():
        raise EnteronError(
            f"'{folder.name}' is not a folder", "give a folder with one file of scores per study"
        )
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES:
            if path.stem in files:
                raise EnteronError(
                    f"study {path.stem} has two files of scores", "keep the parquet or the CSV"
                )
            files[require_study_id(path.stem, f"the name of {path.name}")] = path
    if not files:
        raise EnteronError(
            f"the folder '{folder.name}' holds no scores",
            "give parquet or CSV files, one per study",
        )
    return files


def read_score_metadata(path: Path) -> ScoreMetadata:
    """The metadata of a file that enteron wrote; empty for other files."""
    if path.suffix.lower() != ".parquet":
        return ScoreMetadata()
    text = pl.read_parquet_metadata(path).get(_METADATA_KEY)
    if text is None:
        return ScoreMetadata()
    return parse_json_options(ScoreMetadata, text, path.name, "write the scores again")


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
            "check that it is complete, and in UTF-8 if it is a CSV",
        ) from error
    if table.height == 0:
        raise EnteronError(f"{path.name} has no rows", "give one row per frame")
    return table


def _floats(table: pl.DataFrame, column: str, source: str) -> np.ndarray:
    """A column of numbers; empty cells become NaN, which `Scores` refuses by frame."""
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

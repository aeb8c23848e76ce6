"""Files of scores: `scores.parquet` of a reading, and parquet or CSV files of any other model."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.datasets.csv_table import read_csv_table
from enteron.datasets.submission import MAX_FRAME
from enteron.errors import EnteronError, nearest, shorten
from enteron.files import PARQUET_LIMIT, read_bytes, write_bytes
from enteron.folders.identity import ReadingIdentity
from enteron.folders.parquet import Parquet, read_footer, require_columns
from enteron.ids import is_dataset_id, neutral_id, require_study_id
from enteron.labels import LABELS
from enteron.options import Options, parse_json_options
from enteron.types import FrameAxis, Scores, Unit

SCORES = "scores.parquet"  # in a reading folder
SUFFIXES = (".parquet", ".csv")

ENCODED = "encoded"
"""The column that says which frames the model saw; it is there if it did not see all."""

_METADATA_KEY = "enteron"


class ScoreMetadata(Options):
    """Metadata of a parquet file that enteron wrote; empty for files of other programs."""

    study: str | None = None
    frames_per_row: float | None = None
    content: str | None = None
    """Hash of the content of the study's files."""
    model: str | None = None
    """SHA-256 of the weights that scored them; of a combination, a hash of how it is made."""
    calibrated: bool = False
    """Whether the scores are means of calibrated ones, and so probabilities already."""
    stage: str | None = None
    """The stage that wrote the file; none in files of older versions."""


def read_scores(path: Path, study: str | None = None, stride: int | None = None) -> Scores:
    """Read a file with a `frame` or `index` column and one column per label; others are ignored.

    `frame` is preferred where both exist. With `stride`, the number of original frames per row, an
    `index` column is converted to frames. Columns of zeros and ones are valid scores.
    """
    columns, metadata = _read_columns(path)
    unit = Unit.FRAME if "frame" in columns else Unit.INDEX
    numbers = _whole_numbers(columns[unit], unit, path.name)
    if unit is Unit.INDEX and stride is not None:
        if int(numbers.max()) * stride > MAX_FRAME:
            raise EnteronError(
                f"{path.name} with {stride} frames per row goes beyond frame {MAX_FRAME:,}",
                "give the number of original frames per row, which is 5 in most of Galar",
            )
        numbers, unit = numbers * stride, Unit.FRAME
    values = np.column_stack([columns[label] for label in LABELS])
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
    times = columns.get("time")
    times = None if times is None else times.astype(np.float64)
    encoded = columns.get(ENCODED)
    encoded = None if encoded is None else encoded > 0
    return Scores(name, axis, values, times, metadata.frames_per_row, encoded)


def write_scores(
    path: Path,
    scores: Scores,
    identity: ReadingIdentity | None = None,
    *,
    calibrated: bool = False,
) -> None:
    """Write `scores.parquet` atomically: frame, time if known, 17 columns; `ENCODED` if need be."""
    columns: dict[str, np.ndarray] = {"frame": scores.axis.frames}
    if scores.times is not None:
        columns["time"] = scores.times
    if scores.encoded is not None:
        columns[ENCODED] = scores.encoded
    columns |= {label: scores.column(label) for label in LABELS}
    metadata = ScoreMetadata(
        study=scores.study,
        frames_per_row=scores.frames_per_row,
        content=None if identity is None else identity.content,
        model=None if identity is None else identity.model,
        calibrated=calibrated,
        stage=None if identity is None else "scored",
    )
    # Only what is said: the file of a model that is read again has the same bytes as before.
    stated = metadata.model_dump_json(exclude={"calibrated"} if not calibrated else None)
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, metadata={_METADATA_KEY: stated})
    write_bytes(path, content.getvalue())


def read_score_metadata(path: Path) -> ScoreMetadata:
    """The metadata of a file that enteron wrote; empty for other files."""
    if path.suffix.lower() != ".parquet":
        return ScoreMetadata()
    content = read_bytes(path, PARQUET_LIMIT, _REMEDY)
    return _metadata(read_footer(content, path.name), path.name)


def is_written_by_enteron(path: Path) -> bool:
    """Whether a file of scores is a model's raw output that `write_scores` wrote."""
    if path.suffix.lower() != ".parquet":
        return False
    content = read_bytes(path, PARQUET_LIMIT, _REMEDY)
    return _METADATA_KEY in read_footer(content, path.name).metadata


def find_score_files(folder: Path) -> dict[str, Path]:
    """Find one file of scores per study: of readings in a folder, or named by the study's id."""
    if not folder.is_dir():
        raise EnteronError(
            f"'{folder.name}' is not a folder", "give a folder with one file of scores per study"
        )
    readings = [f / SCORES for f in sorted(folder.iterdir()) if (f / SCORES).is_file()]
    if readings:
        return _reading_scores(readings)
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
            "give a folder of readings, or of parquet or CSV files, one per study",
        )
    return files


def _reading_scores(files: list[Path]) -> dict[str, Path]:
    """The scores of readings by the study that each file names."""
    by_study: dict[str, Path] = {}
    for path in files:
        study = read_score_metadata(path).study or path.parent.name
        if study in by_study:
            raise EnteronError(
                f"there are two files of scores of study {study}", "keep one of them"
            )
        by_study[require_study_id(study, f"{path.name}: the study's id")] = path
    return by_study


# ---- columns

_Columns = dict[str, NDArray[np.floating[Any]]]
_REMEDY = "give a file of scores that exists"


def _read_columns(path: Path) -> tuple[_Columns, ScoreMetadata]:
    """The columns that scores need, by name, and the file's metadata."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise EnteronError(
            f"{path.name} is neither parquet nor CSV", "give scores as .parquet or .csv"
        )
    if not path.exists():
        raise EnteronError(f"there is no file {path.name}", _REMEDY)
    table, metadata = _parquet(path) if suffix == ".parquet" else (_csv(path), ScoreMetadata())
    if table.height == 0:
        raise EnteronError(f"{path.name} has no rows", "give one row per frame")
    return {name: _floats(table, name, path.name) for name in table.columns}, metadata


def _metadata(footer: Parquet, source: str) -> ScoreMetadata:
    text = footer.metadata.get(_METADATA_KEY)
    if text is None:
        return ScoreMetadata()
    return parse_json_options(ScoreMetadata, text, source, "write the scores again")


def _parquet(path: Path) -> tuple[pl.DataFrame, ScoreMetadata]:
    content = read_bytes(path, PARQUET_LIMIT, _REMEDY)
    footer = read_footer(content, path.name)
    metadata = _metadata(footer, path.name)
    names = _needed_columns(list(footer.columns), path.name, own=metadata.study is not None)
    require_columns(content, footer, names.values(), path.name)
    try:
        table = pl.read_parquet(io.BytesIO(content), columns=list(names.values()))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _unreadable(path, error) from error
    if table.height != footer.rows:
        raise EnteronError(f"{path.name} has fewer rows than it states", "write it again")
    return table.select(pl.col(column).alias(name) for name, column in names.items()), metadata


def _csv(path: Path) -> pl.DataFrame:
    file = read_csv_table(path, "give a table in UTF-8 that you may read", error=EnteronError)
    names = list(_needed_columns(list(file.header), path.name).values())
    table = file.floats(names)
    return file.text(names) if table is None else table  # text, to name the column that is wrong


def _needed_columns(columns: list[str], source: str, *, own: bool = False) -> dict[str, str]:
    """The file's spelling of `frame` or `index`, `time` where it is there, and the 17 labels.

    `own`: a file that enteron wrote, which may say what was encoded.
    """
    spelling = {column.strip(): column for column in columns}
    repeated = [name for name, n in Counter(map(str.strip, columns)).items() if n > 1]
    if repeated:
        raise EnteronError(f"{source} has two columns '{shorten(repeated[0])}'", "keep one of them")
    unit = next((str(unit) for unit in (Unit.FRAME, Unit.INDEX) if unit in spelling), None)
    if unit is None:
        raise EnteronError(
            f"{source} has neither a column 'frame' nor 'index'",
            "add a column with the number of each row's frame",
        )
    for label in LABELS:
        if label not in spelling:
            others = [name for name in spelling if name not in LABELS]
            raise EnteronError(
                f"{source} has no column '{label}'",
                nearest(label, others) if others else "give one column for each of the 17 labels",
            )
    optional = ("time", ENCODED) if own else ("time",)
    stated = [name for name in optional if name in spelling]
    return {name: spelling[name] for name in (unit, *stated, *LABELS)}


def _unreadable(path: Path, error: BaseException) -> EnteronError:
    reason = shorten(str(error).partition("\n")[0], 120)
    return EnteronError(
        f"{path.name} cannot be read ({reason})", "check that it is complete, or write it again"
    )


def _floats(table: pl.DataFrame, column: str, source: str) -> NDArray[np.floating[Any]]:
    """A column of numbers; empty cells become NaN, which `Scores` refuses by frame."""
    try:
        numbers = table[column].cast(pl.Float64)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise EnteronError(
            f"{source}: column '{column}' is not a column of numbers",
            "scores are numbers from 0 to 1",
        ) from error
    if column in LABELS:
        numbers = numbers.cast(pl.Float32)
    return numbers.fill_null(float("nan")).to_numpy()


def _whole_numbers(
    numbers: NDArray[np.floating[Any]], column: str, source: str
) -> NDArray[np.int64]:
    if not (np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)).all():
        raise EnteronError(
            f"{source}: '{column}' is not a whole number in every row",
            "number the rows by frame or by index, from 0",
        )
    if numbers.max() > MAX_FRAME:
        raise EnteronError(
            f"{source}: '{column}' goes up to {numbers.max():g}", "no study has that many frames"
        )
    return numbers.astype(np.int64)

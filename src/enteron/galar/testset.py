"""The challenge's test files: semicolon separated, one row per frame, label cells left empty."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.errors import LabelError
from enteron.study.folder import frame_number

FRAME_FILE = "frame_file"


@dataclass(frozen=True)
class ChallengeFile:
    """The frames that the challenge asks about, in the order of its file."""

    study: str
    frames: NDArray[np.int64]
    columns: tuple[str, ...]  # the label columns as the file names them


def read_challenge_file(path: Path) -> ChallengeFile:
    """Read a test study's CSV; a filled label cell is an error, since nothing would use it."""
    study = path.stem
    try:
        table = pl.read_csv(path, separator=";", infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise LabelError(
            f"the test file of study {study} cannot be read ({str(error).splitlines()[0]})",
            "give the challenge's own CSV, separated by semicolons",
        ) from error
    table = table.rename({name: name.strip() for name in table.columns})
    if table.columns[:1] != [FRAME_FILE]:
        raise LabelError(
            f"the test file of study {study} starts with '{table.columns[0]}'",
            f"its first column is {FRAME_FILE}, and semicolons separate the columns",
        )
    columns = tuple(table.columns[1:])
    filled = table.select(pl.col(columns).str.strip_chars().fill_null("") != "")
    for name in columns:
        if filled[name].any():
            row = int(filled[name].arg_true()[0])
            raise LabelError(
                f"the test file of study {study}, line {row + 2}: '{name}' is filled",
                "test files carry no labels; put labels into a folder named Labels",
            )
    numbers: list[int] = []
    for row, name in enumerate(table[FRAME_FILE]):
        number = frame_number(Path(name or "").name)
        if number is None:
            raise LabelError(
                f"the test file of study {study}, line {row + 2}: '{name}' is no frame's file name",
                "frames are named like frame_0000049.png",
            )
        numbers.append(number)
    frames = np.array(numbers, dtype=np.int64)
    if np.unique(frames).size != frames.size:
        raise LabelError(
            f"the test file of study {study} names a frame twice", "keep one row per frame"
        )
    return ChallengeFile(study, frames, columns)

"""Scores drawn by hand: one character per row."""

import numpy as np

from enteron.labels import COLUMN, LABELS
from enteron.priors import Priors, load_priors
from enteron.types import FrameAxis, Scores


def drawn(line: str) -> np.ndarray:
    """'.' is 0, '#' is 1, a digit is tenths."""
    tenths = {".": 0.0, "#": 1.0, **{str(d): d / 10 for d in range(10)}}
    return np.array([tenths[c] for c in line], dtype=np.float32)


def regions_drawn(line: str, right: float = 0.9, wrong: float = 0.05) -> np.ndarray:
    """(rows, 5) from a line of m, e, s, i, c: that region's probability is high."""
    p = np.full((len(line), 5), wrong, dtype=np.float32)
    for row, letter in enumerate(line):
        p[row, "mesic".index(letter)] = right
    return p


def scores_of(step: int = 1, first: int = 0, study: str = "x", **columns: np.ndarray) -> Scores:
    """Scores of a study; labels with blanks are named with underscores; the others are 0."""
    rows = len(next(iter(columns.values())))
    values = np.zeros((rows, len(LABELS)), dtype=np.float32)
    for name, column in columns.items():
        values[:, COLUMN[name.replace("_", " ")]] = column
    return Scores(study, FrameAxis(first + step * np.arange(rows)), values)


def with_regions(line: str, step: int = 1, **columns: np.ndarray) -> Scores:
    """Scores with drawn regions and further columns."""
    p = regions_drawn(line)
    regions = {name: p[:, column] for column, name in enumerate(LABELS[:5])}
    named = {name.replace(" ", "_"): values for name, values in regions.items()}
    return scores_of(step, 0, "x", **{**named, **columns})


def priors_without(label: str, region: str) -> Priors:
    """The packaged priors, but the region never shows the label."""
    table = load_priors().model_dump()
    table["given_region"]["shares"][region][label] = 0.0
    return Priors.model_validate(table)

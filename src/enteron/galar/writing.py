"""Write studies as Galar and the challenge do, quirks included, for synthetic studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from enteron.files import write_bytes, write_text
from enteron.galar.table import LabelTable
from enteron.galar.testset import FRAME_FILE
from enteron.labels import COLUMN, LABELS, REGIONS

# Column order of the real files, labels outside the 17 among them.
COLUMNS = (
    *("index", "z-line", "pylorus", "ampulla of vater", "ileocecal valve", "section"),
    *("mouth", "esophagus", "stomach", "small intestine", "colon", "ulcer", "polyp"),
    *("active bleeding", "blood", "erythema", "erosion", "angiectasia", "IBD", "foreign body"),
    *("esophagitis", "varices", "hematin", "celiac", "cancer", "lymphangioectasis", "frame"),
)
TECHNICAL = ("bubbles", "dirt", "no view", "reduced view", "good view")
OUTSIDE = tuple(name for name in COLUMNS if name not in {*LABELS, "index", "section", "frame"})


def write_label_table(path: Path, table: LabelTable, *, technical: bool = False) -> None:
    """A label file with all of Galar's columns; six real studies have technical ones in front."""
    rows = len(table)
    region = np.where(
        table.region_counts() == 1, table.values[:, : len(REGIONS)].argmax(axis=1), len(REGIONS)
    )
    cells: dict[str, object] = {
        "index": table.index,
        "frame": table.axis.frames,
        "section": np.array([*REGIONS, ""])[region],
        **{label: table.values[:, COLUMN[label]].astype(np.int8) for label in LABELS},
        **{name: np.zeros(rows, np.int8) for name in (*OUTSIDE, *TECHNICAL)},
        "good view": np.ones(rows, np.int8),
    }
    names = (*TECHNICAL, *COLUMNS) if technical else COLUMNS
    frame = pl.DataFrame({name: cells[name] for name in names})
    write_bytes(path, frame.write_csv().encode())


def write_challenge_file(path: Path, names: Sequence[str]) -> None:
    """A test study's file: a row per image, separated by semicolons, label cells empty.

    It has 22 columns: the 17 labels and four of the labels outside them stand behind the name.
    """
    columns = (FRAME_FILE, *LABELS, *OUTSIDE[:4])
    blank = ";" * (len(columns) - 1)
    lines = [";".join(columns), *(name + blank for name in names)]
    write_text(path, "\n".join(lines) + "\n")


def write_metadata(path: Path, systems: Mapping[str, str]) -> None:
    """metadata.csv of synthetic studies: no patient, and the stray blanks of the real header."""
    lines = ["File Name ,Capsule System , Gender,Age"]
    lines += [f"{study},{system},," for study, system in systems.items()]
    write_text(path, "\n".join(lines) + "\n")

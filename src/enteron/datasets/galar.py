"""Galar's layout on disk, and the challenge's: finding studies, labels and metadata under a root.

The writers at the end make synthetic studies in the same layout.
"""

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.datasets.csv_table import read_csv_table
from enteron.datasets.label_table import (
    Join,
    LabelTable,
    join_labels,
    read_label_table,
    require_fit,
)
from enteron.errors import LabelError, StudyError, shorten
from enteron.files import (
    NO_LIMIT,
    RECORD_LIMIT,
    open_file,
    read_text,
    write_bytes,
    write_text,
)
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.study import VIDEO_SUFFIXES, open_study
from enteron.study.folder import frame_number, is_image_name
from enteron.study.study import Study

FRAME_FILE = "frame_file"  # first column of the challenge's test files

# Columns of metadata.csv, in lower case and without stray blanks.
_NAME, _SYSTEM, _GENDER, _AGE = "file name", "capsule system", "gender", "age"

# Column order of real label files. `OUTSIDE` are labels outside the 17.
COLUMNS = (
    *("index", "z-line", "pylorus", "ampulla of vater", "ileocecal valve", "section"),
    *("mouth", "esophagus", "stomach", "small intestine", "colon", "ulcer", "polyp"),
    *("active bleeding", "blood", "erythema", "erosion", "angiectasia", "IBD", "foreign body"),
    *("esophagitis", "varices", "hematin", "celiac", "cancer", "lymphangioectasis", "frame"),
)
TECHNICAL = ("bubbles", "dirt", "no view", "reduced view", "good view")
OUTSIDE = tuple(name for name in COLUMNS if name not in {*LABELS, "index", "section", "frame"})

_AGE_CELL = re.compile(r"[0-9]{1,3}(\.[0-9]*)?", re.ASCII)
_UPDATED_LABELS = re.compile(r"(?P<date>\d{8})_labels_updated", re.IGNORECASE)
_MAX_DEPTH = 5  # root / archive / the archive's own folder / study, and one more


# ---- Names


def study_id(name: str) -> str:
    """A study's id from the name of its folder or file: 'recording_12', '12.csv' -> '12'."""
    stem = name.strip()
    for suffix in (".csv", *VIDEO_SUFFIXES):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
    return stem.removeprefix("recording_")


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorting key that puts '9' before '10'."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


# ---- Metadata


@dataclass(frozen=True)
class Metadata:
    """What metadata.csv says about a study. Its repr leaves out facts about the patient."""

    study: str
    system: str  # as written in the file, such as 'PillCam SB3'
    gender: str | None = field(default=None, repr=False)
    age: int | None = field(default=None, repr=False)

    @property
    def device(self) -> str:
        """The maker's family, which decides the size, border and colours of the frames."""
        for family in ("pillcam", "olympus", "navicam"):
            if family in self.system.lower():
                return family
        return "unknown"


def read_metadata(path: Path) -> dict[str, Metadata]:
    """Read metadata by study id. Stray blanks in headers and cells are dropped."""
    remedy = "give a CSV file in UTF-8 that you may read"
    lines = read_text(path, RECORD_LIMIT, remedy, error=LabelError).splitlines()
    separator = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
    metadata: dict[str, Metadata] = {}
    for number, cells in enumerate(_dict_rows(lines, separator, path.name), start=2):
        row = {k.strip().lower(): (v or "").strip() for k, v in cells.items() if isinstance(k, str)}
        if _NAME not in row or _SYSTEM not in row:
            raise LabelError(
                f"{path.name} has no column '{_NAME if _NAME not in row else _SYSTEM}'",
                "its columns are File Name, Capsule System, Gender, Age",
            )
        study = study_id(row[_NAME])
        if not study:
            raise LabelError(
                f"{path.name}, line {number}, names no study", "fill its File Name, or remove it"
            )
        if study in metadata:
            raise LabelError(f"{path.name} names study {study} twice", "keep one row per study")
        age = row.get(_AGE, "")
        metadata[study] = Metadata(
            study,
            row[_SYSTEM],
            row.get(_GENDER) or None,
            int(float(age)) if _AGE_CELL.fullmatch(age) else None,
        )
    return metadata


def _dict_rows(lines: list[str], separator: str, source: str) -> Iterator[dict[str | Any, Any]]:
    try:
        yield from csv.DictReader(lines, delimiter=separator)
    except csv.Error as error:  # a cell of more than 128 kB
        raise LabelError(
            f"{source} is not a table ({error})", "give a CSV file with a row per study"
        ) from error


# ---- Studies of a data root


@dataclass(frozen=True)
class Entry:
    """One study of a data root: its images, its labels, or both."""

    id: str
    images: Path | None = None  # folder of frames, or video file
    labels: Path | None = None
    updated: bool = False  # the labels are the corrected ones
    template: Path | None = None  # the test set's file, separated by semicolons
    metadata: Metadata | None = None

    def open(self) -> Study:
        if self.images is None:
            raise StudyError(
                f"study {self.id} has no images under this root", "download its archive of frames"
            )
        return open_study(self.images, study_id=self.id)

    def table(self) -> LabelTable:
        if self.labels is None:
            raise LabelError(
                f"study {self.id} has no labels under this root",
                "put its CSV into a folder named Labels",
            )
        return read_label_table(self.labels, study=self.id, updated=self.updated)

    def join(self) -> Join:
        """Join labels with images on the frame number; refused when they do not fit."""
        table, images = self.table(), self.open().numbers
        join = join_labels(table, images)
        require_fit(join, table, images)
        return join


def find_studies(root: Path) -> dict[str, Entry]:
    """Find every study under a root, by id in natural order.

    Folders are searched, not computed from archive names (no archive's range has study 30).
    Corrected labels replace the original ones; of several corrections the newest is used.
    """
    if not root.is_dir():
        raise StudyError(f"there is no folder '{root.name}'", "give the root of the data")
    files = _Files()
    _scan(root, files, _MAX_DEPTH)
    updated_labels: dict[str, Path] = {}
    for date in sorted(files.updated_labels):
        updated_labels.update(files.updated_labels[date])
    metadata_path = _only(files.metadata, "metadata files")
    metadata = {} if metadata_path is None else read_metadata(metadata_path)
    ids = {*files.images, *files.labels, *updated_labels, *files.templates}
    return {
        study: Entry(
            id=study,
            images=_only(files.images.get(study, []), f"images of study {study}"),
            labels=updated_labels.get(study)
            or _only(files.labels.get(study, []), f"labels of study {study}"),
            updated=study in updated_labels,
            template=_only(files.templates.get(study, []), f"test file of study {study}"),
            metadata=metadata.get(study),
        )
        for study in sorted(ids, key=natural_key)
    }


def find_labels(folder: Path) -> dict[str, Path]:
    """Find the label files of a folder that holds nothing else, by study id."""
    files = {study_id(path.name): path for path in folder.iterdir() if _is_csv(path.name)}
    return {study: files[study] for study in sorted(files, key=natural_key) if study != "metadata"}


@dataclass
class _Files:
    """Files under a root; those of a study by its id."""

    images: dict[str, list[Path]] = field(default_factory=dict)
    labels: dict[str, list[Path]] = field(default_factory=dict)
    updated_labels: dict[str, dict[str, Path]] = field(default_factory=dict)  # by date, then id
    templates: dict[str, list[Path]] = field(default_factory=dict)
    metadata: list[Path] = field(default_factory=list)


def _scan(folder: Path, files: _Files, depth: int) -> None:
    """Add what a folder and its subfolders hold, `depth` levels down."""
    name = folder.name
    if name.lower() == "labels":
        for study, path in find_labels(folder).items():
            files.labels.setdefault(study, []).append(path)
        return
    if match := _UPDATED_LABELS.fullmatch(name):
        files.updated_labels.setdefault(match["date"], {}).update(find_labels(folder))
        return
    subfolders: list[Path] = []
    for entry in _visible_entries(folder):
        lower = entry.name.lower()
        if entry.is_dir():
            subfolders.append(Path(entry.path))
        elif is_image_name(entry.name):
            # A folder of frames. Stopping here saves listing up to 130,000 names per study.
            files.images.setdefault(study_id(name), []).append(folder)
            return
        elif lower == "metadata.csv":
            files.metadata.append(Path(entry.path))
        elif lower.endswith(VIDEO_SUFFIXES):
            files.images.setdefault(study_id(entry.name), []).append(Path(entry.path))
        elif _is_csv(entry.name) and _is_challenge_file(Path(entry.path)):
            files.templates.setdefault(study_id(entry.name), []).append(Path(entry.path))
    if depth:
        for subfolder in sorted(subfolders):
            _scan(subfolder, files, depth - 1)


def _visible_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except PermissionError as error:
        raise StudyError(
            f"the folder '{folder.name}' cannot be read ({error.strerror})",
            "ask for the right to read it",
        ) from error
    with entries:
        yield from (entry for entry in entries if not entry.name.startswith("."))


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv") and not name.startswith(".")


def _is_challenge_file(path: Path) -> bool:
    remedy = "move it out of the folder"
    with open_file(path, NO_LIMIT, remedy, error=LabelError) as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf").startswith(FRAME_FILE.encode())


def _only(paths: list[Path], what: str) -> Path | None:
    """The only one of the paths, or None; several are refused."""
    if len(paths) > 1:
        first, second = (f"'{p.parent.name}/{p.name}'" for p in sorted(paths)[:2])
        raise StudyError(f"the {what} are there twice, in {first} and {second}", "keep one of them")
    return paths[0] if paths else None


# ---- The challenge's test files


@dataclass(frozen=True)
class ChallengeFile:
    """The frames that the challenge asks for, in the order of its file."""

    study: str
    frames: NDArray[np.int64]
    columns: tuple[str, ...]  # label columns as named in the file


def read_challenge_file(path: Path) -> ChallengeFile:
    """Read a test study's CSV. Its label cells must be empty: filled ones would not be used."""
    study = path.stem
    source = f"the test file of study {study}"
    remedy = "give the challenge's own CSV, separated by semicolons"
    file = read_csv_table(path, remedy, source=source, separator=";")
    first, *others = file.header or ("",)
    if first != FRAME_FILE:
        raise LabelError(
            f"{source} starts with '{shorten(first)}'",
            f"its first column is {FRAME_FILE}, and semicolons separate the columns",
        )
    if len(set(others)) < len(others):
        raise LabelError(f"{source} has two columns of one name", remedy)
    table, columns = file.text(file.header), tuple(others)
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
                f"{source}, line {row + 2}: '{shorten(name or '')}' is no frame's file name",
                "frames are named like frame_0000049.png",
            )
        numbers.append(number)
    frames = np.array(numbers, dtype=np.int64)
    if np.unique(frames).size != frames.size:
        raise LabelError(
            f"the test file of study {study} names a frame twice", "keep one row per frame"
        )
    return ChallengeFile(study, frames, columns)


# ---- Writing the same layout


def write_label_table(path: Path, table: LabelTable, *, technical: bool = False) -> None:
    """Write a label file with Galar's columns; six real studies have `technical` ones too."""
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
    """Write a test study's file: a row per image, separated by semicolons, label cells empty.

    It has 22 columns: the name, the 17 labels and four of the labels outside them.
    """
    columns = (FRAME_FILE, *LABELS, *OUTSIDE[:4])
    empty_cells = ";" * (len(columns) - 1)
    lines = [";".join(columns), *(name + empty_cells for name in names)]
    write_text(path, "\n".join(lines) + "\n")


def write_metadata(path: Path, systems: Mapping[str, str]) -> None:
    """Write metadata.csv of synthetic studies: no patient, and the real header's stray blanks."""
    lines = ["File Name ,Capsule System , Gender,Age"]
    lines += [f"{study},{system},," for study, system in systems.items()]
    write_text(path, "\n".join(lines) + "\n")

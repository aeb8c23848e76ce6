"""Galar's layout on disk, and the challenge's: finding studies, labels and metadata under a root.

The writers at the end make synthetic studies in the same layout.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.datasets.csv_table import read_csv_table
from enteron.datasets.dataset import Box, LabelledFrames
from enteron.datasets.label_table import (
    Join,
    LabelTable,
    join_labels,
    read_label_table,
    require_fit,
)
from enteron.errors import LabelError, StudyError, quantity, shorten
from enteron.files import (
    NO_LIMIT,
    RECORD_LIMIT,
    open_file,
    read_text,
    write_bytes,
    write_text,
)
from enteron.ids import natural_key, require_study_id
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.study import VIDEO_SUFFIXES, open_study
from enteron.study.folder import frame_number
from enteron.study.ignored import Ignored
from enteron.study.naming import study_name
from enteron.study.search import ignore_files, search
from enteron.study.study import Study
from enteron.types import FrameLabels

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
NOT_LABELS = "in a folder of labels, but no CSV file"  # reason for which a file is ignored


# ---- Names


def study_id(name: str) -> str:
    """A study's id from the name of its folder or file: 'recording_12', '12.csv' -> '12'."""
    stem = name.strip()
    for suffix in (".csv", *VIDEO_SUFFIXES):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
    return study_name(stem)


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
        require_study_id(study, f"{path.name}, line {number}: the study's name", LabelError)
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

    def join(self, pictures: Study | None = None) -> Join:
        """Join labels with images on the frame number; refused when they do not fit."""
        table, images = self.table(), (pictures or self.open()).numbers
        join = join_labels(table, images)
        require_fit(join, table, images)
        return join

    @property
    def device(self) -> str | None:
        """The capsule system, as `metadata.csv` names it."""
        return None if self.metadata is None else self.metadata.system

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        """The joined labels, all of them known."""
        join = self.join(pictures)
        return LabelledFrames(join.frames, FrameLabels.complete(join.values))

    def boxes(self) -> tuple[Box, ...]:
        """None: Galar has no boxes."""
        return ()


class Catalogue(dict[str, Entry]):
    """The studies of a data root by id, in natural order, and what else lies there."""

    def __init__(self, entries: Mapping[str, Entry], ignored: Ignored) -> None:
        super().__init__(entries)
        self.ignored = ignored

    def labelled(self) -> dict[str, Entry]:
        """Studies with images and labels."""
        return {study: entry for study, entry in self.items() if entry.images and entry.labels}

    def left_out(self) -> list[str]:
        """What a use of `labelled` leaves out: studies that are incomplete, and other files."""
        return [
            *_incomplete([e.id for e in self.values() if not e.labels], "no labels"),
            *_incomplete([e.id for e in self.values() if e.labels and not e.images], "no images"),
            *self.ignored.sentences(),
        ]


def find_studies(root: Path) -> Catalogue:
    """Find studies, labels and metadata under a root, in any of the known layouts.

    Names of folders and files are the ids here, since labels and splits refer to them. Whatever is
    neither is listed as ignored. A study that is there twice is refused.
    """
    files = search_root(root)
    ids = {*files.images, *files.labels, *files.templates}
    metadata = {} if files.metadata is None else read_metadata(files.metadata)
    for study in ids:
        require_study_id(study, f"in '{root.name}', the study's name", StudyError)
    entries = {
        study: Entry(
            id=study,
            images=only_path(files.images.get(study, []), f"images of study {study}"),
            labels=files.labels.get(study),
            updated=study in files.updated,
            template=only_path(files.templates.get(study, []), f"test file of study {study}"),
            metadata=metadata.get(study),
        )
        for study in sorted(ids, key=natural_key)
    }
    return Catalogue(entries, files.ignored)


def _incomplete(studies: list[str], what: str, most: int = 5) -> list[str]:
    if not studies:
        return []
    shown = ", ".join(studies[:most]) + (", …" if len(studies) > most else "")
    return [f"{quantity(len(studies), 'study', 'studies')} ({shown}): {what}"]


def find_labels(folder: Path, ignored: Ignored | None = None) -> dict[str, Path]:
    """Find the label files of a folder that holds nothing else, by study id."""
    files: dict[str, Path] = {}
    for path in folder.iterdir():
        study = study_id(path.name)
        if not _is_csv(path.name):
            if ignored is not None:
                ignored.add_file(NOT_LABELS, f"{folder.name}/{path.name}")
        elif study != "metadata":
            require_study_id(study, f"in '{folder.name}', the study's name", LabelError)
            files[study] = path
    return {study: files[study] for study in sorted(files, key=natural_key)}


@dataclass
class RootFiles:
    """Files under a root; those of a study by its id."""

    images: dict[str, list[Path]] = field(default_factory=dict)
    labels: dict[str, Path] = field(default_factory=dict)
    updated: set[str] = field(default_factory=set)  # studies whose labels are the corrected ones
    templates: dict[str, list[Path]] = field(default_factory=dict)
    metadata: Path | None = None
    ignored: Ignored = field(default_factory=Ignored)


def search_root(root: Path) -> RootFiles:
    """Find every study under a root and every file that belongs to one; the rest is listed."""
    found = search(root, _is_label_folder)
    files = RootFiles(ignored=found.ignored)
    for path in found.studies:
        files.images.setdefault(study_id(path.name), []).append(path)
    _find_labels_of(found.label_folders, files)
    metadata: list[Path] = []
    unknown: list[Path] = []
    for path in found.other_files:
        if path.name.lower() == "metadata.csv":
            metadata.append(path)
        elif _is_csv(path.name) and _is_challenge_file(path):
            files.templates.setdefault(study_id(path.name), []).append(path)
        else:
            unknown.append(path)
    files.metadata = only_path(metadata, "metadata files")
    ignore_files(files.ignored, unknown, root)
    return files


def _is_label_folder(name: str) -> bool:
    return name.lower() == "labels" or _UPDATED_LABELS.fullmatch(name) is not None


def _find_labels_of(folders: Sequence[Path], files: RootFiles) -> None:
    """Label files by study: corrected ones, the newest of them, before the original ones."""
    original: dict[str, list[Path]] = {}
    corrected: dict[str, list[Path]] = {}  # by the date of the correction
    for folder in folders:
        if match := _UPDATED_LABELS.fullmatch(folder.name):
            corrected.setdefault(match["date"], []).append(folder)
            continue
        for study, path in find_labels(folder, files.ignored).items():
            original.setdefault(study, []).append(path)
    updated: dict[str, Path] = {}
    for date in sorted(corrected):
        for folder in corrected[date]:
            updated.update(find_labels(folder, files.ignored))
    for study, paths in original.items():
        if study not in updated:
            path = only_path(paths, f"labels of study {study}")
            assert path is not None  # there is at least one
            files.labels[study] = path
    files.labels.update(updated)
    files.updated = set(updated)


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv") and not name.startswith(".")


def _is_challenge_file(path: Path) -> bool:
    try:
        with open_file(path, NO_LIMIT, "move it out of the folder", error=LabelError) as file:
            start = file.read(64)
    except LabelError:
        return False  # it is listed among the files that were not read
    return start.lstrip(b"\xef\xbb\xbf").startswith(FRAME_FILE.encode())


def only_path(paths: list[Path], what: str) -> Path | None:
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

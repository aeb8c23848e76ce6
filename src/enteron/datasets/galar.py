"""Find what a data root holds: studies, labels, metadata, in every layout they come in."""

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enteron.datasets.label_table import (
    Join,
    LabelTable,
    join_labels,
    read_label_table,
    require_fit,
)
from enteron.errors import LabelError, StudyError
from enteron.files import write_bytes, write_text
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.study import VIDEO_SUFFIXES, open_study
from enteron.study.folder import frame_number, is_image_name
from enteron.study.study import Study

SYSTEM, NAME, GENDER, AGE = "capsule system", "file name", "gender", "age"


@dataclass(frozen=True)
class Metadata:
    """What is known about a study. Facts about the patient stay out of its printed form."""

    study: str
    system: str  # as the file has it, such as 'PillCam SB3'
    gender: str | None = field(default=None, repr=False)
    age: int | None = field(default=None, repr=False)

    @property
    def device(self) -> str:
        """The maker's family, which decides size, border and colours of the frames."""
        for family in ("pillcam", "olympus", "navicam"):
            if family in self.system.lower():
                return family
        return "unknown"


def read_metadata(path: Path) -> dict[str, Metadata]:
    """Metadata by study id. Headers and cells have stray blanks, which are dropped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(
            f"{path.name} cannot be read ({error})", "give a CSV file in UTF-8"
        ) from error
    lines = text.splitlines()
    separator = ";" if lines and lines[0].count(";") > lines[0].count(",") else ","
    found: dict[str, Metadata] = {}
    for number, cells in enumerate(csv.DictReader(lines, delimiter=separator), start=2):
        row = {k.strip().lower(): (v or "").strip() for k, v in cells.items() if isinstance(k, str)}
        if NAME not in row or SYSTEM not in row:
            raise LabelError(
                f"{path.name} has no column '{NAME if NAME not in row else SYSTEM}'",
                "its columns are File Name, Capsule System, Gender, Age",
            )
        study = study_id(row[NAME])
        if not study:
            raise LabelError(
                f"{path.name}, line {number}, names no study", "fill its File Name, or remove it"
            )
        if study in found:
            raise LabelError(f"{path.name} names study {study} twice", "keep one row per study")
        age = row.get(AGE, "")
        found[study] = Metadata(
            study,
            row[SYSTEM],
            row.get(GENDER) or None,
            int(float(age)) if age.replace(".", "", 1).isdigit() else None,
        )
    return found


def study_id(name: str) -> str:
    """A study's id from the name of its folder or file: 'recording_12', '12.csv' -> '12'."""
    stem = name.strip()
    for suffix in (".csv", ".mp4", ".mpg", ".avi", ".mkv"):
        stem = stem.removesuffix(suffix)
    return stem.removeprefix("recording_")


_UPDATED = re.compile(r"(?P<date>\d{8})_labels_updated", re.IGNORECASE)
_DEPTH = 5  # root / archive / archive's own folder / study, and one to spare


@dataclass(frozen=True)
class Entry:
    """One study of a data root: its images, its labels, or both."""

    id: str
    images: Path | None = None  # folder of frames, or video file
    labels: Path | None = None
    updated: bool = False  # the labels are the corrected ones
    template: Path | None = None  # the test set's semicolon file
    metadata: Metadata | None = None

    def open(self) -> Study:
        if self.images is None:
            raise StudyError(
                f"study {self.id} has no images under this root", "fetch its archive of frames"
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
        """Labels joined with images on the frame number; refused when they do not fit."""
        table, images = self.table(), self.open().numbers
        join = join_labels(table, images)
        require_fit(join, table, images)
        return join


@dataclass
class _Found:
    images: dict[str, list[Path]] = field(default_factory=dict)
    labels: dict[str, list[Path]] = field(default_factory=dict)
    updated: dict[str, dict[str, Path]] = field(default_factory=dict)  # date -> id -> file
    templates: dict[str, list[Path]] = field(default_factory=dict)
    metadata: list[Path] = field(default_factory=list)


def find_studies(root: Path) -> dict[str, Entry]:
    """Every study under a root by id, in natural order.

    Studies are found by looking, not by arithmetic on archive names (none covers study 30).
    Corrected labels win over the original ones; the newest correction wins over older ones.
    """
    if not root.is_dir():
        raise StudyError(f"there is no folder '{root.name}'", "give the root of the data")
    found = _Found()
    _scan(root, found, _DEPTH)
    corrected: dict[str, Path] = {}
    for date in sorted(found.updated):
        corrected.update(found.updated[date])
    sheet = _only(found.metadata, "metadata files")
    metadata = {} if sheet is None else read_metadata(sheet)
    ids = {*found.images, *found.labels, *corrected, *found.templates}
    return {
        study: Entry(
            id=study,
            images=_only(found.images.get(study, []), f"images of study {study}"),
            labels=corrected.get(study)
            or _only(found.labels.get(study, []), f"labels of study {study}"),
            updated=study in corrected,
            template=_only(found.templates.get(study, []), f"test file of study {study}"),
            metadata=metadata.get(study),
        )
        for study in sorted(ids, key=natural)
    }


def find_labels(folder: Path) -> dict[str, Path]:
    """The label files of a folder that holds nothing else, by study id."""
    files = {study_id(path.name): path for path in folder.iterdir() if _is_csv(path.name)}
    return {study: files[study] for study in sorted(files, key=natural) if study != "metadata"}


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sorting key that puts '9' before '10'."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]


def _scan(folder: Path, found: _Found, depth: int) -> None:
    name = folder.name
    if name.lower() == "labels":
        for study, path in find_labels(folder).items():
            found.labels.setdefault(study, []).append(path)
        return
    if match := _UPDATED.fullmatch(name):
        found.updated.setdefault(match["date"], {}).update(find_labels(folder))
        return
    folders: list[Path] = []
    for entry in _visible(folder):
        lower = entry.name.lower()
        if entry.is_dir():
            folders.append(Path(entry.path))
        elif is_image_name(entry.name):
            # A folder of frames. Looking no further saves listing 130,000 names per study.
            found.images.setdefault(study_id(name), []).append(folder)
            return
        elif lower == "metadata.csv":
            found.metadata.append(Path(entry.path))
        elif lower.endswith(VIDEO_SUFFIXES):
            found.images.setdefault(study_id(entry.name), []).append(Path(entry.path))
        elif _is_csv(entry.name) and _is_template(Path(entry.path)):
            found.templates.setdefault(study_id(entry.name), []).append(Path(entry.path))
    if depth:
        for inner in sorted(folders):
            _scan(inner, found, depth - 1)


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(folder)
    except PermissionError as error:
        raise StudyError(
            f"the folder '{folder.name}' may not be read", "give yourself the right to read it"
        ) from error
    with entries:
        yield from (entry for entry in entries if not entry.name.startswith("."))


def _is_csv(name: str) -> bool:
    return name.lower().endswith(".csv") and not name.startswith(".")


def _is_template(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf").startswith(b"frame_file")


def _only(paths: list[Path], what: str) -> Path | None:
    if len(paths) > 1:
        first, second = (f"'{p.parent.name}/{p.name}'" for p in sorted(paths)[:2])
        raise StudyError(f"the {what} are there twice, in {first} and {second}", "keep one of them")
    return paths[0] if paths else None


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

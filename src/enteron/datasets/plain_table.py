"""Your own frames: `frames.csv` with a row per frame and a column per label, `boxes.csv` beside it.

docs/data.md, "Your own frames", has examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.dataset import Box, LabelledFrames, StatedBox, boxes_in_pictures
from enteron.datasets.text_table import TextTable, shown
from enteron.errors import LabelError, StudyError, nearest
from enteron.labels import COLUMN, LABELS
from enteron.study import VIDEO_SUFFIXES, open_study
from enteron.study.folder import frame_number
from enteron.study.pictures import PictureStudy
from enteron.study.study import Study
from enteron.types import FrameLabels

FRAMES: Final = "frames.csv"
BOXES: Final = "boxes.csv"
_BOX_COLUMNS: Final = ("study", "label", "x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class TableStudy:
    """The rows of one study."""

    id: str
    folder: Path  # of the table
    frames: NDArray[np.int64]  # as in the table
    present: NDArray[np.bool_]
    known: NDArray[np.bool_]
    files: Mapping[int, Path] | None  # by frame; None: a folder or video named like the study
    stated_boxes: tuple[StatedBox, ...] = ()
    device: str | None = None

    def open(self) -> Study:
        if self.files is not None:
            numbers = np.array(sorted(self.files), dtype=np.int64)
            return PictureStudy(self.id, numbers, [self.files[n] for n in numbers.tolist()])
        for path in (
            self.folder / self.id,
            *(self.folder / f"{self.id}{s}" for s in VIDEO_SUFFIXES),
        ):
            if path.exists():
                return open_study(path, study_id=self.id)
        raise StudyError(
            f"study {self.id} has rows and no pictures",
            f"put them into a folder '{self.id}' beside the table, or add a column 'file'",
        )

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        order = np.argsort(self.frames)
        missing = np.setdiff1d(self.frames, (pictures or self.open()).numbers)
        if missing.size:
            raise LabelError(
                f"study {self.id} has no picture of frame {missing[0]}"
                + (f" and of {missing.size - 1} others" if missing.size > 1 else ""),
                "copy the pictures again, or remove these rows from the table",
            )
        return LabelledFrames(self.frames[order], self.labels[order])

    def boxes(self) -> tuple[Box, ...]:
        return boxes_in_pictures(self.open(), self.stated_boxes)

    @cached_property
    def labels(self) -> FrameLabels:
        """The labels in the order of `frames`."""
        return FrameLabels(self.present, self.known)


@dataclass
class _Rows:
    """What the table says about one study."""

    row_of: dict[int, int] = field(default_factory=dict)  # of each frame, in the table
    files: dict[int, Path] = field(default_factory=dict)
    boxes: list[StatedBox] = field(default_factory=list)


def read_plain_table(path: Path) -> dict[str, TableStudy]:
    """Read a table of frames, and `boxes.csv` beside it where there is one."""
    table = TextTable(path)
    table.require_columns(("study",), ("frame", "file", *LABELS))
    labels = [label for label in LABELS if label in table]
    if not labels:
        raise LabelError(
            f"{table.name} has no label column",
            f"add at least one of the 17 labels, such as '{LABELS[-1]}'",
        )
    if "frame" not in table and "file" not in table:
        raise LabelError(
            f"{table.name} has neither a column 'frame' nor 'file'",
            "add the number of each frame, or the path of its picture",
        )
    table.require_rows()
    present, known = _cells(table, labels)
    studies = _rows_by_study(table, path.parent, present, known)
    boxes = path.parent / BOXES
    if boxes.is_file():
        _read_boxes(boxes, studies, present)
    return {
        study: TableStudy(
            study,
            path.parent,
            np.array(list(rows.row_of), dtype=np.int64),
            present[list(rows.row_of.values())],
            known[list(rows.row_of.values())],
            rows.files if "file" in table else None,
            tuple(rows.boxes),
        )
        for study, rows in studies.items()
    }


def _cells(table: TextTable, labels: list[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(rows, 17) what is present and what is known; labels without a column are unknown."""
    present = np.zeros((len(table), len(LABELS)), dtype=np.bool_)
    known = np.zeros_like(present)
    for label in labels:
        cells = np.array(table.column(label))
        is_present, is_absent = cells == "1", cells == "0"
        wrong = np.flatnonzero(~(is_present | is_absent | (cells == "")))
        if wrong.size:
            row = int(wrong[0])
            raise LabelError(
                f"{table.where(row)}: '{label}' is {shown(str(cells[row]))}",
                "write 1 (present), 0 (absent) or nothing (unknown)",
            )
        present[:, COLUMN[label]] = is_present
        known[:, COLUMN[label]] = is_present | is_absent
    return present, known


def _rows_by_study(
    table: TextTable, folder: Path, present: NDArray[np.bool_], known: NDArray[np.bool_]
) -> dict[str, _Rows]:
    frames = _frames(table)
    files = _files(table, folder) if "file" in table else None
    studies: dict[str, _Rows] = {}
    for row, (study, frame) in enumerate(zip(table.column("study"), frames, strict=True)):
        _require_study_name(study, table.where(row))
        rows = studies.setdefault(study, _Rows())
        if frame in rows.row_of:
            first = rows.row_of[frame]
            same = (present[row] == present[first]).all() and (known[row] == known[first]).all()
            raise LabelError(
                f"{table.where(row)}: frame {frame} of study {study} is there twice"
                + ("" if same else f", with other labels in line {first + 2}"),
                "keep one row for each frame",
            )
        rows.row_of[frame] = row
        if files is not None:
            rows.files[frame] = files[row]
    return studies


def _frames(table: TextTable) -> list[int]:
    """Frame numbers: of the column `frame`, else the number at the end of each file's name."""
    if "frame" in table:
        return table.frame_numbers("frame")
    frames: list[int] = []
    for row, file in enumerate(table.column("file")):
        number = frame_number(PurePosixPath(file).name)
        if number is None:
            raise LabelError(
                f"{table.where(row)}: the file {shown(file)} does not end in a frame number",
                "add a column 'frame', or name pictures like frame_000001.png",
            )
        frames.append(number)
    return frames


def _files(table: TextTable, folder: Path) -> list[Path]:
    """The picture of every row: a path relative to the table, inside its folder."""
    files: list[Path] = []
    for row, text in enumerate(table.column("file")):
        relative = PurePosixPath(text.replace("\\", "/"))
        if not text or relative.is_absolute() or ".." in relative.parts:
            raise LabelError(
                f"{table.where(row)}: 'file' is {shown(text)}",
                "give a path relative to the table, inside its folder",
            )
        path = folder / relative
        if not path.is_file():
            raise LabelError(
                f"{table.where(row)}: there is no picture {shown(text)}",
                "give paths relative to the table",
            )
        files.append(path)
    return files


def _require_study_name(study: str, where: str) -> None:
    if not study or "/" in study or "\\" in study or study.startswith("."):
        raise LabelError(
            f"{where}: 'study' is {shown(study)}",
            "give a name without slashes that does not begin with a dot",
        )


def _read_boxes(path: Path, studies: dict[str, _Rows], present: NDArray[np.bool_]) -> None:
    """Add the boxes of `boxes.csv` to the studies' rows."""
    table = TextTable(path)
    table.require_columns(_BOX_COLUMNS, ("frame", "file"))
    if "frame" not in table and "file" not in table:
        raise LabelError(
            f"{table.name} has neither a column 'frame' nor 'file'",
            "name the frame of each box as the other table does",
        )
    frames = _frames(table)
    corners = [table.column(name) for name in ("x1", "y1", "x2", "y2")]
    cells = zip(table.column("study"), frames, table.column("label"), strict=True)
    for row, (study, frame, label) in enumerate(cells):
        where = table.where(row)
        rows = studies.get(study)
        if rows is None or frame not in rows.row_of:
            raise LabelError(
                f"{where}: frame {frame} of study {shown(study)} is not in {FRAMES}",
                "add the frame to that table, or remove the box",
            )
        if label not in COLUMN:
            raise LabelError(f"{where}: 'label' is {shown(label)}", nearest(label, LABELS))
        if not present[rows.row_of[frame], COLUMN[label]]:
            raise LabelError(
                f"{where}: a box of '{label}' is on a frame that {FRAMES} does not say shows it",
                f"set '{label}' to 1 there, or remove the box",
            )
        x1, y1, x2, y2 = (
            table.pixel(row, name, column[row])
            for name, column in zip(("x1", "y1", "x2", "y2"), corners, strict=True)
        )
        rows.boxes.append(StatedBox(frame, label, x1, y1, x2, y2, where))

"""Kvasir-Capsule (Smedsrud et al. 2021): class folders or archives, or one folder per video.

Two layouts are read. The official one has `metadata.csv` and `labelled_images/` with a folder or an
archive per class. The other one sorts the same pictures by video: VIDEO/frame_NNNNNN.jpg beside
VIDEO.csv with the columns frame, classes and boxes.

A picture says something about some labels only; docs/data.md has the table.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from enteron.datasets.dataset import Box, LabelledFrames, StatedBox, boxes_in_pictures
from enteron.datasets.text_table import TextTable, header_of, shown
from enteron.errors import LabelError, StudyError, nearest, quantity
from enteron.labels import COLUMN, FINDINGS, LABELS
from enteron.study import open_study
from enteron.study.archive import archive_stem, archived_pictures, is_archive_name
from enteron.study.folder import frame_number, is_image_name
from enteron.study.pictures import PictureSource, PictureStudy
from enteron.study.study import Study
from enteron.types import FrameLabels

TITLE: Final = "Kvasir-Capsule"
RECORDING_FRAMES: Final = 4_741_504 // 117
"""Frames of a video in the mean (Smedsrud et al. 2021, 117 videos). The labelled ones are few, and
have the lesions."""
DEVICE: Final = "Olympus EC-S10"

METADATA: Final = "metadata.csv"
PICTURES: Final = "labelled_images"
_COLUMNS: Final = ("filename", "video_id", "frame_number", "finding_class")
_CORNERS: Final = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")
_VIDEO_COLUMNS: Final = ("frame", "classes", "boxes")

NORMAL: Final = "Normal clean mucosa"
CLASSES: Final = {
    "Angiectasia": "angiectasia",
    "Blood - fresh": "blood",
    "Blood - hematin": "hematin",
    "Erosion": "erosion",
    "Erythema": "erythema",
    "Lymphangiectasia": "lymphangioectasis",
    "Polyp": "polyp",
    "Ulcer": "ulcer",
    "Ileocecal valve": "ileocecal valve",
    "Pylorus": "pylorus",
    NORMAL: None,
    "Ampulla of Vater": None,
    "Foreign body": None,
    "Reduced mucosal view": None,
}
"""Each class of the dataset with the label that it shows, if it is one of the 17."""

ABSENT_REGIONS: Final = ("mouth", "esophagus")
"""These are studies of the small bowel: hardly any labelled picture shows one of these. Which of
the other regions a picture shows is unknown."""

ANNOTATED_SIZE: Final = 336
"""Boxes are in pixels of the original pictures of 336 x 336, whatever the size of the stored."""

SLACK: Final = 0.05
"""Share of a side by which published boxes may exceed the picture: some do, by up to 13 pixels.
They are cut off at the border. A box further outside is an error."""


def _plain(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", name.strip().lower()))


_CLASS_OF: Final = {_plain(name): name for name in CLASSES}


def class_name(text: str, where: str) -> str:
    """The dataset's class behind a spelling of it; folders and archives have several."""
    name = _CLASS_OF.get(_plain(text))
    if name is None:
        raise LabelError(
            f"{where}: {shown(text)} is not a class of {TITLE}", nearest(text, CLASSES)
        )
    return name


# ---- Labels of classes


@dataclass
class _Annotation:
    """What the rows of one video say about its frames."""

    classes: dict[int, set[str]] = field(default_factory=dict)
    boxes: list[StatedBox] = field(default_factory=list)

    def add(self, frame: int, classes: Iterable[str]) -> None:
        self.classes.setdefault(frame, set()).update(classes)

    def labelled_frames(self, study: str) -> LabelledFrames:
        frames = sorted(self.classes)
        present = np.zeros((len(frames), len(LABELS)), dtype=np.bool_)
        known = np.zeros_like(present)
        known[:, [COLUMN[region] for region in ABSENT_REGIONS]] = True
        findings = [COLUMN[label] for label in FINDINGS]
        for row, frame in enumerate(frames):
            classes = self.classes[frame]
            columns = [COLUMN[label] for name in classes if (label := CLASSES[name]) is not None]
            if NORMAL in classes:
                contradiction = next((c for c in sorted(classes) if CLASSES[c] in FINDINGS), None)
                if contradiction is not None:
                    raise LabelError(
                        f"frame {frame} of video {study} is both '{NORMAL}' and '{contradiction}'",
                        "correct one of its rows",
                    )
                known[row, findings] = True
            present[row, columns] = known[row, columns] = True
        return LabelledFrames(np.array(frames, dtype=np.int64), FrameLabels(present, known))


def _box(frame: int, name: str, corners: list[float], where: str) -> StatedBox:
    """A box from four corners x, y, which are those of a rectangle along the axes."""
    xs, ys = corners[::2], corners[1::2]
    return StatedBox(
        frame, CLASSES[name] or name.lower(), min(xs), min(ys), max(xs), max(ys), where
    )


def _boxes_in_pictures(study: Study, boxes: Iterable[StatedBox]) -> tuple[Box, ...]:
    return boxes_in_pictures(study, boxes, original=ANNOTATED_SIZE, slack=SLACK)


# ---- One folder per video


def video_tables(root: Path) -> dict[str, Path]:
    """The tables of a root that is sorted by video, by video; empty for any other root."""
    return {
        path.stem: path
        for path in sorted(root.glob("*.csv"))
        if not path.name.startswith(".") and header_of(path)[:3] == list(_VIDEO_COLUMNS)
    }


@dataclass(frozen=True)
class VideoFolder:
    """A video as a folder of frames and a table beside it."""

    id: str
    folder: Path
    table: Path
    device: str | None = DEVICE

    def open(self) -> Study:
        if not self.folder.is_dir():
            raise StudyError(
                f"video {self.id} has a table and no folder of frames",
                f"put its pictures into a folder '{self.id}' beside {self.table.name}",
            )
        return open_study(self.folder, study_id=self.id)

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        labelled = self._annotation.labelled_frames(self.id)
        missing = np.setdiff1d(labelled.frames, (pictures or self.open()).numbers)
        if missing.size:
            raise LabelError(
                f"{self.table.name} names frame {missing[0]}, which has no picture"
                + (f" ({missing.size} frames have none)" if missing.size > 1 else ""),
                "copy the pictures again, or remove these rows",
            )
        return labelled

    def boxes(self) -> tuple[Box, ...]:
        return _boxes_in_pictures(self.open(), self._annotation.boxes)

    @cached_property
    def _annotation(self) -> _Annotation:
        table = TextTable(self.table)
        table.require_columns(_VIDEO_COLUMNS, ())
        table.require_rows()
        annotation = _Annotation()
        cells = zip(
            table.frame_numbers("frame"), table.column("classes"), table.column("boxes"),
            strict=True,
        )  # fmt: skip
        for row, (frame, classes, boxes) in enumerate(cells):
            where = table.where(row)
            names = {class_name(name, where) for name in classes.split(";")}
            annotation.add(frame, names)
            for text in filter(None, (part.strip() for part in boxes.split(";"))):
                words = text.rsplit(maxsplit=len(_CORNERS))
                if len(words) != len(_CORNERS) + 1:
                    raise LabelError(
                        f"{where}: the box {shown(text)} is not a class with four corners",
                        "write the class, then x and y of each corner, separated by blanks",
                    )
                name = class_name(words[0], where)
                if name not in names:
                    raise LabelError(
                        f"{where}: a box of '{name}' is on a frame without that class",
                        "add the class to the row, or remove the box",
                    )
                pixels = zip(_CORNERS, words[1:], strict=True)
                corners = [table.pixel(row, corner, word) for corner, word in pixels]
                annotation.boxes.append(_box(frame, name, corners, where))
        return annotation


def read_video_folders(root: Path) -> dict[str, VideoFolder]:
    """The videos of a root that is sorted by video."""
    return {
        video: VideoFolder(video, root / video, table)
        for video, table in video_tables(root).items()
    }


# ---- The official layout


def is_official(root: Path) -> bool:
    """Whether a root has the dataset's own `metadata.csv`."""
    return set(_COLUMNS) <= set(header_of(root / METADATA, ";"))


@dataclass(frozen=True)
class Video:
    """A video of the official layout, whose pictures are sorted by class."""

    id: str
    pictures: Mapping[int, PictureSource]
    annotation: _Annotation
    device: str | None = DEVICE

    def open(self) -> Study:
        numbers = np.array(sorted(self.pictures), dtype=np.int64)
        return PictureStudy(self.id, numbers, [self.pictures[n] for n in numbers.tolist()])

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        return self.annotation.labelled_frames(self.id)

    def boxes(self) -> tuple[Box, ...]:
        return _boxes_in_pictures(self.open(), self.annotation.boxes)


def read_official(root: Path) -> tuple[dict[str, Video], tuple[str, ...]]:
    """The videos of the official layout, and notes about what is missing.

    Classes that are not there at all are left out: people download some archives only. A picture
    that is missing from a class that is there is an error.
    """
    table = TextTable(root / METADATA, separator=";")
    table.require_columns(_COLUMNS, ("finding_category", *_CORNERS))
    table.require_rows()
    folder = root / PICTURES if (root / PICTURES).is_dir() else root
    pictures = _pictures_by_class(folder)
    if not pictures:
        raise StudyError(
            f"'{root.name}' has {METADATA} and no pictures",
            f"put the folders or archives of the classes into '{PICTURES}' beside it",
        )
    annotations: dict[str, _Annotation] = {}
    sources: dict[str, dict[int, PictureSource]] = {}
    has_corners = all(corner in table for corner in _CORNERS)
    corner_cells = [table.column(corner) for corner in _CORNERS] if has_corners else []
    left_out: dict[str, int] = {}
    columns = (
        table.column("filename"), table.column("video_id"), table.frame_numbers("frame_number"),
        table.column("finding_class"),
    )  # fmt: skip
    for row, (file, video, frame, finding) in enumerate(zip(*columns, strict=True)):
        where = table.where(row)
        if not video or not is_image_name(file):
            what = ("video_id", video) if not video else ("filename", file)
            raise LabelError(
                f"{where}: '{what[0]}' is {shown(what[1])}", "correct the row, or remove it"
            )
        if frame_number(file) != frame:
            raise LabelError(
                f"{where}: the file {shown(file)} is not frame {frame}",
                "a file's name ends in its frame number",
            )
        name = class_name(finding, where)
        if name not in pictures:
            left_out[name] = left_out.get(name, 0) + 1
            continue
        source = pictures[name].get(file)
        if source is None:
            raise LabelError(
                f"{where}: there is no picture '{file}' in the class '{name}'",
                "copy the class again from its source",
            )
        sources.setdefault(video, {})[frame] = source
        annotation = annotations.setdefault(video, _Annotation())
        annotation.add(frame, {name})
        cells = [column[row] for column in corner_cells]
        if any(cells):
            pixels = zip(_CORNERS, cells, strict=True)
            corners = [table.pixel(row, corner, cell) for corner, cell in pixels]
            annotation.boxes.append(_box(frame, name, corners, where))
    notes = tuple(
        f"the class '{name}' is not there: {quantity(rows, 'row')} of {METADATA} left out"
        for name, rows in sorted(left_out.items())
    )
    return {
        video: Video(video, sources[video], annotations[video]) for video in sorted(annotations)
    }, notes


def _pictures_by_class(folder: Path) -> dict[str, dict[str, PictureSource]]:
    """The pictures of every class, by file name, from its folder or its archive."""
    pictures: dict[str, dict[str, PictureSource]] = {}
    for path in sorted(folder.iterdir()):
        is_archive = path.is_file() and is_archive_name(path.name)
        if path.name.startswith(".") or not (is_archive or path.is_dir()):
            continue
        plain = _plain(archive_stem(path.name) if is_archive else path.name)
        name = _CLASS_OF.get(plain)
        if name is None:
            continue  # such as the folder of official splits
        if name in pictures:
            raise StudyError(
                f"the class '{name}' is there twice in '{folder.name}'",
                "keep its folder or its archive",
            )
        if is_archive:
            pictures[name] = dict(archived_pictures(path))
        else:
            files = (file for file in path.iterdir() if is_image_name(file.name))
            pictures[name] = {file.name: file for file in files}
    return pictures

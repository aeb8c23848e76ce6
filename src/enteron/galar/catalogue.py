"""Find what a data root holds: studies, labels, metadata, in every layout they come in."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from enteron.errors import LabelError, StudyError
from enteron.galar.join import Join, join_labels, require_fit
from enteron.galar.metadata import Metadata, read_metadata, study_id
from enteron.galar.table import LabelTable, read_label_table
from enteron.study.folder import is_image_name
from enteron.study.opening import VIDEO_SUFFIXES, open_study
from enteron.study.source import Study

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

"""Finding studies under a folder; whatever is not a study is listed with the reason."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from enteron.errors import StudyError, quantity
from enteron.study import VIDEO_SUFFIXES
from enteron.study.folder import frame_number, is_image_name
from enteron.study.ignored import (
    BESIDE_STUDIES,
    HIDDEN,
    NO_STUDY,
    NOT_A_FILE,
    READING,
    UNKNOWN,
    Ignored,
)

MAX_DEPTH = 5  # root / archive / the archive's own folder / study, and one more
TOO_DEEP = f"more than {MAX_DEPTH} folders below the root"
_READING_FILE = "run.json"  # as `enteron.folders.reading` names it: marks a reading folder


@dataclass
class Search:
    """What lies under a root."""

    studies: list[Path] = field(default_factory=list)  # folders of frames, and videos
    label_folders: list[Path] = field(default_factory=list)  # not searched
    other_files: list[Path] = field(default_factory=list)  # the caller may know them
    ignored: Ignored = field(default_factory=Ignored)


def search(root: Path, is_label_folder: Callable[[str], bool]) -> Search:
    """Find every folder of frames and every video under a root.

    A folder of frames is a study, and what else it contains is ignored. Pictures that lie beside
    folders with studies are ignored if they cannot be a study themselves; if they can, it is not
    clear which of them is meant, and the root is refused.
    """
    if not root.is_dir():
        raise StudyError(f"there is no folder '{root.name}'", "give the root of the data")
    result = Search()
    if is_label_folder(root.resolve().name):
        result.label_folders.append(root)
        return result
    _search(root, "", result, is_label_folder, MAX_DEPTH)
    return result


def _search(
    folder: Path, name: str, result: Search, is_label_folder: Callable[[str], bool], depth: int
) -> None:
    """Add what a folder and its subfolders hold; `name` is its path below the root."""
    content = _list(folder)
    if _READING_FILE in content.files and name:
        result.ignored.add_folder(READING, name)
        return
    below = Search()
    for subfolder in content.subfolders:
        path = folder / subfolder
        if is_label_folder(subfolder):
            below.label_folders.append(path)
        elif depth == 0:
            below.ignored.add_folder(TOO_DEEP, _join(name, subfolder))
        else:
            _search(path, _join(name, subfolder), below, is_label_folder, depth - 1)
    videos = [file for file in content.files if file.lower().endswith(VIDEO_SUFFIXES)]
    pictures = content.pictures
    frames = sum(frame_number(picture) is not None for picture in pictures)
    has_studies_inside = bool(below.studies or videos)
    if pictures and not has_studies_inside:
        result.studies.append(folder)  # what else is in it is told when it is opened
        return
    if frames > 1:
        raise StudyError(
            f"'{folder.name}' holds {frames:,} frames and also "
            f"{quantity(len(below.studies) + len(videos), 'study', 'studies')} beside them",
            "move the frames into a folder of their own, or give one of the studies",
        )
    for picture in pictures:
        result.ignored.add_file(BESIDE_STUDIES, _join(name, picture))
    for video in videos:
        result.studies.append(folder / video)
    result.studies += below.studies
    result.label_folders += below.label_folders
    result.other_files += below.other_files
    result.other_files += [folder / file for file in content.files if file not in set(videos)]
    result.ignored.merge(below.ignored)
    for hidden in content.hidden:
        result.ignored.add_file(HIDDEN, _join(name, hidden))
    for special in content.special:
        result.ignored.add_file(NOT_A_FILE, _join(name, special))
    if name and not (content.subfolders or content.files or content.special):
        result.ignored.add_folder(NO_STUDY, name)


def ignore_files(ignored: Ignored, files: Iterable[Path], root: Path) -> None:
    """List files that nobody knows what to do with."""
    for file in files:
        ignored.add_file(UNKNOWN, file.relative_to(root).as_posix())


@dataclass
class _Content:
    """The names in one folder, sorted, apart from pictures, of which there may be 130,000."""

    pictures: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    subfolders: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)  # pipes, devices, broken links


def _list(folder: Path) -> _Content:
    content = _Content()
    try:
        entries = os.scandir(folder)
    except PermissionError as error:
        raise StudyError(
            f"the folder '{folder.name}' cannot be read ({error.strerror})",
            "ask for the right to read it",
        ) from error
    with entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir():
                (content.hidden if name.startswith(".") else content.subfolders).append(name)
            elif name.startswith("."):
                content.hidden.append(name)
            elif is_image_name(name):
                content.pictures.append(name)
            else:
                (content.files if entry.is_file() else content.special).append(name)
    for names in (content.files, content.subfolders, content.hidden, content.special):
        names.sort()
    return content


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name

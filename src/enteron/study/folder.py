"""A study as a folder of numbered picture files: PNG, JPEG, TIFF or BMP."""

import os
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.profile import timed
from enteron.study.content import UNOPENED, digest
from enteron.study.ignored import (
    HIDDEN,
    INSIDE_STUDY,
    NOT_ASKED_FOR,
    UNKNOWN,
    UNNUMBERED,
    Ignored,
)
from enteron.study.picture import UnreadablePictureError, decode_picture, read_picture
from enteron.study.study import METADATA_FILE, RGB, Frame, Study, read_folder_metadata
from enteron.types import FrameAxis

# `frame_000100.PNG`: the last digits are the number, everything before them is the prefix.
# Only ASCII digits count: other scripts' digits and superscripts are part of the prefix.
_NAME = re.compile(r"((?:.*[^0-9])?)([0-9]+)\.(?:png|jpe?g|tiff?|bmp)", re.IGNORECASE | re.DOTALL)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
MAX_NUMBER = 10**9  # larger numbers are dates or serial numbers, not frame numbers


class FrameFolder(Study):
    """Frames in files whose names end in their number, of any digit count; gaps are kept."""

    def __init__(
        self,
        path: Path,
        study_id: str,
        rate: Fraction | None,
        only: NDArray[np.int64] | None = None,
    ) -> None:
        self._path = path
        ignored = Ignored()
        numbers, names = _numbered_files(path, study_id, ignored)
        self._left_out: list[str] = []  # files of frames that are not asked for
        note: str | None = None
        if only is not None:
            note = _missing_note(only, numbers, study_id)
            asked = np.isin(numbers, only)
            self._left_out = [name for name, keep in zip(names, asked, strict=True) if not keep]
            names = [name for name, keep in zip(names, asked, strict=True) if keep]
            numbers = numbers[asked]
        for name in self._left_out:
            ignored.add_file(NOT_ASKED_FOR, name)
        self._names = names
        metadata = read_folder_metadata(path, study_id)
        super().__init__(study_id, FrameAxis(numbers), rate, metadata)
        self.ignored = ignored
        self.notes = () if note is None else (note,)

    random_access = True

    def file_content(self, row: int) -> bytes:
        """The bytes of one frame's file; none where it cannot be opened."""
        try:
            return read_picture(self._path / self._names[row])
        except UnreadablePictureError:
            return b""  # which is told when the frame is read

    def files(self, rows: slice = slice(None)) -> list[str]:
        folder = str(self._path)
        return [f"{folder}/{name}" for name in self._names[rows]]

    def new_files(self) -> int:
        names = {name for name in os.listdir(self._path) if is_image_name(name)}  # noqa: PTH208
        return len(names.difference(self._names, self._left_out))

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        image: RGB | None = None
        problem: str | None = None
        content_digest = UNOPENED
        try:
            with timed("read"):
                content = read_picture(self._path / self._names[row])
                content_digest = digest(content)
            with timed("decode"):
                image = decode_picture(content)
        except UnreadablePictureError as error:
            problem = str(error)
        return Frame(int(self.numbers[row]), self._time(row), image, problem, content_digest)


def _missing_note(
    asked: NDArray[np.int64], numbers: NDArray[np.int64], study_id: str
) -> str | None:
    """A sentence about frames that are asked for and not there; None where all of them are."""
    missing = np.setdiff1d(asked, numbers)
    if 2 * missing.size > asked.size:
        raise StudyError(
            f"study {study_id} lacks {missing.size:,} of the {asked.size:,} frames that its list "
            f"asks for: {_shown(missing)}",
            "download its frames again, or correct the list",
        )
    if not missing.size:
        return None
    return (
        f"{missing.size:,} of the {asked.size:,} frames that the list of this study asks for are "
        f"not there: {_shown(missing)}"
    )


def _shown(frames: NDArray[np.int64], most: int = 5) -> str:
    return ", ".join(str(frame) for frame in frames[:most]) + (", …" if frames.size > most else "")


def is_image_name(name: str) -> bool:
    """Whether a file is an image by its name; hidden files (macOS adds `._*`) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def frame_number(name: str) -> int | None:
    """The number at the end of an image's file name, or None when it has none."""
    parts = _name_parts(name)
    return None if parts is None else parts[1]


def _name_parts(name: str) -> tuple[str, int] | None:
    """What comes before the number in an image's file name, and the number."""
    match = _NAME.fullmatch(name)
    if match is None or len(match[2].lstrip("0")) > len(str(MAX_NUMBER)):
        return None
    number = int(match[2])
    return (match[1].lower(), number) if number <= MAX_NUMBER else None


def _numbered_files(
    path: Path, study_id: str, ignored: Ignored
) -> tuple[NDArray[np.int64], list[str]]:
    """Frame numbers, ascending, and the file name of each; other files are listed as ignored."""
    # Names only, without a stat per file: 130,000 files take a fraction of a second.
    pictures: list[str] = []
    for name in os.listdir(path):  # noqa: PTH208
        if is_image_name(name):
            pictures.append(name)
        elif name != METADATA_FILE:
            _ignore(path, name, ignored)
    if not pictures:
        raise StudyError(
            f"study {study_id} holds no PNG, JPEG, TIFF or BMP frames",
            "give a folder whose images are named by number, such as frame_000001.png",
        )
    parts_of = {name: _name_parts(name) for name in pictures}
    unnumbered = sorted(name for name, parts in parts_of.items() if parts is None)
    if 2 * len(unnumbered) >= len(pictures):
        raise StudyError(
            f"'{unnumbered[0]}' in study {study_id} does not end in a frame number",
            "name frames like frame_000001.png, or move the file out of the folder",
        )
    for name in unnumbered:
        ignored.add_file(UNNUMBERED, name)
    numbered = [(name, *parts) for name, parts in parts_of.items() if parts is not None]
    names = [name for name, _, _ in numbered]
    prefixes = {prefix for _, prefix, _ in numbered}
    numbers = np.array([number for _, _, number in numbered], dtype=np.int64)
    if len(prefixes) > 1:
        first, second = sorted(prefixes)[:2]
        raise StudyError(
            f"study {study_id} mixes files named '{first}…' and '{second}…'",
            "put each study in a folder of its own, its names differing only in the last number",
        )
    order = np.argsort(numbers)
    sorted_numbers = numbers[order]
    repeated = np.flatnonzero(np.diff(sorted_numbers) == 0)
    if repeated.size:
        position = repeated[0]
        first, second = sorted(names[row] for row in order[position : position + 2])
        raise StudyError(
            f"'{first}' and '{second}' in study {study_id} are both frame "
            f"{sorted_numbers[position]}",
            "keep one of them",
        )
    return sorted_numbers, [names[row] for row in order]


def _ignore(path: Path, name: str, ignored: Ignored) -> None:
    if (path / name).is_dir():
        ignored.add_folder(INSIDE_STUDY, name)
    else:
        ignored.add_file(HIDDEN if name.startswith(".") else UNKNOWN, name)

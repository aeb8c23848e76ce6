"""A study as a folder of numbered PNG or JPEG files."""

import os
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError
from enteron.study.content import UNOPENED, digest
from enteron.study.picture import UnreadablePictureError, decode_picture, read_picture
from enteron.study.study import RGB, Frame, Study, read_folder_metadata
from enteron.types import FrameAxis

# `frame_000100.PNG`: the last digits are the number, everything before them is the prefix.
_NAME = re.compile(r"((?:.*\D)?)(\d+)\.(?:png|jpe?g)", re.IGNORECASE | re.DOTALL)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_NUMBER = 10**9  # larger numbers are dates or serial numbers, not frame numbers


class FrameFolder(Study):
    """Frames in files whose names end in their number, of any digit count; gaps are kept."""

    def __init__(self, path: Path, study_id: str, rate: Fraction | None) -> None:
        self._path = path
        numbers, self._names = _numbered_files(path, study_id)
        metadata = read_folder_metadata(path, study_id)
        super().__init__(study_id, FrameAxis(numbers), rate, metadata)

    random_access = True

    def files(self, rows: slice = slice(None)) -> list[str]:
        folder = str(self._path)
        return [f"{folder}/{name}" for name in self._names[rows]]

    def new_files(self) -> int:
        names = {name for name in os.listdir(self._path) if is_image_name(name)}  # noqa: PTH208
        return len(names.difference(self._names))

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        image: RGB | None = None
        problem: str | None = None
        content_digest = UNOPENED
        try:
            content = read_picture(self._path / self._names[row])
            content_digest = digest(content)
            image = decode_picture(content)
        except UnreadablePictureError as error:
            problem = str(error)
        return Frame(int(self.numbers[row]), self._time(row), image, problem, content_digest)


def is_image_name(name: str) -> bool:
    """Whether a file is an image by its name; hidden files (macOS adds `._*`) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def frame_number(name: str) -> int | None:
    """The number at the end of an image's file name, or None when it has none."""
    match = _NAME.fullmatch(name)
    return int(match[2]) if match else None


def _numbered_files(path: Path, study_id: str) -> tuple[NDArray[np.int64], list[str]]:
    """Frame numbers, ascending, and the file name of each."""
    # Names only, without a stat per file: 130,000 files take a fraction of a second.
    names = [name for name in os.listdir(path) if is_image_name(name)]  # noqa: PTH208
    if not names:
        raise StudyError(
            f"study {study_id} holds no PNG or JPEG frames",
            "give a folder whose images are named by number, such as frame_000001.png",
        )
    matches = [_NAME.fullmatch(name) for name in names]
    numbers = np.array([int(match[2]) if match else -1 for match in matches], dtype=np.float64)
    unnumbered = np.flatnonzero((numbers < 0) | (numbers > MAX_NUMBER))
    if unnumbered.size:
        raise StudyError(
            f"'{names[unnumbered[0]]}' in study {study_id} does not end in a frame number",
            "name frames like frame_000001.png, or move the file out of the folder",
        )
    prefixes = {match[1].lower() for match in matches if match}
    if len(prefixes) > 1:
        first, second = sorted(prefixes)[:2]
        raise StudyError(
            f"study {study_id} mixes files named '{first}…' and '{second}…'",
            "put each study in a folder of its own, its names differing only in the last number",
        )
    order = np.argsort(numbers)
    sorted_numbers = numbers[order].astype(np.int64)
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

"""A study as a folder of numbered PNG or JPEG files."""

import os
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from enteron.errors import StudyError
from enteron.study.picture import UnreadablePictureError, decode_picture
from enteron.study.source import RGB, Frame, Study
from enteron.types import FrameAxis

# `frame_000100.PNG`: everything up to the last digits is the prefix, the last digits the number.
_NAME = re.compile(r"(?P<prefix>.*?)(?P<number>\d+)\.(?:png|jpe?g)", re.IGNORECASE)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_NUMBER = 10**9  # frame numbers beyond this are dates or serial numbers


class FrameFolder(Study):
    """Frames in files whose names end in their number: any digit count, any case, gaps kept."""

    def __init__(self, path: Path, study_id: str, rate: Fraction | None) -> None:
        self._path = path
        numbers, self._names = _numbered(path, study_id)
        super().__init__(study_id, FrameAxis(numbers), rate)

    def _stream(self, start: int) -> Iterator[Frame]:
        for row in range(start, len(self)):
            yield self._fetch(row)

    def _fetch(self, row: int) -> Frame:
        image: RGB | None = None
        problem: str | None = None
        try:
            image = decode_picture((self._path / self._names[row]).read_bytes())
        except UnreadablePictureError as error:
            problem = str(error)
        except OSError as error:
            problem = f"the file cannot be opened: {error.strerror}"
        return Frame(int(self.numbers[row]), self._time(row), image, problem)


def is_image_name(name: str) -> bool:
    """Whether a name is an image's; hidden files (macOS leaves `._*` beside images) are not."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def frame_number(name: str) -> int | None:
    """The number at the end of an image's file name, or None when it has none."""
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else None


def _numbered(path: Path, study_id: str) -> tuple[np.ndarray, list[str]]:
    """Frame numbers, ascending, and the file name of each."""
    # One pass over the directory without a stat per file: 130,000 names in a fraction of a second.
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if is_image_name(entry.name)]
    if not names:
        raise StudyError(
            f"study {study_id} holds no PNG or JPEG frames",
            "give a folder whose images are named by number, such as frame_000001.png",
        )
    by_number: dict[int, str] = {}
    prefixes: set[str] = set()
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or (number := int(match["number"])) > MAX_NUMBER:
            raise StudyError(
                f"'{name}' in study {study_id} does not end in a frame number",
                "name frames like frame_000001.png, or move the file out of the folder",
            )
        other = by_number.setdefault(number, name)
        if other != name:
            raise StudyError(
                f"'{min(other, name)}' and '{max(other, name)}' in study {study_id} are both "
                f"frame {number}",
                "keep one of them",
            )
        prefixes.add(match["prefix"].lower())
    if len(prefixes) > 1:
        first, second = sorted(prefixes)[:2]
        raise StudyError(
            f"study {study_id} mixes files named '{first}…' and '{second}…'",
            "put each study in a folder of its own, its names differing only in the last number",
        )
    ordered = sorted(by_number)
    return np.array(ordered, dtype=np.int64), [by_number[number] for number in ordered]

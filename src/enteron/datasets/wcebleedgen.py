"""WCEBleedGen: single pictures in the folders `bleeding` and `non-bleeding`.

Nobody knows which pictures are of one study. Numbers follow the sources roughly, so blocks of
consecutive numbers stand for studies: a split at random would put near-copies on both sides.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.dataset import Box, LabelledFrames
from enteron.errors import StudyError
from enteron.labels import COLUMN
from enteron.study.folder import is_image_name
from enteron.study.pictures import PictureStudy
from enteron.study.study import Study
from enteron.types import FrameLabels

TITLE: Final = "WCEBleedGen"
BLEEDING: Final = "bleeding"
NOT_BLEEDING: Final = "non-bleeding"
LABEL: Final = "blood"
BLOCK: Final = 100
"""Numbers of a block: block k of a class has the pictures 100 k + 1 to 100 (k + 1)."""

# '0001.jpg' and the dataset's own 'img- (1).png'
_NUMBER: Final = re.compile(r".*?(\d+)\)?\.[a-z]+", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Pictures of one class with consecutive numbers."""

    id: str
    numbers: NDArray[np.int64]
    files: tuple[Path, ...]
    bleeding: bool
    device: str | None = None  # several capsules, not told apart

    def open(self) -> Study:
        return PictureStudy(self.id, self.numbers, self.files, one_camera=False)

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        unknown = FrameLabels.unknown(len(self.numbers))
        present, known = unknown.present.copy(), unknown.known.copy()
        known[:, COLUMN[LABEL]] = True
        present[:, COLUMN[LABEL]] = self.bleeding
        return LabelledFrames(self.numbers, FrameLabels(present, known))

    def boxes(self) -> tuple[Box, ...]:
        return ()


def is_wcebleedgen(root: Path) -> bool:
    """Whether a root has the two class folders."""
    return (root / BLEEDING).is_dir() and (root / NOT_BLEEDING).is_dir()


def read_blocks(root: Path) -> dict[str, Block]:
    """The blocks of both classes."""
    blocks: dict[str, Block] = {}
    for name in (BLEEDING, NOT_BLEEDING):
        files = _numbered_files(root / name)
        for block in sorted({(number - 1) // BLOCK for number in files}):
            first = block * BLOCK + 1
            numbers = sorted(n for n in files if first <= n < first + BLOCK)
            study = f"{name}-{first:04d}"
            blocks[study] = Block(
                study,
                np.array(numbers, dtype=np.int64),
                tuple(files[number] for number in numbers),
                name == BLEEDING,
            )
    return blocks


def _numbered_files(folder: Path) -> dict[int, Path]:
    """The pictures of a class by number, in its folder or in a folder `images` inside it."""
    if not folder.is_dir():
        raise StudyError(
            f"there is no folder '{folder.name}'",
            f"{TITLE} has the folders '{BLEEDING}' and '{NOT_BLEEDING}'",
        )
    inner = [path for path in folder.iterdir() if path.is_dir() and path.name.lower() == "images"]
    folder = inner[0] if inner else folder
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if not is_image_name(path.name):
            continue
        match = _NUMBER.fullmatch(path.name)
        if match is None or not 0 < int(match[1]) < 10**9:
            raise StudyError(
                f"'{path.name}' in '{folder.name}' has no number",
                f"the pictures of {TITLE} are numbered from 1",
            )
        number = int(match[1])
        if number in files:
            raise StudyError(
                f"'{files[number].name}' and '{path.name}' in '{folder.name}' have the same number",
                "keep one of them",
            )
        files[number] = path
    if not files:
        raise StudyError(
            f"the folder '{folder.name}' holds no PNG or JPEG pictures",
            f"put the pictures of {TITLE} into it",
        )
    return files

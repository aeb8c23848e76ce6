"""The interface of every labelled dataset: studies, frames, labels with unknowns, boxes.

`enteron.datasets.layouts.open_dataset` opens one; the readers are in modules of their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from enteron.errors import LabelError, StudyError
from enteron.study.study import Study
from enteron.types import FrameLabels, Layout


@dataclass(frozen=True, order=True)
class Box:
    """A rectangle around what a frame shows, in pixels of the stored picture.

    Pixels count from the top left corner; the box covers x1 to x2 and y1 to y2.
    """

    frame: int
    label: str  # one of the 17, or the dataset's own name for what is not among them
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class LabelledFrames:
    """Frames of a study that have both a picture and labels."""

    frames: NDArray[np.int64]  # (n,) frame numbers, ascending
    labels: FrameLabels  # of these frames

    def __post_init__(self) -> None:
        if len(self.frames) != len(self.labels):
            raise LabelError(
                f"{len(self.frames)} frames do not fit {len(self.labels)} rows of labels",
                "give one row of labels per frame",
            )


class DatasetStudy(Protocol):
    """One study of a dataset."""

    @property
    def id(self) -> str:
        """Unique within the dataset."""
        ...

    @property
    def device(self) -> str | None:
        """The capsule, such as 'PillCam SB3', where the dataset names it."""
        ...

    def open(self) -> Study:
        """The pictures."""
        ...

    def labelled_frames(self, pictures: Study | None = None) -> LabelledFrames:
        """The labels, joined with the pictures on the frame number.

        `pictures`: the opened study, where the caller has it already.
        """
        ...

    def boxes(self) -> tuple[Box, ...]:
        """All boxes, by frame; empty in a dataset without boxes."""
        ...


@dataclass(frozen=True)
class Dataset:
    """Labelled studies under one root."""

    layout: Layout
    title: str
    """What the data are, for reports and model folders; never a path or a folder's name."""
    name: str
    """The name of the root, for messages to the person who gave it."""
    reason: str
    """Why the root was taken for this layout."""
    studies: Mapping[str, DatasetStudy]
    notes: tuple[str, ...] = field(default=())
    """What a person should know about the data as they were found."""
    synthetic: bool = False
    """Whether `enteron phantom` drew the pictures, as the root itself says."""
    left_out: tuple[str, ...] = field(default=())
    """Studies, files and folders under the root that are not part of the data, with the reason."""
    recording_frames: int | None = None
    """Frames of a whole recording, where studies hold excerpts: all lesions, and few of the frames
    without. None: they are the recordings."""


@dataclass(frozen=True)
class StatedBox:
    """A box as a table states it, before it is checked against the picture."""

    frame: int
    label: str
    x1: float
    y1: float
    x2: float
    y2: float
    where: str  # the place in the table, for messages


def boxes_in_pictures(
    study: Study, boxes: Iterable[StatedBox], *, original: int | None = None, slack: float = 0.0
) -> tuple[Box, ...]:
    """The boxes in pixels of the stored pictures, by frame; one outside its picture is refused.

    `original`: the side of the square pictures in whose pixels the boxes are stated, where it is
    not the stored picture. A box that exceeds its picture by at most the share `slack` of its side
    is cut off at the border.
    """
    checked: list[Box] = []
    size: tuple[int, int] | None = None
    frame_of_size: int | None = None
    with study:
        for box in sorted(boxes, key=lambda box: box.frame):
            if size is None or box.frame != frame_of_size:
                size, frame_of_size = _picture_size(study, box), box.frame
            stated = size if original is None else (original, original)
            checked.append(_checked_box(box, size, stated, slack))
    return tuple(sorted(checked))


def _picture_size(study: Study, box: StatedBox) -> tuple[int, int]:
    frame = study.frame(box.frame)
    if frame.image is None:
        raise StudyError(
            f"{box.where}: frame {box.frame} of study {study.id} has a box and cannot be read "
            f"({frame.problem})",
            "copy the picture again from its source, or remove the box",
        )
    height, width = frame.image.shape[:2]
    return width, height


def _checked_box(
    box: StatedBox, size: tuple[int, int], stated: tuple[int, int], slack: float
) -> Box:
    corners = f"({box.x1:g}, {box.y1:g}) to ({box.x2:g}, {box.y2:g})"
    if box.x2 <= box.x1 or box.y2 <= box.y1:
        raise LabelError(
            f"{box.where}: the box of '{box.label}' from {corners} is empty",
            "x2 must be larger than x1, and y2 larger than y1",
        )
    ends = [((box.x1, box.x2), stated[0], size[0]), ((box.y1, box.y2), stated[1], size[1])]
    pixels: list[list[float]] = []
    for values, side, stored_side in ends:
        inside = [min(max(value, 0.0), float(side)) for value in values]
        excess = max(abs(a - b) for a, b in zip(values, inside, strict=True))
        if excess > slack * side or inside[0] == inside[1]:
            raise LabelError(
                f"{box.where}: the box of '{box.label}' from {corners} lies outside the picture of "
                f"{stated[0]} x {stated[1]} pixels",
                "give boxes in pixels of the picture, counted from its top left corner",
            )
        pixels.append([value * stored_side / side for value in inside])
    (x1, x2), (y1, y2) = pixels
    return Box(box.frame, box.label, x1, y1, x2, y2)

"""Pictures inside the page: as data, within a budget of bytes, the most important first."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from enteron.report.field_of_view import Mask, field_of_view, masked
from enteron.report.pictures import SAMPLES, Chosen, encode_jpeg, picture_name, read_index
from enteron.study.picture import UnreadablePictureError, decode_picture
from enteron.study.source import RGB

BUDGET: Final = 7_500_000  # characters of base64: with the curves the page stays below 12 MB
MANY: Final = 500  # events whose cards, some 1,500 characters each, fit beside that
LEAST: Final = 1_500_000


@dataclass(frozen=True)
class Picture:
    """One picture on the page."""

    frame: int
    data: str  # data: URI
    width: int  # pixels, so that the page keeps its shape while pictures load
    height: int


@dataclass(frozen=True)
class Album:
    """The pictures that fit, by frame number, and what became of the others."""

    pictures: dict[int, Picture] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    left_out: int = 0  # pictures that are on disk and did not fit
    masked: bool = True

    def first_of(self, frames: Iterable[int]) -> Picture | None:
        """The first of these frames that has a picture."""
        return next((self.pictures[f] for f in frames if f in self.pictures), None)

    def all_of(self, frames: Iterable[int]) -> tuple[Picture, ...]:
        """Those of these frames that have a picture."""
        return tuple(self.pictures[frame] for frame in frames if frame in self.pictures)


def budget_beside(events: int) -> int:
    """Characters for pictures on a page of so many events."""
    return max(LEAST, BUDGET - 1_500 * max(0, events - MANY))


def load_album(folder: Path, chosen: Chosen, *, device_text: bool, budget: int = BUDGET) -> Album:
    """Pictures of a reading folder; those saved with device text lose it unless it is wanted."""
    place = folder / "pictures"
    saved = read_index(place)
    unreadable = dict(saved.unreadable)
    pictures: dict[int, Picture] = {}
    left_out: set[int] = set()
    spent = 0
    masks = {} if saved.masked or device_text else _masks(place)
    for frame in _by_importance(chosen):
        path = place / picture_name(frame)
        if frame in pictures or frame in unreadable or not path.is_file():
            continue
        try:
            data, height, width = _shown(path, masks)
        except (OSError, UnreadablePictureError) as error:
            unreadable[frame] = str(error)
            continue
        uri = "data:image/jpeg;base64," + b64encode(data).decode()
        if spent + len(uri) > budget:
            left_out.add(frame)
            continue
        spent += len(uri)
        pictures[frame] = Picture(frame, uri, width, height)
    return Album(pictures, unreadable, len(left_out), saved.masked or not device_text)


def _by_importance(chosen: Chosen) -> list[int]:
    """First images of regions, best frames in their order, then neighbours."""
    groups = (*chosen.firsts.values(), tuple(chosen.best.values()), *chosen.neighbours.values())
    return [frame for group in groups for frame in group]


def _shown(path: Path, masks: dict[tuple[int, ...], Mask]) -> tuple[bytes, int, int]:
    """A JPEG as it may be shown, height and width; all are decoded: a damaged one must be told."""
    data = path.read_bytes()
    image = decode_picture(data)
    if image.shape in masks:
        data = encode_jpeg(masked(image, masks[image.shape]))
    return data, image.shape[0], image.shape[1]


def _masks(place: Path) -> dict[tuple[int, ...], Mask]:
    """For every size of picture its field of view, from all pictures that were saved unmasked."""
    by_size: dict[tuple[int, ...], list[RGB]] = defaultdict(list)
    for path in sorted(place.glob("frame_*.jpg")):
        try:
            image = decode_picture(path.read_bytes())
        except (OSError, UnreadablePictureError):
            continue  # told when it is its turn to be shown
        if len(by_size[image.shape]) < SAMPLES:
            by_size[image.shape].append(image)
    return {size: field_of_view(images) for size, images in by_size.items()}

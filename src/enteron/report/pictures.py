"""Pictures of a reading: which frames the page shows, and their small JPEG files."""

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from enteron.decode.events import DecodedEvent
from enteron.errors import EnteronError
from enteron.files import write_text
from enteron.folders.reading import event_rows
from enteron.labels import COLUMN, REGIONS
from enteron.report.field_of_view import Mask, field_of_view, masked
from enteron.study import Study
from enteron.study.picture import UnreadablePictureError, decode_picture
from enteron.study.study import RGB
from enteron.types import Scores

MOST_EVENTS: Final = 260  # that get a picture; the page says so when there are more
MOST_NEIGHBOURS: Final = 75  # of these get neighbours too: rows 2 and 1 before, 1 and 2 after
MOST_STAYS: Final = 20  # stays in a region that get their first images
OFFSETS: Final = (-2, -1, 1, 2)
FIRST_ROWS: Final = (0, 3, 12)  # of a stay in a region
SIDE: Final = 288  # pixels of the longer side
QUALITY: Final = 80
SAMPLES: Final = 48  # frames from which the field of view is measured
INDEX: Final = "index.json"


@dataclass(frozen=True)
class Chosen:
    """Frame numbers of the pictures that the page needs, by the event's place in the list."""

    best: dict[int, int]  # the frame of highest probability of landmarks and findings
    neighbours: dict[int, tuple[int, ...]]  # around it
    firsts: dict[int, tuple[int, ...]]  # the first images of a stay in a region

    @property
    def frames(self) -> tuple[int, ...]:
        """All of them once, ascending."""
        several = (*self.neighbours.values(), *self.firsts.values())
        return tuple(sorted({*self.best.values(), *(f for group in several for f in group)}))


@dataclass(frozen=True)
class SavedPictures:
    """What `save_pictures` left in the folder."""

    frames: tuple[int, ...] = ()
    unreadable: tuple[tuple[int, str], ...] = ()  # frame number and reason
    masked: bool = False  # what lies outside the field of view was removed


def choose_pictures(scores: Scores, events: Sequence[DecodedEvent]) -> Chosen:
    """Which frames to show: bounded in number, with every label's surest events among them."""
    frames = scores.axis.frames
    best: dict[int, int] = {}
    neighbours: dict[int, tuple[int, ...]] = {}
    for rank, number in enumerate(picture_order(events)[:MOST_EVENTS]):
        event = events[number]
        rows = event_rows(event, scores)
        column = scores.values[rows.start : rows.stop, COLUMN[event.label]]
        row = rows.start + int(column.argmax())
        best[number] = int(frames[row])
        if rank < MOST_NEIGHBOURS:
            around = (row + offset for offset in OFFSETS if 0 <= row + offset < len(frames))
            neighbours[number] = tuple(int(frames[r]) for r in around)
    firsts: dict[int, tuple[int, ...]] = {}
    stays = [number for number, event in enumerate(events) if event.label in REGIONS]
    for number in stays[:MOST_STAYS]:
        rows = event_rows(events[number], scores)
        wanted = (rows.start + later for later in FIRST_ROWS if later < len(rows))
        firsts[number] = tuple(int(frames[row]) for row in wanted)
    return Chosen(best, neighbours, firsts)


def picture_order(events: Sequence[DecodedEvent]) -> list[int]:
    """Landmarks and findings: the surest of every label first, then every second surest, …"""
    by_label: dict[str, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        if event.label not in REGIONS:
            by_label[event.label].append(number)
    ranked: list[tuple[int, float, int]] = []
    for numbers in by_label.values():
        numbers.sort(key=lambda n: (-(events[n].score or 0.0), events[n].start))
        ranked += [(rank, -(events[n].score or 0.0), n) for rank, n in enumerate(numbers)]
    return [number for _, _, number in sorted(ranked)]


def picture_name(frame: int) -> str:
    """The file of a frame in `pictures/`."""
    return f"frame_{frame:06d}.jpg"


def save_pictures(
    study: Study, chosen: Chosen, folder: Path, *, mask_text: bool = True
) -> SavedPictures:
    """Write `folder/pictures/frame_000123.jpg`, and an index that also tells what is missing.

    Frames are read once, in ascending order: where a video cannot be entered in the middle, that
    is a single pass through it. The index is written last; a killed run is simply run again and
    leaves the same files.
    """
    place = folder / "pictures"
    wanted = chosen.frames
    if _is_done(place, study.id, wanted, mask_text):
        return read_index(place)
    place.mkdir(parents=True, exist_ok=True)
    (place / INDEX).unlink(missing_ok=True)
    small: dict[int, bytes] = {}
    unreadable: list[tuple[int, str]] = []
    samples: dict[tuple[int, ...], list[RGB]] = defaultdict(list)
    sampled = set(_spread(study.numbers.tolist(), SAMPLES)) if mask_text else set()
    for number in sorted({*wanted, *sampled}):
        frame = study.frame(number)
        if frame.image is None:
            if number in wanted:
                unreadable.append((number, frame.problem or "the frame cannot be read"))
            continue
        image = _small(frame.image)
        if number in sampled:
            samples[image.shape].append(image)
        if number in wanted:
            small[number] = _packed(image)
    masks: dict[tuple[int, ...], Mask] = {}
    for number, packed in small.items():
        image = _unpacked(packed)
        if mask_text:
            if image.shape not in masks:
                masks[image.shape] = field_of_view(samples.get(image.shape) or [image])
            image = masked(image, masks[image.shape])
        # Not atomic one by one, which would wait for the disk hundreds of times: pictures count
        # as made only once the index is there, and that is written last.
        (place / picture_name(number)).write_bytes(encode_jpeg(image))
    saved = SavedPictures(tuple(small), tuple(unreadable), mask_text)
    index = {
        "study": study.id,
        "frames": saved.frames,
        "unreadable": [{"frame": n, "reason": reason} for n, reason in saved.unreadable],
        "masked": saved.masked,
    }
    write_text(place / INDEX, json.dumps(index) + "\n")
    return saved


def read_index(place: Path) -> SavedPictures:
    """What the folder `pictures` holds; nothing when it has no index."""
    try:
        index: dict[str, Any] = json.loads((place / INDEX).read_text(encoding="utf-8"))
        return SavedPictures(
            tuple(int(number) for number in index["frames"]),
            tuple((int(row["frame"]), str(row["reason"])) for row in index["unreadable"]),
            bool(index["masked"]),
        )
    except FileNotFoundError:
        return SavedPictures()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnteronError(
            f"pictures/{INDEX} is damaged", "delete the folder 'pictures' and read the study again"
        ) from error


def encode_jpeg(image: RGB) -> bytes:
    """A small picture as a JPEG file without any metadata."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def _is_done(place: Path, study: str, wanted: tuple[int, ...], mask_text: bool) -> bool:
    """Whether the very same pictures are there already."""
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        told = {int(row["frame"]) for row in index["unreadable"]}
        same = (index["study"], index["masked"]) == (study, mask_text)
        return (
            same
            and {*index["frames"], *told} == set(wanted)
            and all((place / picture_name(number)).is_file() for number in index["frames"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _spread(numbers: list[int], count: int) -> list[int]:
    """So many of the numbers, evenly spread."""
    places = np.linspace(0, len(numbers) - 1, min(count, len(numbers))).round().astype(int)
    return [numbers[place] for place in places]


def _small(image: RGB) -> RGB:
    height, width = image.shape[:2]
    scale = SIDE / max(height, width)
    if scale >= 1:
        return image
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def _packed(image: RGB) -> bytes:
    """Lossless, so that hundreds of pictures wait in little memory until the outline is known."""
    return cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


def _unpacked(data: bytes) -> RGB:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), np.uint8)


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

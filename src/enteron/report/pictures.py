"""Pictures of events: which frames to show, their JPEG files, and those that fit the page."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from enteron.decoding.events import DecodedEvent
from enteron.errors import EnteronError, StudyError
from enteron.files import RECORD_LIMIT, make_subfolder, read_json, write_bytes, write_json
from enteron.folders.identity import ReadingIdentity
from enteron.folders.reading import event_rows
from enteron.labels import REGIONS
from enteron.report.title_cards import View, measure_view
from enteron.study import Study
from enteron.study.content import UNOPENED, StudyContent, digest, file_digest, file_stamps
from enteron.study.field_of_view import masked
from enteron.study.picture import UnreadablePictureError, decode_picture, read_picture
from enteron.study.study import RGB
from enteron.types import Scores

PICTURES: Final = "pictures"  # the folder, inside a reading folder
INDEX: Final = "index.json"

# ---- which frames to show

MOST_SUSPICIOUS: Final = 100  # pictures of the list of suspicious frames
MOST_EVENTS: Final = 260  # events that get a picture; the page says so when there are more
MOST_NEIGHBOURS: Final = 75  # of these get neighbours too
NEIGHBOURS: Final = (-2, -1, 1, 2)  # rows around the frame of highest probability
MOST_REGIONS: Final = 20  # intervals in a region that get their first images
FIRST_ROWS: Final = (0, 3, 12)  # of an interval in a region


@dataclass(frozen=True)
class PictureChoice:
    """Frame numbers of the pictures that the page needs, by the number of their event."""

    best: dict[int, int]  # landmarks and findings: the frame of highest probability
    neighbours: dict[int, tuple[int, ...]]  # the frames around it
    first_frames: dict[int, tuple[int, ...]]  # regions: some of their first frames
    suspicious: tuple[int, ...] = ()  # the first ones of the list of suspicious frames

    @property
    def frames(self) -> tuple[int, ...]:
        """All of them once, ascending."""
        groups = (
            self.suspicious,
            self.best.values(),
            *self.neighbours.values(),
            *self.first_frames.values(),
        )
        return tuple(sorted({frame for group in groups for frame in group}))

    @property
    def by_importance(self) -> list[int]:
        """Suspicious frames and first images of regions, then best frames, then neighbours."""
        groups = (
            self.suspicious,
            *self.first_frames.values(),
            self.best.values(),
            *self.neighbours.values(),
        )
        return [frame for group in groups for frame in group]


def choose_pictures(
    scores: Scores, events: Sequence[DecodedEvent], suspicious: Sequence[int] = ()
) -> PictureChoice:
    """Which frames to show: a bounded number, with the most confident events of every label.

    `suspicious` are the listed frames, in their order.
    """
    frames = scores.axis.frames
    best: dict[int, int] = {}
    neighbours: dict[int, tuple[int, ...]] = {}
    for rank, number in enumerate(picture_order(events)[:MOST_EVENTS]):
        event = events[number]
        peak = scores.best_row(event.label, event_rows(event, scores))
        best[number] = int(frames[peak])
        if rank < MOST_NEIGHBOURS:
            around = (peak + offset for offset in NEIGHBOURS)
            neighbours[number] = tuple(int(frames[r]) for r in around if 0 <= r < len(frames))
    first_frames: dict[int, tuple[int, ...]] = {}
    regions = [number for number, event in enumerate(events) if event.label in REGIONS]
    for number in regions[:MOST_REGIONS]:
        rows = event_rows(events[number], scores)
        first_rows = (rows[offset] for offset in FIRST_ROWS if offset < len(rows))
        first_frames[number] = tuple(int(frames[row]) for row in first_rows)
    return PictureChoice(best, neighbours, first_frames, tuple(suspicious[:MOST_SUSPICIOUS]))


def picture_order(events: Sequence[DecodedEvent]) -> list[int]:
    """Numbers of landmarks and findings: the most confident of every label, then the second, …"""
    by_label: dict[str, list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        if event.label not in REGIONS:
            by_label[event.label].append(number)
    ranked: list[tuple[int, float, int]] = []
    for numbers in by_label.values():
        numbers.sort(key=lambda n: (-(events[n].score or 0.0), events[n].start))
        ranked += [(rank, -(events[n].score or 0.0), n) for rank, n in enumerate(numbers)]
    return [number for _, _, number in sorted(ranked)]


# ---- their files

SIDE: Final = 288  # pixels of the longer side
QUALITY: Final = 80
SAMPLES: Final = 48  # frames from which the field of view is measured

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SavedPictures:
    """What `save_pictures` left in the folder."""

    frames: tuple[int, ...] = ()
    unreadable: tuple[tuple[int, str], ...] = ()  # frame number and reason
    masked: bool = False  # everything outside the field of view was removed
    withheld: tuple[int, ...] = ()  # frames that do not look like the gut: title cards
    digests: dict[int, str] = field(default_factory=dict)  # of the saved files, by frame number


def save_pictures(
    study: Study,
    choice: PictureChoice,
    folder: Path,
    *,
    mask_text: bool = True,
    content: StudyContent | None = None,
) -> SavedPictures:
    """Write `folder/pictures/frame_000123.jpg`, and an index of saved and unreadable frames.

    `content` is that of the study when it was read: a frame that is another one now is refused.
    With `mask_text` only the field of view is shown, and frames that do not look like the gut are
    left out: a title card may hold a patient's name.

    Frames are read once, in ascending order: where a video does not support seeking, that is a
    single pass through it. The index is written last; an interrupted run is simply repeated and
    leaves the same files.
    """
    pictures = make_subfolder(folder, PICTURES)
    frames = choice.frames
    stamps = file_stamps(study.files()) if not study.random_access else None
    sampled = set(_spread(study.numbers.tolist(), SAMPLES)) if mask_text else set()
    sources = _sources(study, sorted({*frames, *sampled}), content)
    if _are_saved(pictures, study.id, frames, mask_text, sources):
        _require_sources(study, sources)
        return read_index(pictures)
    (pictures / INDEX).unlink(missing_ok=True)
    packed: dict[int, bytes] = {}
    unreadable: list[tuple[int, str]] = []
    samples: dict[Shape, list[RGB]] = defaultdict(list)
    for number in sorted({*frames, *sampled}):
        frame = study.frame(number)
        if frame.digest is not None and sources.get(str(number)) != frame.digest.hex():
            raise _changed_error(study, f"frame {number}")
        if frame.image is None:
            if number in frames:
                unreadable.append((number, frame.problem or "the frame cannot be read"))
            continue
        image = small(frame.image)
        if number in sampled:
            samples[image.shape].append(image)
        if number in frames:
            packed[number] = _packed(image)
    if stamps is not None and (file_stamps(study.files()) != stamps).any():
        raise _changed_error(study, "the file")
    views: dict[Shape, View | None] = {}
    digests: dict[int, str] = {}
    withheld: list[int] = []
    for number, data in packed.items():
        image = _unpacked(data)
        if mask_text:
            if image.shape not in views:
                views[image.shape] = measure_view(samples.get(image.shape) or [image])
            view = views[image.shape]
            if view is None or not view.shows(image):
                withheld.append(number)
                continue
            image = masked(image, view.keep)
        # Waiting for the disk hundreds of times would take long: pictures count as saved only
        # once the index is there, and that is written last.
        jpeg = encode_jpeg(image)
        write_bytes(pictures / picture_name(number), jpeg, sync=False)
        digests[number] = digest(jpeg).hex()
    saved = SavedPictures(tuple(digests), tuple(unreadable), mask_text, tuple(withheld), digests)
    _remove_others(pictures, saved.frames)  # of an earlier choice, or of another study
    index = {
        "study": study.id,
        "content": None if content is None else content.hash,
        "stage": "illustrated",
        "sources": sources,
        "pictures": saved.digests,
        "frames": saved.frames,
        "unreadable": [{"frame": n, "reason": reason} for n, reason in saved.unreadable],
        "masked": saved.masked,
        "withheld": saved.withheld,
    }
    write_json(pictures / INDEX, index, indent=None)
    return saved


def collect_pictures(choice: PictureChoice, readings: Sequence[Path], folder: Path) -> int:
    """Copy the chosen pictures that readings of the same study have saved; how many were copied.

    Pictures with the recorder's text are taken only if no reading has masked ones.
    """
    indices = {
        reading: read_index(reading / PICTURES)
        for reading in readings
        if (reading / PICTURES / INDEX).exists()
    }
    mask_text = any(saved.masked for saved in indices.values())
    wanted = set(choice.frames)
    copied: dict[int, str] = {}
    unreadable: dict[int, str] = {}
    withheld: set[int] = set()
    sources: dict[str, str] = {}
    content: str | None = None
    study: str | None = None
    pictures = make_subfolder(folder, PICTURES)
    (pictures / INDEX).unlink(missing_ok=True)
    for reading, saved in indices.items():
        if saved.masked is not mask_text:
            continue
        index = read_json(reading / PICTURES / INDEX, limit=RECORD_LIMIT)
        study, content = index.get("study"), index.get("content")
        sources |= index.get("sources", {})
        unreadable |= {number: reason for number, reason in saved.unreadable if number in wanted}
        withheld |= wanted.intersection(saved.withheld)
        for number in sorted(wanted.intersection(saved.frames).difference(copied)):
            try:
                jpeg = read_picture(reading / PICTURES / picture_name(number))
            except UnreadablePictureError:
                continue  # deleted or damaged: another reading may have it
            if digest(jpeg).hex() == saved.digests.get(number):
                write_bytes(pictures / picture_name(number), jpeg, sync=False)
                copied[number] = saved.digests[number]
    _remove_others(pictures, tuple(copied))
    if study is None:
        return 0
    shown = set(copied)
    index = {
        "study": study,
        "content": content,
        "stage": "illustrated",
        "sources": sources,
        "pictures": {number: copied[number] for number in sorted(copied)},
        "frames": sorted(copied),
        "unreadable": [
            {"frame": number, "reason": unreadable[number]}
            for number in sorted(set(unreadable) - shown)
        ],
        "masked": mask_text,
        "withheld": sorted(withheld - shown - set(unreadable)),
    }
    write_json(pictures / INDEX, index, indent=None)
    return len(copied)


def _sources(study: Study, numbers: list[int], content: StudyContent | None) -> dict[str, str]:
    """Digests of the files of these frames, by frame number; of a video's file under 'file'."""
    if content is not None and content.per_row:
        known = {number: content.digest_of(number) for number in numbers}
        return {str(number): (found or UNOPENED).hex() for number, found in known.items()}
    if content is not None and len(content.digests):
        return {"file": content.digests[0].tobytes().hex()}
    files = study.files()
    if not study.random_access:
        return {"file": file_digest(files[0]).hex()} if files else {}
    rows = np.searchsorted(study.numbers, numbers)
    pairs = zip(numbers, rows.tolist(), strict=True) if files else ()
    return {str(number): file_digest(files[row]).hex() for number, row in pairs}


def _require_sources(study: Study, sources: dict[str, str]) -> None:
    """Refuse a study whose files are not those that the pictures were taken from."""
    files = study.files()
    if not files or "file" in sources:
        return
    for number, stated in sources.items():
        row = int(np.searchsorted(study.numbers, int(number)))
        if file_digest(files[row]).hex() != stated:
            raise _changed_error(study, f"frame {number}")


def _changed_error(study: Study, file: str) -> StudyError:
    return StudyError(
        f"{file} of study {study.id} is not the one that was read: it has changed since",
        "run `enteron read` again when nothing writes to the study",
    )


def require_pictures_of(folder: Path, identity: ReadingIdentity) -> None:
    """Refuse pictures of another study, or of other content of the study, in a reading folder."""
    if not (folder / PICTURES / INDEX).exists():
        return
    read_index(folder / PICTURES)  # refuses a damaged one
    index = read_json(folder / PICTURES / INDEX, limit=RECORD_LIMIT)
    study, content = index.get("study"), index.get("content")
    if (study, content) != (identity.study, identity.content):
        raise EnteronError(
            f"the folder '{PICTURES}' holds pictures of other frames than those that were read",
            f"delete it, or take the pictures again: enteron report {folder.name} --study STUDY",
        )


def read_index(pictures: Path) -> SavedPictures:
    """What the folder `pictures` holds; nothing when it has no index."""
    if not (pictures / INDEX).exists():
        return SavedPictures()
    remedy = f"delete the folder '{PICTURES}' and read the study again"
    source = f"{PICTURES}/{INDEX}"
    index = read_json(pictures / INDEX, remedy, source=source, limit=RECORD_LIMIT)
    try:
        return SavedPictures(
            tuple(int(number) for number in index["frames"]),
            tuple((int(row["frame"]), str(row["reason"])) for row in index["unreadable"]),
            bool(index["masked"]),
            tuple(int(number) for number in index["withheld"]),
            {int(number): str(text) for number, text in index["pictures"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnteronError(f"{PICTURES}/{INDEX} is damaged", remedy) from error


def _are_saved(
    pictures: Path,
    study: str,
    frames: tuple[int, ...],
    mask_text: bool,
    sources: dict[str, str],
) -> bool:
    """Whether exactly these pictures, of these very files, are in the folder already."""
    try:
        index = read_json(pictures / INDEX, limit=RECORD_LIMIT)
        unreadable = {int(row["frame"]) for row in index["unreadable"]}
        return (
            (index["study"], index["masked"]) == (study, mask_text)
            and {*index["frames"], *unreadable, *index["withheld"]} == set(frames)
            and index["sources"] == sources
            and all(
                digest(read_picture(pictures / picture_name(number))).hex()
                == index["pictures"][str(number)]
                for number in index["frames"]
            )
        )
    except (EnteronError, OSError, ValueError, KeyError, TypeError):
        return False


def _remove_others(pictures: Path, frames: tuple[int, ...]) -> None:
    """Delete pictures of an earlier run, which may have been chosen or masked otherwise."""
    names = {picture_name(number) for number in frames}
    for path in pictures.glob("frame_*.jpg"):
        if path.name not in names:
            path.unlink()


def picture_name(frame: int) -> str:
    """The file of a frame in `pictures/`."""
    return f"frame_{frame:06d}.jpg"


def encode_jpeg(image: RGB) -> bytes:
    """A JPEG file without any metadata."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def _spread(numbers: list[int], count: int) -> list[int]:
    """At most `count` of the numbers, evenly spread."""
    indices = np.linspace(0, len(numbers) - 1, min(count, len(numbers))).round().astype(int)
    return [numbers[index] for index in indices]


def small(image: RGB) -> RGB:
    """A frame in the size in which it is saved and judged."""
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


# ---- what fits the page

BUDGET: Final = 7_500_000  # characters of base64: with the curves the page stays below 12 MB
LEAST_BUDGET: Final = 1_500_000
CARD: Final = 1_500  # characters of an event's card
CARDS_BESIDE: Final = 500  # cards that fit beside the whole budget


@dataclass(frozen=True)
class Picture:
    """One picture on the page."""

    frame: int
    data: str  # data: URI
    width: int  # pixels, so that the page keeps its layout while pictures load
    height: int


@dataclass(frozen=True)
class Album:
    """The pictures that fit, by frame number, and what became of the others."""

    pictures: dict[int, Picture] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    left_out: int = 0  # pictures that are on disk and did not fit
    masked: bool = True
    withheld: frozenset[int] = frozenset()  # frames that do not look like the gut

    def first_of(self, frames: Iterable[int]) -> Picture | None:
        """The first of these frames that has a picture."""
        return next((self.pictures[frame] for frame in frames if frame in self.pictures), None)

    def all_of(self, frames: Iterable[int]) -> tuple[Picture, ...]:
        """Those of these frames that have a picture."""
        return tuple(self.pictures[frame] for frame in frames if frame in self.pictures)


def picture_budget(events: int) -> int:
    """Characters for pictures on a page with so many events."""
    return max(LEAST_BUDGET, BUDGET - CARD * max(0, events - CARDS_BESIDE))


def load_album(
    folder: Path, choice: PictureChoice, *, device_text: bool, budget: int = BUDGET
) -> Album:
    """Pictures of a reading folder, the most important first until the budget is spent.

    Text that the recorder wrote is removed from pictures that were saved with it, unless
    `device_text`.
    """
    folder = folder / PICTURES
    saved = read_index(folder)
    unreadable = dict(saved.unreadable)
    pictures: dict[int, Picture] = {}
    left_out: set[int] = set()
    spent = 0
    withheld = set(saved.withheld)
    views = {} if saved.masked or device_text else _views_of_saved(folder)
    for frame in choice.by_importance:
        path = folder / picture_name(frame)
        if frame in pictures or frame in unreadable or frame not in saved.digests:
            continue
        if not path.is_file():
            continue
        try:
            shown = _shown(path, views, saved.digests[frame])
        except UnreadablePictureError as error:
            unreadable[frame] = str(error)
            continue
        if shown is None:
            withheld.add(frame)
            continue
        data, height, width = shown
        uri = "data:image/jpeg;base64," + b64encode(data).decode()
        if spent + len(uri) > budget:
            left_out.add(frame)
            continue
        spent += len(uri)
        pictures[frame] = Picture(frame, uri, width, height)
    masked = saved.masked or not device_text
    return Album(pictures, unreadable, len(left_out), masked, frozenset(withheld))


def _shown(
    path: Path, views: dict[Shape, View | None], stated: str
) -> tuple[bytes, int, int] | None:
    """A JPEG as it may be shown, height and width; None for a title card.

    It is decoded, so that a damaged one is noticed.
    """
    data = read_picture(path)
    image = decode_picture(data)
    if digest(data).hex() != stated:
        raise EnteronError(
            f"{PICTURES}/{path.name} is not the picture that {PICTURES}/{INDEX} names",
            f"delete the folder '{PICTURES}' and read the study again",
        )
    if image.shape in views:
        view = views[image.shape]
        if view is None or not view.shows(image):
            return None
        data = encode_jpeg(masked(image, view.keep))
    return data, image.shape[0], image.shape[1]


def _views_of_saved(folder: Path) -> dict[Shape, View | None]:
    """The field of view for every size of picture, from pictures that were saved unmasked."""
    by_shape: dict[Shape, list[RGB]] = defaultdict(list)
    for path in sorted(folder.glob("frame_*.jpg")):
        try:
            image = decode_picture(read_picture(path))
        except UnreadablePictureError:
            continue  # reported by `load_album` if it is to be shown
        if len(by_shape[image.shape]) < SAMPLES:
            by_shape[image.shape].append(image)
    return {shape: measure_view(images) for shape, images in by_shape.items()}

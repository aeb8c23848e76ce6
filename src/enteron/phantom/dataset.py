"""Synthetic studies on disk, in Galar's layout or the challenge's, drawn by several processes.

A study depends on the options, the priors and its own number only. So labels and frames are the
same bytes for any number of processes, a killed run can be resumed, and studies can be added later.
"""

import multiprocessing
import multiprocessing.connection
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import av
import cv2
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from enteron.datasets.galar import write_challenge_file, write_label_table, write_metadata
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.datasets.submission import write_submission
from enteron.errors import EnteronError
from enteron.files import (
    RECORD_LIMIT,
    make_folder,
    read_json,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARK_BETWEEN, LANDMARKS, REGIONS
from enteron.locks import LOCK, folder_lock
from enteron.options import Options
from enteron.phantom.film import RENDERER, Film
from enteron.phantom.motion import STALLED_SHARE
from enteron.phantom.timeline import Timeline, TimelineOptions, draw_timeline, study_seed
from enteron.phantom.trace import Bytes
from enteron.priors import Priors, load_priors, priors_hash, priors_to_json
from enteron.runs import runs_of
from enteron.study.picture import encode_png
from enteron.study.study import METADATA_FILE, StudyMetadata
from enteron.types import FrameAxis, Unit

MANIFEST = "phantom.json"
TRUTH = "truth.json"
TEST_FOLDER = "Testdata_ICPR_2026_RARE_Challenge"
UPDATED_FOLDER = "20251215_Labels_Updated"

SYSTEMS = {"olympus": "Olympus", "pillcam": "PillCam SB3", "navicam": "NaviCam"}
"""Name of each device in `metadata.csv`."""

STORED_STEP = {"olympus": 1, "pillcam": 5, "navicam": 1}
"""As in Galar: every fifth frame of a PillCam study is stored, every frame of an Olympus study."""

VIDEO_RATE = Fraction(3)  # frames a second; capsules record 2 to 6
# The loss is hardly visible. Nothing is reordered, as by a recorder that encodes while it records.
_VIDEO_QUALITY = {"crf": "16", "preset": "veryfast", "bf": "0"}

CHUNK = 256
"""Frames that a worker draws at a time. Many, since it builds the walls of the regions that it
meets; but not so many that the last chunk keeps a single core busy or that progress stalls."""


class PhantomOptions(Options):
    """What to draw."""

    frames: int = Field(ge=1, le=1_000_000)
    """Stored frames of each study."""

    seed: int = Field(default=1, ge=0, le=2**63)
    """Seed of all random numbers; each study uses it together with its own number."""

    device: Literal["olympus", "pillcam", "navicam", "mixed"] = "mixed"
    """`mixed` alternates PillCam and Olympus; NaviCam is for tests on an unseen device."""

    rarity: float = Field(default=1.0, ge=0, le=1000)
    """1 as rare as in the data, 0 every landmark and finding in every study, above 1 rarer."""

    stalls: float = Field(default=STALLED_SHARE, ge=0, le=1)
    """Share of frames in which the capsule hardly moves."""

    video: bool = False
    """Write a video file per study instead of a folder of frames."""


@dataclass(frozen=True)
class StudyPlan:
    """One synthetic study before it is drawn: its layout on disk, its labels and its film."""

    number: int  # from 1
    options: PhantomOptions
    priors: Priors

    @property
    def device(self) -> str:
        if self.options.device != "mixed":
            return self.options.device
        return ("olympus", "pillcam")[self.number % 2]

    @property
    def is_test(self) -> bool:
        """Whether the study has the layout of the test set: NaviCam, unseen in training."""
        return self.device == "navicam"

    @property
    def id(self) -> str:
        return f"ukdd_navi_{self.number:05d}" if self.is_test else str(self.number)

    @property
    def folder(self) -> str:
        """Folder of the images, relative to the root; a video has the same name and `.mp4`."""
        if self.is_test:
            return f"{TEST_FOLDER}/{self.id}"
        first = (self.number - 1) // 10 * 10 + 1
        name = f"recording_{self.id}" if self.number % 4 == 0 else self.id
        return f"Galar_Frames_{first}_to_{first + 9}/{name}"

    def image_name(self, frame: int) -> str:
        return f"frame_{frame:07d}.png" if self.is_test else f"frame_{frame:06d}.PNG"

    @property
    def is_updated(self) -> bool:
        """Whether the dataset has corrected labels for it: a quarter of the studies."""
        return not self.is_test and self.number % 4 == 3

    @property
    def is_technical(self) -> bool:
        """Whether its label file starts with technical columns, as 6 of the 80 real ones do."""
        return not self.is_test and self.number % 13 == 2

    @cached_property
    def _seeds(self) -> list[np.random.SeedSequence]:
        """Seeds of the timeline, the film and the labels."""
        return study_seed(self.options.seed, self.number).spawn(3)

    @cached_property
    def timeline(self) -> Timeline:
        """What every row shows, and how far a real transit was shortened for it."""
        options = TimelineOptions(rarity=self.options.rarity)
        return draw_timeline(self.options.frames, self._seeds[0], self.priors, options)

    @property
    def metadata(self) -> StudyMetadata:
        """What is stored with the study, for the decoders."""
        return StudyMetadata(frames_per_row=max(round(self.timeline.frames_per_row, 3), 0.001))

    @cached_property
    def table(self) -> LabelTable:
        """The true labels, exactly as drawn."""
        timeline = self.timeline
        rng = np.random.default_rng(self._seeds[2])
        step = 1 if self.options.video else STORED_STEP[self.device]
        # Real recordings start at any number; a video counts its frames from 0.
        first = 0 if self.options.video else int(rng.integers(0, 100))
        index = np.arange(first, first + len(timeline.labels), dtype=np.int64)
        return LabelTable(self.id, FrameAxis(step * index), index, timeline.labels, self.is_updated)

    @cached_property
    def uncorrected_table(self) -> LabelTable:
        """The labels before their correction: one border set late, one run of a finding missed."""
        values = self.table.values.copy()
        rng = np.random.default_rng([*self._seeds[2].generate_state(2), 1])
        regions = values[:, : len(REGIONS)]
        borders = np.flatnonzero((regions[1:] != regions[:-1]).any(axis=1)) + 1
        if borders.size:
            border = int(rng.choice(borders))
            late = min(int(rng.integers(1, 6)), len(values) - border)
            regions[border : border + late] = regions[border - 1]
        findings = [label for label in FINDINGS if values[:, COLUMN[label]].any()]
        if findings:
            column = COLUMN[findings[int(rng.integers(len(findings)))]]
            runs = runs_of(values[:, column])
            start, stop = runs[int(rng.integers(len(runs)))]
            values[start:stop, column] = False
        return LabelTable(self.id, self.table.axis, self.table.index, values)

    def film(self) -> Film:
        """The pictures, each drawn when it is asked for."""
        seed = int(self._seeds[1].generate_state(1)[0])
        frames, stalls = self.table.axis.frames, self.options.stalls
        return Film(self.table.values, self.device, seed, frames, stalls)


def make_studies(
    root: Path,
    studies: int,
    options: PhantomOptions,
    workers: int | None = None,
    *,
    priors: Priors | None = None,
) -> Iterator[int]:
    """Write studies 1 to `studies` under `root`; yields the frames of every chunk once it is drawn.

    Complete studies are left as they are, and stay in the listings even if they lie beyond.
    Without `priors` the packaged ones are used, without `workers` one process per core.
    """
    if not root.exists():
        make_folder(root)
    with folder_lock(root) if root.is_dir() else nullcontext():
        yield from _make_studies(root, studies, options, workers, priors)


def _make_studies(
    root: Path,
    studies: int,
    options: PhantomOptions,
    workers: int | None,
    priors: Priors | None,
) -> Iterator[int]:
    priors = load_priors() if priors is None else priors
    plans = [StudyPlan(number, options, priors) for number in range(1, studies + 1)]
    _claim(root, options, priors)
    incomplete = [plan for plan in plans if not _completion_file(root, plan).exists()]
    for plan in incomplete:
        folder = root / plan.folder
        make_folder(folder.parent if options.video else folder)
    by_number = {plan.number: plan for plan in incomplete}
    chunks_left = {plan.number: len(_chunks(plan.number, options)) for plan in incomplete}
    work = (chunk for plan in incomplete for chunk in _chunks(plan.number, options))
    for chunk in _in_parallel(_Drawing(root, options, priors_to_json(priors)), work, workers):
        chunks_left[chunk.study] -= 1
        if chunks_left[chunk.study] == 0:
            _complete(root, by_number.pop(chunk.study))
        yield chunk.stop - chunk.start
    _write_listings(root, options, priors)


def frames_to_make(root: Path, studies: int, options: PhantomOptions) -> int:
    """How many frames `make_studies` would draw."""
    priors = load_priors()  # the layout, which alone counts here, does not depend on them
    plans = (StudyPlan(number, options, priors) for number in range(1, studies + 1))
    return sum(options.frames for plan in plans if not _completion_file(root, plan).exists())


class PriorsRecord(Options):
    """Which priors studies were drawn from."""

    source: str
    sha256: str

    def __str__(self) -> str:
        return f"the priors of '{self.source}' ({self.sha256[:12]})"


class Manifest(Options):
    """`phantom.json`: how the studies of a root were made."""

    made_by: str = Field(alias="made by")
    options: PhantomOptions
    priors: PriorsRecord | None = None  # None: the packaged ones
    renderer: int = 1  # not recorded before the second


def _record(priors: Priors) -> PriorsRecord | None:
    if priors == load_priors():
        return None
    return PriorsRecord(source=priors.source, sha256=priors_hash(priors))


def _claim(root: Path, options: PhantomOptions, priors: Priors) -> None:
    """Create the root with its manifest, or check that it was made with the same options."""
    path = root / MANIFEST
    record = _record(priors)
    if path.exists():
        _require_same(root, _read_manifest(path), options, record)
        return
    make_folder(root)
    if any(path.name != LOCK for path in root.iterdir()):
        raise EnteronError(
            f"'{root.name}' exists and is not empty", "give a new or an empty folder"
        )
    manifest = Manifest.model_validate(
        {
            "made by": f"enteron {version('enteron')}",
            "options": options,
            "priors": record,
            "renderer": RENDERER,
        }
    )
    content = manifest.model_dump(by_alias=True, exclude_none=True)
    write_json(path, content)


def _read_manifest(path: Path) -> Manifest:
    source, remedy = f"{MANIFEST} in '{path.parent.name}'", "give an empty folder"
    table = read_json(path, remedy, source=source, limit=RECORD_LIMIT)
    try:
        return Manifest.model_validate(table)
    except ValidationError as error:
        raise EnteronError(f"{source} cannot be read", remedy) from error


def _require_same(
    root: Path, manifest: Manifest, options: PhantomOptions, record: PriorsRecord | None
) -> None:
    for name in PhantomOptions.model_fields:
        stored, wanted = getattr(manifest.options, name), getattr(options, name)
        if stored != wanted:
            raise EnteronError(
                f"'{root.name}' holds synthetic studies made with {name} {stored}, not {wanted}",
                "give another folder, or the same options to add studies",
            )
    if manifest.renderer != RENDERER:
        raise EnteronError(
            f"'{root.name}' holds pictures of renderer {manifest.renderer}, not {RENDERER}",
            "give another folder: studies of two renderers look different",
        )
    if manifest.priors != record:
        stored, wanted = (
            str(priors or "the packaged priors") for priors in (manifest.priors, record)
        )
        raise EnteronError(
            f"'{root.name}' holds synthetic studies drawn from {stored}, not from {wanted}",
            "give another folder, or the same --priors to add studies",
        )


@dataclass(frozen=True)
class _Chunk:
    """Frames [start, stop) of one study, drawn by one worker."""

    study: int
    start: int
    stop: int


def _chunks(study: int, options: PhantomOptions) -> list[_Chunk]:
    """All frames of a study; a video is a single chunk."""
    size = options.frames if options.video else min(CHUNK, -(-options.frames // 4))
    starts = range(0, options.frames, size)
    return [_Chunk(study, start, min(start + size, options.frames)) for start in starts]


@dataclass(frozen=True)
class _Drawing:
    """What a worker needs to know to draw any chunk."""

    root: Path
    options: PhantomOptions
    priors: str  # JSON: a worker parses it once per study, and it is a key of the cache

    def draw(self, chunk: _Chunk) -> _Chunk:
        """Draw the pictures of a chunk into their files."""
        cv2.setNumThreads(1)  # the workers already share the cores
        plan, film = _plan_and_film(chunk.study, self.options.model_dump_json(), self.priors)
        if self.options.video:
            write_video(self.root / f"{plan.folder}.mp4", film, plan.metadata)
            return chunk
        folder = self.root / plan.folder
        for row in range(chunk.start, chunk.stop):
            data = encode_png(film.frame(row))
            # Not written atomically, which would take as long as drawing: a study counts as
            # complete only once its labels exist, and those are written last.
            path = folder / plan.image_name(int(plan.table.axis.frames[row]))
            with writing(path):
                path.write_bytes(data)
        return chunk


@lru_cache(maxsize=1)
def _plan_and_film(study: int, options: str, priors: str) -> tuple[StudyPlan, Film]:
    """The film that a worker is drawing; its next chunk is mostly of the same study."""
    plan = StudyPlan(
        study,
        PhantomOptions.model_validate_json(options),
        Priors.model_validate_json(priors),
    )
    return plan, plan.film()


def _in_parallel(
    drawing: _Drawing, chunks: Iterable[_Chunk], workers: int | None
) -> Iterator[_Chunk]:
    """Chunks in order as they are drawn; only a few are queued at any time."""
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers == 1:
        for chunk in chunks:
            yield drawing.draw(chunk)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_end_with_parent) as pool:
        queued: deque[Future[_Chunk]] = deque()
        try:
            for chunk in chunks:
                queued.append(pool.submit(drawing.draw, chunk))
                if len(queued) >= 3 * workers:
                    yield queued.popleft().result()
            while queued:
                yield queued.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this worker when its parent is killed: it would draw on without holding the lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="enteron-parent", daemon=True).start()


def write_video(path: Path, film: Film, metadata: StudyMetadata) -> None:
    """Write every frame in order; the file gets its name only once it is complete."""
    part = path.with_name(f".{path.name}")
    with writing(path), av.open(str(part), "w", format="mp4") as container:
        container.metadata["comment"] = metadata.to_comment()
        stream = container.add_stream("libx264", rate=VIDEO_RATE, options=_VIDEO_QUALITY)
        assert isinstance(stream, VideoStream)
        stream.height, stream.width = film.frame(0).shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # the result must not depend on the cores
        for row in range(len(film)):
            frame = av.VideoFrame.from_ndarray(film.frame(row), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    part.replace(path)


def _completion_file(root: Path, plan: StudyPlan) -> Path:
    """The file that is written last: a study that has it is complete."""
    if plan.is_test:
        return root / TEST_FOLDER / f"{plan.id}.csv"
    return root / "Labels" / f"{plan.id}.csv"


def _complete(root: Path, plan: StudyPlan) -> None:
    """Write metadata and labels of a study whose pictures are drawn, the completion file last."""
    if not plan.options.video:
        write_text(root / plan.folder / METADATA_FILE, plan.metadata.to_json() + "\n")
    if plan.is_test:
        names = [plan.image_name(int(frame)) for frame in plan.table.axis.frames]
        write_challenge_file(_completion_file(root, plan), names)
        return
    make_folder(root / "Labels")
    if plan.is_updated:
        make_folder(root / UPDATED_FOLDER)
        corrected = root / UPDATED_FOLDER / f"{plan.id}.csv"
        write_label_table(corrected, plan.table, technical=plan.is_technical)
    original = plan.uncorrected_table if plan.is_updated else plan.table
    write_label_table(_completion_file(root, plan), original, technical=plan.is_technical)


def _complete_studies(root: Path, options: PhantomOptions, priors: Priors) -> list[StudyPlan]:
    """Every complete study of the root by number, also those that this run did not ask for."""
    folder = _completion_file(root, StudyPlan(1, options, priors)).parent
    numbers = {int(digits) for path in folder.glob("*.csv") if (digits := _digits(path.stem))}
    plans = (StudyPlan(number, options, priors) for number in sorted(numbers))
    return [plan for plan in plans if _completion_file(root, plan).exists()]


def _digits(name: str) -> str:
    """The number at the end of a study's id; empty where there is none."""
    match = re.search(r"[0-9]{1,9}$", name)
    return "" if match is None else match.group()


def _write_listings(root: Path, options: PhantomOptions, priors: Priors) -> None:
    """Write the files that cover all studies: metadata, and the truth of test studies."""
    complete = _complete_studies(root, options, priors)
    write_metadata(root / "metadata.csv", {plan.id: SYSTEMS[plan.device] for plan in complete})
    truth = [truth_events(plan.table, Unit.FRAME) for plan in complete if plan.is_test]
    if truth:
        write_submission(root / TRUTH, truth)


# ---- the contact sheet: examples of every label and device on one page

_CELL = 168  # pixels of one example
_HEAD = 150  # pixels of a row's name
_LINE = 26  # pixels of a heading
_STRIP = 12  # frames of the strip
_EXAMPLES = 3  # per label and device
_EXAMPLE_ROWS = 40
_HOME = {"lymphangioectasis": "small intestine", "hematin": "small intestine"}


def example_labels(label: str, example: int) -> NDArray[np.bool_]:
    """(40, 17) labels of a short study that shows a label in its middle, in a fitting region."""
    rows = np.zeros((_EXAMPLE_ROWS, len(LABELS)), np.bool_)
    if label in REGIONS:
        region = label
    elif label in LANDMARKS:
        region = LANDMARK_BETWEEN[label][0]
    else:
        region = _HOME.get(label, ("small intestine", "colon", "stomach")[example % 3])
    rows[:, COLUMN[region]] = True
    rows[10:30, COLUMN[label]] = True
    return rows


def _small(frame: Bytes, side: int) -> Bytes:
    return np.asarray(cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def _write(page: Bytes, text: str, x: int, y: int, scale: float = 0.45) -> None:
    cv2.putText(
        page, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, (235, 235, 235), 1, cv2.LINE_AA
    )


def contact_sheet(
    seed: int = 1,
    labels: tuple[str, ...] = LABELS,
    devices: tuple[str, ...] = ("olympus", "pillcam", "navicam"),
) -> Bytes:
    """One RGB page: a row per label with examples of every device, then a strip per device."""
    width = _HEAD + len(devices) * _EXAMPLES * _CELL
    strip_side = (width - _HEAD) // _STRIP
    height = _LINE + len(labels) * _CELL + _LINE + len(devices) * strip_side
    page = np.full((height, width, 3), 24, np.uint8)
    for column, device in enumerate(devices):
        _write(page, device, _HEAD + column * _EXAMPLES * _CELL + 6, 18)
        for example in range(_EXAMPLES):
            # One patient per column, with all labels one after the other.
            rows = np.concatenate([example_labels(label, example) for label in labels])
            film = Film(rows, device, seed * 1000 + 10 * column + example, stalls=0.2)
            left = _HEAD + (column * _EXAMPLES + example) * _CELL
            for row in range(len(labels)):
                top = _LINE + row * _CELL
                frame = film.frame(row * _EXAMPLE_ROWS + 20)
                page[top : top + _CELL, left : left + _CELL] = _small(frame, _CELL)
    for row, label in enumerate(labels):
        _write(page, label, 6, _LINE + row * _CELL + _CELL // 2)
    top = _LINE + len(labels) * _CELL
    _write(page, "consecutive frames, the last third with a polyp", 6, top + 18)
    for row, device in enumerate(devices):
        rows = np.zeros((200, len(LABELS)), np.bool_)
        rows[:, COLUMN["small intestine"]] = True
        # The strip is taken where the capsule moves most.
        moves = np.diff(Film(rows, device, seed).motion.activity) > 0.02
        start = int(np.convolve(moves, np.ones(_STRIP), "valid").argmax())
        rows[start + 2 * _STRIP // 3 : start + _STRIP, COLUMN["polyp"]] = True
        film = Film(rows, device, seed)
        strip_top = top + _LINE + row * strip_side
        _write(page, device, 6, strip_top + strip_side // 2)
        for k in range(_STRIP):
            left = _HEAD + k * strip_side
            small = _small(film.frame(start + k), strip_side)
            page[strip_top : strip_top + strip_side, left : left + strip_side] = small
    return page


def save_sheet(path: Path, seed: int = 1) -> None:
    """Write the contact sheet as PNG."""
    packed = cv2.imencode(".png", cv2.cvtColor(contact_sheet(seed), cv2.COLOR_RGB2BGR))[1]
    write_bytes(path, packed.tobytes())

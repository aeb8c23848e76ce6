"""Make synthetic studies on disk, in Galar's layout and the challenge's, in parallel."""

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
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
from pydantic import Field

from enteron.datasets.galar import write_challenge_file, write_label_table, write_metadata
from enteron.datasets.label_table import LabelTable, truth_events
from enteron.datasets.submission import write_submission
from enteron.errors import EnteronError
from enteron.files import write_text
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.options import Options, make_options
from enteron.phantom.film import Film
from enteron.phantom.time_scale import write_frames_per_row
from enteron.phantom.timeline import Timeline, TimelineOptions, draw_timeline, study_seed
from enteron.priors import Priors, load_priors
from enteron.runs import runs_of
from enteron.study.picture import encode_png
from enteron.types import FrameAxis, Unit

TEST_FOLDER = "Testdata_ICPR_2026_RARE_Challenge"
UPDATED_FOLDER = "20251215_Labels_Updated"
SYSTEMS = {"olympus": "Olympus", "pillcam": "PillCam SB3", "navicam": "NaviCam"}
# As in Galar: of PillCam studies every fifth frame is stored, of Olympus studies every one.
STORED_STEP = {"olympus": 1, "pillcam": 5, "navicam": 1}


class PhantomOptions(Options):
    """What to make."""

    frames: int = Field(ge=1)
    """Stored frames of each study."""

    seed: int = Field(default=1, ge=0)
    """Everything follows from it; a study depends on it and on its own number only."""

    device: Literal["olympus", "pillcam", "navicam", "mixed"] = "mixed"
    """`mixed` alternates PillCam and Olympus; NaviCam is for tests on a device never seen."""

    rarity: float = Field(default=1.0, ge=0)
    """1 as rare as in the data, 0 every landmark and finding in every study, above 1 rarer."""

    stalls: float = Field(default=0.5, ge=0, le=1)
    """Share of frames in which the capsule hardly moves."""

    video: bool = False
    """A video file per study instead of a folder of frames."""


@dataclass(frozen=True)
class StudyPlan:
    """One synthetic study before it is drawn; a function of the options and its number."""

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
        """Studies of the device that training never sees are laid out as the test set is."""
        return self.device == "navicam"

    @property
    def id(self) -> str:
        return f"ukdd_navi_{self.number:05d}" if self.is_test else str(self.number)

    @property
    def folder(self) -> str:
        """Where its images go, relative to the root."""
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
        """Whether its label file has technical columns in front, as in six studies of 80."""
        return not self.is_test and self.number % 13 == 2

    @cached_property
    def _seeds(self) -> list[np.random.SeedSequence]:
        return study_seed(self.options.seed, self.number).spawn(3)

    @property
    def _film_seed(self) -> int:
        return int(self._seeds[1].generate_state(1)[0])

    @cached_property
    def timeline(self) -> Timeline:
        """What every row shows, and how far a real transit was shortened for it."""
        options = TimelineOptions(rarity=self.options.rarity)
        return draw_timeline(self.options.frames, self._seeds[0], self.priors, options)

    @cached_property
    def table(self) -> LabelTable:
        """The true labels: what is drawn is exactly this."""
        timeline = self.timeline
        rng = np.random.default_rng(self._seeds[2])
        step = 1 if self.options.video else STORED_STEP[self.device]
        # Real recordings start somewhere; a video counts its frames from 0.
        first = 0 if self.options.video else int(rng.integers(0, 100))
        index = np.arange(first, first + len(timeline.labels), dtype=np.int64)
        return LabelTable(self.id, FrameAxis(step * index), index, timeline.labels, self.is_updated)

    def film(self) -> Film:
        """The study to look at."""
        frames, stalls = self.table.axis.frames, self.options.stalls
        return Film(self.table.values, self.device, self._film_seed, frames, stalls)

    @cached_property
    def slipped_table(self) -> LabelTable:
        """The labels before their correction: a border set late, and a run of a finding missed."""
        values = self.table.values.copy()
        rng = np.random.default_rng([*self._seeds[2].generate_state(2), 1])
        regions = values[:, : len(REGIONS)]
        borders = np.flatnonzero((regions[1:] != regions[:-1]).any(axis=1)) + 1
        if borders.size:
            border = int(rng.choice(borders))
            late = min(int(rng.integers(1, 6)), len(values) - border)
            regions[border : border + late] = regions[border - 1]
        shown = [label for label in FINDINGS if values[:, COLUMN[label]].any()]
        if shown:
            column = COLUMN[shown[int(rng.integers(len(shown)))]]
            runs = runs_of(values[:, column])
            start, stop = runs[int(rng.integers(len(runs)))]
            values[start:stop, column] = False
        return LabelTable(self.id, self.table.axis, self.table.index, values)


RATE = Fraction(3)  # frames a second; capsules record 2 to 6
_QUALITY = {"crf": "16", "preset": "veryfast"}  # hardly visible loss


def write_film(path: Path, film: Film) -> None:
    """Write every frame in order; the file is there only once it is whole."""
    part = path.with_name(f".{path.name}")
    with av.open(str(part), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=RATE, options=_QUALITY)
        assert isinstance(stream, VideoStream)
        stream.height, stream.width = film.frame(0).shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on every machine
        for row in range(len(film)):
            frame = av.VideoFrame.from_ndarray(film.frame(row), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    part.replace(path)


MANIFEST = "phantom.json"
TRUTH = "truth.json"
# Frames per piece of work. Long pieces, since each worker builds the walls of the regions that it
# meets; but not so long that the last one keeps a single core busy, or that progress stands still.
CHUNK = 256


@dataclass(frozen=True)
class Chunk:
    """Frames [start, stop) of one study, to be drawn by one worker."""

    number: int
    options: PhantomOptions
    start: int
    stop: int


def make_studies(
    root: Path, studies: int, options: PhantomOptions, workers: int | None = None
) -> Iterator[int]:
    """Write studies 1 to `studies` under `root`; yields the number of frames of every piece made.

    The result does not depend on `workers`. What is already whole is left as it is, so a killed
    run goes on where it stopped, and more studies can be added later.
    """
    plans = [StudyPlan(number, options, load_priors()) for number in range(1, studies + 1)]
    _claim(root, options)
    todo = [plan for plan in plans if not _marker(root, plan).exists()]
    for plan in todo:
        (root / plan.folder).parent.mkdir(parents=True, exist_ok=True)
        if not options.video:
            (root / plan.folder).mkdir(exist_ok=True)
    left = {plan.number: len(_chunks(plan)) for plan in todo}
    by_number = {plan.number: plan for plan in todo}
    for chunk in _in_parallel(root, (c for plan in todo for c in _chunks(plan)), workers):
        left[chunk.number] -= 1
        if left[chunk.number] == 0:
            _finish(root, by_number.pop(chunk.number))
        yield chunk.stop - chunk.start
    _describe(root, plans)


def frames_to_make(root: Path, studies: int, options: PhantomOptions) -> int:
    """How many frames `make_studies` would draw."""
    plans = (StudyPlan(number, options, load_priors()) for number in range(1, studies + 1))
    return sum(options.frames for plan in plans if not _marker(root, plan).exists())


def _claim(root: Path, options: PhantomOptions) -> None:
    """Make the folder ours, or see that it was made with the same options."""
    manifest = root / MANIFEST
    if manifest.exists():
        try:
            content = json.loads(manifest.read_text(encoding="utf-8"))
            found = make_options(PhantomOptions, content["options"], MANIFEST)
        except (ValueError, KeyError, TypeError) as error:
            raise EnteronError(
                f"{MANIFEST} in '{root.name}' cannot be read", "give an empty folder"
            ) from error
        if found != options:
            differing = next(
                name
                for name in PhantomOptions.model_fields
                if getattr(found, name) != getattr(options, name)
            )
            raise EnteronError(
                f"'{root.name}' holds synthetic studies made with {differing} "
                f"{getattr(found, differing)}, not {getattr(options, differing)}",
                "give another folder, or the same options to add studies",
            )
        return
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise EnteronError(f"'{root.name}' is there and not empty", "give a new or an empty folder")
    root.mkdir(parents=True, exist_ok=True)
    content = {"made by": f"enteron {version('enteron')}", "options": options.model_dump()}
    write_text(manifest, json.dumps(content, indent=1) + "\n")


def _marker(root: Path, plan: StudyPlan) -> Path:
    """The file that is written last: a study that has it is whole."""
    if plan.is_test:
        return root / TEST_FOLDER / f"{plan.id}.csv"
    return root / "Labels" / f"{plan.id}.csv"


def _chunks(plan: StudyPlan) -> list[Chunk]:
    size = plan.options.frames if plan.options.video else min(CHUNK, -(-plan.options.frames // 4))
    starts = range(0, plan.options.frames, size)
    return [
        Chunk(plan.number, plan.options, start, min(start + size, plan.options.frames))
        for start in starts
    ]


def _in_parallel(root: Path, chunks: Iterable[Chunk], workers: int | None) -> Iterator[Chunk]:
    """Chunks as they are done, in order; only a few are ever waiting, whatever their number."""
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers == 1:
        for chunk in chunks:
            yield _draw(root, chunk)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        waiting: deque[Future[Chunk]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_draw, root, chunk))
                if len(waiting) >= 3 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@lru_cache(maxsize=1)
def _film(number: int, options: str) -> tuple[StudyPlan, Film]:
    """The film that a worker is drawing; the next chunk is mostly of the same one."""
    plan = StudyPlan(number, PhantomOptions.model_validate_json(options), load_priors())
    return plan, plan.film()


def _draw(root: Path, chunk: Chunk) -> Chunk:
    cv2.setNumThreads(1)  # the workers already share out the cores
    plan, film = _film(chunk.number, chunk.options.model_dump_json())
    if chunk.options.video:
        write_film(root / f"{plan.folder}.mp4", film)
        return chunk
    folder = root / plan.folder
    for row in range(chunk.start, chunk.stop):
        data = encode_png(film.frame(row))
        # Not atomic one by one, which would cost as much as drawing: a study counts as made only
        # once its labels are there, and those are written last.
        (folder / plan.image_name(int(plan.table.axis.frames[row]))).write_bytes(data)
    return chunk


def _finish(root: Path, plan: StudyPlan) -> None:
    """Write what belongs to a study whose pictures are there, the marker last."""
    if plan.is_test:
        names = [plan.image_name(int(frame)) for frame in plan.table.axis.frames]
        write_challenge_file(_marker(root, plan), names)
        return
    (root / "Labels").mkdir(exist_ok=True)
    if plan.is_updated:
        (root / UPDATED_FOLDER).mkdir(exist_ok=True)
        corrected = root / UPDATED_FOLDER / f"{plan.id}.csv"
        write_label_table(corrected, plan.table, technical=plan.is_technical)
    original = plan.slipped_table if plan.is_updated else plan.table
    write_label_table(_marker(root, plan), original, technical=plan.is_technical)


def _describe(root: Path, plans: list[StudyPlan]) -> None:
    """Metadata of all studies, and the truth of test studies, which their files do not tell."""
    made = [plan for plan in plans if _marker(root, plan).exists()]
    write_frames_per_row(root, {plan.id: plan.timeline.compression for plan in made})
    write_metadata(root / "metadata.csv", {plan.id: SYSTEMS[plan.device] for plan in made})
    tests = [truth_events(plan.table, Unit.FRAME) for plan in made if plan.is_test]
    if tests:
        write_submission(root / TRUTH, tests)

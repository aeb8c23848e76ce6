"""Make synthetic studies on disk, in Galar's layout and the challenge's, in parallel."""

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2

from enteron import __version__
from enteron.config import make_options
from enteron.errors import EnteronError
from enteron.files import write_text
from enteron.galar.submission import write_submission
from enteron.galar.truth import truth_events
from enteron.galar.writing import write_challenge_file, write_label_table, write_metadata
from enteron.phantom.film import Film
from enteron.phantom.plan import SYSTEMS, TEST_FOLDER, UPDATED_FOLDER, PhantomOptions, StudyPlan
from enteron.phantom.time_scale import write_frames_per_row
from enteron.phantom.video import write_film
from enteron.priors import load_priors
from enteron.study.picture import encode_png
from enteron.types import Unit

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
    content = {"made by": f"enteron {__version__}", "options": options.model_dump()}
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

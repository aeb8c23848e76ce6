"""The hot folder: studies that are copied into an inbox are read when they are whole.

A study is whole when none of its files has changed in size or time for some seconds, or, where
copying programs leave one, when its marker file is there. What was read is moved away, or marked by
a file `NAME.read` beside it. Nothing else is remembered: after a restart the inbox, the marks and
the reading folders tell what is left to do.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from pydantic import Field

from enteron.errors import EnteronError, StudyError
from enteron.files import make_folder, read_text, write_text
from enteron.fleet.catalogue import CatalogueKeeper
from enteron.fleet.discovery import find_tasks
from enteron.fleet.drift import store_reference
from enteron.fleet.queue import Queue, QueueOptions
from enteron.fleet.run import FleetOptions, OnOutcome, make_backend
from enteron.fleet.task import Task, study_stamp
from enteron.fleet.work import ExpectedReading, Outcome
from enteron.options import Options
from enteron.progress import Progress, SilentProgress
from enteron.reading import ReadOptions

MARK: Final = ".read"
_SLOWEST_LOOK: Final = 5.0
_FASTEST_LOOK: Final = 0.2


class WatchOptions(Options):
    """When a study is whole, and what becomes of it."""

    settle: float = Field(default=60.0, ge=0)
    """Seconds without a change."""
    marker: str | None = None
    """With a name such as `.done`: a study is whole when `STUDY.done` lies beside it or `.done` in
    its folder, and only then."""
    done: Path | None = None
    """Where studies are moved when they are read; None: they stay, with a mark beside them."""
    once: bool = False
    """End when every study of the inbox was dealt with."""

    @property
    def look(self) -> float:
        """Seconds between two looks at the inbox."""
        return min(max(self.settle / 4, _FASTEST_LOOK), _SLOWEST_LOOK)


@dataclass
class _Arrival:
    """A study in the inbox."""

    task: Task
    stamp: str
    since: float  # when it was first seen like this
    queued: bool = False


@dataclass
class Inbox:
    """What lies in the inbox, and since when."""

    folder: Path
    out: Path
    options: WatchOptions
    keep_names: bool = False
    clock: Callable[[], float] = time.monotonic
    on_problem: Callable[[str], None] = field(default=lambda sentence: None)
    is_queued: Callable[[str], bool] = field(default=lambda key: False)
    _arrivals: dict[str, _Arrival] = field(default_factory=dict)
    _handed: dict[str, str] = field(default_factory=dict)  # stamps of studies when handed out
    _told: str = ""

    def look(self) -> list[Task]:
        """The studies that are whole and were not handed out before, as they are now."""
        try:
            found = find_tasks(
                self.folder, self.out, keep_names=self.keep_names, empty_is_fine=True
            )
        except (EnteronError, OSError) as error:
            self._tell(str(error))  # half a copy can look like anything: it may pass
            return []
        self._told = ""
        now = self.clock()
        whole: list[Task] = []
        present: set[str] = set()
        for task in found.tasks:
            present.add(task.key)
            try:
                stamp = study_stamp(Path(task.path))
            except OSError:  # it vanished or is being renamed
                self._arrivals.pop(task.key, None)
                continue
            arrival = self._arrivals.get(task.key)
            if arrival is None or arrival.stamp != stamp:
                arrival = self._arrivals[task.key] = _Arrival(task, stamp, now)
                arrival.queued = read_mark(Path(task.path)) == stamp
            if arrival.queued or self.is_queued(task.key):  # it may change while it is read
                continue
            if self._is_whole(arrival, now):
                arrival.queued = True
                self._handed[task.key] = stamp
                whole.append(task)
        for key in self._arrivals.keys() - present:
            del self._arrivals[key]
        return whole

    def _is_whole(self, arrival: _Arrival, now: float) -> bool:
        marker, path = self.options.marker, Path(arrival.task.path)
        if marker is not None:
            beside = path.with_name(path.name + marker).exists()
            return beside or (path.is_dir() and (path / marker).exists())
        return now - arrival.since >= self.options.settle

    @property
    def waiting(self) -> int:
        """Studies that are not whole yet."""
        return sum(not arrival.queued for arrival in self._arrivals.values())

    def dismiss(self, task: Task, study: str | None) -> None:
        """Move a study that was read away, or mark it; not if it has changed meanwhile."""
        path = Path(task.path)
        stamp = self._handed.pop(task.key, None)
        try:
            if stamp is None or study_stamp(path) != stamp:
                return  # the next look sees it as a new arrival
            if self.options.done is not None:
                move_study(path, self.options.done)
            else:
                write_mark(path, stamp, study)
        except (EnteronError, OSError) as error:
            reason = error.problem if isinstance(error, EnteronError) else error.strerror
            self.on_problem(f"{path.name} was read and stays in the inbox ({reason})")

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self.on_problem(sentence)


# ---- marks and moves


def _mark_path(path: Path) -> Path:
    return path.with_name(path.name + MARK)


def write_mark(path: Path, stamp: str, study: str | None) -> None:
    """Say beside a study that it was read as it is now, and under which id."""
    write_text(_mark_path(path), f"{stamp} {study or ''}\n")


def read_mark(path: Path) -> str | None:
    """The stamp of a study when it was read; None where it has no mark."""
    mark = _mark_path(path)
    if not mark.is_file():
        return None
    with suppress(EnteronError):
        return read_text(mark, 1000, "delete it").split(" ")[0]
    return None


def move_study(path: Path, done: Path) -> Path:
    """Move a study, and its marker file, into another folder; one of the same name is kept."""
    make_folder(done)
    target, number = done / path.name, 1
    while target.exists():
        number += 1
        target = done / f"{path.stem}-{number}{path.suffix}"
    shutil.move(os.fspath(path), os.fspath(target))
    return target


# ---- the loop


def watch_inbox(
    inbox: Path | str,
    out: Path | str,
    *,
    model: Path | str,
    options: ReadOptions | None = None,
    fleet: FleetOptions | None = None,
    watch: WatchOptions | None = None,
    progress: Progress | None = None,
    on_outcome: OnOutcome = lambda task, outcome: None,
) -> None:
    """Read studies as they arrive, until the process is stopped, or with `once` until none is left.

    A study that fails is tried again like those of a run, and again when its files change.
    """
    progress, fleet, watch = (
        progress or SilentProgress(),
        fleet or FleetOptions(),
        watch or WatchOptions(),
    )
    folder, out, model = Path(inbox), Path(out), Path(model)
    _require_apart(folder, out, watch)
    ExpectedReading.of(model, options or ReadOptions())
    make_folder(out)
    store_reference(out, model)
    workers = fleet.workers
    backend, assignment = make_backend(out, model, options or ReadOptions(), fleet, workers or 64)
    keeper = CatalogueKeeper(out)
    arrivals = Inbox(
        folder,
        out,
        watch,
        fleet.keep_names,
        on_problem=lambda sentence: progress.message(f"{sentence.rstrip('.')}."),
    )

    def taken(task: Task, outcome: Outcome) -> None:
        on_outcome(task, outcome)
        if outcome.status in ("read", "kept"):
            arrivals.dismiss(task, outcome.study)
        keeper.refresh_if_due()

    queue = Queue(
        assignment,
        backend,
        QueueOptions(reserve=fleet.reserve_mib << 20),
        progress,
        on_outcome=taken,
    )
    arrivals.is_queued = queue.holds
    how = f"with '{watch.marker}'" if watch.marker else f"unchanged for {watch.settle:g} s"
    progress.message(f"Watching '{folder.name}' for studies {how}; {backend.description}.")
    try:
        with _stopped_by_signals():
            while True:
                queue.add(arrivals.look())
                if watch.once and queue.is_idle and not arrivals.waiting:
                    break
                queue.step(watch.look)
    except _StoppedError:
        progress.message("Stopped. Studies that were being read resume at the next start.")
    finally:
        backend.close()
        keeper.refresh()


def _require_apart(inbox: Path, out: Path, watch: WatchOptions) -> None:
    if not inbox.is_dir():
        raise StudyError(f"there is no folder '{inbox.name}'", "make it, or give another one")
    for name, folder in (("--out", out), ("--done", watch.done)):
        if folder is None:
            continue
        if folder.resolve().is_relative_to(inbox.resolve()):
            raise StudyError(
                f"{name} lies in the inbox, where its files would be taken for studies",
                "give a folder outside of the inbox",
            )


class _StoppedError(BaseException):
    """SIGTERM or Ctrl-C."""


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM, as systemd sends it, and Ctrl-C end the loop in order."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _StoppedError

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not in the main thread: whoever runs it decides
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

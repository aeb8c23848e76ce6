"""Readings under ROOT, and the studies behind them.

Nothing that a browser sends ever becomes part of a path: it names a study by its id, and the
catalogue knows the folder. Symbolic links are not followed out of the folders that were given.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from enteron.datasets.galar import search_root
from enteron.errors import EnteronError
from enteron.folders.reading import EVENTS, RUN, RunRecord, read_events_file
from enteron.folders.scores import SCORES
from enteron.folders.suspicious import SUSPICIOUS
from enteron.ids import natural_key
from enteron.labels import FINDINGS
from enteron.study.naming import default_id, own_name

DEEPEST: Final = 6  # folders below ROOT that are searched for readings
SETTLED: Final = 2.0  # seconds for which a listing of the folders is taken as it was
FILES: Final = (RUN, EVENTS, SCORES, SUSPICIOUS)


@dataclass(frozen=True)
class Entry:
    """A reading that can be opened."""

    study: str
    folder: Path
    frames: int | None
    findings: dict[str, int]  # events of the machine, by label
    finished: float  # when events.json was written, seconds since 1970


@dataclass(frozen=True)
class Problem:
    """A folder that looks like a reading and cannot be opened; named by its own name only."""

    folder: str
    sentence: str


@dataclass(frozen=True)
class Listing:
    """What lies under ROOT."""

    entries: dict[str, Entry] = field(default_factory=dict)  # by study id
    problems: tuple[Problem, ...] = ()


class Catalogue:
    """The readings under a folder; looked up again when somebody asks, at most every two seconds.

    `studies` are searched for the studies behind the readings, once, in the background.
    """

    def __init__(self, root: Path, studies: Path | None = None) -> None:
        if not root.is_dir():
            raise EnteronError(f"there is no folder '{root.name}'", "give a folder of readings")
        self.root = root.resolve()
        self._studies_root = self.root if studies is None else studies.resolve()
        if not self._studies_root.is_dir():
            raise EnteronError(
                f"there is no folder '{self._studies_root.name}'", "give the folder of the studies"
            )
        self._folders = ReadingFolders(self.root)
        self._lock = threading.Lock()
        self._listing = Listing()
        self._listed = -SETTLED
        self._known: dict[Path, tuple[object, Entry | Problem]] = {}
        self._candidates: dict[str, list[Path]] | None = None
        self._candidates_lock = threading.Lock()

    # ---- readings

    def listing(self) -> Listing:
        """The readings as they are on the disk."""
        with self._lock:
            if time.monotonic() - self._listed >= SETTLED:
                self._listing = self._list()
                self._listed = time.monotonic()
            return self._listing

    def entry(self, study: str) -> Entry | None:
        """The reading of a study; None where there is none, or more than one."""
        return self.listing().entries.get(study)

    def _list(self) -> Listing:
        results = [self._look(folder) for folder in self._folders]
        entries: dict[str, Entry] = {}
        problems = [result for result in results if isinstance(result, Problem)]
        by_study: dict[str, list[Entry]] = {}
        for result in results:
            if isinstance(result, Entry):
                by_study.setdefault(result.study, []).append(result)
        for study, found in sorted(by_study.items(), key=lambda pair: natural_key(pair[0])):
            if len(found) == 1:
                entries[study] = found[0]
                continue
            problems += [
                Problem(
                    entry.folder.name,
                    f"there are {len(found)} readings of study {study}; keep one of them here, so "
                    "that it is clear which one is reviewed.",
                )
                for entry in found
            ]
        return Listing(entries, tuple(problems))

    def _look(self, folder: Path) -> Entry | Problem:
        """One folder; looked into again only when its files have changed."""
        stamp = tuple(_stamp(folder / name) for name in FILES)
        before = self._known.get(folder)
        if before is not None and before[0] == stamp:
            return before[1]
        result: Entry | Problem
        try:
            result = _read_entry(folder)
        except EnteronError as error:
            result = Problem(folder.name, str(error))
        self._known[folder] = (stamp, result)
        return result

    # ---- studies

    def candidates(self, study: str) -> list[Path]:
        """Folders of frames and videos that may be a study, by name or by id made from content."""
        with self._candidates_lock:
            if self._candidates is None:
                self._candidates = self._search()
            return self._candidates.get(study, [])

    def _search(self) -> dict[str, list[Path]]:
        by_id: dict[str, list[Path]] = {}
        try:
            images = search_root(self._studies_root).images
        except EnteronError:
            return by_id  # the readings' own pictures are left
        for path in (path for paths in images.values() for path in paths):
            if not path.resolve().is_relative_to(self._studies_root):
                continue
            ids = {own_name(path)}
            with suppress(EnteronError):  # told when somebody reads it
                ids.add(default_id(path))
            for study in ids:
                by_id.setdefault(study, []).append(path)
        return by_id


def _read_entry(folder: Path) -> Entry:
    for name in (*FILES, "pictures"):
        if (folder / name).is_symlink():
            raise EnteronError(
                f"{name} in '{folder.name}' is a symbolic link, which is not followed",
                "put the file itself there",
            )
    run = RunRecord.load(folder)
    if run is None:
        raise EnteronError(f"'{folder.name}' has no {RUN}", "read the study again")
    run.require_finished(folder)
    if not (folder / SCORES).is_file():
        raise EnteronError(
            f"'{folder.name}' has no {SCORES}", "read the study again, or copy the scores there"
        )
    events = read_events_file(folder / EVENTS)
    counts = {label: sum(event.label == label for event in events.events) for label in FINDINGS}
    return Entry(
        events.study,
        folder,
        run.rows,
        {label: count for label, count in counts.items() if count},
        (folder / EVENTS).stat().st_mtime,
    )


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class _Folder:
    """What matters of a folder: it need not be listed again until its time changes."""

    modified: int  # nanoseconds
    is_reading: bool
    below: tuple[str, ...]


class ReadingFolders:
    """Folders with events.json and run.json under ROOT, or ROOT itself; links are not followed.

    A folder of 130,000 frames takes a tenth of a second to list, and is listed once.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, _Folder] = {}

    def __iter__(self) -> Iterator[Path]:
        waiting = [(str(self._root), 0)]
        while waiting:
            path, depth = waiting.pop()
            folder = self._look(path)
            if folder is None:
                continue
            if folder.is_reading:
                yield Path(path)
            elif depth < DEEPEST:
                waiting += [(f"{path}/{name}", depth + 1) for name in reversed(folder.below)]

    def _look(self, path: str) -> _Folder | None:
        try:
            modified = os.stat(path, follow_symlinks=False).st_mtime_ns  # noqa: PTH116
            known = self._known.get(path)
            if known is not None and known.modified == modified:
                return known
            with os.scandir(path) as entries:
                listed = [(e.name, e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError:
            return None
        names = {name for name, _ in listed}
        below = (name for name, is_folder in listed if is_folder and not name.startswith("."))
        folder = _Folder(
            modified, RUN in names and EVENTS in names, tuple(sorted(below, key=natural_key))
        )
        # A folder that was changed just now may change again within the clock's resolution.
        if time.time_ns() - modified > 2_000_000_000:
            self._known[path] = folder
        return folder

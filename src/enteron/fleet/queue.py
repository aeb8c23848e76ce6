"""The queue: which study is next, what is tried again, and when to wait.

One loop for every backend. A study that fails is tried again after all others, up to the limit; one
that another run works on is looked at again later; a full disk pauses the queue.
"""

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enteron.fleet.ledger import Failure, Ledger, is_changed
from enteron.fleet.processes import Backend
from enteron.fleet.task import Task
from enteron.fleet.work import Assignment, Outcome
from enteron.locks import FolderInUseError
from enteron.options import Options
from enteron.progress import Progress, SilentProgress

MIB = 1 << 20


class QueueOptions(Options):
    """How patient a queue is."""

    reserve: int = 512 * MIB
    """Bytes that must be free on the disk before a study is started."""
    pause: float = 10.0
    """Seconds between two looks at a full disk, or at a study that another run works on."""
    retry: bool = False
    """Take up quarantined studies again."""


@dataclass
class FleetResult:
    """What became of the studies of a run."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)  # the last one of each, by key
    quarantined: list[Failure] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    pauses: int = 0  # for want of disk space
    encoded: int = 0  # frames
    peak_memory: int = 0  # bytes that a worker held at most; 0: not known

    @property
    def counts(self) -> dict[str, int]:
        """Studies by status; `quarantined` are those that will not be tried again."""
        counted = Counter(
            outcome.status
            for outcome in self.outcomes.values()
            if not (outcome.status == "failed" and outcome.quarantined)
        )
        return {**counted, "quarantined": len(self.quarantined)}

    @property
    def complete(self) -> bool:
        """Whether every study was read."""
        read = sum(outcome.status in ("read", "kept") for outcome in self.outcomes.values())
        return read == len(self.tasks)


class Queue:
    """Studies on their way to the workers."""

    def __init__(
        self,
        assignment: Assignment,
        backend: Backend,
        options: QueueOptions | None = None,
        progress: Progress | None = None,
        *,
        on_outcome: Callable[[Task, Outcome], None] = lambda task, outcome: None,
        free_space: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment, self._backend = assignment, backend
        self._options = options or QueueOptions()
        self._progress = progress or SilentProgress()
        self._on_outcome, self._free_space, self._clock = on_outcome, free_space, clock
        self._out = Path(assignment.out)
        self._ledger = Ledger(self._out)
        self._pending: deque[Task] = deque()
        self._later: list[tuple[float, Task]] = []  # not before this time
        self._running: dict[str, Task] = {}
        self._next_look = 0.0  # at the free space
        self._is_paused = False
        self._told_busy: set[str] = set()
        self.result = FleetResult()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waiting or being read."""
        return not (self._pending or self._later or self._running)

    def holds(self, key: str) -> bool:
        """Whether a study is waiting or being read."""
        waiting = (*self._pending, *(task for _, task in self._later))
        return key in self._running or any(task.key == key for task in waiting)

    def add(self, tasks: Sequence[Task]) -> int:
        """Queue the studies that are not quarantined; how many."""
        added = 0
        for task in tasks:
            self.result.tasks[task.key] = task
            failure = self._ledger.get(task.key)
            if failure is not None and failure.quarantined:
                if not (self._options.retry or is_changed(failure, task)):
                    self.result.quarantined.append(failure)
                    continue
                self._ledger.forget(task.key)
            self._pending.append(task)
            added += 1
        return added

    def run(self) -> FleetResult:
        """Work until every study is read or quarantined."""
        while not self.is_idle:
            self.step()
        return self.result

    def step(self, seconds: float = 1.0) -> None:
        """Start what can be started, and take what has come back."""
        now = self._clock()
        due = [task for at, task in self._later if at <= now]
        self._later = [(at, task) for at, task in self._later if at > now]
        self._pending.extend(due)
        while self._pending and self._backend.free() > 0 and self._has_space():
            task = self._pending.popleft()
            self._running[task.key] = task
            self._backend.start(task)
        outcomes = self._backend.wait(seconds)
        if not outcomes and not self._running:
            time.sleep(min(seconds, 0.2 if self._pending else seconds))
        for outcome in outcomes:
            self._take(outcome)

    def _has_space(self) -> bool:
        """Whether the disk has room for another study; looks now and then while it has not."""
        now = self._clock()
        if self._is_paused and now < self._next_look:
            return False
        if self._free_space(self._out) >= self._options.reserve:
            if self._is_paused:
                self._is_paused = False
                self._progress.message("There is space on the disk again: the queue goes on.")
            return True
        self._pause()
        return False

    def _pause(self) -> None:
        self._next_look = self._clock() + self._options.pause
        if not self._is_paused:
            self._is_paused = True
            self.result.pauses += 1
            self._progress.message(
                f"The disk of '{self._out.resolve().name}' has less than "
                f"{self._options.reserve / MIB:,.0f} MiB left: the queue pauses; free some space, "
                "and it goes on by itself."
            )

    def _take(self, outcome: Outcome) -> None:
        task = self._running.pop(outcome.key)
        if outcome.status == "lost":
            outcome = self._note_loss(task, outcome)
        if outcome.status == "full":
            self._pause()
            self._pending.appendleft(task)
            return
        self.result.encoded += outcome.encoded
        if outcome.status == "busy":
            self._later.append((self._clock() + min(self._options.pause, 2.0), task))
            if task.key not in self._told_busy:
                self._told_busy.add(task.key)
                self._on_outcome(task, outcome)
            return
        self.result.outcomes[task.key] = outcome
        self._on_outcome(task, outcome)
        if outcome.status != "failed":
            return
        if outcome.quarantined:
            failure = self._ledger.get(task.key)
            if failure is not None:
                self.result.quarantined.append(failure)
        elif outcome.attempts:  # 0: the ledger itself could not be written
            self._pending.append(task)

    def _note_loss(self, task: Task, outcome: Outcome) -> Outcome:
        """A worker ended in the middle of a study: an attempt like any other."""
        sentence = outcome.sentence or "the worker was lost."
        try:
            with self._ledger.claim(task.key):
                failure = self._ledger.add(task, None, sentence, self._assignment.attempts)
        except FolderInUseError:
            return outcome.model_copy(update={"status": "busy"})
        return outcome.model_copy(
            update={
                "status": "failed",
                "sentence": sentence,
                "attempts": failure.attempts,
                "quarantined": failure.quarantined,
            }
        )

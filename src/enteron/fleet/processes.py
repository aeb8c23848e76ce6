"""Worker processes on one machine: as many as cores and memory allow, each with one model."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from enteron.errors import EnteronError, ModelError, StudyError, quantity
from enteron.fleet.task import Task
from enteron.fleet.work import Assignment, Outcome
from enteron.progress import Advance

GIB = 1 << 30
_BASE_MEMORY = 0.9 * GIB
"""A worker without weights: Python, torch or ONNX Runtime, frames in flight, the page
(`enteron bench fleet` prints the peak)."""
_COPIES_OF_WEIGHTS = 3  # as loaded, as exported, as the runtime arranges them
_SHARE_OF_MEMORY = 0.8


class Backend(Protocol):
    """Where studies are read: processes of this machine, or a Ray cluster."""

    def free(self) -> int:
        """How many more tasks can be started now: never more than there are workers."""
        ...

    def start(self, task: Task) -> None:
        """Hand a task to a worker."""
        ...

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call; waits so long for the first."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...

    @property
    def peak_memory(self) -> int:
        """Bytes that any worker held at most; 0 where that is not known."""
        ...

    @property
    def description(self) -> str:
        """For the first line of a run: '2 workers with 1 thread each'."""
        ...


def usable_memory() -> int:
    """Bytes that this process and its children may still take: of the machine and its container."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    except OSError:
        pass
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            left = int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # not there, or 'max'
            continue
        available = min(available, max(left, 0))
    return available


def worker_memory(model: Path) -> int:
    """Bytes that one worker needs, estimated from the size of the weights."""
    weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    return int(_BASE_MEMORY + _COPIES_OF_WEIGHTS * weights)


def plan_workers(asked: int | None, model: Path, tasks: int) -> tuple[int, int]:
    """Workers, and threads of each: cores are divided, memory limits."""
    cores = len(os.sched_getaffinity(0))
    if asked is None:
        room = int(usable_memory() * _SHARE_OF_MEMORY // worker_memory(model))
        workers = max(1, min(cores, room, tasks))
    else:
        if asked < 1:
            raise EnteronError(f"{asked} workers read nothing", "give at least 1")
        workers = asked
    return workers, max(1, cores // workers)


@dataclass
class _Process:
    """One worker, and what it is doing."""

    process: "subprocess.Popen[bytes]"
    task: Task | None = None
    ready: bool = False
    buffer: bytes = b""
    memory: int = 0

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()


@dataclass
class WorkerProcesses:
    """A fixed number of workers; one that ends is replaced when the next task comes."""

    assignment: Assignment
    workers: int
    on_frames: Advance = field(default=lambda count: None)
    on_lost: Callable[[], None] = field(default=lambda: None)
    peak_memory: int = 0  # bytes that any worker held at most
    _running: list[_Process] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _lost: list[Outcome] = field(default_factory=list)

    @property
    def description(self) -> str:
        """As the first line of a run tells it."""
        threads = self.assignment.options.threads or 1
        each = " each" if self.workers > 1 else ""
        return f"{quantity(self.workers, 'worker')} with {quantity(threads, 'thread')}{each}"

    def free(self) -> int:
        """How many more tasks can be started now."""
        return self.workers - sum(process.task is not None for process in self._running)

    def start(self, task: Task) -> None:
        """Hand a task to an idle worker, started if need be."""
        idle = next((process for process in self._running if process.task is None), None)
        if idle is None:
            idle = self._launch()
        idle.task = task
        try:
            idle.send(task.model_dump_json())
        except BrokenPipeError:  # it ended while it was idle
            self._lost.append(self._end(idle))

    def _launch(self) -> _Process:
        process = _Process(
            subprocess.Popen(
                [sys.executable, "-m", "enteron.fleet.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_thread_limits(self.assignment.options.threads)},
                start_new_session=True,  # Ctrl-C is for the parent, which ends them in order
            )
        )
        os.set_blocking(process.answers.fileno(), False)
        self._running.append(process)
        self._selector.register(process.answers, selectors.EVENT_READ, process)
        try:
            process.send(self.assignment.model_dump_json())
        except BrokenPipeError as error:
            raise _start_error() from error
        return process

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call."""
        outcomes, self._lost = self._lost, []
        if not self._running:
            return outcomes
        for key, _ in self._selector.select(0 if outcomes else seconds):
            outcomes += self._receive(key.data)
        return outcomes

    def _receive(self, process: _Process) -> list[Outcome]:
        data = process.answers.read(1 << 20)
        if not data:
            outcome = self._end(process)
            return [] if outcome.key == "" else [outcome]
        *lines, process.buffer = (process.buffer + data).split(b"\n")
        outcomes = []
        for line in lines:
            answer = json.loads(line)
            if "frames" in answer:
                self.on_frames(answer["frames"])
            elif "refused" in answer:
                raise ModelError(*answer["refused"])
            elif "ready" in answer:
                process.ready = True
            else:
                outcomes.append(Outcome.model_validate(answer["outcome"]))
                self.peak_memory = max(self.peak_memory, answer["memory"])
                process.task = None
        return outcomes

    def _end(self, process: _Process) -> Outcome:
        """Remove a worker that ended by itself; the outcome of its task, or one without a key."""
        self._selector.unregister(process.answers)
        self._running.remove(process)
        _close(process)
        code = process.process.wait()
        if not process.ready:
            raise _start_error()
        if process.task is None:
            return Outcome(key="", status="lost")
        self.on_lost()
        return Outcome(key=process.task.key, status="lost", sentence=_ending(code))

    def close(self) -> None:
        """End all workers: those at work are stopped, and their studies resume in the next run."""
        for process in self._running:
            if process.task is not None:
                process.process.kill()
            _close(process)
        for process in self._running:
            try:
                process.process.wait(10)
            except subprocess.TimeoutExpired:
                process.process.kill()
                process.process.wait()
        self._running.clear()
        self._selector.close()


def _thread_limits(threads: int | None) -> dict[str, str]:
    """Variables for libraries that count cores themselves."""
    names = ("OMP", "MKL", "OPENBLAS", "NUMBA")
    if threads is None:
        return {}
    limits = {f"{name}_NUM_THREADS": str(threads) for name in names}
    return {**limits, "POLARS_MAX_THREADS": str(threads), "OPENCV_FOR_THREADS_NUM": str(threads)}


def _close(process: _Process) -> None:
    for pipe in (process.process.stdin, process.process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _start_error() -> EnteronError:
    return ModelError(
        "a worker process ended before it was ready",
        "try `enteron read` on one study, which shows what is wrong",
    )


def _ending(code: int) -> str:
    """What the end of a worker's process means for its study."""
    if code == -signal.SIGKILL:
        how = "it was killed, perhaps since the memory was not enough"
        remedy = "try again, with fewer --workers if it happens again"
    elif code < 0:
        how = f"signal {signal.Signals(-code).name}"
        remedy = "try again; if it happens again, the study's files make a decoder crash"
    else:
        how, remedy = f"exit code {code}", "try again"
    return str(StudyError(f"the process that read the study ended ({how})", remedy))

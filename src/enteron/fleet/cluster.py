"""The same queue on a Ray cluster: a study is the unit, and long ones are shared.

Every worker is a Ray actor of one CPU with one model. The model folder travels through Ray's object
store, which sends it once to a node. Readings, and studies unless they lie at a URL, are files of a
file system that all nodes share. Only as many studies are in flight as there are workers, and of a
study that is shared only a window of chunks, so that memory stays bounded.

A study of many frames is shared by posting ranges of its frames on a board. Its own worker and
those that are idle take ranges from it; the own one writes the chunks in order, in the same journal
as without Ray. It computes whatever nobody else delivers, so that no other worker can hold it up.
"""

import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from enteron.errors import EnteronError, ModelError, quantity
from enteron.files import write_bytes
from enteron.fleet.task import Task
from enteron.fleet.work import Assignment, Outcome, StudyWorker, open_task
from enteron.inference.store import Chunk
from enteron.study import Study

if TYPE_CHECKING:
    from enteron.inference.embed import EmbeddedChunk, StudyEmbedding
    from enteron.reading import Reader

RANGE_CHUNKS: Final = 8  # at most; of 64 frames: 2 MiB of features
_RANGES_PER_WORKER: Final = 4  # at least, where the study has so many chunks
_WINDOW: Final = 4  # ranges on the board for each worker of the cluster
_FREE_LOSSES: Final = 3  # a worker may be lost so often before the study is blamed
_START_SECONDS: Final = 180  # that the parts of a node may take to start on a busy machine
_TIMEOUT: Final = 60.0  # seconds to find a cluster

TOKEN_REMEDY: Final = (
    "set RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN) to the token of the cluster, which "
    "`ray get-auth-token --generate` makes once and every node must have; see docs/scale.md"
)


# ---- in the cluster


class Board:
    """Ranges of frames that wait for a worker, and those that are done. An actor without a CPU."""

    def __init__(self) -> None:
        self._open: dict[str, list[tuple[int, int]]] = {}  # by study
        self._done: dict[tuple[str, int], Any] = {}
        self._tasks: dict[str, tuple[str, str]] = {}  # key to task and runtime

    def post(self, key: str, task: str, runtime: str, ranges: list[tuple[int, int]]) -> None:
        """Offer ranges of a study."""
        self._tasks[key] = (task, runtime)
        self._open.setdefault(key, []).extend(ranges)

    def take(self, key: str | None = None) -> tuple[str, str, str, int, int] | None:
        """The next range, of one study or of any: key, task, runtime, start, stop."""
        for study in [key] if key is not None else list(self._open):
            if self._open.get(study):
                start, stop = self._open[study].pop(0)
                return (study, *self._tasks[study], start, stop)
        return None

    def deliver(self, key: str, start: int, chunks: Any) -> None:
        """Take in the chunks of a range, unless the study is finished already."""
        if key in self._tasks:
            self._done[key, start] = chunks

    def collect(self, key: str, start: int) -> Any:
        """The chunks of a range, removed; None where nobody has delivered them yet."""
        return self._done.pop((key, start), None)

    def withdraw(self, key: str) -> None:
        """Remove what is left of a study."""
        self._open.pop(key, None)
        self._tasks.pop(key, None)
        for done in [pair for pair in self._done if pair[0] == key]:
            del self._done[done]

    def waiting(self) -> int:
        """Ranges that nobody has taken."""
        return sum(map(len, self._open.values()))


class StudyActor:
    """A worker: reads studies, or ranges of frames for other workers."""

    def __init__(
        self, assignment: str, model: dict[str, Any], board: Any, split_above: int, workers: int
    ) -> None:
        told = Assignment.model_validate_json(assignment)
        self._folder = tempfile.TemporaryDirectory(prefix="enteron-model-")
        for name, content in model.items():
            write_bytes(Path(self._folder.name) / name, content.tobytes(), sync=False)
        self._worker = StudyWorker(told.model_copy(update={"model": self._folder.name}))
        self._board, self._split_above, self._workers = board, split_above, workers
        self._shared: tuple[str, Study, StudyEmbedding] | None = None

    def ready(self) -> None:
        """Answer when the worker is there."""

    def work(self, task: str) -> str:
        """Read a study; the outcome as JSON."""
        parsed = Task.model_validate_json(task)

        def prepare(reader: "Reader", study: Study, folder: Path) -> None:
            if len(study) > self._split_above and not parsed.is_remote:
                embedding = reader.embedding(study, folder)
                embedding.run(
                    source=lambda start: self._collected(parsed, embedding, start, len(study))
                )

        return self._worker.work(parsed, prepare=prepare).model_dump_json()

    def _collected(
        self, task: Task, embedding: "StudyEmbedding", start: int, frames: int
    ) -> "Iterator[EmbeddedChunk]":
        """Chunks in order, computed by whoever is fastest."""
        import ray
        import ray.exceptions

        key = task.key
        size = embedding.chunk * range_chunks(frames // embedding.chunk, self._workers)
        ranges = [(first, min(first + size, frames)) for first in range(start, frames, size)]
        window = _WINDOW * max(2, self._workers)
        posted = min(window, len(ranges))
        text = task.model_dump_json()
        self._ask("post", key, text, embedding.runtime, ranges[:posted])
        own: dict[int, list[EmbeddedChunk]] = {}
        try:
            for number, (first, last) in enumerate(ranges):
                chunks = own.pop(first, None)
                while chunks is None:
                    delivered = self._ask("collect", key, first)
                    if delivered is not None:
                        # A result is lost with the worker that made it.
                        with suppress(ray.exceptions.RayError):
                            chunks = unpack_chunks(ray.get(delivered[0]))
                            break
                    taken = self._ask("take", key)
                    if taken is None:  # another worker has it: rather compute it than wait for it
                        chunks = list(embedding.chunks(first, last))
                    else:
                        own[taken[3]] = list(embedding.chunks(taken[3], taken[4]))
                        chunks = own.pop(first, None)
                yield from chunks
                if posted < len(ranges) and posted - number <= window:
                    self._ask("post", key, text, embedding.runtime, [ranges[posted]])
                    posted += 1
        finally:
            self._ask("withdraw", key)

    def _ask(self, method: str, *arguments: Any) -> Any:
        """An answer of the board; None where it was lost with its node."""
        import ray
        import ray.exceptions

        with suppress(ray.exceptions.RayError):
            return ray.get(getattr(self._board, method).remote(*arguments))
        return None

    def help(self) -> int:
        """Compute ranges of other workers' studies until there are none; how many."""
        import ray

        count = 0
        try:
            while (taken := self._ask("take")) is not None:
                key, task, runtime, start, stop = taken
                embedding = self._embedding_of(key, task, runtime)
                if embedding is None:
                    break
                packed = ray.put(pack_chunks(list(embedding.chunks(start, stop))))
                self._ask("deliver", key, start, [packed])
                count += 1
        except EnteronError:
            pass  # the study's own worker meets the same problem, and says so
        finally:
            if self._shared is not None:
                self._shared[1].close()
                self._shared = None
        return count

    def _embedding_of(self, key: str, task: str, runtime: str) -> "StudyEmbedding | None":
        """The embedding of another worker's study; None where it would not be the same."""
        from enteron.inference.embed import EmbedOptions, StudyEmbedding
        from enteron.inference.views import VIEW_SETS

        if self._shared is not None and self._shared[0] == key:
            return self._shared[2]
        if self._shared is not None:
            self._shared[1].close()
            self._shared = None
        reader = self._worker.reader
        study = open_task(Task.model_validate_json(task))
        encoder = reader.encoder(study, runtime)
        if encoder.runtime != runtime:
            study.close()
            return None
        embedding = StudyEmbedding(
            study,
            encoder,
            Path(self._folder.name) / "nowhere.npy",  # nothing is stored here
            EmbedOptions(redundancy=reader.options.redundancy),
            views=VIEW_SETS[reader.options.views],
        )
        self._shared = (key, study, embedding)
        return embedding


def range_chunks(chunks: int, workers: int) -> int:
    """Chunks of a range: so few that all workers get some, so many that they hardly wait."""
    return min(RANGE_CHUNKS, max(1, chunks // (_RANGES_PER_WORKER * max(1, workers))))


def pack_chunks(chunks: "list[EmbeddedChunk]") -> tuple[np.ndarray, list[str]]:
    """Chunks as one array and lines of JSON, for the object store."""
    features = np.concatenate([features for features, _ in chunks])
    return features, [chunk.model_dump_json() for _, chunk in chunks]


def unpack_chunks(packed: tuple[np.ndarray, list[str]]) -> "list[EmbeddedChunk]":
    """The chunks of `pack_chunks`."""
    features, lines = packed
    chunks: list[EmbeddedChunk] = []
    first = 0
    for line in lines:
        chunk = Chunk.model_validate(json.loads(line))
        chunks.append((features[first : first + len(chunk.source)], chunk))
        first += len(chunk.source)
    return chunks


# ---- on the machine that starts the run


class RayCluster:
    """Workers in a cluster; one that is lost is replaced where there is a free CPU."""

    def __init__(
        self, assignment: Assignment, address: str, workers: int | None, split_above: int
    ) -> None:
        options = assignment.options
        if options.threads is None:  # an actor has one CPU
            options = options.model_copy(update={"threads": 1})
        self._assignment = assignment.model_copy(update={"options": options})
        self._ray = connect(address)
        self._most, self._split_above = workers, split_above
        model = {
            path.name: np.frombuffer(path.read_bytes(), np.uint8)
            for path in sorted(Path(assignment.model).iterdir())
            if path.is_file() and not path.name.startswith(".")
        }
        self._model = self._ray.put(model)
        self._board = self._ray.remote(Board).options(num_cpus=0, max_restarts=-1).remote()
        self._actors: list[Any] = []  # those that are ready
        self._starting: dict[Any, Any] = {}  # by the reference of their answer
        self._failed_starts = 0
        self._running: dict[Any, tuple[Any, Task]] = {}  # by the result's reference
        self._helping: dict[Any, Any] = {}
        self._losses: dict[str, int] = {}
        self._grow()
        if not self._starting:
            raise EnteronError("the Ray cluster has no CPU", "add a node, or leave out --ray")

    peak_memory = 0  # Ray watches the memory of its workers itself

    @property
    def description(self) -> str:
        """As the first line of a run tells it."""
        nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        workers = len(self._actors) + len(self._starting)
        return f"Ray, {quantity(workers, 'worker')} on {quantity(nodes, 'node')}"

    def _grow(self) -> None:
        """Start workers on CPUs that have none: at the beginning, and after losses and arrivals."""
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        wanted = cpus if self._most is None else min(cpus, self._most)
        actor = self._ray.remote(StudyActor).options(num_cpus=1, max_restarts=0)
        while len(self._actors) + len(self._starting) < wanted:
            started = actor.remote(
                self._assignment.model_dump_json(),
                self._model,
                self._board,
                self._split_above,
                wanted,
            )
            # Without a free CPU it waits: the CPUs of a node that was lost are listed for a while.
            self._starting[started.ready.remote()] = started

    def _take_started(self) -> None:
        """Use the workers that have answered: a task for another one might wait for ever."""
        if not self._starting:
            return
        done, _ = self._ray.wait(list(self._starting), num_returns=len(self._starting), timeout=0)
        for reference in done:
            actor = self._starting.pop(reference)
            try:
                self._ray.get(reference)
                self._actors.append(actor)
            except self._ray.exceptions.RayError as error:
                self._failed_starts += 1
                if self._failed_starts > _FREE_LOSSES and not self._actors:
                    raise _cause(error) from error
                self._grow()

    def free(self) -> int:
        """How many more tasks can be started now."""
        self._take_started()
        return len(self._actors) - len(self._running)

    def start(self, task: Task) -> None:
        """Hand a task to an idle worker; one that helps others finishes its range first."""
        busy = {id(actor) for actor, _ in self._running.values()}
        helping = {id(actor) for actor in self._helping.values()}
        idle = [actor for actor in self._actors if id(actor) not in busy]
        idle.sort(key=lambda actor: id(actor) in helping)
        reference = idle[0].work.remote(task.model_dump_json())
        self._running[reference] = (idle[0], task)

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes since the last call; meanwhile idle workers help the others."""
        ray = self._ray
        self._send_helpers()
        references = [*self._running, *self._helping, *self._starting]
        if not references:
            self._grow()
            return []
        done, _ = ray.wait(references, num_returns=1, timeout=seconds)
        outcomes: list[Outcome] = []
        for reference in done:
            if reference in self._starting:
                self._take_started()
                continue
            if reference in self._helping:
                self._end_help(reference)
                continue
            actor, task = self._running.pop(reference)
            try:
                outcomes.append(Outcome.model_validate_json(ray.get(reference)))
            except ray.exceptions.RayActorError:
                outcomes.append(self._lost(actor, task))
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
        return outcomes

    def _send_helpers(self) -> None:
        if not self._running or self.free() == 0:
            return
        with suppress(self._ray.exceptions.RayError):
            if not self._ray.get(self._board.waiting.remote(), timeout=10):
                return
        busy = {id(actor) for actor, _ in self._running.values()}
        busy |= {id(actor) for actor in self._helping.values()}
        for actor in self._actors:
            if id(actor) not in busy:
                self._helping[actor.help.remote()] = actor

    def _end_help(self, reference: Any) -> None:
        actor = self._helping.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._forget(actor)
        except self._ray.exceptions.RayTaskError:
            pass  # the study's own worker computes those frames, and tells what is wrong

    def _lost(self, actor: Any, task: Task) -> Outcome:
        """A worker or its node is gone. That is hardly the study's fault, at first."""
        self._forget(actor)
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._board.withdraw.remote(task.key), timeout=10)
        self._losses[task.key] = self._losses.get(task.key, 0) + 1
        sentence = (
            "the Ray worker that read the study was lost, with its node or for want of memory; "
            "look at the log of Ray, or try again."
        )
        blamed = self._losses[task.key] > _FREE_LOSSES
        return Outcome(key=task.key, status="lost" if blamed else "busy", sentence=sentence)

    def _forget(self, actor: Any) -> None:
        self._actors = [other for other in self._actors if other is not actor]
        self._grow()

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        for actor in [*self._actors, *self._starting.values(), self._board]:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._ray.shutdown()


def _cause(error: Any) -> Exception:
    """What a worker said when it could not start."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, EnteronError):
        return cause
    return ModelError(
        f"a Ray worker failed ({type(cause or error).__name__})",
        "check that all nodes have the same version of enteron, and read one study without --ray",
    )


# ---- the connection


def connect(address: str) -> Any:
    """Connect to a cluster, or start one; the module `ray`."""
    # No statistics leave the machine, and no accelerator variables are changed.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    for name in ("raylet_start_wait_time_s", "worker_register_timeout_seconds"):
        os.environ.setdefault(f"RAY_{name}", str(_START_SECONDS))
    os.environ.setdefault("RAY_agent_register_timeout_ms", str(1000 * _START_SECONDS))
    if address == "local":
        os.environ.setdefault("RAY_worker_niceness", "0")  # as polite as processes are
        _require_token()
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise EnteronError(
            "--ray needs the package ray", "install it with `pip install enteron[ray]`"
        ) from error
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            cpus = len(os.sched_getaffinity(0))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **settings)
        else:
            _quiet_connection(ray, address, settings)
    except ray.exceptions.AuthenticationError as error:
        raise EnteronError("the Ray cluster asks for a token", TOKEN_REMEDY) from error
    except Exception as error:  # Ray raises plain ones, too
        if "token" in str(error).lower():
            raise EnteronError("the Ray cluster asks for a token", TOKEN_REMEDY) from error
        if address == "local":
            raise EnteronError(
                f"Ray did not start on this machine ({type(error).__name__})",
                "try again when it is less busy, or leave out --ray",
            ) from error
        raise EnteronError(
            f"there is no Ray cluster at '{address}' ({type(error).__name__})",
            "start one with `ray start --head`, or give --ray local",
        ) from error
    return ray


def _quiet_connection(ray: Any, address: str, settings: dict[str, Any]) -> None:
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            ray.init(address=address, **settings)
        except ConnectionError:
            if address == "auto" or time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return


def _require_token() -> None:
    """A token for a cluster of our own, unless the user has one or asked for another mode.

    Ray would write one into the home folder otherwise.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if any(name in os.environ for name in names) or (Path.home() / ".ray" / "auth_token").exists():
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

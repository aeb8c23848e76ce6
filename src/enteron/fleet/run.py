"""`enteron fleet run`: every study under a root, one reading folder each."""

from collections.abc import Callable
from pathlib import Path

from enteron.errors import EnteronError, quantity
from enteron.files import make_folder
from enteron.fleet.catalogue import CatalogueKeeper
from enteron.fleet.discovery import find_tasks
from enteron.fleet.drift import store_reference
from enteron.fleet.processes import Backend, WorkerProcesses, plan_workers
from enteron.fleet.queue import FleetResult, Queue, QueueOptions
from enteron.fleet.task import Task, is_url
from enteron.fleet.work import Assignment, ExpectedReading, Outcome
from enteron.options import Options
from enteron.progress import Advance, Progress, SilentProgress
from enteron.reading import ReadOptions

OnOutcome = Callable[[Task, Outcome], None]


class FleetOptions(Options):
    """How many studies are read."""

    workers: int | None = None
    """Processes that read, one study each; None: as cores and memory allow."""
    attempts: int = 2
    """A study that failed so often is quarantined."""
    retry: bool = False
    """Take up quarantined studies again."""
    replace: bool = False
    """Read again what was read with another model or with other options."""
    keep_embeddings: bool = True
    """Whether `embeddings.npy` stays when a reading is finished."""
    keep_names: bool = False
    """Whether names of folders and files are the ids of studies."""
    ray: str | None = None
    """Address of a Ray cluster, `auto`, or `local` to start one; None: processes here."""
    split_above: int = 20_000
    """With Ray: studies of more frames are embedded on several workers."""
    reserve_mib: int = 512
    """Free space of the disk below which the queue pauses."""


def run_fleet(
    root: Path | str,
    out: Path | str,
    *,
    model: Path | str,
    options: ReadOptions | None = None,
    fleet: FleetOptions | None = None,
    progress: Progress | None = None,
    on_outcome: OnOutcome = lambda task, outcome: None,
) -> FleetResult:
    """Read every study under a root into `out`; what is finished and fits is kept.

    A study that cannot be read never stops the others. Two runs over one folder share the work.
    """
    progress = progress or SilentProgress()
    fleet = fleet or FleetOptions()
    out, model = Path(out), Path(model)
    options = options or ReadOptions()
    ExpectedReading.of(model, options)  # refuse a model folder before anything is made
    make_folder(out)
    store_reference(out, model)
    found = find_tasks(root, out, keep_names=fleet.keep_names)
    for sentence in (*found.ignored.sentences(), *found.problems):
        progress.message(f"Ignored: {sentence}.")
    with progress.task("Reading studies", len(found.tasks), "studies") as advance:
        backend, assignment = make_backend(out, model, options, fleet, len(found.tasks))
        keeper = CatalogueKeeper(out)

        def taken(task: Task, outcome: Outcome) -> None:
            if outcome.status in ("read", "kept", "other") or outcome.quarantined:
                advance(1)
            on_outcome(task, outcome)
            keeper.refresh_if_due()

        try:
            queue = Queue(
                assignment,
                backend,
                QueueOptions(reserve=fleet.reserve_mib << 20, retry=fleet.retry),
                progress,
                on_outcome=taken,
            )
            waiting = queue.add(found.tasks)
            advance(len(found.tasks) - waiting)
            progress.message(
                f"{quantity(len(found.tasks), 'study', 'studies')} under '{_name(root)}'; "
                f"{backend.description}."
            )
            result = queue.run()
            result.peak_memory = backend.peak_memory
        finally:
            backend.close()
            keeper.refresh()
    return result


def _name(root: Path | str) -> str:
    return str(root) if is_url(root) else Path(root).resolve().name


def make_backend(
    out: Path,
    model: Path,
    options: ReadOptions,
    fleet: FleetOptions,
    tasks: int,
    on_frames: Advance | None = None,
) -> tuple[Backend, Assignment]:
    """The workers that the options ask for, and what they are told."""
    if fleet.attempts < 1:
        raise EnteronError(f"{fleet.attempts} attempts read nothing", "give at least 1")
    assignment = Assignment(
        model=str(model.absolute()),
        options=options,
        out=str(out.absolute()),
        attempts=fleet.attempts,
        replace=fleet.replace,
        keep_embeddings=fleet.keep_embeddings,
    )
    if fleet.ray is not None:
        from enteron.fleet.cluster import RayCluster

        cluster = RayCluster(assignment, fleet.ray, fleet.workers, fleet.split_above)
        return cluster, assignment
    workers, threads = plan_workers(fleet.workers, model, max(1, tasks))
    if options.threads is None:
        options = options.model_copy(update={"threads": threads})
    assignment = assignment.model_copy(update={"options": options})
    pool = WorkerProcesses(assignment, workers)
    if on_frames is not None:
        pool.on_frames = on_frames
    return pool, assignment

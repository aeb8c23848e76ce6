"""Studies, models and backends for the tests of the fleet."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enteron.fleet.task import Task
from enteron.fleet.work import Assignment, Outcome, StudyWorker
from enteron.folders.model import save_model
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.reading import Reader, ReadOptions
from tests.inference.stub import StubEncoder
from tests.making import write_frames, write_video

# Files that do not depend on the time a run took.
SAME = (
    "scores.parquet", "events.json", "events.csv", "submission.json", "suspicious.json",
    "statistics.json", "embeddings.npy", "label-studio.json",
)  # fmt: skip


def make_model(folder: Path) -> Path:
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    return folder


class CheapEncoder(StubEncoder):
    """Costs nothing, and passes for the exact runtime."""

    runtime = "torch"


def cheap_reader(model: Path, options: ReadOptions | None = None) -> Reader:
    """A reader whose encoder costs nothing."""
    reader = Reader(model, options)
    reader._encoders["torch"] = CheapEncoder()
    return reader


def break_studies(root: Path) -> list[str]:
    """Five studies that are broken in different ways; their names."""
    (root / "Doe_text.mp4").write_bytes(b"no video")
    (root / "Doe_empty.mp4").write_bytes(b"")
    cut = write_video(root / "Doe_cut.mp4", 20)
    cut.write_bytes(cut.read_bytes()[:400])  # the index of an MP4 is at its end
    damaged = write_frames(root / "Doe_damaged", range(8))
    for path in list(damaged.iterdir())[:6]:
        path.write_bytes(path.read_bytes()[:60])
    twice = write_frames(root / "Doe_twice", range(4))
    (twice / "frame_1.png").write_bytes((twice / "frame_000001.PNG").read_bytes())
    return ["Doe_cut.mp4", "Doe_damaged", "Doe_empty.mp4", "Doe_text.mp4", "Doe_twice"]


def reading_bytes(out: Path) -> dict[str, str]:
    """Hash of every file of every reading that an undisturbed run would make the same.

    Folders of studies that could not be read have a `run.json` that says how far it went.
    """
    return {
        f"{folder.name}/{name}": hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for folder in sorted(out.iterdir())
        if (folder / "run.json").is_file()
        and json.loads((folder / "run.json").read_text())["state"] == "finished"
        for name in SAME
    }


def page_without_times(out: Path, study: str) -> dict[str, Any]:
    run = json.loads((out / study / "run.json").read_text())
    return {name: value for name, value in run.items() if name not in ("timings", "files")}


class InlineBackend:
    """Reads studies in this process; `interfere` may answer in place of the worker."""

    description = "this process"
    peak_memory = 0

    def __init__(
        self,
        assignment: Assignment,
        load: Callable[..., Any],
        interfere: Callable[[Task], Outcome | None] = lambda task: None,
    ) -> None:
        self.worker = StudyWorker(assignment, load)
        self._interfere = interfere
        self._outcomes: list[Outcome] = []
        self.started: list[str] = []

    def free(self) -> int:
        return 1 - len(self._outcomes)

    def start(self, task: Task) -> None:
        self.started.append(task.name)
        outcome = self._interfere(task)
        self._outcomes.append(self.worker.work(task) if outcome is None else outcome)

    def wait(self, seconds: float) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        pass

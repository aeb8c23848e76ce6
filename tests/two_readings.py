"""Two `enteron read` in one folder at random offsets, half of them with one of the two killed.

Used by a test (a few rounds), by a slow test and by `enteron bench two_readings` (50 rounds).
Processes are forked from a server that has imported everything, and unless asked otherwise their
encoder costs nothing: so a round takes seconds, and the processes meet in their stages rather than
in their imports.
"""

import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from enteron.folders.model import save_model
from enteron.folders.reading import load_reading
from enteron.inference.encoder import Features, ImageBatch
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.inference.stub import StubEncoder
from tests.making import write_frames

FRAMES = 48
CHUNK = 4  # frames, so that a small study has several chunks
SAME = ("scores.parquet", "events.json", "submission.json", "embeddings.npy")
SENTENCE = "is writing to"  # how a refusal by the lock reads
_SEPARATE = 1.0  # at most, between the two starts, in times that a reading takes alone
_LIFE = 1.5  # at most, before a process is killed

Outcome = str
"""`worked`, `refused` or `killed`; anything else is what a process said when it failed."""


@dataclass
class Round:
    """What became of the two processes of a round."""

    number: int
    outcomes: tuple[Outcome, Outcome]
    problems: list[str] = field(default_factory=list)


class TwoReadings:
    """A study, a model, and the bytes that an undisturbed reading of them has."""

    def __init__(self, root: Path, *, lock: bool = True, real: bool = False) -> None:
        self._root, self._lock, self._real = root, lock, real
        self._study = write_frames(root / "77", range(FRAMES))
        self._model = root / "model"
        save_model(self._model, start_network(ModelOptions(backbone="vit-tiny")))
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([__name__, "tests.preloaded"])
        self._read_alone(root / "warm", "warm")
        # That a reading takes alone: the shortest of several, since other work on the machine
        # makes some longer, and the two of a round would then hardly ever meet.
        self.seconds = min(self._time_alone(root / f"undisturbed-{n}") for n in range(3))
        self.undisturbed = contents(root / "undisturbed-0")

    def round(self, number: int, seed: int) -> Round:
        """Two readings in a new folder; then a third one, alone, which must find all in order."""
        chance = random.Random(f"{seed} {number}")
        out = self._root / "out"
        offset = chance.uniform(0, _SEPARATE * self.seconds)
        victim = chance.randrange(2) if number % 2 else None
        life = chance.uniform(0, _LIFE * self.seconds)
        first = self._start(out, "first")
        start = time.monotonic()
        _sleep_until(start + offset)
        both = (first, self._start(out, "second"))
        starts = (start, time.monotonic())
        if victim is not None:
            _sleep_until(starts[victim] + life)
            both[victim].kill()
        for process in both:
            process.join()
        outcomes = (self._outcome(both[0], "first"), self._outcome(both[1], "second"))
        result = Round(number, outcomes)
        result.problems += [o for o in outcomes if o not in ("worked", "refused", "killed")]
        if victim is None and "worked" not in outcomes:
            result.problems.append("neither of two undisturbed processes worked")
        if "worked" in outcomes and contents(out) != self.undisturbed:
            result.problems.append("a process that worked left other bytes")
        try:
            self._read_alone(out, "third")
            load_reading(out)
        except Exception as error:
            result.problems.append(f"the last reading: {error}")
        if contents(out) != self.undisturbed:
            result.problems.append("the last reading left other bytes")
        left = [p.name for p in out.iterdir() if p.suffix in (".part", ".journal", ".lock")]
        if left or (out / ".lock").exists():
            result.problems.append(f"files were left: {left}")
        shutil.rmtree(out, ignore_errors=True)
        return result

    def _time_alone(self, out: Path) -> float:
        start = time.monotonic()
        self._read_alone(out, "undisturbed")
        return time.monotonic() - start

    def _read_alone(self, out: Path, name: str) -> None:
        process = self._start(out, name)
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(self._said(name))
        state = json.loads((out / "run.json").read_text())["state"]
        if state != "finished":
            raise RuntimeError(f"the state is {state}")

    def _start(self, out: Path, name: str) -> BaseProcess:
        arguments = ["read", str(self._study), "--model", str(self._model), "--out", str(out)]
        process = self._processes.Process(
            target=_read,
            args=(arguments, str(self._root / f"{name}.log"), self._lock, self._real),
        )
        process.start()
        return process

    def _outcome(self, process: BaseProcess, name: str) -> Outcome:
        if process.exitcode == 0:
            return "worked"
        if process.exitcode is not None and process.exitcode < 0:
            return "killed"
        said = self._said(name)
        return "refused" if SENTENCE in said and said.count("\n") == 1 else said

    def _said(self, name: str) -> str:
        lines = (self._root / f"{name}.log").read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if line.startswith("enteron: ")) or "".join(lines)


class SlowStub(StubEncoder):
    """An encoder that takes its time and no processor."""

    def encode(self, images: ImageBatch) -> Features:
        time.sleep(0.01)
        return super().encode(images)


def _read(arguments: list[str], log: str, lock: bool, real: bool) -> None:
    """`enteron read …` in this process, with small chunks; without a lock for comparison."""
    from enteron.cli import main
    from enteron.inference import embed, runtimes

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    embed.EmbedOptions = partial(embed.EmbedOptions, chunk=CHUNK)
    if not real:
        runtimes.make_encoder = lambda backbone, runtime, **_: SlowStub()
    if not lock:
        from contextlib import nullcontext

        from enteron import reading
        from enteron.inference import store

        reading.folder_lock = lambda folder: nullcontext()
        store.file_lock = lambda path, name: nullcontext()
    sys.argv = ["enteron", *arguments]
    main()


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes that must be those of an undisturbed reading."""
    return {name: (folder / name).read_bytes() for name in SAME if (folder / name).exists()}


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def run_rounds(rounds: int, seed: int, *, lock: bool = True) -> list[Round]:
    """Play several rounds in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        game = TwoReadings(Path(name), lock=lock)
        return [game.round(number, seed) for number in range(rounds)]

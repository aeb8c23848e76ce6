"""Faults and attacks: a box for one case, commands run in it, and what they did, measured."""

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = "out"  # the folder of a box that commands may write to
TIMEOUT = 300  # seconds, on a machine that does other things too
MOST_MEMORY = 2 * 2**30
_ADDRESS_SPACE = 16 * 2**30  # so that a case that fails does not take the machine with it


class SkippedError(Exception):
    """A case that this machine cannot run, with the reason."""


@dataclass
class Outcome:
    """What the commands of a case did. Every list but the sentences must end empty."""

    said: str = ""  # the last sentence, or what was checked
    exits: list[int] = field(default_factory=list)
    wrong: list[str] = field(
        default_factory=list
    )  # accepted what it should refuse, or wrong result
    crashes: list[str] = field(
        default_factory=list
    )  # tracebacks, signals, hangs, unforeseen errors
    unclear: list[str] = field(default_factory=list)  # refused with another sentence than it should
    outside: list[str] = field(default_factory=list)  # files changed outside of the output folder
    peak: int = 0  # bytes, of the largest command
    seconds: float = 0.0
    skipped: str = ""

    @property
    def failures(self) -> list[str]:
        """Everything that is not as it should be."""
        heavy = [f"{self.peak / 2**20:,.0f} MiB"] if self.peak > MOST_MEMORY else []
        outside = [f"wrote {path}" for path in self.outside]
        return [*self.wrong, *self.crashes, *self.unclear, *outside, *heavy]


@dataclass(frozen=True)
class Done:
    """One command that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def sentence(self) -> str:
        """What the command said when it refused: its last line that starts with our name."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("enteron: ")]
        return lines[-1].removeprefix("enteron: ") if lines else ""


@dataclass
class Box:
    """An empty folder for one case, with a home and a temporary folder of its own."""

    folder: Path
    data: Path  # models, studies and readings that all cases share; copied, never changed
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        for name in ("work", "home", "tmp"):
            (self.folder / name).mkdir()

    @property
    def work(self) -> Path:
        """Where commands run."""
        return self.folder / "work"

    # ---- making the input

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def copy(self, name: str, to: str) -> Path:
        """A copy of something that all cases share."""
        source, target = self.data / name, self.work / to
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
        return target

    # ---- running commands

    def refuses(self, *arguments: object, says: str = "", powerless: bool = False) -> Done:
        """Run a command that must end with exit code 1 and one sentence that contains `says`."""
        done = self.run(*arguments, powerless=powerless)
        name = arguments[0]
        if done.code == 0:
            self.outcome.wrong.append(f"{name} accepted it")
        elif done.code == 1 and not done.sentence:
            self.outcome.unclear.append(f"{name} gave no sentence: {done.stderr[-80:]!r}")
        elif says not in done.sentence:
            self.outcome.unclear.append(f"{name} said something else than '{says}'")
        self.outcome.said = done.sentence or self.outcome.said
        return done

    def works(self, *arguments: object) -> Done:
        """Run a command that must end with exit code 0."""
        done = self.run(*arguments)
        if done.code != 0:
            self.outcome.unclear.append(f"{arguments[0]} refused: {done.sentence}")
        self.outcome.said = done.sentence or f"{arguments[0]} works"
        return done

    def expect(self, condition: bool, otherwise: str) -> None:
        """Note a result that is silently wrong."""
        if not condition:
            self.outcome.wrong.append(otherwise)

    def run(self, *arguments: object, powerless: bool = False) -> Done:
        """Run `enteron` and measure it; the caller judges exit code and sentence.

        A `powerless` command is bound to the permissions of files even when root runs it.
        """
        return self.run_all([[str(word) for word in arguments]], powerless=powerless)[0]

    def script(self, code: str) -> Done:
        """Run a few lines of Python that call enteron; an EnteronError ends like a command's."""
        program = (
            "import sys; from enteron.cli import failure\n"
            "sys.argv = ['enteron', 'script']\ntry:\n"
            + "\n".join(f"    {line}" for line in code.strip().splitlines())
            + "\nexcept Exception as error:\n    failure.fail_with(error, sys.argv[1:])\n"
        )
        return self._measured([[sys.executable, "-c", program]], False, 0.0)[0]

    def run_all(
        self, commands: Sequence[Sequence[str]], *, powerless: bool = False, apart: float = 0.0
    ) -> list[Done]:
        """Run commands at the same time, each started `apart` seconds after the one before."""
        lines = [[sys.executable, "-m", "enteron", *command] for command in commands]
        return self._measured(lines, powerless, apart)

    def _measured(self, lines: list[list[str]], powerless: bool, apart: float) -> list[Done]:
        before = self._snapshot()
        start = time.perf_counter()
        children: list[_Child] = []
        for line in lines:
            if children:
                time.sleep(apart)
            children.append(_Child(line, self, powerless))
        while any(child.is_running() for child in children):
            time.sleep(0.005)
            if time.perf_counter() - start > TIMEOUT:
                for child in children:
                    child.kill()
                self.outcome.crashes.append(f"still running after {TIMEOUT} s")
                break
        ended = [child.result() for child in children]
        self.outcome.seconds += time.perf_counter() - start
        self.outcome.peak = max(self.outcome.peak, *(child.peak for child in children))
        for done in ended:
            self._judge(done)
        self.outcome.outside += sorted(_changes(before, self._snapshot()))
        return ended

    def _judge(self, done: Done) -> None:
        self.outcome.exits.append(done.code)
        if "Traceback (most recent call last)" in done.stderr:
            self.outcome.crashes.append(f"traceback: {done.stderr.strip().splitlines()[-1][:120]}")
        elif "an error in enteron" in done.stderr or "the memory was not" in done.stderr:
            self.outcome.crashes.append(f"unforeseen: {done.sentence[:120]}")
        elif done.code not in (0, 1):
            last = done.stderr.strip().splitlines()[-1:] or [""]
            self.outcome.crashes.append(f"exit {done.code}: {last[0][:120]}")

    # ---- what changed

    def _snapshot(self) -> dict[str, tuple[int, ...]]:
        """Every file of the box that commands have no business with, and its state."""
        files: dict[str, tuple[int, ...]] = {}
        for folder, _, names in os.walk(self.folder):
            inside = Path(folder).relative_to(self.folder)
            if inside.is_relative_to(f"work/{OUT}") or inside.is_relative_to("home/.cache/enteron"):
                continue
            for name in names:
                status = (Path(folder) / name).lstat()
                files[str(inside / name)] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return files


class _Child:
    """A running command, its peak memory watched."""

    def __init__(self, line: list[str], box: Box, powerless: bool) -> None:
        self.peak = 0
        self._own = _peak_memory(os.getpid())
        # Files, not pipes: nobody reads while the command runs.
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `result`)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            line,
            cwd=box.work,
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=self._stderr,
            preexec_fn=_drop_power if powerless else _limit_memory,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": str(box.folder / "home"),
                "TMPDIR": str(box.folder / "tmp"),
                "NO_COLOR": "1",
                "COLUMNS": "120",
            },
        )
        self._usage: resource.struct_rusage | None = None

    def is_running(self) -> bool:
        if self._usage is not None:
            return False
        self.peak = max(self.peak, _peak_memory(self._process.pid))
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._usage = usage
        # It counts what this process held when it was forked, so it is believed above that only.
        if usage.ru_maxrss * 1024 > 1.2 * self._own:
            self.peak = max(self.peak, usage.ru_maxrss * 1024)
        return False

    def kill(self) -> None:
        if self.is_running():
            self._process.kill()
            while self.is_running():
                time.sleep(0.01)

    def result(self) -> Done:
        texts: list[str] = []
        for file in (self._stdout, self._stderr):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return Done(self._process.returncode, texts[0], texts[1])


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))


def _drop_power() -> None:
    """Take away root's right to ignore permissions, which survives a change of program."""
    _limit_memory()
    if os.geteuid() == 0:
        drop, override, search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        for capability in (override, search):
            ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0)


def _peak_memory(process: int) -> int:
    """The largest resident size so far, in bytes; 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    lines = (line for line in text.splitlines() if line.startswith("VmHWM:"))
    return int(next(lines, "VmHWM: 0 kB").split()[1]) * 1024


def _changes(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


# ---- cases

Make = Callable[[Box], None]


@dataclass(frozen=True)
class Case:
    """A fault or an attack: it makes its input, runs commands and judges them."""

    point: int  # of issue 13
    name: str
    act: Make


CASES: list[Case] = []


def case(point: int, name: str) -> Callable[[Make], Make]:
    """Register a case."""

    def register(act: Make) -> Make:
        CASES.append(Case(point, name, act))
        return act

    return register


def run_case(chosen: Case, data: Path) -> Outcome:
    """Run a case in a box of its own."""
    with tempfile.TemporaryDirectory(prefix="enteron-fault-") as folder:
        Path(folder).chmod(0o755)
        box = Box(Path(folder), data)
        try:
            chosen.act(box)
        except SkippedError as reason:
            box.outcome.skipped = str(reason)
        return box.outcome

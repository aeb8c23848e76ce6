"""Numbers as people read them, and progress only where somebody watches."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import typer
from rich import progress as bars
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from enteron.training.checkpoint import EpochRecord
    from enteron.training.loop import Step, Validation


T = TypeVar("T")
NONE = "-"


def console() -> Console:
    """Standard output; wide when it is a file, so that tables are not folded there."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where it is not defined."""
    return NONE if value is None else f"{value:.{digits}f}"


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """A figure with its interval."""
    if value is None or interval is None:
        return number(value)
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


@contextmanager
def bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar with its rate and the time left, for a terminal; what it gives hears of each step."""
    if not sys.stderr.isatty() or total == 0:
        yield lambda done: None
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn(unit),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, rate="")

        def advance(done: int) -> None:
            speed = shown.tasks[0].speed
            shown.update(task, advance=done, rate=f"{speed:.0f}/s" if speed else "")

        yield advance


def counted(sizes: Iterable[int], total: int, what: str, unit: str) -> Iterator[int]:
    """The same sizes, with a bar of their sum."""
    with bar(what, total, unit) as advance:
        for size in sizes:
            advance(size)
            yield size


def progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The same items, with a progress bar on standard error when that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    total = len(items) if isinstance(items, Sized) else None
    yield from track(items, what, total=total, console=Console(stderr=True), transient=True)


class Device(StrEnum):
    """Capsules that synthetic studies imitate."""

    OLYMPUS = "olympus"
    PILLCAM = "pillcam"
    NAVICAM = "navicam"
    MIXED = "mixed"


_COLUMNS = (
    bars.TextColumn("{task.description}"),
    bars.BarColumn(),
    bars.MofNCompleteColumn(),
    bars.TextColumn("{task.fields[unit]}"),
    bars.TextColumn("{task.fields[rate]}"),
    bars.TimeRemainingColumn(),
)
_RECENT = 0.9  # weight of the past in the rate that is shown


class Spectator:
    """A person at the first process. The others are silent."""

    def __init__(self) -> None:
        self._first = os.environ.get("RANK", "0") == "0"
        watched = self._first and sys.stderr.isatty()
        self._bars = (
            bars.Progress(*_COLUMNS, console=Console(stderr=True), transient=True)
            if watched
            else None
        )
        self._task: bars.TaskID | None = None
        self._rate = 0.0
        self._begin = self._last = time.perf_counter()
        self._samples = 0

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, sentence: str) -> None:
        if not self._first:
            return
        if self._bars is not None and sys.stdout.isatty():
            self._bars.console.print(sentence, highlight=False)
        else:
            typer.echo(sentence)
            sys.stdout.flush()

    @contextmanager
    def counting(self, what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        if self._bars is None:
            yield lambda done: None
            return
        shown, task = self._bars, self._bars.add_task(what, total=total, unit=unit, rate="")

        def advance(done: int) -> None:
            speed = shown.tasks[shown.task_ids.index(task)].speed
            shown.update(task, advance=done, rate=f"{speed:.0f}/s" if speed else "")

        yield advance
        shown.remove_task(task)

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        self._epochs = epochs
        if epoch or step:
            self.say(f"Going on after {epoch} of {epochs} epochs and {step} of {steps} steps.")
        if self._bars is not None:
            total = epochs * steps
            self._task = self._bars.add_task(
                f"epoch {epoch + 1} of {epochs}", total=total, unit="steps", rate=""
            )
            self._bars.update(self._task, completed=epoch * steps + step)
        self._begin = self._last = time.perf_counter()

    def stepped(self, step: "Step") -> None:
        now = time.perf_counter()
        rate = step.samples / max(now - self._last, 1e-9)
        self._rate = _RECENT * self._rate + (1 - _RECENT) * rate if self._rate else rate
        self._last = now
        self._samples += step.samples
        if self._bars is not None and self._task is not None:
            self._bars.update(
                self._task,
                advance=1,
                description=f"epoch {step.epoch} of {self._epochs}, "
                f"loss {step.losses['total']:.4f}",
                rate=f"{self._rate:.0f} clips/s",
            )

    def judged(self, record: "EpochRecord", best: bool, validation: "Validation") -> None:
        figures, seconds = record.figures, time.perf_counter() - self._begin
        self.say(
            f"epoch {record.epoch:2}: train loss {record.train_loss:.4f}, val loss "
            f"{record.val_loss:.4f}, mAP {figures.macro_ap:.4f}, macro F1 {figures.macro_f1:.4f}, "
            f"findings {figures.findings_ap:.3f}, regions {figures.region_accuracy:.3f} "
            f"({self._samples / seconds:.0f} clips/s){', best so far' if best else ''}"
        )
        self._begin = self._last = time.perf_counter()
        self._samples = 0

"""What `enteron train` shows: sentences always, bars for a terminal only."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer
from rich import progress as bars
from rich.console import Console

if TYPE_CHECKING:
    from enteron.training.history import EpochRecord
    from enteron.training.validation import Validation
    from enteron.training.watching import Step

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

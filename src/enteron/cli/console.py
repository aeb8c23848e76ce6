"""What commands share: tables, figures as text, progress in a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TypeVar

import typer
from rich.console import Console
from rich.table import Table

from enteron.progress import Advance

T = TypeVar("T")
NONE = "-"


def console() -> Console:
    """Standard output; wide when it is a file, so that tables are not folded there."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    result = Table(title=title, title_justify="left", title_style="bold", header_style="dim")
    for index, column in enumerate(columns):
        result.add_column(column, justify="right" if index else "left")
    return result


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where it is not defined."""
    return NONE if value is None else f"{value:.{digits}f}"


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """A figure with its interval."""
    if value is None or interval is None:
        return number(value)
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


class RichProgress:
    """Messages on standard output, bars on standard error where that is a terminal.

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


class RichProgress:
    """Messages on standard output; progress bars on standard error while that is a terminal."""

    def message(self, text: str) -> None:
        typer.echo(text)
        sys.stdout.flush()

    def task(
        self, description: str, total: int, unit: str = "frames"
    ) -> AbstractContextManager[Advance]:
        return bar(description, total, unit)

"""What commands share: tables, figures as text, progress in a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import markup as rich_markup
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table

from enteron.progress import Advance

if TYPE_CHECKING:
    from enteron.study.ignored import Ignored

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


def plain(text: str) -> str:
    """Text from a file or a name as a terminal may show it: on one line, nothing it would obey.

    Control characters, characters that turn the direction of text, and bytes of a name that are
    not UTF-8 are shown as escapes, such as \\x1b.
    """
    return "".join(c if c.isprintable() else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # how Python marks a byte that is not UTF-8
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def markup(text: str) -> str:
    """`plain` text for rich, which would take square brackets for markup."""
    return rich_markup.escape(plain(text))


def print_ignored(ignored: "Ignored") -> None:
    """Say what was found and not read."""
    for sentence in ignored.sentences():
        print(f"Ignored: {plain(sentence)}.", flush=True)


class RichProgress:
    """Messages on standard output, bars on standard error where that is a terminal.

    Of several processes of one training only the first shows anything.
    """

    def __init__(self) -> None:
        self._first = os.environ.get("RANK", "0") == "0"
        self._bars: rich_progress.Progress | None = None
        self._tasks = 0

    def message(self, text: str) -> None:
        """Print one sentence, above the bars if there are any."""
        if not self._first:
            return
        text = "\n".join(plain(line) for line in text.split("\n"))
        if self._bars is not None and sys.stdout.isatty():
            self._bars.console.print(text, highlight=False, markup=False)
        else:
            print(text, flush=True)

    @contextmanager
    def task(self, description: str, total: int, unit: str = "frames") -> Iterator[Advance]:
        """Show a bar with its rate and the time left; tasks may be nested."""
        if not (self._first and sys.stderr.isatty() and total):
            yield lambda completed: None
            return
        bars = self._start()
        task = bars.add_task(description, total=total, unit=unit, rate="")

        def advance(completed: int) -> None:
            speed = bars.tasks[bars.task_ids.index(task)].speed
            bars.update(task, advance=completed, rate=f"{speed:.0f}/s" if speed else "")

        try:
            yield advance
        finally:
            bars.remove_task(task)
            self._stop()

    def _start(self) -> rich_progress.Progress:
        """The display that all tasks share: rich allows one at a time."""
        self._tasks += 1
        if self._bars is None:
            self._bars = rich_progress.Progress(
                rich_progress.TextColumn("{task.description}"),
                rich_progress.BarColumn(),
                rich_progress.MofNCompleteColumn(),
                rich_progress.TextColumn("{task.fields[unit]}"),
                rich_progress.TextColumn("{task.fields[rate]}"),
                rich_progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self._bars

    def _stop(self) -> None:
        self._tasks -= 1
        if self._tasks == 0 and self._bars is not None:
            self._bars.stop()
            self._bars = None

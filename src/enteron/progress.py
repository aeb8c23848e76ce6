"""How long work reports what it does: one protocol, and the implementation that shows nothing.

The implementation for a terminal is `enteron.cli.console.RichProgress`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Advance = Callable[[int], None]
"""Takes the number of units completed since the last call."""


class Progress(Protocol):
    """Receives messages and progress."""

    def message(self, text: str) -> None:
        """Show one sentence."""
        ...

    def task(
        self, description: str, total: int, unit: str = "frames"
    ) -> AbstractContextManager[Advance]:
        """Start a task of `total` units; the context yields a callback that advances it."""
        ...


class SilentProgress:
    """Shows nothing: the default of the Python functions, and of all processes but the first."""

    def message(self, text: str) -> None:
        """Discard the sentence."""

    def task(
        self, description: str, total: int, unit: str = "frames"
    ) -> AbstractContextManager[Advance]:
        return nullcontext(lambda _: None)

"""Who is told what happens, beside the watchers of the loop."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from enteron.training.checkpoint import EpochRecord
    from enteron.training.loop import Step, Validation


class Company(Protocol):
    """Somebody who hears sentences, and sees long work and the training itself."""

    def say(self, sentence: str) -> None:
        """A sentence for a person."""
        ...

    def counting(
        self, what: str, total: int, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Long work: what is yielded hears how many are done."""
        ...

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        """As a watcher (`enteron.training.watching`)."""
        ...

    def stepped(self, step: "Step") -> None:
        """As a watcher."""
        ...

    def judged(self, record: "EpochRecord", best: bool, validation: "Validation") -> None:
        """As a watcher."""
        ...


class Silence:
    """Nobody: of several processes only the first one speaks."""

    def say(self, sentence: str) -> None:
        """Nothing is said."""

    def counting(
        self, what: str, total: int, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]:
        return nullcontext(lambda _: None)

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        """Nobody watches."""

    def stepped(self, step: "Step") -> None:
        """Nobody watches."""

    def judged(self, record: "EpochRecord", best: bool, validation: "Validation") -> None:
        """Nobody watches."""

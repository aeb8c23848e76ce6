"""Who is told what happens, beside the watchers of the loop."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from enteron.training.history import EpochRecord
from enteron.training.validation import Validation
from enteron.training.watching import Step, Watcher


class Company(Watcher, Protocol):
    """Somebody who also hears sentences and sees long work before the training."""

    def say(self, sentence: str) -> None:
        """A sentence for a person."""
        ...

    def counting(
        self, what: str, total: int, unit: str
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Long work: what is yielded hears how many are done."""
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

    def stepped(self, step: Step) -> None:
        """Nobody watches."""

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        """Nobody watches."""

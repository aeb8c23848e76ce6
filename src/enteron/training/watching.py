"""What a training tells while it runs, to whoever watches."""

from dataclasses import dataclass
from typing import Protocol

from enteron.training.history import EpochRecord
from enteron.training.validation import Validation


@dataclass(frozen=True)
class Step:
    """One step of the optimiser."""

    epoch: int  # from 1
    number: int  # of the step within the epoch, from 1
    steps: int  # of an epoch
    overall: int  # steps since the beginning of the training
    samples: int  # clips of this step, over all processes
    losses: dict[str, float]  # the total and its parts before weighting, of this process
    rate: float  # learning rate of the head
    norm: float  # of the gradient before clipping


class Watcher(Protocol):
    """Somebody who watches."""

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        """Training begins, or goes on, after `epoch` epochs and `step` steps of the next."""
        ...

    def stepped(self, step: Step) -> None:
        """A step is done."""
        ...

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        """An epoch is done and validated; `best` when none before was better."""
        ...


class Watchers:
    """Several of them."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        for watcher in self._watchers:
            watcher.began(epoch, step, epochs, steps)

    def stepped(self, step: Step) -> None:
        for watcher in self._watchers:
            watcher.stepped(step)

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        for watcher in self._watchers:
            watcher.judged(record, best, validation)

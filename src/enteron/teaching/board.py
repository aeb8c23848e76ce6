"""TensorBoard: scalars of every step, figures and precision-recall curves of every epoch."""

from pathlib import Path

from enteron.labels import LABELS
from enteron.training.history import EpochRecord
from enteron.training.validation import Validation
from enteron.training.watching import Step


class Board:
    """Writes event files that `tensorboard --logdir` shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def began(self, epoch: int, step: int, epochs: int, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._steps = steps
        # What a killed run wrote after its last checkpoint will be written again.
        self._writer = SummaryWriter(str(self._folder), purge_step=epoch * steps + step)

    def stepped(self, step: Step) -> None:
        at = step.overall
        for name, value in step.losses.items():
            self._writer.add_scalar(f"loss/{name}", value, at)
        self._writer.add_scalar("step/learning rate", step.rate, at)
        self._writer.add_scalar("step/gradient norm", step.norm, at)

    def judged(self, record: EpochRecord, best: bool, validation: Validation) -> None:
        at = record.epoch * self._steps - 1
        self._writer.add_scalar("epoch/train loss", record.train_loss, at)
        self._writer.add_scalar("epoch/validation loss", record.val_loss, at)
        for name, value in record.figures.model_dump().items():
            self._writer.add_scalar(f"validation/{name.replace('_', ' ')}", value, at)
        for column, label in enumerate(LABELS):
            truth = validation.truth[:, column]
            if truth.any():
                scores = validation.scores[:, column]
                self._writer.add_pr_curve(f"precision-recall/{label}", truth, scores, at)
        self._writer.flush()

"""What every epoch brought, and which one was the best."""

from enteron.config import Options


class Figures(Options):
    """How good scores of validation frames are."""

    macro_ap: float
    """Mean AP of the 17 labels, 0 for those without positives, as in the paper."""
    macro_ap_present: float
    """Mean AP of the labels that have positives."""
    macro_f1: float
    """Mean F1 of the 17 labels at a threshold of one half, 0 for those without positives."""
    findings_ap: float
    """Mean AP of the findings that have positives; 0 when there are none."""
    region_accuracy: float
    """Share of the frames whose most probable region is a true one."""


class EpochRecord(Options):
    """One row of the epoch table."""

    epoch: int
    """From 1."""
    train_loss: float
    """Mean over the epoch's batches, as it was minimised."""
    val_loss: float
    """The same objective on validation frames with averaged weights, without smoothing."""
    figures: Figures
    """Of averaged weights on validation frames."""


class History(Options):
    """Epochs so far."""

    epochs: tuple[EpochRecord, ...] = ()
    """In order."""

    @property
    def best(self) -> EpochRecord | None:
        """The first epoch with the largest macro AP (decision 31)."""
        return max(self.epochs, key=lambda record: record.figures.macro_ap, default=None)

    def stale(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought nothing better."""
        best = self.best
        if patience is None or best is None:
            return False
        return self.epochs[-1].epoch - best.epoch >= patience

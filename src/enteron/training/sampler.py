"""The balanced sampler: frames of rare labels more often (paper, section 2.5; decision 15)."""

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ConfigError
from enteron.training.options import SamplerOptions
from enteron.training.randomness import generator


def sample_weights(labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The largest 1 / sqrt((count + 1) / N) of a sample's labels (n, 17); 1 without any."""
    count = labels.sum(axis=0)
    per_label = 1 / np.sqrt((count + 1) / max(len(labels), 1))
    return np.where(labels.any(axis=1), (labels * per_label).max(axis=1, initial=0.0), 1.0)


def oversampling(labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(17,) how many times as often as in the data a label is drawn; NaN without positives."""
    drawn = weights @ labels / weights.sum()
    with np.errstate(invalid="ignore"):
        return drawn / labels.mean(axis=0)


class Sampler:
    """The samples of every batch of an epoch, a function of seed and epoch alone.

    Every process draws the same whole sequence and takes its own share of each batch; a resumed
    training goes on at the batch where it stopped.
    """

    def __init__(
        self, labels: NDArray[np.bool_], options: SamplerOptions, batch: int, group: int, seed: int
    ) -> None:
        """`group` batches make one step, so an epoch has a multiple of it."""
        if len(labels) == 0:
            raise ConfigError("there is nothing to draw from", "give at least one sample")
        self.size = len(labels)
        self.batch = batch
        self.seed = seed
        self.balanced = options.balanced
        wanted = options.samples or self.size
        self.steps = -(-wanted // (batch * group))
        self.batches = self.steps * group
        self._cumulative = np.cumsum(sample_weights(labels)) if options.balanced else None

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """(batches, batch) samples. The last batch is whole: draws go on until it is."""
        draw = generator(self.seed, "sampler", epoch)
        total = self.batches * self.batch
        if self._cumulative is None:
            rounds = -(-total // self.size)
            order = np.concatenate([draw.permutation(self.size) for _ in range(rounds)])[:total]
        else:
            points = draw.random(total) * self._cumulative[-1]
            order = np.searchsorted(self._cumulative, points, side="right")
            order = np.minimum(order, self.size - 1)  # a point may round up to the very end
        return order.reshape(self.batches, self.batch).astype(np.int64)


def share(batches: NDArray[np.int64], rank: int, size: int) -> NDArray[np.int64]:
    """What one of `size` processes takes of every batch: (batches, batch) to (batches, part)."""
    part = batches.shape[1] // size
    return batches[:, rank * part : (rank + 1) * part]

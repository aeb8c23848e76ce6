"""Samples: labelled frames of studies, with the stored rows that their clips are made of."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.galar import Entry
from enteron.datasets.label_table import join_labels, require_fit
from enteron.errors import ConfigError, LabelError
from enteron.labels import LABELS
from enteron.training.options import SamplerOptions


@dataclass(frozen=True)
class StudySamples:
    """The samples of one study."""

    study: str
    stored: NDArray[np.int64]  # frame number of every stored frame, labelled or not
    rows: NDArray[np.int64]  # (n,) which of them are samples
    labels: NDArray[np.bool_]  # (n, 17)

    def __len__(self) -> int:
        return self.rows.size

    def readable(self, rows: NDArray[np.int64]) -> "StudySamples":
        """As if only these of the stored rows (ascending) had ever been stored."""
        kept = np.isin(self.rows, rows)
        places = np.searchsorted(rows, self.rows[kept])
        return StudySamples(self.study, self.stored[rows], places, self.labels[kept])


class Samples:
    """The samples of several studies behind each other, counted from 0 over all of them."""

    def __init__(self, studies: Iterable[StudySamples]) -> None:
        self.studies = tuple(studies)
        sizes = [len(study) for study in self.studies]
        self.study = np.repeat(np.arange(len(sizes)), sizes)  # (n,) place in `studies`
        none = [np.empty(0, np.int64)]
        self.row = np.concatenate([s.rows for s in self.studies] or none)  # (n,) within the study
        self.labels = np.concatenate(
            [s.labels for s in self.studies] or [np.empty((0, len(LABELS)), np.bool_)]
        )

    def __len__(self) -> int:
        return self.row.size

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(17,) samples that show each label."""
        return self.labels.sum(axis=0)

    def frame(self, sample: int) -> int:
        """The frame number of a sample."""
        return int(self.studies[self.study[sample]].stored[self.row[sample]])

    def names(self, samples: NDArray[np.int64], most: int = 12) -> str:
        """Samples by study and frame number, as a person would look for them."""
        parts: list[str] = []
        for place in np.unique(self.study[samples]):
            mine = samples[self.study[samples] == place]
            frames = sorted({self.frame(int(sample)) for sample in mine})
            shown = ", ".join(map(str, frames[:most]))
            more = f" and {len(frames) - most} more" if len(frames) > most else ""
            word = "frame" if len(frames) == 1 else "frames"
            parts.append(f"study {self.studies[place].study} {word} {shown}{more}")
        return "; ".join(parts)

    def hash(self) -> str:
        """Of studies, frames and labels: a training resumes on the same samples only."""
        digest = hashlib.sha256()
        for study in self.studies:
            digest.update(f"{study.study}:{len(study)};".encode())
            digest.update(study.stored[study.rows].tobytes())
            digest.update(np.packbits(study.labels).tobytes())
        return digest.hexdigest()[:16]


def study_samples(entry: Entry, stride: int) -> StudySamples:
    """Every `stride`-th labelled row of a study that has an image."""
    table, study = entry.table(), entry.open()
    join = join_labels(table, study.numbers)
    require_fit(join, table, study.numbers)
    frames, labels = join.frames[::stride], join.values[::stride]
    return StudySamples(entry.id, study.numbers, np.searchsorted(study.numbers, frames), labels)


def require_samples(samples: Samples, part: str) -> None:
    """Refuse a part that nothing can be learnt from, or judged by."""
    if len(samples) == 0:
        raise LabelError(
            f"the part '{part}' of the split has no labelled frames",
            "give it studies that have images and labels",
        )
    if not samples.counts.any():
        raise LabelError(
            f"none of the {len(samples)} frames of '{part}' shows any of the 17 labels",
            "check the label files with `enteron check`",
        )


def seed_of(*parts: int | str) -> int:
    """A seed below 2^63 from counters and words; different parts give unrelated seeds."""
    text = "/".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator from counters and words."""
    return np.random.default_rng(seed_of(*parts))


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

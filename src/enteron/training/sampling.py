"""Samples (labelled frames of studies), the seeds of everything random, and what an epoch draws."""

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
    rows: NDArray[np.int64]  # (n,) positions in `stored` that are samples
    labels: NDArray[np.bool_]  # (n, 17)

    def __len__(self) -> int:
        return self.rows.size

    def restricted_to(self, readable: NDArray[np.int64]) -> "StudySamples":
        """The samples as if only these rows (ascending) of `stored` existed."""
        kept = np.isin(self.rows, readable)
        rows = np.searchsorted(readable, self.rows[kept])
        return StudySamples(self.study, self.stored[readable], rows, self.labels[kept])


class Samples:
    """The samples of several studies, numbered from 0 over all of them."""

    def __init__(self, studies: Iterable[StudySamples]) -> None:
        self.studies = tuple(studies)
        sizes = [len(study) for study in self.studies]
        self.study_index = np.repeat(np.arange(len(sizes)), sizes)  # (n,) position in `studies`
        no_rows = [np.empty(0, np.int64)]
        self.rows = np.concatenate([s.rows for s in self.studies] or no_rows)  # (n,) in the study
        self.labels = np.concatenate(
            [s.labels for s in self.studies] or [np.empty((0, len(LABELS)), np.bool_)]
        )  # (n, 17)

    def __len__(self) -> int:
        return self.rows.size

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(17,) samples that show each label."""
        return self.labels.sum(axis=0)

    def frame(self, sample: int) -> int:
        """The frame number of a sample."""
        return int(self.studies[self.study_index[sample]].stored[self.rows[sample]])

    def describe(self, samples: NDArray[np.int64], most: int = 12) -> str:
        """Study ids and frame numbers of some samples, at most `most` frames per study."""
        parts: list[str] = []
        for index in np.unique(self.study_index[samples]):
            in_study = samples[self.study_index[samples] == index]
            frames = sorted({self.frame(int(sample)) for sample in in_study})
            listed = ", ".join(map(str, frames[:most]))
            rest = f" and {len(frames) - most} more" if len(frames) > most else ""
            noun = "frame" if len(frames) == 1 else "frames"
            parts.append(f"study {self.studies[index].study} {noun} {listed}{rest}")
        return "; ".join(parts)

    def hash(self) -> str:
        """Hash of studies, frames and labels: a training resumes only on the same samples."""
        digest = hashlib.sha256()
        for study in self.studies:
            digest.update(f"{study.study}:{len(study)};".encode())
            digest.update(study.stored[study.rows].tobytes())
            digest.update(np.packbits(study.labels).tobytes())
        return digest.hexdigest()[:16]


def study_samples(entry: Entry, stride: int) -> StudySamples:
    """Every `stride`-th labelled frame of a study that has an image."""
    table, study = entry.table(), entry.open()
    join = join_labels(table, study.numbers)
    require_fit(join, table, study.numbers)
    frames, labels = join.frames[::stride], join.values[::stride]
    return StudySamples(entry.id, study.numbers, np.searchsorted(study.numbers, frames), labels)


def require_samples(samples: Samples, part: str) -> None:
    """Refuse a part of the split without labelled frames, or without any positive label."""
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
    """A numpy generator seeded with `seed_of(*parts)`."""
    return np.random.default_rng(seed_of(*parts))


def sample_weights(labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Per sample, the largest 1 / sqrt((count + 1) / N) of its labels (n, 17); 1 without labels."""
    count = labels.sum(axis=0)
    per_label = 1 / np.sqrt((count + 1) / max(len(labels), 1))
    return np.where(labels.any(axis=1), (labels * per_label).max(axis=1, initial=0.0), 1.0)


def oversampling(labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(17,) share of a label among draws divided by its share in the data; NaN if it has none."""
    drawn = weights @ labels / weights.sum()
    with np.errstate(invalid="ignore"):
        return drawn / labels.mean(axis=0)


class Sampler:
    """The samples of every batch of an epoch, determined by the seed and the epoch's number.

    Every process draws the same full sequence and takes its share of each batch; a resumed
    training continues with the batch after the last one that its checkpoint includes.
    """

    def __init__(
        self, labels: NDArray[np.bool_], options: SamplerOptions, batch: int, group: int, seed: int
    ) -> None:
        """`group`: batches per step of the optimiser; an epoch has a multiple of it."""
        if len(labels) == 0:
            raise ConfigError("there are no samples to draw from", "give at least one sample")
        self.size = len(labels)
        self.batch = batch
        self.seed = seed
        draws = options.samples or self.size
        self.steps = -(-draws // (batch * group))
        self.batches = self.steps * group
        self._cumulative = np.cumsum(sample_weights(labels)) if options.balanced else None

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """(batches, batch) samples; drawing continues until the last batch is full."""
        rng = generator(self.seed, "sampler", epoch)
        total = self.batches * self.batch
        if self._cumulative is None:
            rounds = -(-total // self.size)
            order = np.concatenate([rng.permutation(self.size) for _ in range(rounds)])[:total]
        else:
            points = rng.random(total) * self._cumulative[-1]
            order = np.searchsorted(self._cumulative, points, side="right")
            order = np.minimum(order, self.size - 1)  # a point may round up to the last boundary
        return order.reshape(self.batches, self.batch).astype(np.int64)


def process_share(batches: NDArray[np.int64], rank: int, size: int) -> NDArray[np.int64]:
    """What process `rank` of `size` takes of every batch: (batches, batch) to (batches, share)."""
    share = batches.shape[1] // size
    return batches[:, rank * share : (rank + 1) * share]

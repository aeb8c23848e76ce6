"""Samples (labelled frames of studies), the seeds of everything random, and what an epoch draws."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.dataset import DatasetStudy
from enteron.errors import ConfigError, LabelError
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.training.options import SamplerOptions
from enteron.types import FrameLabels


@dataclass(frozen=True)
class StudySamples:
    """The samples of one study."""

    study: str  # id, unique among all sources of a training
    stored: NDArray[np.int64]  # frame number of every stored frame, labelled or not
    rows: NDArray[np.int64]  # (n,) positions in `stored` that are samples
    labels: FrameLabels  # of the n samples
    source: str = ""  # the title of its dataset, where a training has several

    def __len__(self) -> int:
        return self.rows.size

    def restricted_to(self, readable: NDArray[np.int64]) -> "StudySamples":
        """The samples as if only these rows (ascending) of `stored` existed."""
        kept = np.isin(self.rows, readable)
        rows = np.searchsorted(readable, self.rows[kept])
        labels = self.labels[kept]
        return StudySamples(self.study, self.stored[readable], rows, labels, self.source)

    def of_anatomy(self) -> "StudySamples":
        """The samples whose regions are all known, as if nothing were known of their findings."""
        regions = [COLUMN[region] for region in REGIONS]
        complete = self.labels.known[:, regions].all(axis=1)
        present, known = self.labels.present[complete], self.labels.known[complete]
        findings = [COLUMN[finding] for finding in FINDINGS]
        present[:, findings] = known[:, findings] = False
        labels = FrameLabels(present, known)
        return StudySamples(self.study, self.stored, self.rows[complete], labels, self.source)


class Samples:
    """The samples of several studies, numbered from 0 over all of them."""

    def __init__(self, studies: Iterable[StudySamples]) -> None:
        self.studies = tuple(studies)
        sizes = [len(study) for study in self.studies]
        self.study_index = np.repeat(np.arange(len(sizes)), sizes)  # (n,) position in `studies`
        no_rows = [np.empty(0, np.int64)]
        self.rows = np.concatenate([s.rows for s in self.studies] or no_rows)  # (n,) in the study
        self.labels = FrameLabels.concatenate([s.labels for s in self.studies])
        self.sources = tuple(dict.fromkeys(study.source for study in self.studies))  # in order

    def __len__(self) -> int:
        return self.rows.size

    @property
    def counts(self) -> NDArray[np.int64]:
        """(17,) samples that show each label."""
        return self.labels.present_counts

    @cached_property
    def source_index(self) -> NDArray[np.int64]:
        """(n,) position of every sample's source in `sources`."""
        of_study = np.array([self.sources.index(s.source) for s in self.studies], dtype=np.int64)
        return of_study[self.study_index]

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
            digest.update(np.packbits(study.labels.present).tobytes())
            if not study.labels.is_complete:
                digest.update(np.packbits(study.labels.known).tobytes())
        return digest.hexdigest()[:16]


def study_samples(
    entry: DatasetStudy, stride: int, *, key: str | None = None, source: str = ""
) -> StudySamples:
    """Every `stride`-th labelled frame of a study that has an image.

    Frames of which no label is known teach nothing and are no samples; they stay neighbours.
    `key`: the id among all sources of a training.
    """
    study = entry.open()
    labelled = entry.labelled_frames(study)
    informative = labelled.labels.informative
    frames, labels = labelled.frames[informative], labelled.labels[informative]
    rows = np.searchsorted(study.numbers, frames[::stride])
    return StudySamples(key or entry.id, study.numbers, rows, labels[::stride], source)


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


def sample_weights(labels: FrameLabels) -> NDArray[np.float64]:
    """Per sample, the largest 1 / sqrt((count + 1) / N) of its labels; 1 if it shows none.

    N are the samples in which the label is known.
    """
    present = labels.present
    per_label = 1 / np.sqrt((labels.present_counts + 1) / np.maximum(labels.known_counts, 1))
    return np.where(present.any(axis=1), (present * per_label).max(axis=1, initial=0.0), 1.0)


def draw_weights(
    labels: FrameLabels, options: SamplerOptions, source_index: NDArray[np.int64] | None = None
) -> NDArray[np.float64] | None:
    """How often each sample is drawn; None: all equally often, without replacement.

    With several sources each is drawn as often as its share says. By default a source's share is
    its number of samples, so that balancing moves draws within a source only.
    """
    weights = sample_weights(labels) if options.balanced else np.ones(len(labels))
    sizes = np.bincount([] if source_index is None else source_index)
    if source_index is None or sizes.size < 2 or (options.shares is None and not options.balanced):
        return weights if options.balanced else None
    shares = np.array(sizes if options.shares is None else options.shares, dtype=np.float64)
    if shares.size != sizes.size:
        raise ConfigError(
            f"there are {shares.size} shares for {sizes.size} sources", "give one share per source"
        )
    totals = np.bincount(source_index, weights)
    return weights * (shares / np.maximum(totals, 1e-300))[source_index]


def oversampling(labels: FrameLabels, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """(17,) share of a label among draws divided by its share in the data; NaN if it has none."""
    drawn = weights @ labels.present / weights.sum()
    with np.errstate(invalid="ignore"):
        return drawn / labels.present.mean(axis=0)


class Sampler:
    """The samples of every batch of an epoch, determined by the seed and the epoch's number.

    Every process draws the same full sequence and takes its share of each batch; a resumed
    training continues with the batch after the last one that its checkpoint includes.
    """

    def __init__(
        self,
        labels: FrameLabels,
        options: SamplerOptions,
        batch: int,
        group: int,
        seed: int,
        source_index: NDArray[np.int64] | None = None,
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
        weights = draw_weights(labels, options, source_index)
        self._cumulative = None if weights is None else np.cumsum(weights)

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

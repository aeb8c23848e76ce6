"""The two regimes' sources of batches, from studies on disk."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from enteron.galar.catalogue import Entry
from enteron.galar.splits import Split
from enteron.inference.runtimes.choose import make_encoder
from enteron.model.network import Network
from enteron.teaching.company import Company
from enteron.teaching.data import read_part
from enteron.teaching.features import stored_study
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Source
from enteron.training.options import TrainingOptions
from enteron.training.pictures import ClipOptions, PictureClips
from enteron.training.processes import Processes
from enteron.training.samples import Samples, StudySamples, require_samples
from enteron.training.stored import StoredWindows

Parts = tuple[list[StudySamples], list[StudySamples]]  # those that train and those that validate


def read_samples(
    studies: Mapping[str, Entry], split: Split, options: TrainingOptions, company: Company
) -> Parts:
    """The samples of both parts, refused when one has nothing to offer."""
    stride = options.data.stride
    count = len(split.train) + len(split.val)
    with company.counting("Reading labels", count, "studies") as advance:
        train = read_part(studies, split.train, stride, advance)
        val = read_part(studies, split.val, stride, advance)
    require_samples(Samples(train), "train")
    require_samples(Samples(val), "val")
    return train, val


def picture_sources(
    studies: Mapping[str, Entry], parts: Parts, network: Network, options: TrainingOptions
) -> tuple[Source, Source]:
    """Clips of pictures, those that train changed at random."""
    prepared = network.backbone.spec.preprocessing
    changes = options.augmentation
    augmentation = Augmentation(changes, prepared.size) if changes.enabled else None
    frames, step = options.model.frames, options.model.neighbour_step
    workers = min(options.workers, os.cpu_count() or 1)

    def clips(part: list[StudySamples], augmentation: Augmentation | None) -> PictureClips:
        opened = [studies[samples.study].open() for samples in part]
        how = ClipOptions(frames, step, prepared, augmentation)
        return PictureClips(Samples(part), opened, how, workers)

    return clips(parts[0], augmentation), clips(parts[1], None)


def stored_sources(
    studies: Mapping[str, Entry],
    parts: Parts,
    network: Network,
    options: TrainingOptions,
    folder: Path,
    processes: Processes,
    company: Company,
) -> tuple[Source, Source]:
    """Windows of stored features; processes share the studies that are still to be encoded."""
    encoder = make_encoder(network.backbone)
    everyone = [samples for part in parts for samples in part]
    mine = everyone[processes.rank :: processes.size]

    def stored(samples: StudySamples) -> object:
        entry = studies[samples.study]
        return stored_study(entry, samples, encoder, folder, options, advance)

    total = sum(samples.stored.size for samples in mine)
    with company.counting("Encoding", total, "frames") as advance:
        for samples in mine:
            stored(samples)
    processes.wait()

    def windows(part: Sequence[StudySamples]) -> StoredWindows:
        found = [
            stored_study(studies[s.study], s, encoder, folder, options, lambda _: None)
            for s in part
        ]
        return StoredWindows(found, options.model.frames, options.model.neighbour_step)

    return windows(parts[0]), windows(parts[1])

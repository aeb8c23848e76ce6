"""The two regimes' sources of batches, from studies on disk."""

import os

from enteron.inference.runtimes.choose import default_runtime, make_encoder
from enteron.model.network import Network
from enteron.teaching.company import Company
from enteron.teaching.features import stored_study
from enteron.teaching.plan import Plan
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Source
from enteron.training.pictures import ClipOptions, PictureClips
from enteron.training.processes import Processes
from enteron.training.samples import Samples, StudySamples
from enteron.training.stored import StoredWindows


def picture_sources(plan: Plan, network: Network) -> tuple[Source, Source]:
    """Clips of pictures, those that train changed at random."""
    options = plan.request.options
    prepared = network.backbone.spec.preprocessing
    changes = options.augmentation
    augmentation = Augmentation(changes, prepared.size) if changes.enabled else None
    workers = min(options.workers, os.cpu_count() or 1)

    def clips(part: list[StudySamples], augmentation: Augmentation | None) -> PictureClips:
        opened = [plan.studies[samples.study].open() for samples in part]
        how = ClipOptions(
            options.model.frames, options.model.neighbour_step, prepared, augmentation
        )
        kept = plan.features if options.data.keep_squares else None
        return PictureClips(Samples(part), opened, how, workers, kept)

    return clips(plan.train, augmentation), clips(plan.val, None)


def stored_sources(
    plan: Plan, network: Network, processes: Processes, company: Company
) -> tuple[Source, Source]:
    """Windows of stored features; processes share the studies that are still to be encoded."""
    options = plan.request.options
    # Never `auto`: int8 may do for reading, not for what everything is learnt from, and a training
    # that goes on after a kill might get another runtime.
    encoder = make_encoder(network.backbone, default_runtime(network.backbone))
    mine = [*plan.train, *plan.val][processes.rank :: processes.size]
    total = sum(samples.stored.size for samples in mine)
    with company.counting("Encoding", total, "frames") as advance:
        for samples in mine:
            entry = plan.studies[samples.study]
            stored_study(entry, samples, encoder, plan.features, options, advance)
    processes.wait()

    def windows(part: list[StudySamples]) -> StoredWindows:
        found = [
            stored_study(
                plan.studies[samples.study],
                samples,
                encoder,
                plan.features,
                options,
                lambda _: None,
            )
            for samples in part
        ]
        return StoredWindows(found, options.model.frames, options.model.neighbour_step)

    return windows(plan.train), windows(plan.val)

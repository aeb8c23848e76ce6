"""Features of the frozen regime: every study through the encoder once, views beside each other."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.galar.catalogue import Entry
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder, Squares
from enteron.inference.store import SUFFIX
from enteron.inference.views import FLIPPED, PLAIN, View
from enteron.training.augmentation import Augmentation
from enteron.training.options import TrainingOptions
from enteron.training.randomness import seed_of
from enteron.training.samples import StudySamples
from enteron.training.stored import StoredStudy


def stored_study(
    entry: Entry,
    samples: StudySamples,
    encoder: Encoder,
    folder: Path,
    options: TrainingOptions,
    advance: Callable[[int], None],
) -> StoredStudy:
    """A study's features, made now or found in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = embed_study(
        entry.open(),
        encoder,
        folder / f"{entry.id}{SUFFIX}",
        EmbedOptions(),  # the same as for reading, so that stores can be shared
        advance,
        views=study_views(entry.id, options, encoder.preprocessing.size),
    )
    return StoredStudy(samples, found.features, found.readable)


def study_views(study: str, options: TrainingOptions, size: int) -> Sequence[View]:
    """The pictures as they are, their mirror images, and the augmented views of the options."""
    if options.views == 0:
        return (PLAIN, FLIPPED)
    augmentation = Augmentation(options.augmentation, size)
    return (
        PLAIN,
        FLIPPED,
        *(_augmented(augmentation, number, study, options) for number in range(options.views)),
    )


def _augmented(
    augmentation: Augmentation, number: int, study: str, options: TrainingOptions
) -> View:
    """One draw for all frames of a study, so that any three of them make a clip."""
    draw = seed_of(options.seed, "view", number, study)
    how = seed_of(options.augmentation.model_dump_json()) % 16**6

    def change(squares: Squares, frames: NDArray[np.int64]) -> Squares:
        return augmentation(torch.from_numpy(squares), draw).numpy()

    return View(f"augmented-{how:06x}-{options.seed}-{number}", change)

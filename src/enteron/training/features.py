"""Batches of the frozen regime: features of every study, encoded once and stored."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from enteron.datasets.dataset import DatasetStudy
from enteron.errors import StudyError
from enteron.files import make_folder
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder, ImageBatch
from enteron.inference.store import SUFFIX
from enteron.inference.views import FLIPPED, PLAIN, View
from enteron.model.preprocessing import Preprocessing
from enteron.training.augmentation import Augmentation
from enteron.training.batches import Batch, Draw, clip_rows, make_batch
from enteron.training.options import TrainingOptions
from enteron.training.sampling import Samples, StudySamples, seed_of

PLAIN_VIEW = 0
"""The view without any change is the first one stored."""


@dataclass(frozen=True)
class StudyFeatures:
    """The stored features of a study with its samples."""

    samples: StudySamples
    features: NDArray[np.floating]  # (stored frames, views, 512), in memory or memory-mapped
    readable: NDArray[np.int64]  # rows that have features


def store_features(
    entry: DatasetStudy,
    samples: StudySamples,
    encoder: Encoder,
    folder: Path,
    options: TrainingOptions,
    advance: Callable[[int], None],
) -> StudyFeatures:
    """Encode a study into the folder, or open what an earlier run stored there."""
    make_folder(folder)
    embeddings = embed_study(
        entry.open(),
        encoder,
        folder / f"{samples.study}{SUFFIX}",
        EmbedOptions(),  # the options of `enteron calibrate`, which can use the same files
        advance,
        views=stored_views(samples.study, options, encoder.preprocessing),
    )
    return StudyFeatures(samples, embeddings.features, embeddings.readable)


def stored_views(
    study: str, options: TrainingOptions, preprocessing: Preprocessing
) -> Sequence[View]:
    """The plain images, their mirror images, and the augmented views of the options.

    Augmented views are made of the resized images, whose crops are enlarged, unlike in the full
    regime; the paper has no such views.
    """
    if options.views == 0:
        return (PLAIN, FLIPPED)
    augmentation = Augmentation(options.augmentation, preprocessing.size)
    # The byte nearest to what normalisation makes 0.
    blank = torch.tensor([round(255 * mean) for mean in preprocessing.mean], dtype=torch.uint8)
    return (
        PLAIN,
        FLIPPED,
        *(_augmented_view(augmentation, blank, n, study, options) for n in range(options.views)),
    )


def _augmented_view(
    augmentation: Augmentation,
    blank: torch.Tensor,
    number: int,
    study: str,
    options: TrainingOptions,
) -> View:
    """One draw for all frames of a study, so that any three of them form a clip."""
    seed = seed_of(options.seed, "view", number, study)
    # The word names the order of the changes: another one is another view.
    options_hash = seed_of(options.augmentation.model_dump_json(), "colour first") % 16**6

    def change(images: ImageBatch, frames: NDArray[np.int64]) -> ImageBatch:
        changed, (top, left, height, width) = augmentation(list(torch.from_numpy(images)), seed)
        changed[..., top : top + height, left : left + width] = blank[:, None, None]
        return changed.numpy()

    return View(f"augmented-{options_hash:06x}-{options.seed}-{number}", change)


class FeatureSource:
    """Windows of stored features.

    An unreadable frame is treated as if it had not been stored, as in scoring: it is not a sample,
    and the windows of its neighbours skip it.
    """

    def __init__(self, studies: Sequence[StudyFeatures], frames: int, step: int) -> None:
        for study in studies:
            _require_fit(study)
        self._features = [study.features for study in studies]
        self.samples = Samples([study.samples.restricted_to(study.readable) for study in studies])
        # Rows of `clip_rows` count readable frames; these are rows of the stored arrays.
        stored_rows = [
            study.readable[rows]
            for study, rows in zip(
                studies, _by_study(self.samples, clip_rows(self.samples, frames, step)), strict=True
            )
        ]
        self._rows = np.concatenate([np.empty((0, frames), np.int64), *stored_rows])
        self.unreadable = {
            (study.samples.study, int(study.samples.stored[row]))
            for study in studies
            for row in np.setdiff1d(study.samples.rows, study.readable)
        }

    def batches(self, draws: Sequence[Draw]) -> Iterator[Batch]:
        """A batch for every draw; a sample's seed selects one of the stored views."""
        for draw in draws:
            windows = torch.from_numpy(self._windows(draw))
            yield make_batch(self.samples, draw.samples, windows)

    def prepare(self, batch: Batch, device: torch.device) -> torch.Tensor:
        """The features as they are."""
        return batch.inputs.to(device, non_blocking=True)

    def _windows(self, draw: Draw) -> NDArray[np.float32]:
        """(n, frames, 512), gathered study by study."""
        rows = self._rows[draw.samples]
        windows = np.empty((*rows.shape, self._features[0].shape[2]), np.float32)
        study_index = self.samples.study_index[draw.samples]
        for index in np.unique(study_index):
            in_study = np.flatnonzero(study_index == index)
            features = self._features[index]
            if draw.seeds is None:
                view = np.full(in_study.size, PLAIN_VIEW)
            else:
                view = draw.seeds[in_study] % features.shape[1]
            windows[in_study] = features[rows[in_study], view[:, None]]
        return windows


def _by_study(samples: Samples, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    borders = np.cumsum([len(study) for study in samples.studies])[:-1]
    return np.split(rows, borders)


def _require_fit(study: StudyFeatures) -> None:
    if len(study.features) != study.samples.stored.size:
        raise StudyError(
            f"study {study.samples.study} has {study.samples.stored.size} frames, but its stored "
            f"features have {len(study.features)}",
            "delete the stored features of that study and run again",
        )

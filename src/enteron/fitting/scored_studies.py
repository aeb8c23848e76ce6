"""Labelled studies as a model scores them, and what they look like to its encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.datasets.dataset import DatasetStudy, LabelledFrames
from enteron.datasets.galar import Entry
from enteron.datasets.label_table import truth_events
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.folders.model import open_model
from enteron.inference.accelerator import Accelerator
from enteron.inference.encoder import Features
from enteron.progress import Progress, SilentProgress
from enteron.study import Study
from enteron.types import Scores, Unit

SEEN_FRAMES: Final = 64
"""Frames of a study that are encoded to see what it looks like, where none are stored."""


class StudyScorer:
    """A loaded model that scores labelled studies."""

    def __init__(
        self,
        model: Path,
        progress: Progress | None = None,
        *,
        accelerator: Accelerator = "auto",
        runtime: str | None = None,
    ) -> None:
        from enteron.inference.runtimes import default_runtime, make_encoder

        self.progress = SilentProgress() if progress is None else progress
        self.model = open_model(model)
        runtime = runtime or default_runtime(self.model.backbone, accelerator)
        self.encoder = make_encoder(self.model.backbone, runtime, accelerator=accelerator)
        self.progress.message(f"Features by runtime {self.encoder.runtime}.")

    def labelled(
        self, entries: Mapping[str, DatasetStudy], features: Path
    ) -> dict[str, LabelledStudy]:
        """Scores beside the truth of every study, from stored features or from features made now.

        Stored features are used only if the same runtime made them.
        """
        from enteron.inference.embed import EmbedOptions, embed_study
        from enteron.inference.score import score_study
        from enteron.inference.store import SUFFIX

        studies: dict[str, LabelledStudy] = {}
        for key, entry in entries.items():
            with entry.open() as study:
                # Labels that do not fit the images are refused before the long work.
                labelled = entry.labelled_frames(study)
                path = features / f"{key}{SUFFIX}"
                with self.progress.task("Encoding", len(study)) as advance:
                    # Training may have stored augmented views beside the two that are scored.
                    embeddings = embed_study(
                        study, self.encoder, path, EmbedOptions(), advance, extra_views=True
                    )
                scores = score_study(
                    self.model.head,
                    embeddings,
                    times=study.times(),
                    frames_per_row=study.frames_per_row,
                )
            studies[key] = _labelled_study(entry, scores, labelled)
        return studies

    def stored_appearance(self, key: str, features: Path) -> NDArray[np.floating] | None:
        """(frames, 512) stored embeddings of a study by this encoder; None where there are none."""
        from enteron.inference.store import SUFFIX, open_embeddings

        path = features / f"{key}{SUFFIX}"
        if not path.exists():
            return None
        store = open_embeddings(path, check=False)
        if store.key.backbone != self.encoder.backbone_hash:
            return None
        return np.asarray(store.appearance)

    def encode_some(self, study: Study) -> Features:
        """(frames, 512) embeddings of some readable frames, evenly spread."""
        from enteron.inference.pictures import prepare_frame, study_fields
        from enteron.model.options import FEATURES

        preprocessing = self.encoder.preprocessing
        fields = study_fields(study, preprocessing)
        rows = np.unique(np.linspace(0, len(study) - 1, SEEN_FRAMES).astype(np.int64))
        prepared = [
            prepare_frame(study.frame(number), preprocessing, fields).image
            for number in study.numbers[rows].tolist()
        ]
        images = [image for image in prepared if image is not None]
        if not images:
            return np.empty((0, FEATURES), np.float32)
        return self.encoder.encode(np.stack(images))[:, :FEATURES]


def _labelled_study(entry: DatasetStudy, scores: Scores, labelled: LabelledFrames) -> LabelledStudy:
    if isinstance(entry, Entry):
        # Galar labels a study from end to end: a row's labels last up to the next row.
        return LabelledStudy(scores, label_rows(scores, truth_events(entry.table(), Unit.FRAME)))
    present = np.zeros(scores.values.shape, dtype=np.bool_)
    known = np.zeros_like(present)
    _, rows, labels = np.intersect1d(
        scores.axis.frames, labelled.frames, assume_unique=True, return_indices=True
    )
    present[rows], known[rows] = labelled.labels.present[labels], labelled.labels.known[labels]
    return LabelledStudy(scores, present, known)

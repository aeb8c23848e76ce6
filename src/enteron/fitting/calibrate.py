"""From a model and labelled studies to a calibration: embed, score, fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from enteron.calibration import Calibration
from enteron.datasets.dataset import DatasetStudy, LabelledFrames
from enteron.datasets.galar import Entry
from enteron.datasets.label_table import truth_events
from enteron.datasets.layouts import open_sources
from enteron.datasets.splits import PARTS, load_split
from enteron.errors import LabelError
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.frames import LabelledStudy, complete_studies, label_rows
from enteron.folders.model import (
    CALIBRATION,
    FEATURES,
    SPLIT,
    load_model,
    model_priors,
    save_calibration,
)
from enteron.labels import LABELS
from enteron.priors import Priors
from enteron.progress import Progress, SilentProgress
from enteron.types import FrameLabels, Scores, Unit

EVERYTHING = "all"


@dataclass(frozen=True)
class CalibrationReport:
    """What was fitted, and on what."""

    calibration: Calibration
    support: dict[str, int]  # frames that show each label
    unknown: dict[str, int]  # frames that say nothing about each label
    event_studies: int  # studies of which all labels are known: rules of events are fitted on them
    scaling_note: str | None  # a sentence where studies have fewer rows than real ones


def calibrate_model(
    model: Path,
    data: Path | Sequence[Path],
    *,
    part: str = "val",
    budget: float = 1.0,
    features: Path | None = None,
    priors: Priors | None = None,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit on one part of the model's split, and write `calibration.json` into its folder.

    Studies with unknown labels take part in the calibration of frames only. Without priors those of
    the model folder, or else those of the package.
    """
    entries = _entries_of(model, (data,) if isinstance(data, Path) else data, part)
    priors = model_priors(model) if priors is None else priors
    folder = model / FEATURES if features is None else features
    studies = labelled_studies(model, entries, folder, progress)
    calibration = fit_decoder(studies, priors, FitOptions(budget=budget))
    save_calibration(calibration, model / CALIBRATION)
    labels = FrameLabels.concatenate([study.labels for study in studies])
    unknown = len(labels) - labels.known_counts
    return CalibrationReport(
        calibration,
        dict(zip(LABELS, labels.present_counts.tolist(), strict=True)),
        dict(zip(LABELS, unknown.tolist(), strict=True)),
        len(complete_studies(studies)),
        _scaling_note(studies),
    )


def labelled_studies(
    model: Path,
    entries: Mapping[str, DatasetStudy],
    features: Path,
    progress: Progress | None = None,
) -> list[LabelledStudy]:
    """Scores beside the truth of every study, from stored features or from features made now."""
    from enteron.inference.embed import EmbedOptions, embed_study
    from enteron.inference.runtimes import default_runtime, make_encoder
    from enteron.inference.score import score_study
    from enteron.inference.store import SUFFIX

    progress = SilentProgress() if progress is None else progress
    network, _ = load_model(model)
    encoder = make_encoder(network.backbone, default_runtime(network.backbone))
    studies: list[LabelledStudy] = []
    for key, entry in entries.items():
        with entry.open() as study:
            # Labels that do not fit the images are refused before the long work.
            labelled = entry.labelled_frames(study)
            path = features / f"{key}{SUFFIX}"
            with progress.task("Encoding", len(study)) as advance:
                # Training may have stored augmented views beside the two that are scored.
                embeddings = embed_study(
                    study, encoder, path, EmbedOptions(), advance, extra_views=True
                )
            scores = score_study(
                network, embeddings, times=study.times(), frames_per_row=study.frames_per_row
            )
        studies.append(_labelled_study(entry, scores, labelled))
    return studies


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


def _entries_of(model: Path, roots: Sequence[Path], part: str) -> dict[str, DatasetStudy]:
    """The studies of a part of the split, all of them with images and labels."""
    entries = {
        source.key(study): entry
        for source in open_sources(roots)
        for study, entry in source.dataset.studies.items()
    }
    names = ", ".join(f"'{root.name}'" for root in roots)
    if part == EVERYTHING:
        return entries
    if part not in PARTS:
        raise LabelError(f"there is no part '{part}'", f"use {', '.join(PARTS)} or {EVERYTHING}")
    members = load_split(model / SPLIT).part(part)
    if not members:
        raise LabelError(
            f"the part '{part}' of the model's split is empty",
            f"use --split {EVERYTHING} with a root of studies that were not trained on",
        )
    missing = [study for study in members if study not in entries]
    if missing:
        raise LabelError(
            f"study {missing[0]} of the part '{part}' is not under {names}",
            "give the data that the model was trained with, or use --split all with other studies",
        )
    return {study: entries[study] for study in members}


def _scaling_note(studies: list[LabelledStudy]) -> str | None:
    scales = [study.scores.shortening for study in studies]
    if max(scales) == 1.0:
        return None
    return (
        f"these studies are {min(scales):.1f} to {max(scales):.1f} times shorter than real ones; "
        "constants counted in rows were divided by each study's own factor"
    )

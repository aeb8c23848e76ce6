"""From a model and labelled studies to a calibration: embed, score, fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from enteron.calibration import Calibration, FittedFor
from enteron.confidence import Reference, Signatures, StudyStatistics, study_signature
from enteron.datasets.dataset import DatasetStudy, LabelledFrames
from enteron.datasets.galar import Entry
from enteron.datasets.label_table import truth_events
from enteron.datasets.layouts import open_sources
from enteron.datasets.splits import PARTS
from enteron.errors import LabelError, quantity
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.frames import LabelledStudy, complete_studies, label_rows
from enteron.fitting.guarantee import fit_lists, require_enough
from enteron.folders.model import (
    CALIBRATION,
    FEATURES,
    PRIORS,
    RECORD,
    SPLIT,
    ModelRecord,
    load_model,
    model_priors,
    model_split,
    read_record,
    save_calibration,
)
from enteron.folders.statistics import measure_statistics
from enteron.inference.accelerator import Accelerator
from enteron.labels import LABELS
from enteron.locks import locks_folder
from enteron.priors import Priors, load_priors, priors_hash, save_priors
from enteron.progress import Progress, SilentProgress
from enteron.study.fingerprint import study_fingerprint
from enteron.types import FrameLabels, Scores, StudyFingerprint, Unit, study_id_hash

EVERYTHING = "all"


@dataclass(frozen=True)
class CalibrationReport:
    """What was fitted, and on what."""

    calibration: Calibration
    support: dict[str, int]  # frames that show each label
    unknown: dict[str, int]  # frames that say nothing about each label
    event_studies: int  # studies of which all labels are known: rules of events are fitted on them
    scaling_note: str | None  # a sentence where studies have fewer rows than real ones


@locks_folder
def calibrate_model(
    model: Path,
    data: Path | Sequence[Path],
    *,
    part: str = "val",
    budget: float = FitOptions().budget,
    lesion_recall: float | None = None,
    features: Path | None = None,
    priors: Priors | None = None,
    include_training: bool = False,
    accelerator: Accelerator = "auto",
    runtime: str | None = None,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit on one part of the model's split, and write `calibration.json` into its folder.

    Without priors those of the model folder, or else those of the package; given ones are stored in
    the folder, since decoding needs the same. Studies that trained the model are refused unless
    `include_training` is set: the calibration then says that it was fitted on them.
    `lesion_recall` is a recall to promise (`enteron.fitting.guarantee`). Studies with unknown
    labels take part in the calibration of frames only.
    """
    record = read_record(model)
    roots = (data,) if isinstance(data, Path) else tuple(data)
    entries = _entries_of(model, record, roots, part, progress or SilentProgress())
    trained = _training_entries(model, record, entries, include_training)
    if trained and not include_training:
        raise LabelError(
            f"{quantity(len(trained), 'study', 'studies')} of {len(entries)} trained this model, "
            f"the first is {trained[0]}: a calibration on them makes confidences too high",
            "give studies that did not train it (--split val), or add --include-training-studies",
        )
    if lesion_recall is not None:
        require_enough(1 - lesion_recall, len(entries))  # before the long work
    priors = model_priors(model) if priors is None else priors
    folder = model / FEATURES if features is None else features
    studies = labelled_studies(
        model, entries, folder, progress, accelerator=accelerator, runtime=runtime
    )
    fitted_for = FittedFor(
        origin="model",
        weights=record.weights_hash,
        settings=record.settings_hash,
        split=record.split_hash,
        priors=priors_hash(priors),
        study_ids=tuple(sorted(study_id_hash(entry.id) for entry in entries.values())),
        training_studies=len(trained),
    )
    calibration = fit_lists(
        studies,
        fit_decoder(studies, priors, FitOptions(budget=budget)),
        priors,
        lesion_recall=lesion_recall,
        devices=[entry.device for entry in entries.values()],
        signatures=None if lesion_recall is None else _signatures(entries, folder),
    ).model_copy(
        update={"fitted_for": fitted_for, "reference": _reference(entries, studies, folder)}
    )
    save_fitted(calibration, priors, model)
    labels = FrameLabels.concatenate([study.labels for study in studies])
    unknown = len(labels) - labels.known_counts
    return CalibrationReport(
        calibration,
        dict(zip(LABELS, labels.present_counts.tolist(), strict=True)),
        dict(zip(LABELS, unknown.tolist(), strict=True)),
        len(complete_studies(studies)),
        _scaling_note(studies),
    )


def save_fitted(calibration: Calibration, priors: Priors, folder: Path) -> None:
    """Write a calibration and, where they are not the packaged ones, the priors of its fit.

    The priors come first: after a crash in between, the old calibration does not fit them and is
    refused.
    """
    if priors != load_priors():
        save_priors(priors, folder / PRIORS)
    save_calibration(calibration, folder / CALIBRATION)


def _training_entries(
    model: Path,
    record: ModelRecord,
    entries: Mapping[str, DatasetStudy],
    include_training: bool,
) -> list[str]:
    """The studies that trained the model: by their ids, or by their pictures under other ids."""
    if record.training_studies is not None:
        return [key for key, e in entries.items() if _is_among(e, record.training_studies)]
    # A folder of an earlier version: only its split tells, and only by id.
    if record.split_hash is not None and (model / SPLIT).exists():
        members = set(model_split(model, record).train)
        return [key for key in entries if key in members]
    if record.training and not include_training:
        raise LabelError(
            f"'{RECORD}' does not say which studies trained the model: an earlier version made it, "
            f"and there is no '{SPLIT}'",
            f"copy '{SPLIT}' into the folder, or add --include-training-studies",
        )
    return list(entries) if record.training else []


def _is_among(entry: DatasetStudy, trained: tuple[StudyFingerprint, ...]) -> bool:
    if not trained:
        return False
    with entry.open() as study:
        fingerprint = study_fingerprint(study)
    return any(fingerprint.is_of(other) for other in trained)


def labelled_studies(
    model: Path,
    entries: Mapping[str, DatasetStudy],
    features: Path,
    progress: Progress | None = None,
    *,
    accelerator: Accelerator = "auto",
    runtime: str | None = None,
) -> list[LabelledStudy]:
    """Scores beside the truth of every study, from stored features or from features made now.

    Stored features are used only if the same runtime made them.
    """
    from enteron.inference.embed import EmbedOptions, embed_study
    from enteron.inference.runtimes import default_runtime, make_encoder
    from enteron.inference.score import score_study
    from enteron.inference.store import SUFFIX

    progress = SilentProgress() if progress is None else progress
    network, _ = load_model(model)
    runtime = runtime or default_runtime(network.backbone, accelerator)
    encoder = make_encoder(network.backbone, runtime, accelerator=accelerator)
    progress.message(f"Features by runtime {encoder.runtime}.")
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


def _signatures(entries: Mapping[str, DatasetStudy], features: Path) -> Signatures:
    """What the studies look like, from the features that `labelled_studies` stored."""
    from enteron.inference.store import SUFFIX, open_embeddings

    stores = [open_embeddings(features / f"{key}{SUFFIX}", check=False) for key in entries]
    points = [study_signature(store.appearance) for store in stores]
    return Signatures(
        encoder=stores[0].key.backbone, points=tuple(tuple(point.tolist()) for point in points)
    )


def _reference(
    entries: Mapping[str, DatasetStudy], studies: Sequence[LabelledStudy], features: Path
) -> Reference:
    """What the fitted studies look like, sorted so that their order tells nothing."""
    from enteron.inference.store import SUFFIX, open_embeddings

    statistics: list[StudyStatistics] = []
    for (key, entry), labelled in zip(entries.items(), studies, strict=True):
        store = open_embeddings(features / f"{key}{SUFFIX}", check=False)
        with entry.open() as study:
            statistics.append(measure_statistics(study, labelled.scores, store))
    return Reference(studies=tuple(sorted(statistics, key=lambda study: study.signature)))


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


def _entries_of(
    model: Path, record: ModelRecord, roots: Sequence[Path], part: str, progress: Progress
) -> dict[str, DatasetStudy]:
    """The studies of a part of the split, all of them with images and labels."""
    sources = open_sources(roots)
    for source in sources:
        for sentence in source.dataset.left_out:
            progress.message(f"Ignored: {sentence}.")
    entries = {
        source.key(study): entry
        for source in sources
        for study, entry in source.dataset.studies.items()
    }
    names = ", ".join(f"'{root.name}'" for root in roots)
    if part == EVERYTHING:
        return entries
    if part not in PARTS:
        raise LabelError(f"there is no part '{part}'", f"use {', '.join(PARTS)} or {EVERYTHING}")
    members = model_split(model, record).part(part)
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

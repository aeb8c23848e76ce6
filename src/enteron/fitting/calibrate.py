"""From a model and labelled studies to a calibration: embed, score, fit."""

from dataclasses import dataclass
from pathlib import Path

from enteron.calibration import Calibration, FittedFor
from enteron.confidence import Signatures, study_signature
from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.label_table import truth_events
from enteron.datasets.splits import PARTS
from enteron.errors import LabelError, quantity
from enteron.fitting.decoder import FitOptions, fit_decoder
from enteron.fitting.frames import LabelledStudy, label_rows
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
from enteron.labels import COLUMN, LABELS
from enteron.locks import locks_folder
from enteron.priors import Priors, load_priors, priors_hash, save_priors
from enteron.progress import Progress, SilentProgress
from enteron.study.fingerprint import StudyFingerprint, study_fingerprint, study_id_hash
from enteron.types import Unit

EVERYTHING = "all"


@dataclass(frozen=True)
class CalibrationReport:
    """What was fitted, and on what."""

    calibration: Calibration
    support: dict[str, int]  # frames that show each label
    scaling_note: str | None  # a sentence where studies have fewer rows than real ones


@locks_folder
def calibrate_model(
    model: Path,
    data: Path,
    *,
    part: str = "val",
    budget: float = FitOptions().budget,
    lesion_recall: float | None = None,
    features: Path | None = None,
    priors: Priors | None = None,
    include_training: bool = False,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit on one part of the model's split, and write `calibration.json` into its folder.

    Without priors those of the model folder, or else those of the package; given ones are stored in
    the folder, since decoding needs the same. Studies that trained the model are refused unless
    `include_training` is set: the calibration then says that it was fitted on them.
    `lesion_recall` is a recall to promise (`enteron.fitting.guarantee`).
    """
    record = read_record(model)
    entries = _entries_of(model, record, data, part, progress or SilentProgress())
    trained = _training_entries(model, record, entries, include_training)
    if trained and not include_training:
        raise LabelError(
            f"{quantity(len(trained), 'study', 'studies')} of {len(entries)} trained this model, "
            f"the first is {trained[0].id}: a calibration on them makes confidences too high",
            "give studies that did not train it (--split val), or add --include-training-studies",
        )
    if lesion_recall is not None:
        require_enough(1 - lesion_recall, len(entries))  # before the long work
    priors = model_priors(model) if priors is None else priors
    folder = model / FEATURES if features is None else features
    studies = labelled_studies(model, entries, folder, progress)
    fitted_for = FittedFor(
        origin="model",
        weights=record.weights_hash,
        settings=record.settings_hash,
        split=record.split_hash,
        priors=priors_hash(priors),
        study_ids=tuple(sorted(study_id_hash(entry.id) for entry in entries)),
        training_studies=len(trained),
    )
    calibration = fit_lists(
        studies,
        fit_decoder(studies, priors, FitOptions(budget=budget)),
        priors,
        lesion_recall=lesion_recall,
        devices=[_device(entry) for entry in entries],
        signatures=None if lesion_recall is None else _signatures(entries, folder),
    ).model_copy(update={"fitted_for": fitted_for})
    save_fitted(calibration, priors, model)
    support = {
        label: int(sum(study.truth[:, COLUMN[label]].sum() for study in studies))
        for label in LABELS
    }
    return CalibrationReport(calibration, support, _scaling_note(studies))


def save_fitted(calibration: Calibration, priors: Priors, folder: Path) -> None:
    """Write a calibration and, where they are not the packaged ones, the priors of its fit.

    The priors come first: after a crash in between, the old calibration does not fit them and is
    refused.
    """
    if priors != load_priors():
        save_priors(priors, folder / PRIORS)
    save_calibration(calibration, folder / CALIBRATION)


def _training_entries(
    model: Path, record: ModelRecord, entries: list[Entry], include_training: bool
) -> list[Entry]:
    """The entries that trained the model: by their ids, or by their pictures under other ids."""
    if record.training_studies is not None:
        return [e for e in entries if _is_among(e, record.training_studies)]
    # A folder of an earlier version: only its split tells, and only by id.
    if record.split_hash is not None and (model / SPLIT).exists():
        members = set(model_split(model, record).train)
        return [entry for entry in entries if entry.id in members]
    if record.training and not include_training:
        raise LabelError(
            f"'{RECORD}' does not say which studies trained the model: an earlier version made it, "
            f"and there is no '{SPLIT}'",
            f"copy '{SPLIT}' into the folder, or add --include-training-studies",
        )
    return entries if record.training else []


def _is_among(entry: Entry, trained: tuple[StudyFingerprint, ...]) -> bool:
    if not trained:
        return False
    with entry.open() as study:
        fingerprint = study_fingerprint(study)
    return any(fingerprint.is_of(other) for other in trained)


def labelled_studies(
    model: Path, entries: list[Entry], features: Path, progress: Progress | None = None
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
    for entry in entries:
        entry.join()  # labels that do not fit the images are refused before the long work
        with entry.open() as study:
            path = features / f"{entry.id}{SUFFIX}"
            with progress.task("Encoding", len(study)) as advance:
                # Training may have stored augmented views beside the two that are scored.
                embeddings = embed_study(
                    study, encoder, path, EmbedOptions(), advance, extra_views=True
                )
            scores = score_study(
                network, embeddings, times=study.times(), frames_per_row=study.frames_per_row
            )
        truth = label_rows(scores, truth_events(entry.table(), Unit.FRAME))
        studies.append(LabelledStudy(scores, truth))
    return studies


def _device(entry: Entry) -> str | None:
    """The capsule's family; None where it is unknown."""
    device = "unknown" if entry.metadata is None else entry.metadata.device
    return None if device == "unknown" else device


def _signatures(entries: list[Entry], features: Path) -> Signatures:
    """What the studies look like, from the features that `labelled_studies` stored."""
    from enteron.inference.embed import PLAIN
    from enteron.inference.store import SUFFIX, open_embeddings

    stores = [open_embeddings(features / f"{e.id}{SUFFIX}", check=False) for e in entries]
    points = [
        study_signature(store.features[store.readable, store.view(PLAIN.name)]) for store in stores
    ]
    return Signatures(
        encoder=stores[0].key.backbone, points=tuple(tuple(point.tolist()) for point in points)
    )


def _entries_of(
    model: Path, record: ModelRecord, data: Path, part: str, progress: Progress
) -> list[Entry]:
    """The studies of a part of the split, all of them with images and labels."""
    found = find_studies(data)
    entries = found.labelled()
    for sentence in found.left_out():
        progress.message(f"Ignored: {sentence}.")
    if not entries:
        raise LabelError(
            f"'{data.name}' holds no study with images and labels",
            "give a root with folders of frames and a folder Labels",
        )
    if part == EVERYTHING:
        return list(entries.values())
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
            f"study {missing[0]} of the part '{part}' is not under '{data.name}'",
            "give the data that the model was trained with, or use --split all with other studies",
        )
    return [entries[study] for study in members]


def _scaling_note(studies: list[LabelledStudy]) -> str | None:
    scales = [study.scores.shortening for study in studies]
    if max(scales) == 1.0:
        return None
    return (
        f"these studies are {min(scales):.1f} to {max(scales):.1f} times shorter than real ones; "
        "constants counted in rows were divided by each study's own factor"
    )

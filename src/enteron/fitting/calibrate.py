"""From a model and labelled studies to a calibration: embed, score, fit."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.appearance import LEAST_STUDIES, Appearance, fit_appearance
from enteron.calibration import Calibration, FittedFor, Measured
from enteron.confidence import Reference, Signatures, StudyStatistics, study_signature
from enteron.datasets.dataset import Dataset, DatasetStudy
from enteron.datasets.layouts import open_dataset, open_sources
from enteron.datasets.splits import PARTS
from enteron.errors import LabelError, quantity
from enteron.fitting.decoder import (
    ContextComparison,
    ContextUse,
    FitOptions,
    compare_context,
    context_pays,
    fit_decoder,
)
from enteron.fitting.frames import LabelledStudy, complete_studies
from enteron.fitting.guarantee import fit_lists, require_enough
from enteron.fitting.measuring import (
    measure_frames,
    measure_studies,
    with_measured,
    without_lonely_findings,
)
from enteron.fitting.scored_studies import StudyScorer
from enteron.folders.left_out import LEFT_OUT, read_left_out
from enteron.folders.model import (
    CALIBRATION,
    FEATURES,
    PRIORS,
    RECORD,
    SPLIT,
    TRAINING,
    ModelRecord,
    model_priors,
    model_split,
    read_record,
    save_appearance,
    save_calibration,
)
from enteron.folders.statistics import measure_statistics
from enteron.inference.accelerator import Accelerator
from enteron.labels import ANATOMY, LABELS
from enteron.locks import locks_folder
from enteron.priors import Priors, load_priors, priors_hash, save_priors
from enteron.progress import Progress, SilentProgress
from enteron.study.fingerprint import study_fingerprint
from enteron.types import DataKind, FrameLabels, Scores, StudyFingerprint, study_id_hash

EVERYTHING = "all"


@dataclass(frozen=True)
class CalibrationReport:
    """What was fitted, and on what."""

    calibration: Calibration
    support: dict[str, int]  # frames that show each label
    unknown: dict[str, int]  # frames that say nothing about each label
    event_studies: int  # studies of which all labels are known: rules of events are fitted on them
    scaling_note: str | None  # a sentence where studies have fewer rows than real ones
    context: ContextComparison | None = None  # of events, where context was asked for


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
    use_context: bool = False,
    accelerator: Accelerator = "auto",
    runtime: str | None = None,
    measure: Sequence[Path] = (),
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit on one part of the model's split, and write `calibration.json` into its folder.

    Without priors those of the model folder, or else those of the package; given ones are stored in
    the folder, since decoding needs the same. Studies that trained the model are refused unless
    `include_training` is set: the calibration then says that it was fitted on them.
    `lesion_recall` is a recall to promise (`enteron.fitting.guarantee`). Where findings come from
    local evidence alone, they are calibrated on training studies too, as models scored these that
    had not seen them (`enteron.folders.left_out`). `measure`: data roots that take part in no fit;
    findings are measured on them. `use_context`: the scores around in time are used, if left-out
    studies gain by it: to judge events or, where findings come from local evidence alone, to refine
    scores. The calibration without it is stored beside.
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
    # Other data than the model's own cannot be joined with the studies that were left out.
    left_out = {} if part == EVERYTHING else read_left_out(model / TRAINING / LEFT_OUT)
    left_out_entries = _left_out_entries(left_out, roots)
    scorer = StudyScorer(model, progress, accelerator=accelerator, runtime=runtime)
    by_key = scorer.labelled(entries | left_out_entries, folder)
    by_key |= {key: as_left_out(by_key[key], left_out[key]) for key in left_out_entries}
    datasets = _datasets_of(roots)
    studies = _with_origins(by_key, datasets)
    judged = studies[: len(entries)]  # by the model itself
    studies = judged + without_lonely_findings(studies[len(entries) :])
    fitted_for = FittedFor(
        origin="model",
        weights=record.weights_hash,
        settings=record.settings_hash,
        split=record.split_hash,
        priors=priors_hash(priors),
        study_ids=tuple(sorted(study_id_hash(entry.id) for entry in entries.values())),
        training_studies=len(trained),
        left_out_studies=len(left_out),
    )
    devices = [entry.device for entry in entries.values()]
    signatures = None if lesion_recall is None else _signatures(entries, folder)
    facts = {
        "fitted_for": fitted_for,
        "reference": _reference(entries | left_out_entries, studies, folder),
    }

    by_evidence = record.options.findings == "evidence"
    options = FitOptions(budget=budget, anatomy_apart=by_evidence)

    # Findings by evidence are calibrated on excerpts, which have no events to compare, nor the time
    # around them. Whether context is used is then decided by frames of left-out studies, in the fit
    # itself.
    use: ContextUse = "frames" if by_evidence else "events"

    def fit(context: bool) -> Calibration:
        fitted = fit_lists(
            judged,
            fit_decoder(
                studies, priors, options.model_copy(update={"context": use if context else "none"})
            ),
            priors,
            lesion_recall=lesion_recall,
            devices=devices,
            signatures=signatures,
        )
        return fitted.model_copy(update=facts)

    comparison: ContextComparison | None = None
    if use_context and not by_evidence:
        comparison = compare_context(studies, priors, options)
    calibration = fit(use_context if by_evidence else context_pays(comparison))
    measured: dict[str, Measured] | None = None
    if left_out or measure:
        titles = ", ".join(dict.fromkeys(datasets[key].title for key in left_out_entries))
        measured = measure_studies(studies[len(entries) :], titles)
        for root in measure:
            dataset = open_dataset(root)
            # Apart: ids of this root may be those of a fitted study.
            tested = scorer.labelled(dataset.studies, folder / "measured")
            measured = measure_frames(list(tested.values()), dataset.title) | measured
        calibration = with_measured(calibration, measured)
    if calibration.uses_context:
        plain = fit(False)
        plain = plain if measured is None else with_measured(plain, measured)
        calibration = calibration.model_copy(update={"without_context": plain})
    save_fitted(calibration, priors, model)
    members = {*entries, *left_out_entries, *_training_keys(model, record, part)}
    save_appearance(_appearance(scorer, folder, members, roots), model)
    labels = FrameLabels.concatenate([study.labels for study in studies])
    unknown = len(labels) - labels.known_counts
    return CalibrationReport(
        calibration,
        dict(zip(LABELS, labels.present_counts.tolist(), strict=True)),
        dict(zip(LABELS, unknown.tolist(), strict=True)),
        len(complete_studies(studies)),
        _scaling_note(studies),
        comparison,
    )


def _left_out_entries(
    left_out: Mapping[str, Scores], roots: Sequence[Path]
) -> dict[str, DatasetStudy]:
    """The studies that were left out, all of which have to be among the data."""
    if not left_out:
        return {}
    entries = {
        source.key(study): entry
        for source in open_sources(roots)
        for study, entry in source.dataset.studies.items()
    }
    missing = sorted(set(left_out) - set(entries))
    if missing:
        raise LabelError(
            f"study {missing[0]}, on whose left-out scores findings are calibrated, is not in the "
            "data",
            "give all data roots that the model was trained with",
        )
    return {key: entries[key] for key in left_out}


def _datasets_of(roots: Sequence[Path]) -> dict[str, Dataset]:
    """The dataset of every study."""
    return {
        source.key(study): source.dataset
        for source in open_sources(roots)
        for study in source.dataset.studies
    }


def _appearance(
    scorer: StudyScorer,
    features: Path,
    members: Collection[str],
    roots: Sequence[Path],
) -> Appearance:
    """What the studies look like that trained the model or calibrate it.

    Frames that are not stored are encoded only for kinds of data that have studies enough for a
    limit.
    """
    known: list[tuple[str, DatasetStudy, DataKind]] = [
        (key, entry, _kind(source.dataset))
        for source in open_sources(roots)
        for study, entry in source.dataset.studies.items()
        if (key := source.key(study)) in members
    ]
    counts = Counter(kind for _, _, kind in known)
    by_kind: dict[DataKind, list[NDArray[np.floating]]] = {}
    for key, entry, kind in known:
        frames = scorer.stored_appearance(key, features)
        if frames is None and counts[kind] >= LEAST_STUDIES:
            with entry.open() as study:
                frames = scorer.encode_some(study)
        if frames is not None:
            by_kind.setdefault(kind, []).append(frames)
    return fit_appearance(by_kind, scorer.encoder.backbone_hash)


def _kind(dataset: Dataset) -> DataKind:
    return "drawings" if dataset.synthetic else "real frames"


def _with_origins(
    studies: Mapping[str, LabelledStudy], datasets: Mapping[str, Dataset]
) -> list[LabelledStudy]:
    """The studies, with what their datasets say of them: drawn or not, whole or excerpts."""
    return [
        replace(
            study,
            drawn=datasets[key].synthetic,
            recording_frames=datasets[key].recording_frames,
        )
        for key, study in studies.items()
    ]


def as_left_out(study: LabelledStudy, left_out: Scores) -> LabelledStudy:
    """The study with the left-out scores of its findings; nothing else is known of it.

    Frames that were not scored while the study was left out say nothing.
    """
    rows = np.searchsorted(study.scores.axis.frames, left_out.axis.frames)
    findings = slice(len(ANATOMY), None)
    values, known = study.scores.values.copy(), np.zeros_like(study.truth)
    values[rows, findings] = left_out.values[:, findings]
    known[rows, findings] = study.labels.known[rows, findings]
    scores = replace(study.scores, values=values)
    return replace(study, scores=scores, truth=study.truth & known, known=known)


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


def _training_keys(model: Path, record: ModelRecord, part: str) -> tuple[str, ...]:
    """The training studies by id, where they are known and may be among the data."""
    if part == EVERYTHING or record.split_hash is None or not (model / SPLIT).exists():
        return ()
    return model_split(model, record).train


def _is_among(entry: DatasetStudy, trained: tuple[StudyFingerprint, ...]) -> bool:
    if not trained:
        return False
    with entry.open() as study:
        fingerprint = study_fingerprint(study)
    return any(fingerprint.is_of(other) for other in trained)


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

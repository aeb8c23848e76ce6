"""The plan of a training: data, split, options and priors, checked before torch is loaded.

A folder with a checkpoint folder holds a training that has started and not finished. The checkpoint
folder keeps what such a training needs to resume: its options, its priors and its state.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.dataset import Box, DatasetStudy
from enteron.datasets.layouts import Source, open_sources
from enteron.datasets.splits import (
    Split,
    joined_split,
    load_split,
    save_split,
    seeded_split,
    stratified_split,
)
from enteron.errors import ConfigError, LabelError, TrainingError, nearest, quantity
from enteron.files import RECORD_LIMIT, read_text, write_text
from enteron.folders.model import (
    CHECKPOINT,
    FEATURES,
    PRIORS,
    RECORD,
    SPLIT,
    TRAINING,
    TRAINING_OPTIONS,
)
from enteron.inference.accelerator import Accelerator
from enteron.inference.runtimes import RUNTIMES
from enteron.labels import FINDINGS
from enteron.model.requirements import require_torch
from enteron.options import parse_json_options
from enteron.priors import Priors, load_priors, save_priors
from enteron.progress import Progress
from enteron.training.options import TrainingOptions
from enteron.training.sampling import Samples, StudySamples, require_samples, study_samples


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for."""

    roots: tuple[Path, ...]
    out: Path
    options: TrainingOptions
    split: Path | None = None  # None: a seeded split
    features: Path | None = None  # folder for stored features; None: in the model folder
    priors: Path | None = None  # priors for decoding with the model; None: the packaged ones
    resume: bool = False
    accelerator: Accelerator = "auto"
    runtime: str | None = None  # of the frozen regime's encoder; None: what suits the machine


@dataclass(frozen=True)
class TrainingPlan:
    """What will be trained, on which samples."""

    request: TrainingRequest
    sources: tuple[Source, ...]
    studies: Mapping[str, DatasetStudy]  # by id among those of all sources
    split: Split
    priors: Priors | None
    train: list[StudySamples]
    val: list[StudySamples]
    boxes: Mapping[str, tuple[Box, ...]]
    """Around findings of the training studies, by study; empty without local evidence."""

    @property
    def features(self) -> Path:
        """The folder of stored features."""
        return self.request.features or self.request.out / FEATURES


def make_plan(request: TrainingRequest, progress: Progress) -> TrainingPlan:
    """Find the studies, split them and read their labels; unusable input raises an error."""
    require_torch("training")
    _require_runtime(request)
    priors = None if request.priors is None else load_priors(request.priors)
    sources = _open_sources(request, progress)
    studies = {
        source.key(study): entry
        for source in sources
        for study, entry in source.dataset.studies.items()
    }
    resumed = request.resume and is_started(request.out)
    if resumed:
        split, priors = _started_with(request, priors)
    else:
        require_new_folder(request.out)
        split = choose_split(sources, request.options, request.split)
    _require_members(split, studies, is_given=request.split is not None)
    members = (*split.train, *split.val)
    samples = _read_samples(sources, members, request.options.data.stride, progress)
    if not resumed and request.split is None and request.options.data.stratified:
        split = _stratified(split, sources, samples)
    if request.options.model.findings == "evidence":
        _require_regions(split, samples)
        if not resumed and request.split is None:
            split = _all_boxes_train(split, samples)
    train, val = (_by_source(samples, side, sources) for side in (split.train, split.val))
    if request.options.sampler.shares is not None:
        _require_training_studies(train, sources)
    require_samples(Samples(train), "train")
    require_samples(Samples(val), "val")
    boxes = {} if not request.options.model.local_evidence else _finding_boxes(train, studies)
    return TrainingPlan(request, sources, studies, split, priors, train, val, boxes)


def open_samples(
    request: TrainingRequest, progress: Progress
) -> tuple[tuple[Source, ...], dict[str, StudySamples]]:
    """The data roots and the samples of all their studies, whatever their split."""
    _require_runtime(request)
    sources = _open_sources(request, progress)
    members = [source.key(study) for source in sources for study in source.dataset.studies]
    return sources, _read_samples(sources, members, request.options.data.stride, progress)


def _open_sources(request: TrainingRequest, progress: Progress) -> tuple[Source, ...]:
    sources = open_sources(request.roots)
    for source in sources:
        for sentence in source.dataset.left_out:
            progress.message(f"Ignored: {sentence}.")
    _require_shares(request.options, sources)
    return sources


def _require_runtime(request: TrainingRequest) -> None:
    """Refuse a runtime that cannot be used before anything is written."""
    runtime = request.runtime
    if runtime is None:
        return
    if request.options.regime == "full":
        raise ConfigError(
            "a runtime was given, but the backbone is trained, which only torch can do",
            "leave out --runtime, or choose a recipe that freezes the backbone, such as lite",
        )
    if runtime == "auto":
        raise ConfigError(
            "the runtime 'auto' may choose another one when the training resumes",
            "name a runtime, or leave it out",
        )
    if runtime not in ("exact", *RUNTIMES):
        raise ConfigError(f"there is no runtime '{runtime}'", nearest(runtime, RUNTIMES))


def _finding_boxes(
    train: list[StudySamples], studies: Mapping[str, DatasetStudy]
) -> dict[str, tuple[Box, ...]]:
    """The boxes that teach local evidence; refused where there is none."""
    boxes = {
        samples.study: tuple(b for b in studies[samples.study].boxes() if b.label in FINDINGS)
        for samples in train
    }
    if not any(boxes.values()):
        raise TrainingError(
            "no training study has a box around a finding, and local evidence is taught by boxes",
            "give data with boxes, or set `local_evidence` to false",
        )
    return boxes


def _started_with(request: TrainingRequest, priors: Priors | None) -> tuple[Split, Priors | None]:
    """Split and priors of the started training; the request must not contradict it."""
    out = request.out
    options, split = started_options(out), load_split(out / SPLIT)
    if request.split is not None and load_split(request.split).hash != split.hash:
        raise TrainingError(
            f"'{out.name}' is being trained on another split",
            "leave out --split, or train into another folder",
        )
    requested = request.options.model_copy(update={"workers": options.workers})  # may differ
    for name in TrainingOptions.model_fields:
        if getattr(options, name) != getattr(requested, name):
            raise TrainingError(
                f"the training in '{out.name}' was started with another '{name}'",
                "resume with the same options or with none, or train into another folder",
            )
    stored = out / CHECKPOINT / PRIORS
    stored_priors = load_priors(stored) if stored.exists() else None
    if priors is not None and priors != stored_priors:
        raise TrainingError(
            f"the training in '{out.name}' was started with other priors",
            "leave out --priors, or train into another folder",
        )
    return split, stored_priors


def _require_shares(options: TrainingOptions, sources: tuple[Source, ...]) -> None:
    shares = options.sampler.shares
    if shares is not None and len(shares) != len(sources):
        raise TrainingError(
            f"there are {len(shares)} shares for {quantity(len(sources), 'data root')}",
            "give one share per root, in the order of the roots",
        )


def _require_training_studies(train: list[StudySamples], sources: tuple[Source, ...]) -> None:
    """Refuse shares for a source that has nothing to draw."""
    titles = {study.source for study in train if len(study)}
    for source in sources:
        if len(sources) > 1 and source.title not in titles:
            raise TrainingError(
                f"the data root '{source.dataset.name}' has a share and no frame to train on",
                "leave the root out, or give a split in which one of its studies trains",
            )


def choose_split(sources: tuple[Source, ...], options: TrainingOptions, file: Path | None) -> Split:
    """The split in the file, or a seeded one within each source."""
    if file is not None:
        return load_split(file)
    data = options.data
    splits = {
        source.prefix: seeded_split(
            source.dataset.studies, seed=options.seed, val=data.validation, test=data.test
        )
        for source in sources
    }
    return splits[""] if len(sources) == 1 else joined_split(splits)


def _require_members(split: Split, studies: Mapping[str, DatasetStudy], *, is_given: bool) -> None:
    """All studies that train or validate must be there, and each part must have some."""
    for part in ("train", "val"):
        members = split.part(part)
        if not members:
            raise LabelError(
                f"the part '{part}' of the split has no studies",
                "give a split whose parts are not empty"
                if is_given
                else "give more studies, or a split whose parts are not empty",
            )
        missing = [study for study in members if study not in studies]
        if missing:
            raise LabelError(
                f"{len(missing)} of {len(members)} studies of '{part}' are not there with images "
                f"and labels, the first is {missing[0]}",
                "give the data that the split was made for, or another split",
            )


def _read_samples(
    sources: tuple[Source, ...], members: Sequence[str], stride: int, progress: Progress
) -> dict[str, StudySamples]:
    """The samples of these studies, in their order."""
    entries = {
        source.key(study): (entry, source)
        for source in sources
        for study, entry in source.dataset.studies.items()
    }
    samples: dict[str, StudySamples] = {}
    with progress.task("Reading labels", len(members), "studies") as advance:
        for key in members:
            entry, source = entries[key]
            title = source.title if len(sources) > 1 else ""
            samples[key] = study_samples(entry, stride, key=key, source=title)
            advance(1)
    return samples


def _by_source(
    samples: Mapping[str, StudySamples], members: tuple[str, ...], sources: tuple[Source, ...]
) -> list[StudySamples]:
    """The members' samples in the order of the sources, to which shares refer."""
    titles = [source.title for source in sources]
    chosen = [samples[study] for study in members]
    if len(sources) == 1:
        return chosen
    return sorted(chosen, key=lambda study: titles.index(study.source))


def _stratified(
    split: Split, sources: tuple[Source, ...], samples: Mapping[str, StudySamples]
) -> Split:
    """Within each source, a label that two of its studies show is on both sides, if possible."""
    shows = {key: study.labels.present_counts > 0 for key, study in samples.items()}
    if len(sources) == 1:
        return stratified_split(split, shows)
    parts: dict[str, list[str]] = {"train": [], "val": []}
    changed = False
    for source in sources:
        keys = {source.key(study) for study in source.dataset.studies}
        own = Split(
            *(tuple(key for key in split.part(part) if key in keys) for part in ("train", "val")),
            test=(),
            rule="",
        )
        stratified = stratified_split(own, shows)
        changed |= stratified is not own
        for part, members in parts.items():
            members.extend(stratified.part(part))
    rule = f"{split.rule}, stratified by label" if changed else split.rule
    return Split(tuple(parts["train"]), tuple(parts["val"]), split.test, rule)


def _require_regions(split: Split, samples: Mapping[str, StudySamples]) -> None:
    """The head learns anatomy only: refuse data that have none to train or to validate on."""
    for part in ("train", "val"):
        if not any(len(samples[study].of_anatomy()) for study in split.part(part)):
            raise TrainingError(
                f"no frame of the part '{part}' has all five regions labelled, and the head learns "
                "anatomy only",
                "add data with regions, such as the output of `enteron phantom`, or set `findings` "
                'to "head"',
            )


def _all_boxes_train(split: Split, samples: Mapping[str, StudySamples]) -> Split:
    """Validation keeps studies with labelled regions only, where findings come from evidence.

    The head learns nothing from the others, and evidence is judged on left-out studies of the
    training part: a study that validates would be lost to it.
    """
    moved = [study for study in split.val if not len(samples[study].of_anatomy())]
    if not moved:
        return split
    val = tuple(study for study in split.val if study not in moved)
    rule = f"{split.rule}; studies without regions train"
    return Split((*split.train, *moved), val, split.test, rule)


def is_finished(out: Path) -> bool:
    """Whether the folder holds a finished training."""
    return (out / RECORD).exists() and not (out / CHECKPOINT).exists()


def is_started(out: Path) -> bool:
    """Whether the folder holds a training that started and did not finish."""
    return (out / CHECKPOINT / TRAINING_OPTIONS).exists()


def require_new_folder(out: Path) -> None:
    """Refuse to overwrite a model, finished or not."""
    if is_started(out):
        raise TrainingError(
            f"'{out.name}' holds a training that did not finish",
            "add --resume to resume it, or give another folder",
        )
    if (out / RECORD).exists():
        raise TrainingError(f"'{out.name}' already holds a model", "give another folder")
    if out.exists() and not out.is_dir():
        raise TrainingError(f"'{out.name}' is a file", "give a folder")


def mark_started(plan: TrainingPlan) -> None:
    """Store split, priors and options, so that a killed training can resume."""
    out = plan.request.out
    checkpoint = out / CHECKPOINT
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"cannot create folder '{out.name}' ({error.strerror})", "give another folder"
        ) from error
    save_split(plan.split, out / SPLIT)
    if plan.priors is not None:
        save_priors(plan.priors, checkpoint / PRIORS)
    else:
        (checkpoint / PRIORS).unlink(missing_ok=True)  # of a start that was killed
    # Last: from here on the training counts as started.
    write_text(checkpoint / TRAINING_OPTIONS, plan.request.options.model_dump_json(indent=1) + "\n")


def started_options(out: Path) -> TrainingOptions:
    """Options of a training, or of folds, that started and did not finish."""
    remedy = "train again into another folder"
    path = out / CHECKPOINT / TRAINING_OPTIONS
    text = read_text(path, RECORD_LIMIT, remedy, source=f"'{path.name}'", error=TrainingError)
    return parse_json_options(TrainingOptions, text, TRAINING_OPTIONS, remedy)


def mark_finished(out: Path, options: TrainingOptions) -> None:
    """Store the options without paths of this machine, and delete the checkpoints."""
    model = options.model.model_copy(update={"bundle": None})
    public = options.model_copy(update={"model": model})
    write_text(out / TRAINING / TRAINING_OPTIONS, public.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / CHECKPOINT)

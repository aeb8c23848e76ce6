"""The plan of a training: data, split, options and priors, checked before torch is loaded.

A folder with a checkpoint folder holds a training that has started and not finished. The checkpoint
folder keeps what such a training needs to resume: its options, its priors and its state.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.splits import Split, load_split, save_split, seeded_split
from enteron.errors import LabelError, StudyError, TrainingError
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
from enteron.options import parse_json_options
from enteron.priors import Priors, load_priors, save_priors
from enteron.progress import Progress
from enteron.training.options import TrainingOptions
from enteron.training.sampling import Samples, StudySamples, require_samples, study_samples


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for."""

    root: Path
    out: Path
    options: TrainingOptions
    split: Path | None = None  # None: a seeded split
    features: Path | None = None  # folder for stored features; None: in the model folder
    priors: Path | None = None  # priors for decoding with the model; None: the packaged ones
    resume: bool = False


@dataclass(frozen=True)
class TrainingPlan:
    """What will be trained, on which samples."""

    request: TrainingRequest
    studies: Mapping[str, Entry]
    split: Split
    priors: Priors | None
    train: list[StudySamples]
    val: list[StudySamples]

    @property
    def features(self) -> Path:
        """The folder of stored features."""
        return self.request.features or self.request.out / FEATURES


def make_plan(request: TrainingRequest, progress: Progress) -> TrainingPlan:
    """Find the studies, split them and read their labels; unusable input raises an error."""
    priors = None if request.priors is None else load_priors(request.priors)
    studies = usable_studies(request.root, progress)
    if request.resume and is_started(request.out):
        split, priors = _started_with(request, priors)
    else:
        require_new_folder(request.out)
        split = choose_split(studies, request.options, request.split)
    stride = request.options.data.stride
    count = len(split.train) + len(split.val)
    with progress.task("Reading labels", count, "studies") as advance:
        train = _read_samples(studies, split.train, stride, advance)
        val = _read_samples(studies, split.val, stride, advance)
    require_samples(Samples(train), "train")
    require_samples(Samples(val), "val")
    return TrainingPlan(request, studies, split, priors, train, val)


def _started_with(request: TrainingRequest, priors: Priors | None) -> tuple[Split, Priors | None]:
    """Split and priors of the started training; the request must not contradict it."""
    out = request.out
    options, split = load_started(out)
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


def usable_studies(root: Path, progress: Progress) -> dict[str, Entry]:
    """Studies that have images and labels; without any, the error says what is missing."""
    studies = find_studies(root)
    usable = studies.labelled()
    for sentence in studies.left_out():
        progress.message(f"Ignored: {sentence}.")
    if usable:
        return usable
    if not studies:
        raise StudyError(
            f"'{root.name}' holds no studies",
            "give a folder with studies of frames and a folder Labels",
        )
    images = sum(entry.images is not None for entry in studies.values())
    labels = sum(entry.labels is not None for entry in studies.values())
    if not labels:
        raise LabelError(
            f"'{root.name}' holds images of {images} studies and labels of none",
            "put their CSV files into a folder named Labels",
        )
    raise StudyError(
        f"no study in '{root.name}' has both images ({images} have) and labels ({labels} have)",
        "give images and labels of a study the same id",
    )


def choose_split(
    studies: Mapping[str, Entry], options: TrainingOptions, file: Path | None
) -> Split:
    """The split in the file, or a seeded one; all its studies must have images and labels."""
    if file is None:
        data = options.data
        split = seeded_split(studies, seed=options.seed, val=data.validation, test=data.test)
    else:
        split = load_split(file)
    for part in ("train", "val"):
        members = split.part(part)
        if not members:
            raise LabelError(
                f"the part '{part}' of the split has no studies",
                "give more studies, or a split whose parts are not empty"
                if file is None
                else "give a split whose parts are not empty",
            )
        missing = [study for study in members if study not in studies]
        if missing:
            raise LabelError(
                f"{len(missing)} of {len(members)} studies of '{part}' are not there with images "
                f"and labels, the first is {missing[0]}",
                "give the data that the split was made for, or another split",
            )
    return split


def _read_samples(
    studies: Mapping[str, Entry],
    members: tuple[str, ...],
    stride: int,
    advance: Callable[[int], None],
) -> list[StudySamples]:
    """The samples of some studies; labels are joined with images by frame number."""
    samples: list[StudySamples] = []
    for study in members:
        samples.append(study_samples(studies[study], stride))
        advance(1)
    return samples


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


def load_started(out: Path) -> tuple[TrainingOptions, Split]:
    """Options and split of a started training."""
    remedy = "train again into another folder"
    path = out / CHECKPOINT / TRAINING_OPTIONS
    text = read_text(path, RECORD_LIMIT, remedy, source=f"'{path.name}'", error=TrainingError)
    options = parse_json_options(TrainingOptions, text, TRAINING_OPTIONS, remedy)
    return options, load_split(out / SPLIT)


def mark_finished(out: Path, options: TrainingOptions) -> None:
    """Store the options without paths of this machine, and delete the checkpoints."""
    model = options.model.model_copy(update={"bundle": None})
    public = options.model_copy(update={"model": model})
    write_text(out / TRAINING / TRAINING_OPTIONS, public.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / CHECKPOINT)

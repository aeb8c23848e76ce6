"""What is to be trained on what, checked before anything heavy is loaded."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.galar import Entry, find_studies
from enteron.datasets.splits import Split, load_split, save_split, seeded_split
from enteron.errors import LabelError, StudyError, TrainingError
from enteron.files import write_text
from enteron.options import parse_json_options
from enteron.training.company import Company
from enteron.training.options import TrainingOptions
from enteron.training.sampling import Samples, StudySamples, require_samples, study_samples


def usable_studies(root: Path) -> dict[str, Entry]:
    """Studies that have images and labels; a root without any is refused with a guess at why."""
    found = find_studies(root)
    usable = {study: e for study, e in found.items() if e.images and e.labels}
    if usable:
        return usable
    if not found:
        raise StudyError(
            f"'{root.name}' holds no studies",
            "give a folder with studies of frames and a folder Labels",
        )
    images = sum(entry.images is not None for entry in found.values())
    labels = sum(entry.labels is not None for entry in found.values())
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
    """The split of a file, or a seeded one; what it names must be there."""
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


def read_part(
    studies: Mapping[str, Entry],
    members: tuple[str, ...],
    stride: int,
    advance: Callable[[int], None],
) -> list[StudySamples]:
    """The samples of some studies, labels joined with images by frame number."""
    made: list[StudySamples] = []
    for study in members:
        made.append(study_samples(studies[study], stride))
        advance(1)
    return made


RECORD = "model.json"  # as `enteron.model.folder`, which needs torch, names it
SPLIT = "split.json"
TRAINING = "training"
CHECKPOINT = "checkpoint"
FEATURES = "features"
OPTIONS = "options.json"


def is_finished(out: Path) -> bool:
    """Whether a training ended here."""
    return (out / RECORD).exists() and not (out / CHECKPOINT).exists()


def is_begun(out: Path) -> bool:
    """Whether a training began here and did not end."""
    return (out / CHECKPOINT / OPTIONS).exists()


def require_new(out: Path) -> None:
    """Refuse to write over a model, finished or not."""
    if is_begun(out):
        raise TrainingError(
            f"'{out.name}' holds a training that did not finish",
            "add --resume to go on with it, or give another folder",
        )
    if (out / RECORD).exists():
        raise TrainingError(f"'{out.name}' holds a model already", "give another folder")
    if out.exists() and not out.is_dir():
        raise TrainingError(f"'{out.name}' is a file", "give a folder")


def begin(out: Path, options: TrainingOptions, split: Split) -> None:
    """Note what is to be trained before the long work, so that a killed run can go on."""
    checkpoint = out / CHECKPOINT
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"'{out.name}' cannot be made a folder ({error.strerror})", "give another place"
        ) from error
    save_split(split, out / SPLIT)
    write_text(checkpoint / OPTIONS, options.model_dump_json(indent=1) + "\n")


def begun(out: Path) -> tuple[TrainingOptions, Split]:
    """What was to be trained."""
    remedy = "train again into another folder"
    try:
        text = (out / CHECKPOINT / OPTIONS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"'{OPTIONS}' cannot be read ({error})", remedy) from error
    return parse_json_options(TrainingOptions, text, OPTIONS, remedy), load_split(out / SPLIT)


def finish(out: Path, options: TrainingOptions) -> None:
    """Keep the options for the reader, without places on this machine, and drop checkpoints."""
    model = options.model.model_copy(update={"bundle": None})
    kept = options.model_copy(update={"model": model})
    write_text(out / TRAINING / OPTIONS, kept.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / CHECKPOINT)


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    root: Path
    out: Path
    options: TrainingOptions
    split: Path | None = None  # none: a seeded one
    features: Path | None = None  # where features are stored; none: in the model folder
    resume: bool = False


@dataclass(frozen=True)
class Plan:
    """What will be done."""

    request: Request
    studies: Mapping[str, Entry]
    split: Split
    train: list[StudySamples]
    val: list[StudySamples]

    @property
    def features(self) -> Path:
        """Where features are stored."""
        return self.request.features or self.request.out / FEATURES


def make_plan(request: Request, company: Company) -> Plan:
    """Find the studies, divide them and read their labels; whatever cannot be used is refused."""
    studies = usable_studies(request.root)
    split = _split(request, studies)
    stride = request.options.data.stride
    count = len(split.train) + len(split.val)
    with company.counting("Reading labels", count, "studies") as advance:
        train = read_part(studies, split.train, stride, advance)
        val = read_part(studies, split.val, stride, advance)
    require_samples(Samples(train), "train")
    require_samples(Samples(val), "val")
    return Plan(request, studies, split, train, val)


def _split(request: Request, studies: Mapping[str, Entry]) -> Split:
    """A new split, or the one that the interrupted training has."""
    if not (request.resume and is_begun(request.out)):
        require_new(request.out)
        return choose_split(studies, request.options, request.split)
    stored, split = begun(request.out)
    if request.split is not None and load_split(request.split).hash != split.hash:
        raise TrainingError(
            f"'{request.out.name}' is being trained on another split",
            "leave --split out, or train into another folder",
        )
    # Who reads the pictures changes nothing.
    now = request.options.model_copy(update={"workers": stored.workers})
    for name in TrainingOptions.model_fields:
        if getattr(stored, name) != getattr(now, name):
            raise TrainingError(
                f"the training in '{request.out.name}' was begun with another '{name}'",
                "resume with the same options or with none, or train into another folder",
            )
    return split

"""The data of a training: which studies train, which validate, and their samples."""

from collections.abc import Callable, Mapping
from pathlib import Path

from enteron.errors import LabelError, StudyError
from enteron.galar.catalogue import Entry, find_studies
from enteron.galar.splits import Split, load_split, seeded_split
from enteron.training.options import TrainingOptions
from enteron.training.samples import StudySamples, study_samples


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

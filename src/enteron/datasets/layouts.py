"""Opening a labelled dataset of any layout; which layout it is, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from enteron.datasets import kvasir, wcebleedgen
from enteron.datasets.dataset import Dataset, LabelledFrames
from enteron.datasets.galar import Catalogue, Entry, find_labels, find_studies
from enteron.datasets.label_table import read_label_table
from enteron.datasets.plain_table import FRAMES, read_plain_table
from enteron.datasets.splits import source_study
from enteron.errors import LabelError, StudyError
from enteron.types import FrameLabels, Layout

SYNTHETIC_RECORD: Final = "phantom.json"
"""The file by which `enteron phantom` marks its studies."""

_BLOCKS_NOTE: Final = (
    f"no studies are known: blocks of {wcebleedgen.BLOCK} consecutive numbers of a class stand for "
    "them"
)


def open_dataset(root: Path | str, layout: Layout | None = None) -> Dataset:
    """Open labelled studies; without a layout it is found by what the root holds."""
    root = Path(root)
    if layout is None:
        layout, reason = find_layout(root)
    else:
        reason = "it was given"
    if layout is Layout.TABLE:
        table = root / FRAMES if root.is_dir() else root
        if not table.is_file():
            raise StudyError(f"there is no {FRAMES} in '{root.name}'", "give a folder that has one")
        return Dataset(layout, "own table", root.name, reason, read_plain_table(table))
    if not root.is_dir():
        raise StudyError(f"there is no folder '{root.name}'", "give the root of the data")
    if layout is Layout.KVASIR:
        if kvasir.is_official(root):
            videos, notes = kvasir.read_official(root)
            return Dataset(
                layout,
                kvasir.TITLE,
                root.name,
                reason,
                videos,
                notes,
                recording_frames=kvasir.RECORDING_FRAMES,
            )
        folders = kvasir.read_video_folders(root)
        if not folders:
            raise StudyError(
                f"'{root.name}' has neither {kvasir.METADATA} of {kvasir.TITLE} nor a table per "
                "video",
                "give the folder that holds them",
            )
        return Dataset(
            layout,
            kvasir.TITLE,
            root.name,
            reason,
            folders,
            recording_frames=kvasir.RECORDING_FRAMES,
        )
    if layout is Layout.WCEBLEEDGEN:
        blocks = wcebleedgen.read_blocks(root)
        return Dataset(layout, wcebleedgen.TITLE, root.name, reason, blocks, (_BLOCKS_NOTE,))
    synthetic = (root / SYNTHETIC_RECORD).is_file()
    title = "synthetic studies" if synthetic else "studies in Galar's layout"
    studies = find_studies(root)
    usable = _usable_studies(studies, root)
    return Dataset(
        layout,
        title,
        root.name,
        reason,
        usable,
        synthetic=synthetic,
        left_out=tuple(studies.left_out()),
    )


def _usable_studies(studies: Catalogue, root: Path) -> dict[str, Entry]:
    """Galar's studies with images and labels; without any, the error says what is missing."""
    usable = studies.labelled()
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


@dataclass(frozen=True)
class Source:
    """One of the datasets of a training or a calibration."""

    dataset: Dataset
    title: str
    """The dataset's title, numbered where several have the same; for reports and model folders."""
    prefix: str
    """In front of study ids, so that they are unique; empty for the only source."""

    def key(self, study: str) -> str:
        """A study's id among those of all sources."""
        return source_study(self.prefix, study) if self.prefix else study


def open_sources(roots: Sequence[Path]) -> tuple[Source, ...]:
    """Open several roots. Study ids get the name of their root in front if there are two or more.

    Names, not positions: a root that is given in another place later still means the same studies.
    """
    datasets = [open_dataset(root) for root in roots]
    if not datasets:
        raise StudyError("there is no data root", "give at least one")
    if len(datasets) == 1:
        return (Source(datasets[0], datasets[0].title, ""),)
    names = [root.resolve().name.removesuffix(".csv") for root in roots]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise StudyError(
            f"two data roots are named '{repeated}'",
            "rename one: its name tells its studies from the others",
        )
    titles = [dataset.title for dataset in datasets]
    return tuple(
        Source(dataset, _numbered(titles, position), name)
        for position, (dataset, name) in enumerate(zip(datasets, names, strict=True))
    )


def _numbered(titles: list[str], position: int) -> str:
    title = titles[position]
    if titles.count(title) == 1:
        return title
    return f"{title} ({titles[: position + 1].count(title)})"


def find_layout(root: Path) -> tuple[Layout, str]:
    """The layout of a root, and what shows it; two layouts at once are refused."""
    if root.is_file() and root.suffix.lower() == ".csv":
        return Layout.TABLE, "it is a CSV file"
    if not root.is_dir():
        raise StudyError(
            f"there is no folder '{root.name}'",
            "give the root of the data, or a table of frames in CSV",
        )
    signs: dict[Layout, str] = {}
    if (root / FRAMES).is_file():
        signs[Layout.TABLE] = f"it has {FRAMES}"
    if kvasir.is_official(root):
        signs[Layout.KVASIR] = f"{kvasir.METADATA} has a column 'finding_class'"
    elif tables := kvasir.video_tables(root):
        signs[Layout.KVASIR] = (
            f"{next(iter(tables.values())).name} has the columns frame, classes, boxes"
        )
    if wcebleedgen.is_wcebleedgen(root):
        names = f"'{wcebleedgen.BLEEDING}' and '{wcebleedgen.NOT_BLEEDING}'"
        signs[Layout.WCEBLEEDGEN] = f"it has folders named {names}"
    labels = next((path.name for path in root.iterdir() if path.name.lower() == "labels"), None)
    if labels is not None:
        signs[Layout.GALAR] = f"it has a folder '{labels}'"
    if len(signs) > 1:
        (first, why), (second, also) = list(signs.items())[:2]
        raise LabelError(
            f"'{root.name}' looks like two datasets: '{first}' ({why}) and '{second}' ({also})",
            f"keep one of them in this folder; `enteron check --layout {first}` shows it alone",
        )
    for layout, reason in signs.items():
        return layout, reason
    return Layout.GALAR, "nothing in it points to another layout"


def read_frame_truth(root: Path) -> dict[str, LabelledFrames]:
    """The labels of single frames, by study; Galar's also without the images."""
    if find_layout(root)[0] is not Layout.GALAR:
        dataset = open_dataset(root)
        return {study: entry.labelled_frames() for study, entry in dataset.studies.items()}
    tables = [entry.table() for entry in find_studies(root).values() if entry.labels]
    if not tables:
        files = find_labels(root).items()
        tables = [read_label_table(file, study=study) for study, file in files]
    if not tables:
        raise LabelError(
            f"the folder '{root.name}' holds no label files",
            "give a labelled dataset, or a folder with one CSV per study",
        )
    return {
        table.study: LabelledFrames(table.axis.frames, FrameLabels.complete(table.values))
        for table in tables
    }

"""Opening a labelled dataset of any layout; which layout it is, and why."""

from pathlib import Path
from typing import Final

from enteron.datasets import kvasir, wcebleedgen
from enteron.datasets.dataset import Dataset, Layout
from enteron.datasets.galar import find_studies
from enteron.datasets.plain_table import FRAMES, read_plain_table
from enteron.errors import LabelError, StudyError

SYNTHETIC_RECORD: Final = "phantom.json"
"""The file by which `enteron phantom` marks its studies."""

_BLOCKS_NOTE: Final = (
    f"no studies are known: blocks of {wcebleedgen.BLOCK} consecutive numbers of a class stand for "
    "them"
)


def open_dataset(root: Path, layout: Layout | None = None) -> Dataset:
    """Open labelled studies; without a layout it is found by what the root holds."""
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
            return Dataset(layout, kvasir.TITLE, root.name, reason, videos, notes)
        folders = kvasir.read_video_folders(root)
        if not folders:
            raise StudyError(
                f"'{root.name}' has neither {kvasir.METADATA} of {kvasir.TITLE} nor a table per "
                "video",
                "give the folder that holds them",
            )
        return Dataset(layout, kvasir.TITLE, root.name, reason, folders)
    if layout is Layout.WCEBLEEDGEN:
        blocks = wcebleedgen.read_blocks(root)
        return Dataset(layout, wcebleedgen.TITLE, root.name, reason, blocks, (_BLOCKS_NOTE,))
    synthetic = (root / SYNTHETIC_RECORD).is_file()
    title = "synthetic studies" if synthetic else "studies in Galar's layout"
    studies = {study: e for study, e in find_studies(root).items() if e.images and e.labels}
    return Dataset(layout, title, root.name, reason, studies)


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
            f"{next(iter(tables.values())).name} has columns frame, classes, boxes"
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
            f"say which with --layout {first} or --layout {second}",
        )
    for layout, reason in signs.items():
        return layout, reason
    return Layout.GALAR, "nothing in it points to another layout"

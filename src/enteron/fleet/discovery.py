"""The studies under a root: where they lie, and the key under which the fleet knows them.

A key is a salted hash of the path below the root. It is the same in every run, and says nothing
about a patient; the id of a study is known only after its files were opened.
"""

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from enteron.datasets.galar import search_root
from enteron.errors import StudyError
from enteron.files import make_folder, read_text, write_text
from enteron.fleet import FLEET
from enteron.fleet.task import Task, is_url
from enteron.ids import natural_key
from enteron.study.ignored import Ignored
from enteron.study.naming import own_name

_SALT = "salt"
_KEY_DIGITS = 16


@dataclass(frozen=True)
class Tasks:
    """What lies under a root."""

    tasks: tuple[Task, ...]
    ignored: Ignored
    problems: tuple[str, ...] = ()  # sentences about files that belong to no study


def find_tasks(
    root: Path | str, out: Path, *, keep_names: bool = False, empty_is_fine: bool = False
) -> Tasks:
    """The studies under a root, or the single study at a path, in natural order."""
    salt = fleet_salt(out)
    if is_url(root):
        return _remote_tasks(str(root), salt, keep_names)
    root = Path(root)
    if not root.is_dir():
        if not root.exists():
            raise StudyError(f"there is no '{root.name}'", "give a folder of studies, or a study")
        return Tasks((_task(root, root.parent, salt, keep_names),), Ignored())
    files = search_root(root)
    paths = [path for images in files.images.values() for path in images]
    paths = [path for path in paths if not _is_inside(path, out)]
    if not paths and not empty_is_fine:
        raise StudyError(
            f"'{root.name}' holds neither frames nor videos",
            "give a folder with folders of PNG, JPEG, TIFF or BMP frames, or with videos",
        )
    paths.sort(key=lambda path: natural_key(own_name(path)))
    problems = [
        f"study {study} has a file of the challenge and no frames"
        for study in sorted(set(files.templates) - set(files.images), key=natural_key)
    ]
    tasks = []
    for path in paths:
        lists = files.templates.get(own_name(path), [])
        frame_list = lists[0] if lists else None
        if len(lists) > 1:
            problems.append(f"the test file of study {own_name(path)} is there twice")
        tasks.append(_task(path, root, salt, keep_names, frame_list))
    return Tasks(tuple(tasks), files.ignored, tuple(problems))


def _remote_tasks(url: str, salt: str, keep_names: bool) -> Tasks:
    from enteron.fleet.remote import remote_studies

    studies = remote_studies(url)
    if not studies:
        raise StudyError(
            "there are neither frames nor videos at this URL", "give the folder above the studies"
        )
    studies.sort(key=lambda study: natural_key(study[0]))
    tasks = tuple(
        Task(key=task_key(relative, salt), path=path, keep_name=keep_names, stamp=stamp)
        for relative, path, stamp in studies
    )
    return Tasks(tasks, Ignored())


def _task(
    path: Path, root: Path, salt: str, keep_name: bool, frame_list: Path | None = None
) -> Task:
    return Task(
        key=task_key(os.path.relpath(path, root), salt),
        path=str(path.absolute()),
        frame_list=None if frame_list is None else str(frame_list.absolute()),
        keep_name=keep_name,
    )


def task_key(relative: str, salt: str) -> str:
    """The key of a study at a path below the root."""
    text = f"{salt}\0{relative}".encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest()[:_KEY_DIGITS]


def fleet_salt(out: Path) -> str:
    """The salt of a folder of readings, made once: without it, keys could be looked up."""
    folder = out / FLEET
    make_folder(folder)
    path = folder / _SALT
    if not path.exists():
        write_text(folder / f".{_SALT}.{os.getpid()}", secrets.token_hex(16) + "\n")
        made = folder / f".{_SALT}.{os.getpid()}"
        try:
            os.link(made, path)  # fails where another run was faster, whose salt counts
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            made.replace(path)
        made.unlink(missing_ok=True)
    return read_text(path, 1000, f"delete the folder '{FLEET}' beside the readings").strip()


def _is_inside(path: Path, out: Path) -> bool:
    """Whether a study lies in the folder of readings, as saved pictures do."""
    return path.resolve().is_relative_to(out.resolve())

"""Studies at a URL: listed and fetched through fsspec, to where the worker is.

`s3://`, `gs://`, `abfs://`, `sftp://` and others need the package of their kind. A study is copied
into a temporary folder (`TMPDIR`), read there and deleted; its stamp in the listing tells in the
next run that it is the same, without another copy.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from enteron.errors import StudyError
from enteron.fleet.task import Task
from enteron.study import VIDEO_SUFFIXES
from enteron.study.folder import is_image_name

_STAMPS = ("ETag", "etag", "md5", "mtime", "LastModified", "last_modified", "created")


def remote_studies(url: str) -> list[tuple[str, str, str]]:
    """The studies under a URL: path below it, URL, and a stamp of sizes and versions of files."""
    system, base = _open(url)
    try:
        listed: dict[str, dict[str, Any]] = system.find(base, detail=True)
    except (OSError, ValueError) as error:
        raise _unreachable(url, error) from error
    files: dict[str, list[str]] = {}  # by study: lines about its files
    for path, facts in sorted(listed.items()):
        name = PurePosixPath(path).name
        if name.startswith("."):
            continue
        study = None
        if name.lower().endswith(VIDEO_SUFFIXES):
            study = path
        elif is_image_name(name):
            study = str(PurePosixPath(path).parent)
        if study is not None:
            version = next((facts[key] for key in _STAMPS if facts.get(key) is not None), "")
            files.setdefault(study, []).append(f"{name} {facts.get('size')} {version}")
    return [
        (
            path.removeprefix(base).strip("/") or PurePosixPath(path).name,
            system.unstrip_protocol(path),
            hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        )
        for path, lines in files.items()
    ]


@contextmanager
def local_copy(task: Task) -> Iterator[Task]:
    """The task with a study on the disk of this machine: itself, or a copy that is then deleted."""
    if not task.is_remote:
        yield task
        return
    system, path = _open(task.path)
    with tempfile.TemporaryDirectory(prefix="enteron-study-") as folder:
        target = Path(folder) / PurePosixPath(path).name
        try:
            if system.isdir(path):
                target.mkdir()
                for file in system.ls(path, detail=False):
                    if system.isfile(file):
                        system.get_file(file, str(target / PurePosixPath(file).name))
            else:
                system.get_file(path, str(target))
        except FileNotFoundError as error:
            raise _unreachable(task.path, error) from error
        yield task.model_copy(update={"path": str(target)})


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise StudyError(
            "studies at a URL need the package fsspec", "install it, or mount them as a folder"
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise _unreachable(url, error) from error
    return system, path.rstrip("/")


def _unreachable(url: str, error: Exception) -> StudyError:
    scheme = url.partition("://")[0]
    return StudyError(
        f"the studies at {scheme}:// cannot be reached ({type(error).__name__})",
        "check the URL and your access; other kinds than file:// need their fsspec package",
    )

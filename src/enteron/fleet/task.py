"""A study that is to be read, and the stamp that tells whether somebody wrote to it."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from enteron.options import Options


def is_url(path: Path | str) -> bool:
    """Whether a path is a URL, as `s3://bucket/studies`."""
    return "://" in str(path)


class Task(Options):
    """A study that is to be read, as a worker gets it."""

    key: str
    path: str
    """Of the folder of frames or of the video, as every worker sees it; or a URL."""
    frame_list: str | None = None
    """The challenge's CSV of the frames that it asks for."""
    keep_name: bool = False
    """Whether the name of the folder or file is the study's id."""
    stamp: str | None = None
    """Of a study at a URL: a hash of its listing."""

    @property
    def is_remote(self) -> bool:
        """Whether the study lies at a URL."""
        return is_url(self.path)

    @property
    def name(self) -> str:
        """The name of its folder or file: for the terminal, never for a file."""
        return Path(self.path).name


def study_files(path: Path) -> Iterator[os.DirEntry[str]]:
    """All files of a study, at any depth."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from study_files(Path(entry.path))
            else:
                yield entry


def study_stamp(path: Path) -> str:
    """A hash of the sizes and times of all files of a study: another one after any write."""
    digest = hashlib.sha256()
    if not path.is_dir():
        status = path.stat()
        digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
        return digest.hexdigest()
    lines = []
    for entry in study_files(path):
        try:
            status = entry.stat()
        except FileNotFoundError:  # renamed or deleted just now: the next look differs
            continue
        lines.append(f"{entry.path}\0{status.st_size} {status.st_mtime_ns}")
    for line in sorted(lines):
        digest.update(line.encode(errors="surrogateescape") + b"\n")
    return digest.hexdigest()

"""Writing files: atomically where it matters, and never through a symbolic link."""

import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from enteron.errors import EnteronError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash it has the old content or all of the new."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise EnteronError(
            f"'{path.name}' cannot be written ({error.strerror})",
            "give an existing folder that you may write to",
        ) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise EnteronError(
            f"'{path.name}' could not be written completely ({error.strerror})",
            "free some disk space and run again; the old file is unchanged",
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    write_bytes(path, text.encode())


def write_anew(path: Path, content: bytes) -> None:
    """Write a file in place of what has its name, without waiting for the disk; not atomic."""
    path.unlink(missing_ok=True)  # a symbolic link goes, what it points to stays
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)


def open_in_place(path: Path) -> IO[bytes]:
    """Open a file for reading and writing where it lies, or create it; links are refused."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if not path.is_symlink():
            raise
        raise _link_error(path, "a symbolic link") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _link_error(path, "no plain file, or one that has other names as well")
    return os.fdopen(descriptor, "r+b")


def make_subfolder(folder: Path, name: str) -> Path:
    """Make a folder inside an output folder; a symbolic link of that name is refused."""
    path = folder / name
    if path.is_symlink():
        raise _link_error(path, "a symbolic link")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnteronError(
            f"cannot create folder '{name}' ({error.strerror})", "give a folder you may write to"
        ) from error
    return path


def _link_error(path: Path, kind: str) -> EnteronError:
    return EnteronError(
        f"'{path.name}' is {kind}, and nothing is written through it", f"delete '{path.name}'"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

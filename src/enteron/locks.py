"""One writer per output folder: locks that a process holds and that vanish with it.

A lock is `flock` on a file that stays open, so the kernel releases it however the process ends: no
lock is left by a killed run. It excludes other processes of this machine and other readers in this
process. On NFS, Linux asks the server, which excludes other machines too unless the folder is
mounted with `nolock` or `local_lock`; a file system without locks is refused.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from enteron.errors import EnteronError
from enteron.files import write_error

LOCK = ".lock"
"""The file in an output folder that is locked; it is removed with the lock."""

_WAIT = "wait for it, or give another folder"
_OWNER_BYTES = 100

_held: set[int] = set()  # descriptors


class FolderInUseError(EnteronError):
    """Somebody else holds the lock."""


def _close_in_child() -> None:
    # A forked child shares its parent's locks, and would keep them after the parent is killed.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder; refuse when another process or thread holds it."""
    path = folder / LOCK
    with file_lock(path, f"'{folder.resolve().name}'") as descriptor:
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {started}\n".encode(), 0)
        try:
            yield
        finally:
            if descriptor in _held:  # not in a forked child, to which it does not belong
                with suppress(OSError):
                    path.unlink()  # while it is held: `_acquire` notices


@contextmanager
def file_lock(path: Path, name: str) -> Iterator[int]:
    """Hold the lock of a file, which is created if need be; `name` is that of what is written."""
    descriptor = _acquire(path, name)
    try:
        yield descriptor
    finally:
        if descriptor in _held:  # not in a forked child, where it is closed
            _close(descriptor)


def _close(descriptor: int) -> None:
    _held.discard(descriptor)
    os.close(descriptor)


def _acquire(path: Path, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            taken = {errno.ELOOP: "a symbolic link", errno.EISDIR: "a folder"}
            if error.errno not in taken:
                raise write_error(error, name.strip("'")) from error
            raise EnteronError(
                f"{name} cannot be locked ('{path.name}' is {taken[error.errno]})",
                f"delete '{path.name}'",
            ) from error
        _held.add(descriptor)
        try:
            _lock(descriptor, path, name)
            if _is_still_there(descriptor, path):
                return descriptor
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)  # its last holder removed it meanwhile: lock the new one


def _lock(descriptor: int, path: Path, name: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise EnteronError(
            f"{name} cannot be locked ('{path.name}' is no file)", f"delete '{path.name}'"
        )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderInUseError(f"{_owner(descriptor)} is writing to {name}", _WAIT) from error
    except OSError as error:
        raise EnteronError(
            f"{name} cannot be locked ({error.strerror})",
            "give a folder on a disk of this machine",
        ) from error


def _is_still_there(descriptor: int, path: Path) -> bool:
    held = os.fstat(descriptor)
    try:
        return os.path.samestat(held, path.lstat())
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> str:
    """Who holds the lock, as far as its file tells."""
    text = os.pread(descriptor, _OWNER_BYTES, 0).decode("ascii", "replace").strip()
    if re.fullmatch(r"[0-9]{1,10} [0-9: -]{19}", text) is None:
        return "another enteron"
    process, _, started = text.partition(" ")
    if int(process) == os.getpid():
        return f"this process already (since {started})"
    return f"another enteron (process {process}, started {started})"


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def locks_folder(
    function: Callable[Concatenate[Path, Arguments], Result],
) -> Callable[Concatenate[Path, Arguments], Result]:
    """Make a function hold the lock of the folder that is its first argument, if it exists."""

    @wraps(function)
    def locked(folder: Path, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with folder_lock(folder) if folder.is_dir() else nullcontext():
            return function(folder, *arguments, **named)

    return locked

"""Atomic writes: to a temporary file in the same folder, flushed, then renamed."""

import os
import tempfile
from pathlib import Path

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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Atomic writes (a temporary file in the same folder, flushed, then renamed), and strict JSON."""

import json
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

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


def write_json(
    path: Path, content: object, *, indent: int | None = 1, sort_keys: bool = False
) -> None:
    """Write a JSON file atomically."""
    write_text(path, json_text(content, indent=indent, sort_keys=sort_keys) + "\n")


def json_text(
    content: object,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    separators: tuple[str, str] | None = None,
) -> str:
    """JSON as its standard defines it. All JSON that leaves enteron is made here.

    The standard has neither NaN nor infinity: they are refused, and nothing is written.
    """
    try:
        return json.dumps(
            content, indent=indent, sort_keys=sort_keys, separators=separators, allow_nan=False
        )
    except ValueError as error:
        raise EnteronError(
            "a result contains a number that is not finite, which JSON cannot hold",
            "check the input for NaN and infinity; if it has none, report this as a mistake",
        ) from error


def read_json_table(path: Path, most_bytes: int) -> dict[str, Any]:
    """The JSON object in a file; OSError or ValueError, for which `failure_reason` has words.

    Refuses what is not a regular file, is larger than `most_bytes`, names a key twice, nests too
    deeply, or has numbers that are not finite or too long.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("is not a regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"is larger than {most_bytes:,} bytes")
    return parse_json_table(content.decode("utf-8"))


def parse_json_table(text: str) -> dict[str, Any]:
    """The JSON object in a text; ValueError for everything that `read_json_table` refuses in it."""
    table = parse_json(text)
    if not isinstance(table, dict):
        kind = type(table).__name__
        raise ValueError(f"holds a {kind}, not a JSON object")  # noqa: TRY004
    return table


def parse_json(text: str) -> Any:
    """The content of any JSON text; ValueError as above."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_table_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_short_integer,
        )
    except RecursionError as error:
        raise ValueError("has tables too deep in each other") from error


def failure_reason(error: Exception) -> str:
    """What is wrong with a file, to follow its name in a message.

    It leaves out the path that an OSError names: a folder's name may be a patient's.
    """
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or 'unknown reason'})"
    if isinstance(error, UnicodeDecodeError):
        return "is not text in UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error}"
    return str(error)


_LONGEST_INTEGER = 30  # digits; more than any count has, and fewer than Python's own limit


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for somebody who writes


def _table_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("names a key twice")
    return table


def _refuse_constant(name: str) -> float:
    raise ValueError(f"contains {name}, which is not a finite number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("contains a number that is not finite")
    return number


def _short_integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(f"contains an integer of {len(digits):,} digits")
    return int(digits)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The one door to files: regular files within limits are read, and writes are atomic.

Every file that enteron reads may be damaged, or made to do harm. So only regular files are opened
(a FIFO or a device would hang or never end), none above the limit of its kind is loaded, and
whatever is wrong becomes one sentence that names the file. Names only, never paths: the folders
above a file may be named after a patient.
"""

import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn

from enteron.errors import EnteronError, shorten

# ---- Limits, in bytes (docs/files.md)

KIB, MIB, GIB = 2**10, 2**20, 2**30

JSON_LIMIT = 32 * MIB
"""600,000 events. Python's objects take up to 27 times the size of the text."""

RECORD_LIMIT = 4 * MIB
"""JSON of our own of which a study or a model has one: run.json, model.json, priors and so on."""

TOML_LIMIT = 64 * KIB
"""Ten times the longest recipe. The parser's time grows with the square of a dotted key."""

CSV_LIMIT = 128 * MIB
"""A row per frame of the longest recordings, with every score in full precision."""

PARQUET_LIMIT = 256 * MIB
"""The same as a parquet file, without any compression."""

JOURNAL_LIMIT = 64 * MIB
"""Journal of a store of embeddings: about 20 bytes per frame."""

PICTURE_LIMIT = 64 * MIB
"""More than the largest picture that is decoded takes without any compression."""

WEIGHTS_LIMIT = 8 * GIB
"""Weights and graphs; the largest known trunk of a model has 0.8 GB."""

NO_LIMIT = 2**62
"""For videos and for first lines, which are never loaded as a whole."""

MAX_DEPTH = 64
"""Levels of brackets in JSON. Our own files have at most ten."""

MAX_ROWS = 2_000_000
"""Rows of a table: four days of frames at six a second."""

MAX_COLUMNS = 1_000
"""Columns of a table. Galar's label files have 32."""


# ---- Reading


def open_file(
    path: Path,
    limit: int,
    remedy: str,
    *,
    source: str | None = None,
    error: type[EnteronError] = EnteronError,
) -> BinaryIO:
    """Open a regular file of at most `limit` bytes for reading.

    `source` is what messages call the file (its name, unless given), `error` the class that is
    raised for every failure.
    """
    source = path.name if source is None else source
    try:
        # A FIFO without a writer would wait for one; with O_NONBLOCK it opens, and is refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as failure:
        if failure.errno == errno.ENXIO:  # sockets, and devices that are not there
            raise error(f"{source} cannot be read (it is not a regular file)", remedy) from failure
        raise read_error(failure, source, remedy, error) from failure
    except ValueError as failure:  # a NUL in the name
        raise error(f"{source!r} is not a file name", remedy) from failure
    status = os.fstat(descriptor)
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size <= limit:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if not regular:
        raise error(f"{source} cannot be read ({_file_type(status.st_mode)})", remedy)
    raise _too_large(source, status.st_size, limit, error)


def read_bytes(
    path: Path,
    limit: int,
    remedy: str,
    *,
    source: str | None = None,
    error: type[EnteronError] = EnteronError,
) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    source = path.name if source is None else source
    with open_file(path, limit, remedy, source=source, error=error) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1)
            if len(content) > size:  # it grew meanwhile, or states no size as files of /proc
                content += file.read(limit + 1 - len(content))
        except OSError as failure:
            raise read_error(failure, source, remedy, error) from failure
    if len(content) > limit:
        raise _too_large(source, len(content), limit, error)
    return content


def read_text(
    path: Path,
    limit: int,
    remedy: str,
    *,
    source: str | None = None,
    error: type[EnteronError] = EnteronError,
) -> str:
    """The text of a UTF-8 file of at most `limit` bytes; a byte order mark is dropped."""
    source = path.name if source is None else source
    content = read_bytes(path, limit, remedy, source=source, error=error)
    return decode_text(content, source, remedy, error=error)


def decode_text(
    content: bytes, source: str, remedy: str, *, error: type[EnteronError] = EnteronError
) -> str:
    """The text of bytes in UTF-8; a byte order mark is dropped."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise error(f"{source} cannot be read (it is not text in UTF-8)", remedy) from failure


def read_json(
    path: Path,
    remedy: str | None = None,
    *,
    source: str | None = None,
    limit: int = JSON_LIMIT,
    error: type[EnteronError] = EnteronError,
) -> Any:
    """The value of a JSON file, parsed as `parse_json` does."""
    source = path.name if source is None else source
    text = read_text(path, limit, remedy or "give a JSON file", source=source, error=error)
    return parse_json(text, source, remedy, error=error)


def read_json_object(
    path: Path,
    remedy: str,
    *,
    source: str | None = None,
    limit: int = RECORD_LIMIT,
    error: type[EnteronError] = EnteronError,
) -> dict[str, Any]:
    """The object of a JSON file."""
    source = path.name if source is None else source
    table = read_json(path, remedy, source=source, limit=limit, error=error)
    if not isinstance(table, dict):
        raise error(f"{source} holds a {type(table).__name__}, not a JSON object", remedy)
    return table


def _file_type(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "it is a folder",
        stat.S_IFIFO: "it is a pipe, not a regular file",
        stat.S_IFSOCK: "it is a socket, not a regular file",
        stat.S_IFCHR: "it is a device, not a regular file",
        stat.S_IFBLK: "it is a device, not a regular file",
    }
    return kinds.get(stat.S_IFMT(mode), "it is not a regular file")


def _too_large(source: str, size: int, limit: int, error: type[EnteronError]) -> EnteronError:
    return error(
        f"{source} has {_size(size)}, more than the {_size(limit)} that such a file may have",
        "check that it is the right file, and whole",
    )


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.{0 if count >= 100 * size else 1}f} {unit}"
    return f"{count} bytes"


# ---- JSON

# What only the slow paths of the parser find, and what few files have.
_LONG_INTEGER = re.compile(r"\d{19}")
_LARGE_FLOAT = re.compile(r"[eE]\+?0*\d{3}|\d{300}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# The closing quote is optional, so that a string without one is not tried again at every quote.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
INT64 = range(-(2**63), 2**63)


def parse_json(
    text: str,
    source: str,
    remedy: str | None = None,
    *,
    error: type[EnteronError] = EnteronError,
) -> Any:
    """Parse JSON strictly, in linear time.

    Refused are duplicate keys, NaN and infinities, integers beyond 64 bits, lone surrogates in
    strings, and more than `MAX_DEPTH` levels. Without a `remedy` the message has one that fits the
    mistake.
    """

    def refuse(problem: str, usual_remedy: str) -> NoReturn:
        raise error(f"{source} {problem}", remedy or usual_remedy)

    def integer(digits: str) -> int:
        if len(digits) > 20 or int(digits) not in INT64:
            refuse(
                f"contains the number {digits[:12]}… of {len(digits.lstrip('-'))} digits",
                "whole numbers have at most 64 bits",
            )
        return int(digits)

    def finite(digits: str) -> float:
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            refuse(f"contains the number {digits[:12]}", "give a number that a computer can hold")
        return number

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            repeated = next(name for name, _ in pairs if name in seen or seen.add(name))
            where = f" (video_id {table['video_id']})" if "video_id" in table else ""
            raise error(
                f"{source}: an object has the key '{shorten(repeated)}' twice{shorten(where)}",
                remedy or "keep one of the two",
            )
        return table

    if _depth(text) > MAX_DEPTH:
        refuse("nests too deeply", "write it as its format has it, without further levels")
    try:
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_constant=lambda name: refuse(f"contains {name}", "give a number that is finite"),
            parse_int=integer if _LONG_INTEGER.search(text) else None,
            parse_float=finite if _LARGE_FLOAT.search(text) else None,
        )
    except json.JSONDecodeError as failure:
        if not text.strip():
            raise error(
                f"{source} is empty", remedy or "copy it again from its source"
            ) from failure
        if failure.pos >= len(text.rstrip()) or "Unterminated" in failure.msg:
            raise error(
                f"{source} is not JSON: it ends in the middle, at line {failure.lineno}",
                remedy or "it was cut off; write or copy it again",
            ) from failure
        raise error(
            f"{source} is not JSON: {failure.msg.lower()} at line {failure.lineno}, "
            f"column {failure.colno}",
            remedy or "correct the file there",
        ) from failure
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as failure:
            raise error(
                f"{source} contains half of a character", remedy or "write its text again"
            ) from failure
    return value


def _depth(text: str) -> int:
    """Levels of brackets, or a number up to `MAX_DEPTH` where there cannot be more."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    import numpy as np

    marks = np.frombuffer(_STRING.sub("", text).encode(errors="replace"), np.uint8)
    opening = (marks == ord("[")) | (marks == ord("{"))
    closing = (marks == ord("]")) | (marks == ord("}"))
    steps = opening.astype(np.int32) - closing
    return int(steps.cumsum().max(initial=0))


# ---- Failures of the system, as sentences

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_LOST = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENODEV, errno.ENXIO)
_CLOSE_PROGRAMS = "close other programs, or raise the limit with `ulimit -n`"


def read_error(
    failure: OSError, source: str, remedy: str, error: type[EnteronError] = EnteronError
) -> EnteronError:
    """The sentence for a file that cannot be read; `remedy` is for one that is not there."""
    reason = failure.strerror or type(failure).__name__
    if failure.errno in _FORBIDDEN:
        remedy = "ask for the right to read the file"
    elif failure.errno in _TOO_MANY:
        remedy = _CLOSE_PROGRAMS
    elif failure.errno in _LOST:
        remedy = "check the disk or the connection to it, and copy the file again"
    return error(f"{source} cannot be read ({reason})", remedy)


def write_error(
    failure: OSError, name: str, error: type[EnteronError] = EnteronError
) -> EnteronError:
    """The sentence for a file or folder that cannot be written."""
    reason = failure.strerror or type(failure).__name__
    if failure.errno in _FULL:
        remedy = "free some disk space and run again"
    elif failure.errno in _TOO_MANY:
        remedy = _CLOSE_PROGRAMS
    elif failure.errno in _LOST:
        remedy = "check the disk or the connection to it, and run again"
    elif failure.errno == errno.ENAMETOOLONG:
        remedy = "give a shorter name"
    else:
        remedy = "give an existing folder that you may write to"
    return error(f"'{name}' cannot be written ({reason})", remedy)


# ---- Writing


@contextmanager
def writing(path: Path, error: type[EnteronError] = EnteronError) -> Iterator[None]:
    """Name the file or folder when writing to it fails: a full disk alone says no name."""
    try:
        yield
    except OSError as failure:
        raise write_error(failure, path.name, error) from failure


def make_folder(path: Path, error: type[EnteronError] = EnteronError) -> None:
    """Create a folder and those above it, where they are not there yet."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as failure:
        raise error(f"'{path.name}' is a file", "give a folder") from failure
    except NotADirectoryError as failure:
        above = next((folder.name for folder in path.parents if folder.is_file()), path.name)
        raise error(
            f"'{path.name}' cannot be created, since '{above}' is a file",
            "give a path that leads through folders",
        ) from failure
    except OSError as failure:
        raise write_error(failure, path.name, error) from failure


def make_subfolder(folder: Path, name: str) -> Path:
    """Make a folder inside an output folder; a symbolic link of that name is refused."""
    path = folder / name
    if path.is_symlink():
        raise _link_error(path, "a symbolic link")
    make_folder(path)
    return path


def write_bytes(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file atomically: after a crash it has the old content or all of the new.

    A link of that name is replaced, not written through. Without `sync` the content may still be
    lost with the machine's power, for files that a later one vouches for.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.")
    except OSError as failure:
        raise write_error(failure, path.name) from failure
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except OSError as failure:
        temporary.unlink(missing_ok=True)
        raise EnteronError(
            f"'{path.name}' could not be written completely ({failure.strerror})",
            "free some disk space and run again; the old file is unchanged",
        ) from failure
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


def _link_error(path: Path, kind: str) -> EnteronError:
    return EnteronError(
        f"'{path.name}' is {kind}, and nothing is written through it", f"delete '{path.name}'"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

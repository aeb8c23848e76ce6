"""The content of a study's files: what tells one patient's frames from another's of equal sizes.

Three looks at a file, from cheap to certain:

stamp    size, times and inode, from the file system: it has not been touched since
samples  some of its bytes, read before the work starts: two studies hardly share them
digest   a hash of all of its bytes, taken while they are read anyway

A digest decides. A stamp only saves taking it again, and samples go into the key of what is stored.
"""

import errno
import hashlib
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.errors import StudyError

# ---- digests

DIGEST_BYTES = 16  # of SHA-256: two files share 16 bytes of it by accident in one of 1e38 cases
UNOPENED = bytes(DIGEST_BYTES)
"""Stands for the digest of a file that could not be opened."""
_PIECE = 1 << 22  # bytes of a file in memory at a time

Digests = NDArray[np.uint8]
"""(files, 16)"""


def digest(content: bytes) -> bytes:
    """The digest of a file's content."""
    return hashlib.sha256(content).digest()[:DIGEST_BYTES]


def file_digest(path: str) -> bytes:
    """The digest of a file on the disk; `UNOPENED` where it cannot be opened."""
    try:
        with os.fdopen(_open_regular(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()[:DIGEST_BYTES]
    except OSError:
        return UNOPENED


def _open_regular(path: str) -> int:
    """A descriptor of a regular file. Opening a FIFO as usual would wait for a writer.

    Not `files.open_file`: paths of 130,000 frames are strings, and nobody reads the sentences.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def as_digests(digests: Sequence[bytes]) -> Digests:
    """Digests as an array."""
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)


@dataclass(frozen=True, eq=False)
class StudyContent:
    """The digests of a study's files."""

    numbers: NDArray[np.int64]  # (rows,) frame numbers
    digests: Digests  # one per row where every frame is a file, a single one of a video
    per_row: bool  # whether every frame is a file

    @property
    def hash(self) -> str | None:
        """One hash of all files; names do not matter. None for a source without files."""
        if not len(self.digests):
            return None
        hashed = hashlib.sha256(b"frames" if self.per_row else b"video")
        if self.per_row:  # a video numbers its own frames
            hashed.update(self.numbers.astype("<i8").tobytes())
        hashed.update(self.digests.tobytes())
        return hashed.hexdigest()

    def digest_of(self, number: int) -> bytes | None:
        """The digest of one frame's file; None where frames are no files of their own."""
        row = int(np.searchsorted(self.numbers, number))
        if not self.per_row or row == self.numbers.size or self.numbers[row] != number:
            return None
        return self.digests[row].tobytes()


def read_content(
    numbers: NDArray[np.int64], files: Sequence[str], *, per_row: bool
) -> StudyContent:
    """The content of a study as it is on the disk now; every file is read once."""
    return StudyContent(numbers, as_digests([file_digest(path) for path in files]), per_row)


class BackgroundDigest:
    """The digest of a large file, taken in a thread while others work with the file."""

    def __init__(self, path: str, study_id: str) -> None:
        self._path, self._study = path, study_id
        self._digest: bytes | None = None
        self._error: OSError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enteron-digest", daemon=True)
        self._thread.start()

    @property
    def so_far(self) -> bytes | None:
        """The digest, or None while it is being taken."""
        return self._digest

    def result(self) -> bytes:
        """Wait for the digest."""
        self._thread.join()
        if self._digest is None:
            reason = "" if self._error is None else f" ({self._error.strerror})"
            raise StudyError(
                f"the video of study {self._study} cannot be read to its end{reason}",
                "copy it again from its source",
            ) from self._error
        return self._digest

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        hashed = hashlib.sha256()
        try:
            with os.fdopen(_open_regular(self._path), "rb", buffering=0) as file:
                while piece := file.read(_PIECE):
                    hashed.update(piece)
                    if self._stopped.is_set():
                        return
        except OSError as error:
            self._error = error
            return
        self._digest = hashed.digest()[:DIGEST_BYTES]


# ---- samples

BLOCK = 4096  # bytes
PICTURE_BLOCKS = 4
VIDEO_BLOCKS = 64


def sampled_hash(paths: Sequence[str]) -> str:
    """A hash of sampled bytes of every file, in this order.

    Headers and black borders make the beginnings of pictures alike, so blocks are taken from a
    quarter of the file on. The last block of a PNG holds checksums of all of its pixels.
    """
    blocks = PICTURE_BLOCKS if len(paths) > 1 else VIDEO_BLOCKS
    hashed = hashlib.sha256()
    for path in paths:
        for sample in _samples(path, blocks):
            hashed.update(sample)
    return hashed.hexdigest()


def _samples(path: str, blocks: int) -> list[bytes]:
    """The size of a file and some blocks of it; the whole file where it is small."""
    try:
        descriptor = _open_regular(path)
    except OSError:
        return [b"unopened"]
    try:
        size = os.fstat(descriptor).st_size
        head = struct.pack("<q", size)
        if size <= blocks * BLOCK:
            return [head, os.pread(descriptor, blocks * BLOCK, 0)]
        step = (size - BLOCK) / blocks
        starts = (round(step * (index + 1)) for index in range(blocks))
        return [head, *(os.pread(descriptor, BLOCK, start) for start in starts)]
    except OSError:
        return [b"unreadable"]
    finally:
        os.close(descriptor)


# ---- stamps

Stamps = NDArray[np.int64]
"""(files, 4): size, times of modification and of change in nanoseconds, inode; -1: no such file."""

_GONE = (-1, -1, -1, -1)
_SETTLED = 2_000_000_000  # nanoseconds: the coarsest clock of a file system (FAT)


def file_stamps(paths: Sequence[str]) -> Stamps:
    """The stamps of files: equal ones mean that nobody wrote to the file in between."""
    # Plain strings: making 130,000 Path objects takes longer than the calls of stat.
    return np.array([_file_stamp(path) for path in paths], np.int64).reshape(-1, 4)


def _file_stamp(path: str) -> tuple[int, int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return _GONE
    # The time of change cannot be set by programs that restore times of modification.
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def stamp_tokens(stamps: Stamps, now: int | None = None) -> list[str]:
    """Stamps as they are stored: hashed, since the time of a recording is a patient's.

    Empty for a file that was written just before `now` (nanoseconds): it could be written again
    without another stamp. `now` must be taken before the stamps.
    """
    now = time.time_ns() if now is None else now
    latest = stamps[:, 1:3].max(axis=1, initial=0)
    settled = (stamps[:, 0] >= 0) & (latest < now - _SETTLED)
    return [
        hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() if trusted else ""
        for row, trusted in zip(stamps.astype("<i8"), settled.tolist(), strict=True)
    ]


# ---- comparing


def first_changed(
    paths: Sequence[str],
    digests: Digests,
    *,
    stored: Sequence[str],
    current: Sequence[str],
    advance: Callable[[int], None] | None = None,
) -> int | None:
    """Index of the first file whose content is not that of `digests`.

    `stored` and `current` are tokens of stamps: where they agree, the file is not read.
    """
    for index, (path, before, now) in enumerate(zip(paths, stored, current, strict=True)):
        expected = digests[index].tobytes()
        untouched = before and before == now and expected != UNOPENED
        if not untouched and file_digest(path) != expected:
            return index
        if advance is not None:
            advance(1)
    return None

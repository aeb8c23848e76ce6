"""The chunks of an AVI file: which of them follow each other, and what the file's index says.

An AVI file numbers nothing. Its frames are chunks one after the other, and an index at the end of
the file lists them. FFmpeg counts the chunks that it finds, which is wrong behind a lost one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.study.containers import Bytes

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SEARCHED = 1 << 20  # bytes at the start of a file that are searched for the list of chunks
_AGREEING = 4  # chunks in a row whose sizes tell where in the index they are


@dataclass(frozen=True)
class StoredIndex:
    """The sizes of all chunks of the video, as the index at the end of the file lists them."""

    sizes: Numbers

    def place_of(self, sizes: Numbers, local: Numbers) -> int | None:
        """The place of the first of some chunks, whose distances from it are `local`.

        None where the sizes fit nowhere, or at several places.
        """
        places: set[int] = set()
        for start in range(0, max(1, sizes.size - _AGREEING + 1), max(1, sizes.size // 8)):
            sample = slice(start, start + _AGREEING)
            if sizes[sample].size < _AGREEING:
                break
            offsets = local[sample] - local[start]
            last = self.sizes.size - int(offsets[-1])
            if last <= 0:
                return None
            fits = np.ones(last, dtype=bool)
            for offset, size in zip(offsets.tolist(), sizes[sample].tolist(), strict=True):
                fits &= self.sizes[offset : offset + last] == size
            found = np.flatnonzero(fits) - int(local[start])
            if found.size > 1:
                return None
            places.update(found.tolist())
        return places.pop() if len(places) == 1 and min(places) >= 0 else None


class AviChunks:
    """The chunks of one stream of an AVI file."""

    def __init__(self, file: Bytes, stream: int) -> None:
        self._file = file
        self._names = (b"%02ddc" % stream, b"%02ddb" % stream)

    def runs(self, position: Numbers, size: Numbers) -> tuple[Flags, Numbers]:
        """Whether each chunk follows the one before with nothing lost between them, and its place.

        Empty chunks, which repeat the frame before, take a place as well. `position` is that of
        the content, behind eight bytes of name and size.
        """
        ends = position + size + size % 2
        directly = np.concatenate(([False], position[1:] - 8 == ends[:-1]))
        follows = directly.copy()
        empty = np.zeros(position.size, dtype=np.int64)
        for row in np.flatnonzero(~directly[1:]) + 1:
            between = self._empty_between(int(ends[row - 1]), int(position[row]) - 8)
            if between is not None:
                follows[row], empty[row] = True, between
        return follows, np.arange(position.size) + np.cumsum(empty)

    def starts_cleanly(self, position: int) -> bool:
        """Whether nothing is lost between the start of the list of chunks and the first one."""
        head = self._file.peek(0, min(position, _SEARCHED))
        start = head.find(b"movi")
        while start >= 0:
            if self._empty_between(start + 4, position - 8) == 0:
                return True
            start = head.find(b"movi", start + 4)
        return False

    def empty_behind(self, position: int, size: int) -> int:
        """Empty chunks directly behind the last one with content."""
        at, count = position + size + size % 2, 0
        while self._file.peek(at, 8) in [name + bytes(4) for name in self._names]:
            at, count = at + 8, count + 1
        return count

    def _empty_between(self, start: int, stop: int) -> int | None:
        """Empty chunks of the stream in a stretch of other chunks; None if it is not one."""
        empty = 0
        while start < stop:
            header = self._file.peek(start, 12)
            name, size = header[:4], int.from_bytes(header[4:8], "little")
            if name in (b"RIFF", b"LIST") and header[8:12] in (b"AVIX", b"movi", b"rec "):
                start += 12
                continue
            if name in self._names:
                if size:
                    return None
                empty += 1
            elif not (name in (b"JUNK", b"idx1") or name[:2] == b"ix" or _is_stream(name)):
                return None
            start += 8 + size + size % 2
        return empty if start == stop else None

    def stored_index(self, frames: int) -> StoredIndex | None:
        """The index at the end of the file; None where it is lost or damaged.

        `frames` is what the header promises, 0 if unknown.
        """
        tail = self._file.peek(0, self._file.size) if self._file.size < _SEARCHED else b""
        if not tail:
            length = min(self._file.size, 64 * max(frames, 10_000) + _SEARCHED)
            tail = self._file.peek(self._file.size - length, length)
        at = tail.rfind(b"idx1")
        if at < 0:
            return None
        size = int.from_bytes(tail[at + 4 : at + 8], "little")
        content = tail[at + 8 : at + 8 + size]
        if size % 16 or len(content) != size:
            return None
        table = np.frombuffer(content, dtype=[("name", "S4"), ("rest", "<u4", 3)])
        names = table["name"]
        if not all(_is_stream(bytes(name)) or name in (b"rec ",) for name in np.unique(names)):
            return None
        own = np.isin(names, self._names)
        offsets = table["rest"][own, 1].astype(np.int64)
        sizes = table["rest"][own, 2].astype(np.int64)
        apart = np.diff(offsets) - sizes[:-1] - sizes[:-1] % 2 - 8
        tiled = bool((apart == 0).all())
        if (apart < 0).any() or not (tiled or own.sum() == frames):
            return None
        if frames and own.sum() != frames:
            return None
        return StoredIndex(sizes)


def _is_stream(name: bytes) -> bool:
    """Whether a chunk belongs to a stream: two digits and two letters."""
    return len(name) == 4 and name[:2].isdigit() and name[2:] in (b"dc", b"db", b"wb", b"tx", b"pc")

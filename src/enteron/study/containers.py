"""What containers state beside their packets: cues, lengths, and how a file has to begin."""

import zlib
from itertools import pairwise
from typing import Protocol

_SEARCHED = 1 << 22  # bytes at either end of a file that are searched for a table


class Bytes(Protocol):
    """A file of which any part can be read."""

    size: int

    def peek(self, position: int, count: int) -> bytes: ...


# ---- Matroska

_CUES, _CUE_POINT, _CUE_TIME, _CRC = b"\x1c\x53\xbb\x6b", 0xBB, 0xB3, 0xBF


def cue_times(file: Bytes) -> list[int]:
    """Times of key frames in Matroska's table of cues, in ticks; empty where it is lost or damaged.

    The table lies at the end of a file, or at its beginning.
    """
    length = min(file.size, _SEARCHED)
    for data in (file.peek(file.size - length, length), file.peek(0, length)):
        at = data.rfind(_CUES)
        if at < 0:
            continue
        content = _element(data, at + 4)
        times = [] if content is None else _times_in(data[content[0] : content[1]])
        if times and all(later > earlier for earlier, later in pairwise(times)):
            return times
    return []


def _times_in(cues: bytes) -> list[int]:
    times: list[int] = []
    at = 0
    while at < len(cues):
        kind = cues[at]
        content = _element(cues, at + 1)
        if content is None or kind not in (_CUE_POINT, _CRC):
            return []
        start, stop = content
        if kind == _CRC and zlib.crc32(cues[stop:]) != int.from_bytes(cues[start:stop], "little"):
            return []
        if kind == _CUE_POINT:
            time = _element(cues, start + 1)
            if cues[start] != _CUE_TIME or time is None:
                return []
            times.append(int.from_bytes(cues[time[0] : time[1]], "big"))
        at = stop
    return times


def _element(data: bytes, at: int) -> tuple[int, int] | None:
    """Start and stop of the content of an EBML element whose size stands at `at`."""
    if at >= len(data) or not data[at]:
        return None
    width = 9 - data[at].bit_length()
    size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    start = at + width
    return (start, start + size) if start + size <= len(data) else None


_CLUSTER, _BLOCK_GROUP, _BLOCKS = 0x1F43B675, 0xA0, (0xA3, 0xA1)
_OTHER_ELEMENTS = frozenset(
    (0xE7, 0xA7, 0xAB, 0xBF, 0xEC, 0x9B, 0xFB, 0xFA, 0x75A1, 0x75A2, 0x5854, 0x1C53BB6B,
     0x1254C367, 0x1043A770, 0x1941A469, 0x1549A966, 0x114D9B74)
)  # fmt: skip
"""Times and sizes of clusters, filling, durations, cues, tags and the like."""


def nothing_between_blocks(file: Bytes, position: int, size: int, following: int) -> bool:
    """Whether a Matroska block directly follows another, or only other elements lie between them.

    Positions are those of the blocks' content, which begins with four bytes of track and time.
    """
    at = position + 4 + size
    while at < following:
        head = file.peek(at, 16)
        if not head or not head[0]:
            return False
        width = 9 - head[0].bit_length()
        kind = int.from_bytes(head[:width], "big")
        length_width = 9 - head[width].bit_length() if len(head) > width and head[width] else 9
        if width > 4 or length_width > 8:
            return False
        start = at + width + length_width
        if kind in _BLOCKS and start == following:
            return True
        if kind in (_CLUSTER, _BLOCK_GROUP):
            at = start
        elif kind in _OTHER_ELEMENTS:
            length = int.from_bytes(head[width : width + length_width], "big")
            at = start + (length & ((1 << 7 * length_width) - 1))
        else:
            return False
    return False


# ---- FLV


def only_other_tags(file: Bytes, position: int, size: int, following: int) -> bool:
    """Whether no tag with a picture lies between two tags of an FLV file."""
    at = position
    while at < following:
        head = file.peek(at, 11)
        length = int.from_bytes(head[1:4], "big")
        holds_picture = head[:1] == b"\x09" and length > 5
        if len(head) < 11 or (at > position and (holds_picture or head[0] not in (8, 9, 18))):
            return False
        at += 11 + length + 4
    return at == following


# ---- ASF

_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")


def asf_seconds(file: Bytes) -> float | None:
    """The length that an ASF header states; FFmpeg drops it where the file is cut off."""
    head = file.peek(0, 1 << 16)
    at = head.find(_FILE_PROPERTIES)
    if at < 0 or at + 88 > len(head):
        return None
    ticks = int.from_bytes(head[at + 64 : at + 72], "little")  # of 100 ns
    before = int.from_bytes(head[at + 80 : at + 88], "little")  # ms that players wait
    seconds = ticks / 1e7 - before / 1e3
    return seconds if seconds > 0 else None


# ---- MPEG transport streams


def transport_stream_starts_cleanly(file: Bytes, identifier: int) -> bool:
    """Whether the first packet of the video in a transport stream starts a picture."""
    data = file.peek(0, 1 << 18)
    for length, before in ((188, 0), (192, 4), (204, 0)):
        if (
            data[before : before + 1] == b"\x47"
            and data[before + length : before + length + 1] == b"\x47"
        ):
            break
    else:
        return False
    for at in range(before, len(data) - length, length):
        if data[at] != 0x47:
            return False
        if (data[at + 1] & 31) << 8 | data[at + 2] == identifier:
            return bool(data[at + 1] & 64)
    return True  # the video begins later

"""Where the time of a reading goes: a stopwatch for every part, and what limits the whole.

Parts are added up over all threads, so those that run ahead of the encoder (read, decode, resize)
overlap with it. A part costs two looks at the clock, some 0.2 microseconds.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, get_args

from pydantic import Field

from enteron.options import Options

Part = Literal[
    "index",
    "read",
    "decode",
    "resize",
    "wait",
    "glance",
    "encode",
    "head",
    "store",
    "decode events",
    "pictures",
    "page",
]
"""The work of a reading. `index`, `read`, `decode` and `resize` may run in threads beside the
encoder; `wait` is the time in which the encoder had no picture; the others follow each other."""

PARTS: Final[tuple[Part, ...]] = get_args(Part)
BESIDE: Final[frozenset[Part]] = frozenset({"read", "decode", "resize"})
_SLOW_WAIT = 0.15  # share of the time of embedding from which on pictures are the limit


class Stopwatch:
    """Seconds by part, from any number of threads."""

    def __init__(self) -> None:
        self._seconds: dict[Part, float] = {}
        self._lock = threading.Lock()

    def add(self, part: Part, seconds: float) -> None:
        with self._lock:
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def seconds(self) -> dict[Part, float]:
        """A copy of all parts so far."""
        with self._lock:
            return dict(self._seconds)


STOPWATCH: Final = Stopwatch()
"""The one of this process: readings compare it before and after."""


@contextmanager
def timed(part: Part) -> Iterator[None]:
    """Add the time of a block to a part."""
    start = time.perf_counter()
    try:
        yield
    finally:
        STOPWATCH.add(part, time.perf_counter() - start)


def since(before: Mapping[Part, float]) -> dict[Part, float]:
    """Seconds of every part since an earlier look at the stopwatch."""
    now = STOPWATCH.seconds()
    spent: dict[Part, float] = {}
    for part in PARTS:
        seconds = now.get(part, 0.0) - before.get(part, 0.0)
        if seconds > 0:
            spent[part] = round(seconds, 4)
    return spent


class Profile(Options):
    """`profile` of run.json."""

    seconds: float = Field(ge=0)
    """From start to end."""
    parts: dict[str, float]
    """Seconds by part; those of `read`, `decode` and `resize` are sums over threads."""
    frames: int = Field(ge=0)
    """Frames of the study."""
    images: int = Field(ge=0)
    """Pictures that were encoded in this run, every view counted."""
    threads: int = Field(ge=1)
    """Of the encoder."""
    operations: float | None = None
    """Floating-point operations of the encoder for one picture; None where nobody counted them."""
    peak: float | None = None
    """Operations a second of a large matrix product on as many threads, in single precision."""

    @property
    def encoder_share(self) -> float | None:
        """The encoder's operations a second as a share of the peak, while it ran."""
        spent = self.parts.get("encode", 0.0)
        if self.operations is None or not self.peak or not spent:
            return None
        return self.operations * self.images / spent / self.peak

    @property
    def rest(self) -> float:
        """Seconds that belong to no part."""
        return max(0.0, self.seconds - sum(s for p, s in self.parts.items() if p not in BESIDE))

    @property
    def limit(self) -> str:
        """What a faster reading would have to change, in a sentence without a full stop."""
        waiting, encoding = self.parts.get("wait", 0.0), self.parts.get("encode", 0.0)
        if not self.images:
            return "nothing was encoded: the embeddings of an earlier run were used"
        if encoding + waiting < 0.5 * self.seconds:
            ahead = {p: s for p, s in self.parts.items() if p not in BESIDE}
            most = max(ahead, key=lambda part: ahead[part])
            return f"most of the time did not go into pictures; the longest part is '{most}'"
        if waiting > _SLOW_WAIT * (waiting + encoding):
            slowest = max(BESIDE, key=lambda part: self.parts.get(part, 0.0))
            return (
                f"pictures: the encoder waited for {waiting / (waiting + encoding):.0%} of the "
                f"time of encoding, and the slowest step before it is '{slowest}'"
            )
        share = self.encoder_share
        at = "" if share is None else f", which ran at {share:.0%} of the GEMM peak of fp32"
        return f"the encoder{at}"

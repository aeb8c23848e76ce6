"""Frames of a study as JPEG: of the very files that were read, masked, cached.

A study is looked for when its reading is first opened, in the background (`originals.py`). Until it
is there, and where it is not, the pictures that the reading saved are shown.

What recorders write around the picture is masked, as on the report, unless device text is asked
for; frames that look like title cards are shown on request only (`masking.py`).
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from enteron.errors import EnteronError
from enteron.folders.reading import Reading
from enteron.report.pictures import PICTURES, picture_name, read_index
from enteron.serve.catalogue import Catalogue
from enteron.serve.masking import Masking
from enteron.serve.originals import Memory, find_original
from enteron.serve.packs import Pack, PackKey
from enteron.study import Study
from enteron.study.content import StudyContent
from enteron.study.picture import UnreadablePictureError, read_picture

SIDE: Final = 512  # pixels of the longer side, at most: no capsule has many more
PACK_SIDE: Final = 320
QUALITY: Final = 82
PACK_QUALITY: Final = 75
FAR: Final = 60  # frames between key frames, beyond which a study gets a pack
CARD: Final = b"card"  # stands in a pack for a frame that is withheld
TRIED: Final = 120  # frames that are looked at for the first one to show


class Flag(IntEnum):
    """What stands in place of a picture."""

    SHOWN = 0
    UNREADABLE = 1  # the frame cannot be decoded
    ABSENT = 2  # no picture of it is stored, and the study is not at hand
    CHANGED = 3  # its file is another one than when the study was read
    WITHHELD = 4  # it looks like a title card


Answer = tuple[Flag, bytes]


class PictureCache:
    """JPEG files in memory, the least recently used one is dropped first."""

    def __init__(self, limit: int = 192 << 20) -> None:
        self._limit, self._size = limit, 0
        self._held: OrderedDict[tuple[str, int], Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> Answer | None:
        """What is held under a key."""
        with self._lock:
            answer = self._held.get(key)
            if answer is not None:
                self._held.move_to_end(key)
            return answer

    def put(self, key: tuple[str, int], answer: Answer) -> None:
        """Hold an answer, and drop what no longer fits."""
        with self._lock:
            before = self._held.pop(key, None)
            self._size += len(answer[1]) - (0 if before is None else len(before[1]))
            self._held[key] = answer
            while self._size > self._limit:
                _, (_, dropped) = self._held.popitem(last=False)
                self._size -= len(dropped)

    def forget(self, study: str) -> None:
        """Drop everything of a study."""
        with self._lock:
            for key in [key for key in self._held if key[0] == study]:
                self._size -= len(self._held.pop(key)[1])


@dataclass(frozen=True)
class SourceState:
    """Where pictures come from now, for the page."""

    kind: str  # 'searching', 'checking', 'study', 'packing' or 'stored'
    sentence: str
    share: float | None = None  # of the work that is under way
    first: int | None = None  # position at which a page opens; None while that is not known


class StudyPictures:
    """The pictures of one reading, by position on its axis of frames."""

    def __init__(
        self,
        reading: Reading,
        catalogue: Catalogue,
        cache: PictureCache,
        *,
        device_text: bool = False,
    ) -> None:
        self._reading, self._catalogue, self._cache = reading, catalogue, cache
        self._mask_text = not device_text
        self._frames = reading.stored_axis.frames
        self._kind, self._sentence = "searching", "The study's own frames are being looked for."
        self._study: Study | None = None
        self._content: StudyContent | None = None
        self._masking = Masking()
        self._pack: Pack | None = None
        self._first: int | None = None
        self._lock = threading.Lock()  # a video is decoded at one place at a time
        self._ready = threading.Event()
        saved = read_index(reading.folder / PICTURES)
        self._saved = frozenset(saved.frames)
        self._thread = threading.Thread(target=self._find, name="enteron-study", daemon=True)
        self._thread.start()

    # ---- for the pages

    @property
    def state(self) -> SourceState:
        """Where pictures come from now."""
        pack = self._pack
        if pack is not None and not pack.complete:
            share = pack.done / max(1, pack.key.frames)
            return SourceState(
                "packing",
                "Small frames are being prepared, so that any place is shown at once.",
                share,
                self._first,
            )
        return SourceState(self._kind, self._sentence, first=self._first)

    def withheld(self, position: int) -> Answer:
        """A picture although it looks like a title card."""
        with self._lock:
            return self._from_study(int(self._frames[position]), SIDE, QUALITY, cards=True)

    def jpegs(self, positions: Sequence[int]) -> list[Answer]:
        """The pictures at some positions, in this order."""
        answers = [self._cache.get((self._reading.study, position)) for position in positions]
        if self._study is not None and not self._study.random_access:
            with self._lock:
                return [
                    self._jpeg(position) if answer is None else answer
                    for position, answer in zip(positions, answers, strict=True)
                ]
        return [
            self._jpeg(position) if answer is None else answer
            for position, answer in zip(positions, answers, strict=True)
        ]

    def whole(self, position: int) -> Answer:
        """The picture in full size, also where a pack holds a small one."""
        if self._pack is None or self._study is None:
            return self.jpegs([position])[0]
        with self._lock:
            return self._from_study(int(self._frames[position]), SIDE, QUALITY)

    def wait(self, seconds: float) -> bool:
        """Wait until the study is there or is known not to be; for tests and benchmarks."""
        return self._ready.wait(seconds)

    def close(self) -> None:
        """End background work and close files."""
        if self._pack is not None:
            self._pack.stop()
        self._thread.join(10)
        if self._pack is not None:
            self._pack.close()
        if self._study is not None:
            self._study.close()

    def _jpeg(self, position: int) -> Answer:
        frame = int(self._frames[position])
        answer: Answer | None = None
        if self._pack is not None and self._study is not None:
            row = int(np.searchsorted(self._study.numbers, frame))
            if self._pack.holds(row):
                jpeg = self._pack.read(row)
                if jpeg is None:
                    answer = (Flag.UNREADABLE, b"")
                else:
                    answer = (Flag.WITHHELD, b"") if jpeg == CARD else (Flag.SHOWN, jpeg)
        if answer is None and self._study is not None:
            answer = self._from_study(frame, SIDE, QUALITY)
        if answer is None:
            answer = self._from_saved(frame)
            if answer[0] is Flag.ABSENT:
                return answer  # the study may be there a second later
        self._cache.put((self._reading.study, position), answer)
        return answer

    def _from_saved(self, frame: int) -> Answer:
        if frame not in self._saved:
            return Flag.ABSENT, b""
        path = self._reading.folder / PICTURES / picture_name(frame)
        if path.is_symlink():
            return Flag.CHANGED, b""
        try:
            return Flag.SHOWN, read_picture(path)
        except UnreadablePictureError:
            return Flag.ABSENT, b""

    def _from_study(self, frame: int, side: int, quality: int, *, cards: bool = False) -> Answer:
        study = self._study
        if study is None:
            return self._from_saved(frame)
        row = int(np.searchsorted(study.numbers, frame))
        if study.random_access and os.path.islink(study.files(slice(row, row + 1))[0]):  # noqa: PTH114
            return Flag.CHANGED, b""
        try:
            read = study.frame(frame)
        except EnteronError:
            return Flag.UNREADABLE, b""
        if read.image is None:
            return Flag.UNREADABLE, b""
        known = None if self._content is None else self._content.digest_of(frame)
        if known is not None and known != read.digest:
            return Flag.CHANGED, b""
        if not cards and self._masking.is_card(read.image, row, len(study)):
            return Flag.WITHHELD, b""
        return Flag.SHOWN, self._masking.jpeg(read.image, side, quality)

    # ---- in the background

    def _find(self) -> None:
        try:
            self._use_original()
        except EnteronError as error:
            self._stay("stored", f"Only the stored pictures are shown: {error}")
        except Exception as error:
            # Whatever a damaged study does, the reading's own pictures are still there.
            self._stay(
                "stored",
                f"Only the stored pictures are shown ({type(error).__name__} in the study).",
            )
        finally:
            self._ready.set()
        self._first = self._first_shown()
        pack = self._pack
        if pack is not None and not pack.complete:
            with suppress(EnteronError):
                pack.make(self._packed_frames)

    def _stay(self, kind: str, sentence: str) -> None:
        self._kind, self._sentence = kind, sentence

    def _use_original(self) -> None:
        """Find the study, and show its frames from now on."""
        reading = self._reading
        memory = Memory(reading, self._catalogue.root, mask_text=self._mask_text)
        original = find_original(
            reading,
            self._catalogue,
            memory,
            mask_text=self._mask_text,
            on_check=lambda: self._stay(
                "checking", "The study's files are being compared with those that were read."
            ),
        )
        if original is None:
            self._stay(
                "stored",
                "The study's own frames are not at hand: only the stored pictures are shown. "
                "Start with --studies FOLDER to see all of them.",
            )
            return
        study = original.study
        self._content, self._masking = original.content, original.masking
        identity = reading.run.identity
        stated = None if identity is None else identity.content
        if study.seek_distance > FAR:
            key = PackKey(
                study=study.id,
                content=stated,
                frames=len(study),
                side=PACK_SIDE,
                masked=self._mask_text,
            )
            self._pack = Pack(memory.path("pack"), key)
        self._cache.forget(reading.study)
        self._study = study
        told = "" if stated is not None else " Their content was not recorded when they were read."
        self._stay("study", f"All frames of the study are shown.{told}")

    def _first_shown(self) -> int:
        """Where a page opens: the first frame that is shown, since many studies begin with cards.

        Only so many frames are tried; after them, the first one of which a picture was stored.
        """
        try:
            if self._study is not None:
                for position in range(min(TRIED, len(self._frames))):
                    if self.jpegs([position])[0][0] is Flag.SHOWN:
                        return position
            if self._saved:
                return min(
                    int(np.searchsorted(self._frames, min(self._saved))), len(self._frames) - 1
                )
        except (EnteronError, OSError):  # a damaged study: its pages still open
            return 0
        return 0

    def _packed_frames(self, start: int) -> Iterator[bytes | None]:
        study = self._study
        assert study is not None
        for row, frame in enumerate(study.frames(start), start):
            if frame.image is None:
                yield None
            elif self._masking.is_card(frame.image, row, len(study)):
                yield CARD
            else:
                yield self._masking.jpeg(frame.image, PACK_SIDE, PACK_QUALITY)

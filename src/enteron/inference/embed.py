"""A study through an encoder into a store: each frame once, in chunks that survive a kill."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import ModelError, StudyError
from enteron.inference.encoder import Encoder, Features, Squares
from enteron.inference.pictures import Square, squares
from enteron.inference.store import (
    UNREADABLE,
    Chunk,
    Embeddings,
    Precision,
    Probe,
    StoreKey,
    UnfinishedStore,
    make_chunk,
    open_embeddings,
)
from enteron.model.options import FEATURES
from enteron.options import Options
from enteron.study.study import Study

BLOCK = 8  # pixels of a square that become one value; noise of single pixels averages out
PATCH = 4  # values along each side of a patch: 32 pixels

LIMIT = 2.0
"""Grey levels. A compromise: 1 is safer and saves half as much (`enteron bench redundancy`)."""

Thumbnail = NDArray[np.float32]  # (3, size / 8, size / 8)


def thumbnail(square: Squares) -> Thumbnail:
    """A square (3, size, size) as means over blocks of 8 x 8 pixels."""
    import cv2

    side = square.shape[1] // BLOCK
    planes = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in square]
    return np.stack(planes).astype(np.float32)


def distance(one: Thumbnail, other: Thumbnail) -> float:
    """Largest mean absolute difference over patches of 32 x 32 pixels, in grey levels (0 to 255).

    Patches overlap by half, so that nothing hides between two of them.
    """
    import cv2

    difference = np.abs(one - other).mean(axis=0)
    means = cv2.blur(difference, (PATCH, PATCH), borderType=cv2.BORDER_REPLICATE)
    half = PATCH // 2
    return float(means[half::half, half::half].max())


class Twins:
    """Says of each frame in turn whether it is redundant, and to which row."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._row = 0
        self._seen: Thumbnail | None = None

    def twin(self, row: int, square: Squares) -> int:
        """The row whose embedding this frame may take: an earlier one, or its own."""
        small = thumbnail(square)
        if self._seen is None or distance(small, self._seen) > self._limit:
            self._row, self._seen = row, small
        return self._row


Change = Callable[[Squares, NDArray[np.int64]], Squares]


@dataclass(frozen=True)
class View:
    """A named change of squares (n, 3, size, size), given with their frame numbers (n,)."""

    name: str  # part of a store's key: another change needs another name
    change: Change


def _same(squares: Squares, frames: NDArray[np.int64]) -> Squares:
    return squares


def _mirrored(squares: Squares, frames: NDArray[np.int64]) -> Squares:
    return np.ascontiguousarray(squares[..., ::-1])


PLAIN = View("plain", _same)
FLIPPED = View("flipped", _mirrored)


_PROBE_EVERY = 100  # redundant frames of which one is encoded all the same


class EmbedOptions(Options):
    """How a study is embedded."""

    precision: Precision = "float32"
    """float16 halves the file and moves probabilities by some 1e-4."""

    redundancy: float | None = Field(default=None, ge=0)
    """Frames nearer than this (grey levels) to the last encoded frame take its embedding."""

    chunk: int = Field(default=64, ge=1)
    """Frames between two points from which a killed run goes on."""

    workers: int = Field(default=2, ge=1)
    """Threads that read and resize pictures."""


@dataclass
class EmbedTimes:
    """Where the seconds went, for whoever wants to know."""

    waiting: float = 0.0  # for pictures
    encoding: float = 0.0
    writing: float = 0.0
    encoded: int = 0  # pictures that went through the encoder, views counted
    rows: int = 0  # frames that this run added

    @property
    def waiting_share(self) -> float:
        """Share of the time in which the encoder had nothing to do."""
        total = self.waiting + self.encoding + self.writing
        return self.waiting / total if total else 0.0


def store_key(
    study: Study, encoder: Encoder, options: EmbedOptions, views: Sequence[View] = (PLAIN, FLIPPED)
) -> StoreKey:
    """The key under which embeddings of a study are stored."""
    return StoreKey(
        backbone=encoder.backbone_hash,
        preprocessing=encoder.preprocessing.hash(),
        runtime=encoder.runtime,
        views=tuple(view.name for view in views),
        precision=options.precision,
        redundancy=options.redundancy,
        study=_study_hash(study.numbers, study.file_stamps()),
    )


def _study_hash(numbers: NDArray[np.int64], stamps: NDArray[np.int64]) -> str:
    """Of numbers and sizes only: a copied study has new times but is the same study."""
    digest = hashlib.sha256(numbers.astype("<i8").tobytes())
    digest.update(stamps[:, 0].astype("<i8").tobytes())
    return digest.hexdigest()


def embed_study(
    study: Study,
    encoder: Encoder,
    path: Path,
    options: EmbedOptions | None = None,
    advance: Callable[[int], None] | None = None,
    *,
    views: Sequence[View] = (PLAIN, FLIPPED),
    extra_views: bool = False,
    times: EmbedTimes | None = None,
) -> Embeddings:
    """Embeddings of every frame at `path`: opened if they are there, else made, or gone on with.

    `advance` hears how many frames were added, first those of an earlier run. With `extra_views`
    a finished store may hold more views than `views`: find each by `Embeddings.view`.
    """
    options = EmbedOptions() if options is None else options
    advance = advance or (lambda rows: None)
    stamps = study.file_stamps()
    key = store_key(study, encoder, options, views)
    if path.exists():
        found = open_embeddings(path, key, extra_views=extra_views)
        mended = _mended_row(study, found.record.problems)
        if mended is not None:
            raise ModelError(
                f"'{path.name}' holds embeddings made with other files of the study (frame "
                f"{study.numbers[mended]} could not be read then and can be now)",
                "delete it to make them again, or write to another folder",
            )
        study.unreadable.update(found.record.problems)
        advance(len(found))
        return found
    store = UnfinishedStore(path, key, study.id, study.numbers, options.chunk)
    try:
        store.begin()
        mended = _mended_row(study, store.problems)
        if mended is not None:
            store.forget_from(mended)
            store.begin()
        study.unreadable.update(store.problems)
        advance(store.done)
        work = _Work(study, encoder, options, tuple(views), stamps, times or EmbedTimes())
        for features, made in work.chunks(store.done):
            begin = time.perf_counter()
            store.add(features, made)
            work.times.writing += time.perf_counter() - begin
            advance(len(features))
        changed = _changed_row(study, stamps, slice(None))
        if changed is not None:
            store.forget_from(changed)
            raise _changed_error(study, changed)
        return store.finish()
    finally:
        store.close()


def _mended_row(study: Study, problems: Iterable[int]) -> int | None:
    """The first row that could not be read before and can be now.

    Its file may have kept its size, which is all that the key knows of it.
    """
    if not study.random_access:
        return None
    for number in sorted(problems):
        if study.frame(number).image is not None:
            return int(np.searchsorted(study.numbers, number))
    return None


def _changed_row(study: Study, stamps: NDArray[np.int64], rows: slice) -> int | None:
    """The first of these rows whose file is not the one it was at the start."""
    before = stamps[rows] if study.random_access else stamps
    changed = np.flatnonzero((study.file_stamps(rows) != before).any(axis=1))
    if not changed.size:
        return None
    return int(changed[0]) + (rows.start or 0) if study.random_access else 0


def _changed_error(study: Study, row: int) -> StudyError:
    """Embeddings of half the old and half the new content would pass for a study's."""
    what = f"frame {study.numbers[row]}" if study.random_access else "the video"
    return StudyError(
        f"{what} of study {study.id} changed while the study was being read",
        "wait until nothing writes to the study and run again",
    )


@dataclass
class _Work:
    """One run over a study."""

    study: Study
    encoder: Encoder
    options: EmbedOptions
    views: tuple[View, ...]
    stamps: NDArray[np.int64]
    times: EmbedTimes

    def chunks(self, start: int) -> Iterator[tuple[NDArray[np.floating], Chunk]]:
        """Features (rows, views, 512) and the journal's line of every chunk from row `start` on."""
        size, workers = self.options.chunk, self.options.workers
        prepared = self.encoder.preprocessing
        pictures = squares(self.study, start, prepared, workers=workers, ahead=2 * size)
        with closing(pictures):
            for first in range(start, len(self.study), size):
                begin = time.perf_counter()
                taken = list(islice(pictures, min(size, len(self.study) - first)))
                self.times.waiting += time.perf_counter() - begin
                changed = _changed_row(self.study, self.stamps, slice(first, first + len(taken)))
                if changed is not None:
                    raise _changed_error(self.study, changed)
                begin = time.perf_counter()
                yield self._embedded(first, taken, begin)

    def _embedded(
        self, first: int, taken: list[Square], begin: float
    ) -> tuple[NDArray[np.floating], Chunk]:
        source, probes = self._sources(first, taken)
        rows = first + np.arange(len(taken))
        own = np.flatnonzero(source == rows)
        features = np.full((len(taken), len(self.views), FEATURES), np.nan, np.float32)
        if own.size:
            pixels = [taken[i].pixels for i in own]
            chosen = np.stack([p for p in pixels if p is not None])
            features[own] = self._encoded(chosen, self.study.numbers[rows[own]])
        twins = np.flatnonzero((source != rows) & (source != UNREADABLE))
        features[twins] = features[source[twins] - first]
        with np.errstate(over="ignore"):  # infinities are looked for next
            stored = features.astype(self.options.precision)
        self._require_finite(features, stored, first, source != UNREADABLE)
        problems = {s.number: s.problem or "unreadable" for s in taken if s.pixels is None}
        self.times.rows += len(taken)
        self.times.encoded += own.size * len(self.views)
        self.times.encoding += time.perf_counter() - begin
        return stored, make_chunk(stored, source.tolist(), problems, probes)

    def _sources(self, first: int, taken: list[Square]) -> tuple[NDArray[np.int64], list[Probe]]:
        """For each frame the row whose embedding it takes. Chunks do not depend on each other."""
        limit = self.options.redundancy
        twins = None if limit is None else Twins(limit)
        source = np.full(len(taken), UNREADABLE, dtype=np.int64)
        probes: list[Probe] = []
        for place, square in enumerate(taken):
            if square.pixels is None:
                continue
            row = first + place
            source[place] = row if twins is None else twins.twin(row, square.pixels)
            if source[place] != row and row % _PROBE_EVERY == 0:
                probes.append(Probe(row=row, twin=int(source[place])))
                source[place] = row
        return source, probes

    def _encoded(self, chosen: Squares, frames: NDArray[np.int64]) -> Features:
        """(n, views, 512). Batches never reach beyond a chunk: a run that goes on makes the same.

        Each view is encoded on its own, so that a picture's neighbours in a batch are of its kind.
        """
        batch = self.encoder.batch
        made = np.empty((len(chosen), len(self.views), FEATURES), np.float32)
        for place, view in enumerate(self.views):
            for start in range(0, len(chosen), batch):
                part = slice(start, start + batch)
                made[part, place] = self.encoder.encode(view.change(chosen[part], frames[part]))
        return made

    def _require_finite(
        self,
        features: NDArray[np.float32],
        stored: NDArray[np.floating],
        first: int,
        readable: NDArray[np.bool_],
    ) -> None:
        bad = np.flatnonzero(readable & ~np.isfinite(stored).all(axis=(1, 2)))
        if not bad.size:
            return
        one, last = self.study.numbers[first + bad[0]], self.study.numbers[first + bad[-1]]
        where = f"frames {one} to {last}" if last != one else f"frame {one}"
        if np.isfinite(features[bad]).all():
            raise ModelError(
                f"embeddings of {where} of study {self.study.id} are too large for float16",
                "store them as float32",
            )
        raise ModelError(
            f"the encoder ({self.encoder.runtime}) gave no finite embedding for {where} of study "
            f"{self.study.id}",
            "try `--runtime exact`; if that fails too, the model's weights are damaged",
        )

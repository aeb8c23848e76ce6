"""Embedding a study: every frame through an encoder into a store, in chunks that can be resumed.

Frames that hardly differ from the last encoded one may take its embedding (`redundancy`).
"""

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
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.pictures import PreparedFrame, prepared_frames
from enteron.inference.store import (
    UNREADABLE,
    Chunk,
    Embeddings,
    PartialStore,
    Precision,
    Probe,
    StoreKey,
    make_chunk,
    open_embeddings,
)
from enteron.model.options import FEATURES
from enteron.options import Options
from enteron.progress import Advance
from enteron.study.study import Study


class EmbedOptions(Options):
    """How a study is embedded."""

    precision: Precision = "float32"
    """float16 halves the file and moves probabilities by some 1e-4."""

    redundancy: float | None = Field(default=None, ge=0)
    """Frames that differ less than this (grey levels) from the last encoded one are redundant."""

    chunk: int = Field(default=64, ge=1)
    """Frames per chunk. A killed run repeats at most one chunk."""

    workers: int = Field(default=2, ge=1)
    """Threads that decode and resize frames."""


@dataclass
class EmbedTimes:
    """Seconds and counts of one run."""

    waiting: float = 0.0  # for decoded frames
    encoding: float = 0.0
    writing: float = 0.0
    encoded: int = 0  # images that went through the encoder, counting every view
    rows: int = 0  # frames that this run added

    @property
    def waiting_share(self) -> float:
        """Share of the time in which the encoder was idle."""
        total = self.waiting + self.encoding + self.writing
        return self.waiting / total if total else 0.0


# ---- views

ViewFunction = Callable[[ImageBatch, NDArray[np.int64]], ImageBatch]
"""Takes images (n, 3, size, size) and their frame numbers (n,)."""


@dataclass(frozen=True)
class View:
    """A named transformation of images."""

    name: str  # part of a store's key: another transformation needs another name
    change: ViewFunction


def _unchanged(images: ImageBatch, frames: NDArray[np.int64]) -> ImageBatch:
    return images


def _mirrored(images: ImageBatch, frames: NDArray[np.int64]) -> ImageBatch:
    return np.ascontiguousarray(images[..., ::-1])


PLAIN = View("plain", _unchanged)
FLIPPED = View("flipped", _mirrored)


# ---- redundant frames

REDUNDANCY_LIMIT = 2.0
"""Grey levels. A compromise: 1 is safer and saves half as much (`enteron bench redundancy`)."""

BLOCK = 8  # pixels averaged into one value of a thumbnail, so that noise of single pixels cancels
PATCH = 4  # values of a thumbnail along each side of a patch: 32 pixels
_PROBE_INTERVAL = 100  # a redundant frame whose row is a multiple of this is encoded anyway

Thumbnail = NDArray[np.float32]
"""(3, size / 8, size / 8)"""


def thumbnail(image: NDArray[np.uint8]) -> Thumbnail:
    """Means of an image (3, size, size) over blocks of 8 x 8 pixels."""
    import cv2

    side = image.shape[1] // BLOCK
    planes = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in image]
    return np.stack(planes).astype(np.float32)


def patch_distance(first: Thumbnail, second: Thumbnail) -> float:
    """Largest mean absolute difference over patches of 32 x 32 pixels, in grey levels (0 to 255).

    Patches overlap by half, so that no change hides on the border between two of them.
    """
    import cv2

    difference = np.abs(first - second).mean(axis=0)
    means = cv2.blur(difference, (PATCH, PATCH), borderType=cv2.BORDER_REPLICATE)
    half = PATCH // 2
    return float(means[half::half, half::half].max())


class RedundancyFilter:
    """Finds redundant frames: those that hardly differ from the last encoded frame."""

    def __init__(self, limit: float) -> None:
        self._limit = limit  # grey levels
        self._encoded_row = 0
        self._encoded: Thumbnail | None = None

    def source(self, row: int, image: NDArray[np.uint8]) -> int:
        """The row whose embedding this frame takes: an earlier row if redundant, else `row`."""
        current = thumbnail(image)
        if self._encoded is None or patch_distance(current, self._encoded) > self._limit:
            self._encoded_row, self._encoded = row, current
        return self._encoded_row


# ---- embedding a study


def store_key(
    study: Study, encoder: Encoder, options: EmbedOptions, views: Sequence[View] = (PLAIN, FLIPPED)
) -> StoreKey:
    """The key under which the embeddings of a study are stored."""
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
    """Of frame numbers and file sizes only: a copied study has new times but is the same study."""
    digest = hashlib.sha256(numbers.astype("<i8").tobytes())
    digest.update(stamps[:, 0].astype("<i8").tobytes())
    return digest.hexdigest()


def embed_study(
    study: Study,
    encoder: Encoder,
    path: Path,
    options: EmbedOptions | None = None,
    advance: Advance | None = None,
    *,
    views: Sequence[View] = (PLAIN, FLIPPED),
    times: EmbedTimes | None = None,
    extra_views: bool = False,
) -> Embeddings:
    """Embeddings of every frame, in a store at `path`.

    A finished store is opened; otherwise it is created or resumed. `advance` is called with the
    number of frames added since its last call, starting with those of an earlier run. With
    `extra_views` a finished store may hold more views than `views`: find each by
    `Embeddings.view`.
    """
    options = EmbedOptions() if options is None else options
    advance = advance or (lambda count: None)
    stamps = study.file_stamps()
    key = store_key(study, encoder, options, views)
    if path.exists():
        embeddings = open_embeddings(path, key, extra_views=extra_views)
        repaired = _repaired_row(study, embeddings.record.problems)
        if repaired is not None:
            raise ModelError(
                f"'{path.name}' holds embeddings made with other files of the study (frame "
                f"{study.numbers[repaired]} could not be read then and can be now)",
                "delete it to compute them again, or write to another folder",
            )
        study.unreadable.update(embeddings.record.problems)
        advance(len(embeddings))
        return embeddings
    store = PartialStore(path, key, study.id, study.numbers, options.chunk)
    try:
        store.open()
        repaired = _repaired_row(study, store.problems)
        if repaired is not None:
            store.discard_from(repaired)
            store.open()
        study.unreadable.update(store.problems)
        advance(store.done)
        run = _EmbeddingRun(study, encoder, options, tuple(views), stamps, times or EmbedTimes())
        for features, chunk in run.chunks(store.done):
            start = time.perf_counter()
            store.add(features, chunk)
            run.times.writing += time.perf_counter() - start
            advance(len(features))
        changed = _changed_row(study, stamps, slice(None))
        if changed is not None:
            store.discard_from(changed)
            raise _changed_error(study, changed)
        return store.finish()
    finally:
        store.close()


def _repaired_row(study: Study, problems: Iterable[int]) -> int | None:
    """The first row that could not be read before and can be now.

    Its file may have the same size as before, and the key knows nothing else of it.
    """
    if not study.random_access:
        return None
    for number in sorted(problems):
        if study.frame(number).image is not None:
            return int(np.searchsorted(study.numbers, number))
    return None


def _changed_row(study: Study, stamps: NDArray[np.int64], rows: slice) -> int | None:
    """The first of these rows whose file is not the one it was at the start of the run."""
    expected = stamps[rows] if study.random_access else stamps
    changed = np.flatnonzero((study.file_stamps(rows) != expected).any(axis=1))
    if not changed.size:
        return None
    return int(changed[0]) + (rows.start or 0) if study.random_access else 0


def _changed_error(study: Study, row: int) -> StudyError:
    """Otherwise a store could hold embeddings of the old content and of the new one."""
    file = f"frame {study.numbers[row]}" if study.random_access else "the video"
    return StudyError(
        f"{file} of study {study.id} changed while the study was being read",
        "wait until nothing writes to the study and run again",
    )


@dataclass
class _EmbeddingRun:
    """Encodes a study chunk by chunk. No chunk depends on another, so any of them can resume."""

    study: Study
    encoder: Encoder
    options: EmbedOptions
    views: tuple[View, ...]
    stamps: NDArray[np.int64]  # of all files, at the start of the run
    times: EmbedTimes

    def chunks(self, start: int) -> Iterator[tuple[NDArray[np.floating], Chunk]]:
        """Features (rows, views, 512) and the journal's line of every chunk from row `start` on."""
        size = self.options.chunk
        prepared = prepared_frames(
            self.study,
            start,
            self.encoder.preprocessing,
            workers=self.options.workers,
            ahead=2 * size,
        )
        with closing(prepared):
            for first in range(start, len(self.study), size):
                before = time.perf_counter()
                frames = list(islice(prepared, min(size, len(self.study) - first)))
                self.times.waiting += time.perf_counter() - before
                changed = _changed_row(self.study, self.stamps, slice(first, first + len(frames)))
                if changed is not None:
                    raise _changed_error(self.study, changed)
                before = time.perf_counter()
                embedded = self._embed_chunk(first, frames)
                self.times.encoding += time.perf_counter() - before
                yield embedded

    def _embed_chunk(
        self, first: int, frames: list[PreparedFrame]
    ) -> tuple[NDArray[np.floating], Chunk]:
        """The chunk that starts at row `first`."""
        source, probes = self._sources(first, frames)
        rows = first + np.arange(len(frames))
        encoded = np.flatnonzero(source == rows)
        features = np.full((len(frames), len(self.views), FEATURES), np.nan, np.float32)
        if encoded.size:
            images = [frames[i].image for i in encoded]
            batch = np.stack([image for image in images if image is not None])
            features[encoded] = self._encode_views(batch, self.study.numbers[rows[encoded]])
        redundant = np.flatnonzero((source != rows) & (source != UNREADABLE))
        features[redundant] = features[source[redundant] - first]
        with np.errstate(over="ignore"):  # `_require_finite` looks for infinities
            stored = features.astype(self.options.precision)
        self._require_finite(features, stored, first, source != UNREADABLE)
        problems = {f.number: f.problem or "unreadable" for f in frames if f.image is None}
        self.times.rows += len(frames)
        self.times.encoded += encoded.size * len(self.views)
        return stored, make_chunk(stored, source.tolist(), problems, probes)

    def _sources(
        self, first: int, frames: list[PreparedFrame]
    ) -> tuple[NDArray[np.int64], list[Probe]]:
        """For each frame the row whose embedding it takes, and the redundant rows to probe."""
        limit = self.options.redundancy
        redundancy = None if limit is None else RedundancyFilter(limit)
        source = np.full(len(frames), UNREADABLE, dtype=np.int64)
        probes: list[Probe] = []
        for index, frame in enumerate(frames):
            if frame.image is None:
                continue
            row = first + index
            source[index] = row if redundancy is None else redundancy.source(row, frame.image)
            if source[index] != row and row % _PROBE_INTERVAL == 0:
                probes.append(Probe(row=row, twin=int(source[index])))
                source[index] = row
        return source, probes

    def _encode_views(self, images: ImageBatch, frames: NDArray[np.int64]) -> Features:
        """Features (n, views, 512) of images with these frame numbers.

        Batches never reach beyond a chunk, so a resumed run forms the same batches. Each view is
        encoded on its own, so that all images of a batch are of one kind.
        """
        batch = self.encoder.batch
        features = np.empty((len(images), len(self.views), FEATURES), np.float32)
        for index, view in enumerate(self.views):
            for start in range(0, len(images), batch):
                part = slice(start, start + batch)
                changed = view.change(images[part], frames[part])
                features[part, index] = self.encoder.encode(changed)
        return features

    def _require_finite(
        self,
        features: NDArray[np.float32],
        stored: NDArray[np.floating],
        first: int,
        readable: NDArray[np.bool_],
    ) -> None:
        """Refuse a chunk with NaN or infinities, before or after conversion to `precision`."""
        bad = np.flatnonzero(readable & ~np.isfinite(stored).all(axis=(1, 2)))
        if not bad.size:
            return
        numbers = self.study.numbers[first + bad]
        frames = f"frame {numbers[0]}"
        if bad.size > 1:
            frames = f"frames {numbers[0]} to {numbers[-1]}"
        if np.isfinite(features[bad]).all():
            raise ModelError(
                f"embeddings of {frames} of study {self.study.id} are too large for float16",
                "store them as float32",
            )
        raise ModelError(
            f"the encoder ({self.encoder.runtime}) gave no finite embedding for {frames} of study "
            f"{self.study.id}",
            "try `--runtime exact`; if that fails too, the model's weights are damaged",
        )

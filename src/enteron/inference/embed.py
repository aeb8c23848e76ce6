"""Embedding a study: every frame through an encoder into a store, in chunks that can be resumed.

Frames that hardly differ from the last encoded one may take its embedding (`redundancy`), or frames
between two encoded ones the nearest's (`coarse_to_fine`).
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import EnteronError, ModelError, StudyError, quantity
from enteron.inference.coarse_chunks import CoarseReading, encode_coarse
from enteron.inference.encoder import Encoder, Features, ImageBatch
from enteron.inference.pictures import PreparedFrame, prepared_frames, study_fields
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
    read_stamps,
    require_key,
    started_key,
    write_stamps,
)
from enteron.inference.views import VIEW_SETS, View
from enteron.options import Options
from enteron.profile import timed
from enteron.progress import Advance
from enteron.study.content import (
    UNOPENED,
    BackgroundDigest,
    Stamps,
    as_digests,
    file_digest,
    file_stamps,
    first_changed,
    sampled_hash,
    stamp_tokens,
)
from enteron.study.field_of_view import FieldsOfView
from enteron.study.study import Study

_WAIT_AND_REPEAT = "wait until nothing writes to the study and run again"


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


# ---- redundant frames

REDUNDANCY_LIMIT = 2.0
"""Grey levels. The smallest limit at which real frames are redundant at all; larger ones save more
and change more decisions (`enteron bench redundancy -- --real`, docs/inference.md)."""

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

EmbeddedChunk = tuple[NDArray[np.floating], Chunk]
"""Features (rows, views, width) of a chunk, and its line of the journal."""

ChunkSource = Callable[[int], Iterator[EmbeddedChunk]]
"""Takes a row and gives the chunks from it on, in order: computed here, or by other workers."""


def _store_key(
    study: Study,
    encoder: Encoder,
    options: EmbedOptions,
    views: Sequence[View],
    files: Sequence[str],
    stamps: Stamps,
    coarse: CoarseReading | None,
) -> StoreKey:
    # Sizes, not times: a copied study has new times but is the same study.
    structure = hashlib.sha256(study.numbers.astype("<i8").tobytes())
    structure.update(stamps[:, 0].astype("<i8").tobytes())
    return StoreKey(
        backbone=encoder.backbone_hash,
        preprocessing=encoder.preprocessing.images_hash(),
        runtime=encoder.runtime,
        views=tuple(view.name for view in views),
        precision=options.precision,
        redundancy=options.redundancy,
        study=structure.hexdigest(),
        samples=sampled_hash(files),
        quantisation=getattr(encoder, "quantisation", None),  # most encoders have none
        coarse=None if coarse is None else coarse.key,
    )


def embed_study(
    study: Study,
    encoder: Encoder,
    path: Path,
    options: EmbedOptions | None = None,
    advance: Advance | None = None,
    *,
    views: Sequence[View] = VIEW_SETS["flip"],
    times: EmbedTimes | None = None,
    extra_views: bool = False,
) -> Embeddings:
    """Embeddings of every frame, in a store at `path`.

    A finished store of the same files is opened; otherwise it is created or resumed. `advance` is
    called with the number of frames added since its last call, starting with those of an earlier
    run. With `extra_views` a finished store may hold more views than `views`: find each by
    `Embeddings.view`.
    """
    return StudyEmbedding(study, encoder, path, options, views=views, extra_views=extra_views).run(
        advance, times
    )


class StudyEmbedding:
    """The embedding of one study into one store: what is there is checked, the rest is computed.

    `check` refuses a store of other files or another encoder before anything is written.
    """

    def __init__(
        self,
        study: Study,
        encoder: Encoder,
        path: Path,
        options: EmbedOptions | None = None,
        *,
        views: Sequence[View] = VIEW_SETS["flip"],
        extra_views: bool = False,
        coarse: CoarseReading | None = None,
    ) -> None:
        self._study, self._encoder, self._path = study, encoder, path
        self._coarse = coarse
        self._options = EmbedOptions() if options is None else options
        self._views, self._extra_views = tuple(views), extra_views
        now = time.time_ns()
        self._files = study.files()
        self._per_row = study.random_access and len(self._files) == len(study)
        self._stamps = file_stamps(self._files)  # at the start of the run
        self._tokens = stamp_tokens(self._stamps, now)
        # Without the field of view, which is measured only if something is to be encoded.
        self._key = _store_key(
            study, encoder, self._options, views, self._files, self._stamps, coarse
        )
        self._finished: Embeddings | None = None

    def check(self) -> None:
        """Refuse a finished or partial store that this run cannot use."""
        if self._path.exists():
            self._finished = self._open_finished()
            return
        started = started_key(self._path)
        if started is not None:
            # Where the files have changed, so may have what is measured on them: rows decide later.
            known = {"samples": started.samples, "field": started.field}
            require_key(started, self._key.model_copy(update=known), self._path.name)

    def run(
        self,
        advance: Advance | None = None,
        times: EmbedTimes | None = None,
        source: ChunkSource | None = None,
    ) -> Embeddings:
        """Open the finished store, or compute what is missing.

        With a `source`, chunks come from there: they must be those that `chunks` gives.
        """
        advance = advance or (lambda count: None)
        if self._finished is None and self._path.exists():
            self._finished = self._open_finished()
        if self._finished is None:
            return self._compute(advance, times or EmbedTimes(), source)
        self._study.unreadable.update(self._finished.record.problems)
        advance(len(self._finished))
        return self._finished

    @property
    def chunk(self) -> int:
        """Frames of a chunk."""
        return self._options.chunk

    @property
    def runtime(self) -> str:
        """The runtime that encodes."""
        return self._encoder.runtime

    def chunks(self, start: int, stop: int) -> Iterator[EmbeddedChunk]:
        """Compute the chunks of the rows from `start`, where one begins, to `stop`.

        No chunk depends on another one, so that several workers can share a study.
        """
        yield from self._new_run(None, EmbedTimes()).chunks(start, stop)

    @cached_property
    def _fields(self) -> FieldsOfView | None:
        return study_fields(self._study, self._encoder.preprocessing)

    def _new_run(self, video: BackgroundDigest | None, times: EmbedTimes) -> "_EmbeddingRun":
        return _EmbeddingRun(
            self._study,
            self._encoder,
            self._options,
            self._views,
            self._fields,
            self._tokens if self._per_row or video is not None else [],
            video,
            times,
            self.require_unchanged,
            self._coarse,
        )

    def _taken_over(
        self, chunks: Iterator[EmbeddedChunk], video: BackgroundDigest | None
    ) -> Iterator[EmbeddedChunk]:
        """Chunks of other workers, with what only this one knows: a video's digest and stamp."""
        for features, chunk in chunks:
            for number, problem in chunk.problems.items():
                self._study.note_unreadable(number, problem)
            if video is None:
                yield features, chunk
                continue
            digest = video.so_far
            files = () if digest is None else (digest.hex(),)
            yield (
                features,
                chunk.model_copy(update={"files": files, "stamps": tuple(self._tokens)}),
            )

    def require_unchanged(self, rows: slice = slice(None)) -> None:
        """Refuse files that are not those of the start of the run."""
        changed = self._changed_row(rows)
        if changed is not None:
            raise self._changed_error(changed)

    def _open_finished(self) -> Embeddings:
        """A finished store, if it holds embeddings of exactly these files."""
        path, study = self._path, self._study
        stored = open_embeddings(path, check=False).key
        # The field of view follows from the files, whose digests are compared below.
        key = self._key.model_copy(update={"samples": stored.samples, "field": stored.field})
        embeddings = open_embeddings(path, key, extra_views=self._extra_views)
        content = embeddings.content
        assert content is not None
        known = read_stamps(path, content)
        if stored.samples != self._key.samples:
            known = [""] * len(known)  # some file differs: the digests tell which
        changed = first_changed(self._files, content.digests, stored=known, current=self._tokens)
        if changed is not None:
            raise ModelError(
                f"'{path.name}' holds embeddings made with other files of the study "
                f"({self._difference(changed, embeddings)})",
                "delete it to compute them again, or write to another folder",
            )
        if known != self._tokens:
            with suppress(EnteronError):  # a folder of features may be read-only
                write_stamps(path, content, self._tokens)
        study.unreadable.update(embeddings.record.problems)
        return embeddings

    def _difference(self, file: int, embeddings: Embeddings) -> str:
        if not self._per_row:
            return "its content was another one then"
        number = int(self._study.numbers[file])
        was_unreadable = number in embeddings.record.problems
        if was_unreadable and self._study.frame(number).image is not None:
            return f"frame {number} could not be read then and can be now"
        return f"frame {number} was another picture then"

    def _compute(
        self, advance: Advance, times: EmbedTimes, source: ChunkSource | None
    ) -> Embeddings:
        study = self._study
        video = None
        fields = self._fields
        key = self._key.model_copy(update={"field": None if fields is None else str(fields)})
        store = PartialStore(
            self._path,
            key,
            study.id,
            study.numbers,
            self._options.chunk,
            per_row=self._per_row,
            width=self._encoder.width,
        )
        try:
            store.open()
            if self._path.exists():  # another process finished it since we looked
                store.abandon()
                return self.run(advance, times, source)
            store.truncate(self._valid_rows(store))
            study.unreadable.update(store.problems)
            advance(store.done)
            if self._files and not self._per_row:
                video = BackgroundDigest(self._files[0], study.id)
            if source is None:
                chunks = self._new_run(video, times).chunks(store.done, len(study))
            else:
                chunks = self._taken_over(source(store.done), video)
            for features, chunk in chunks:
                start = time.perf_counter()
                with timed("store"):
                    store.add(features, chunk)
                times.writing += time.perf_counter() - start
                advance(len(features))
            digest = None if video is None else video.result()
            changed = self._changed_row()
            if changed is not None:
                store.truncate(changed)
                raise self._changed_error(changed)
            appeared = study.new_files()
            if appeared:
                raise StudyError(
                    f"{quantity(appeared, 'file')} appeared in study {study.id} while it was being "
                    "read",
                    _WAIT_AND_REPEAT,
                )
            with timed("store"):
                embeddings = store.finish(digest)
        finally:
            if video is not None:
                video.stop()
            store.close()
        assert embeddings.content is not None
        write_stamps(self._path, embeddings.content, self._tokens)
        return embeddings

    def _valid_rows(self, store: PartialStore) -> int:
        """How many rows of an earlier run were made of the files as they are now."""
        stored = [token for chunk in store.chunks for token in chunk.stamps]
        digests = [bytes.fromhex(text) for chunk in store.chunks for text in chunk.files]
        if not self._files or not store.done:
            return store.done
        if self._per_row:
            files, current = self._files[: store.done], self._tokens[: store.done]
            changed = first_changed(files, as_digests(digests), stored=stored, current=current)
            return store.done if changed is None else changed
        # One file: a run that was killed early has its stamp, and not yet its digest.
        untouched = self._tokens[0] != "" and set(stored) == {self._tokens[0]}
        return store.done if untouched or set(digests) == {file_digest(self._files[0])} else 0

    def _changed_row(self, rows: slice = slice(None)) -> int | None:
        """The first of these rows whose file is not the one it was at the start of the run."""
        study = self._study
        expected = self._stamps[rows] if self._per_row else self._stamps
        current = file_stamps(study.files(rows))
        changed = np.flatnonzero((current != expected).any(axis=1))
        if not changed.size:
            return None
        return int(changed[0]) + (rows.start or 0) if self._per_row else 0

    def _changed_error(self, row: int) -> StudyError:
        """Otherwise a store could hold embeddings of the old content and of the new one."""
        study = self._study
        file = f"frame {study.numbers[row]}" if self._per_row else "the file"
        path = self._files[row if self._per_row else 0]
        verb = "changed" if Path(path).exists() else "vanished"
        return StudyError(
            f"{file} of study {study.id} {verb} while the study was being read", _WAIT_AND_REPEAT
        )


@dataclass
class _EmbeddingRun:
    """Encodes a study chunk by chunk. No chunk depends on another, so any of them can resume."""

    study: Study
    encoder: Encoder
    options: EmbedOptions
    views: tuple[View, ...]
    fields: FieldsOfView | None  # where borders are masked
    tokens: list[str]  # of the files' stamps at the start of the run
    video: BackgroundDigest | None  # where the study is a single file
    times: EmbedTimes
    require_unchanged: Callable[[slice], None]
    coarse: CoarseReading | None = None

    def chunks(self, start: int, stop: int) -> Iterator[EmbeddedChunk]:
        """The chunks from row `start` to row `stop`."""
        size = self.options.chunk
        prepared = prepared_frames(
            self.study,
            start,
            self.encoder.preprocessing,
            self.fields,
            workers=self.options.workers,
            ahead=2 * size if self.coarse is None else size,
            stop=stop,
        )
        with closing(prepared):
            for first in range(start, stop, size):
                before = time.perf_counter()
                with timed("wait"):
                    frames = list(islice(prepared, min(size, stop - first)))
                self.times.waiting += time.perf_counter() - before
                self.require_unchanged(slice(first, first + len(frames)))
                before = time.perf_counter()
                if self.coarse is None:
                    embedded = self._embed_chunk(first, frames)
                else:
                    embedded = self._embed_coarse(self.coarse, first, frames)
                self.times.encoding += time.perf_counter() - before
                yield embedded

    def _embed_coarse(
        self, coarse: CoarseReading, first: int, frames: list[PreparedFrame]
    ) -> EmbeddedChunk:
        """The chunk that starts at row `first`, coarse to fine."""
        chunk = encode_coarse(coarse, frames, self.study.axis.step, self._encode_views)
        looked, features = chunk.looked, chunk.features
        if not looked.rows.size:
            shape = (len(frames), len(self.views), self.encoder.width)
            features = np.full(shape, np.nan, np.float32)
        source = np.where(looked.source >= 0, looked.source + first, UNREADABLE)
        with np.errstate(over="ignore"):  # `_require_finite` looks for infinities
            stored = features.astype(self.options.precision)
        self._require_finite(features, stored, first, source != UNREADABLE)
        self.times.rows += len(frames)
        self.times.encoded += looked.rows.size * len(self.views)
        digests, tokens = self._files(first, frames)
        missed = round(looked.missed, 6)
        return stored, make_chunk(
            stored, source.tolist(), chunk.problems, (), digests, tokens, missed
        )

    def _embed_chunk(
        self, first: int, frames: list[PreparedFrame]
    ) -> tuple[NDArray[np.floating], Chunk]:
        """The chunk that starts at row `first`."""
        source, probes = self._sources(first, frames)
        rows = first + np.arange(len(frames))
        encoded = np.flatnonzero(source == rows)
        features = np.full((len(frames), len(self.views), self.encoder.width), np.nan, np.float32)
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
        digests, tokens = self._files(first, frames)
        return stored, make_chunk(stored, source.tolist(), problems, probes, digests, tokens)

    def _files(self, first: int, frames: list[PreparedFrame]) -> tuple[list[bytes], list[str]]:
        """Digests and stamps of the chunk's files; a video's digest may not be known yet."""
        if self.video is not None:
            digest = self.video.so_far
            return [] if digest is None else [digest], self.tokens
        if not self.tokens:
            return [], []
        digests = [frame.digest or UNOPENED for frame in frames]
        return digests, self.tokens[first : first + len(frames)]

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
        """Features (n, views, width) of images with these frame numbers.

        Batches never reach beyond a chunk, so a resumed run forms the same batches. Each view is
        encoded on its own, so that all images of a batch are of one kind.
        """
        batch = self.encoder.batch
        features = np.empty((len(images), len(self.views), self.encoder.width), np.float32)
        for index, view in enumerate(self.views):
            for start in range(0, len(images), batch):
                part = slice(start, start + batch)
                with timed("encode"):
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

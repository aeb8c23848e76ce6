"""A chunk of frames encoded coarse to fine: pictures on demand, the encoder, the policy.

Frames of a folder are decoded only if they are asked for; of the others nothing but the digest of
their files is taken, so whether they could be shown is not known. A video is decoded from end to
end, which costs a tenth of encoding it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from enteron.inference.coarse_to_fine import CoarsePolicy, LookedAt, looked_at
from enteron.inference.encoder import Features, ImageBatch
from enteron.inference.pictures import PreparedFrame, prepare_frame
from enteron.inference.score import Head, borrowed_probabilities
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing
from enteron.study.content import UNOPENED, file_digest
from enteron.study.field_of_view import FieldsOfView
from enteron.study.study import Study

_EDGE = 1e-6  # scores nearer to 0 or 1 have no larger log-odds


@dataclass(frozen=True)
class CoarseReading:
    """What chooses frames: the policy, and the head whose scores it looks at."""

    policy: CoarsePolicy
    head: Head
    step: int | None = None  # rows between the frames of a clip; None: the model's


class ChunkPictures(Protocol):
    """The frames of a chunk."""

    @property
    def readable(self) -> NDArray[np.bool_] | None:
        """(rows,) which can be read, where that is known."""
        ...

    def prepare(self, rows: Sequence[int]) -> list[PreparedFrame]:
        """These rows of the chunk, decoded and resized."""
        ...

    def digests(self) -> list[bytes]:
        """Digests of the files of all rows, where every frame has its own."""
        ...


@dataclass(frozen=True)
class DecodedPictures:
    """Frames that were decoded in order."""

    frames: list[PreparedFrame]

    @property
    def readable(self) -> NDArray[np.bool_]:
        return np.array([frame.image is not None for frame in self.frames], np.bool_)

    def prepare(self, rows: Sequence[int]) -> list[PreparedFrame]:
        return [self.frames[row] for row in rows]

    def digests(self) -> list[bytes]:
        return [frame.digest or UNOPENED for frame in self.frames]


@dataclass
class PicturesOnDemand:
    """Frames of a folder, decoded in threads when they are asked for."""

    study: Study
    first: int  # row of the study at which the chunk starts
    count: int
    preprocessing: Preprocessing
    fields: FieldsOfView | None
    pool: ThreadPoolExecutor
    readable: NDArray[np.bool_] | None = None
    known: dict[int, bytes] = field(default_factory=dict)  # digests of rows that were asked for

    def prepare(self, rows: Sequence[int]) -> list[PreparedFrame]:
        frames = list(self.pool.map(self._prepare, rows))
        self.known |= {
            row: frame.digest or UNOPENED for row, frame in zip(rows, frames, strict=True)
        }
        return frames

    def digests(self) -> list[bytes]:
        paths = self.study.files(slice(self.first, self.first + self.count))
        missing = [row for row in range(self.count) if row not in self.known]
        found = self.pool.map(lambda row: file_digest(paths[row]), missing)
        self.known |= dict(zip(missing, found, strict=True))
        return [self.known[row] for row in range(self.count)]

    def _prepare(self, row: int) -> PreparedFrame:
        number = int(self.study.numbers[self.first + row])
        return prepare_frame(self.study.frame(number), self.preprocessing, self.fields)


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk whose frames all have features, most of them borrowed."""

    features: NDArray[np.float32]  # (rows, views, width); NaN where unreadable
    looked: LookedAt
    problems: dict[int, str]  # why frames could not be read, by number


def encode_coarse(
    coarse: CoarseReading,
    numbers: NDArray[np.int64],
    step: int,
    pictures: ChunkPictures,
    encode: Callable[[ImageBatch, NDArray[np.int64]], Features],
) -> EncodedChunk:
    """Encode the frames of a chunk that the policy asks for; the others borrow.

    `step` is the distance of frame numbers where nothing is missing. `encode` takes images and
    their numbers, and gives features (n, views, width).
    """
    own: dict[int, Features] = {}
    problems: dict[int, str] = {}
    if pictures.readable is not None:
        unreadable = np.flatnonzero(~pictures.readable).tolist()
        for frame in pictures.prepare(unreadable):
            problems[frame.number] = frame.problem or "unreadable"

    def look(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        frames = pictures.prepare(rows.tolist())
        problems.update({f.number: f.problem or "unreadable" for f in frames if f.image is None})
        images = [frame.image for frame in frames if frame.image is not None]
        could = np.array([frame.image is not None for frame in frames], np.bool_)
        if images:
            features = encode(np.stack(images), numbers[rows[could]])
            own.update(zip(rows[could].tolist(), features, strict=True))
        return could

    def judge(
        rows: NDArray[np.int64], source: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.floating]]:
        features = np.stack([own[row] for row in rows.tolist()])
        return clip_log_odds(coarse, features, source), features[:, 0, :FEATURES]

    looked = looked_at(coarse.policy, numbers, step, look, judge, pictures.readable)
    width = next(iter(own.values())).shape if own else (0, 0)
    features = np.full((numbers.size, *width), np.nan, np.float32)
    for row, source in enumerate(looked.source.tolist()):
        if source >= 0:
            features[row] = own[source]
    return EncodedChunk(features, looked, problems)


def clip_log_odds(
    coarse: CoarseReading, features: NDArray[np.floating], source: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(n, 17) log-odds of the rows that have `features` (n, views, width) of their own."""
    p = borrowed_probabilities(coarse.head, features, source, step=coarse.step)
    p = np.clip(p.astype(np.float64), _EDGE, 1 - _EDGE)
    return np.log(p) - np.log1p(-p)

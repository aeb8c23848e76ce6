"""A chunk of frames encoded coarse to fine: the glance, the policy, and the encoder on demand.

Every frame of a chunk is decoded, which costs a fraction of encoding it, and glanced at.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.inference.coarse_to_fine import CoarsePolicy, LookedAt, looked_at
from enteron.inference.encoder import Features, ImageBatch
from enteron.inference.glance import Glance, small_picture
from enteron.inference.pictures import PreparedFrame
from enteron.inference.score import Head, clip_offsets, encoded_probabilities
from enteron.labels import LABELS
from enteron.model.options import FEATURES
from enteron.profile import timed

_EDGE = 1e-6  # scores nearer to 0 or 1 have no larger log-odds


@dataclass(frozen=True)
class CoarseReading:
    """What chooses frames: the policy, the glance, and the head that scores what was encoded."""

    policy: CoarsePolicy
    glance: Glance
    head: Head
    step: int | None = None  # rows between the frames of a clip; None: the model's

    @property
    def clip(self) -> NDArray[np.int64]:
        """How many rows before a row those of its clip are."""
        return clip_offsets(self.head, self.step)

    @property
    def key(self) -> str:
        """What the choice of frames depends on, for the key of a store."""
        return hashlib.sha256(f"{self.policy.key} {self.clip.tolist()}".encode()).hexdigest()


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk whose frames all have features, most of them borrowed."""

    features: NDArray[np.float32]  # (rows, views, width); NaN where unreadable
    looked: LookedAt
    problems: dict[int, str]  # why frames could not be read, by number


def encode_coarse(
    coarse: CoarseReading,
    frames: Sequence[PreparedFrame],
    step: int,
    encode: Callable[[ImageBatch, NDArray[np.int64]], Features],
) -> EncodedChunk:
    """Encode the frames of a chunk that the policy asks for; the others borrow.

    `step` is the distance of frame numbers where nothing is missing. `encode` takes images and
    their numbers, and gives features (n, views, width).
    """
    numbers = np.array([frame.number for frame in frames], np.int64)
    own: dict[int, Features] = {}

    def look(rows: NDArray[np.int64]) -> None:
        images = np.stack([image for row in rows if (image := frames[row].image) is not None])
        own.update(zip(rows.tolist(), encode(images, numbers[rows]), strict=True))

    def judge(
        rows: NDArray[np.int64], source: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.floating]]:
        features = np.stack([own[row] for row in rows.tolist()])
        odds = clip_log_odds(coarse.head, features, source, coarse.step)
        return odds, features[:, 0, :FEATURES]

    guessed = guesses(coarse.glance, frames)
    looked = looked_at(coarse.policy, numbers, step, coarse.clip, guessed, look, judge)
    width = next(iter(own.values())).shape if own else (0, 0)
    features = np.full((numbers.size, *width), np.nan, np.float32)
    for row, source in enumerate(looked.source.tolist()):
        if source >= 0:
            features[row] = own[source]
    problems = {f.number: f.problem or "unreadable" for f in frames if f.image is None}
    return EncodedChunk(features, looked, problems)


def guesses(glance: Glance, frames: Sequence[PreparedFrame]) -> NDArray[np.float32]:
    """(rows, 17) what a glance makes of frames; NaN where one cannot be read."""
    result = np.full((len(frames), len(LABELS)), np.nan, np.float32)
    with timed("glance"):
        small = {
            row: small_picture(frame.image)
            for row, frame in enumerate(frames)
            if frame.image is not None
        }
        if small:
            result[list(small)] = glance.log_odds(np.stack(list(small.values())))
    return result


def clip_log_odds(
    head: Head, features: NDArray[np.floating], source: NDArray[np.int64], step: int | None = None
) -> NDArray[np.float64]:
    """(n, 17) log-odds of the rows that have `features` (n, views, width) of their own."""
    p = encoded_probabilities(head, features, source, step=step)
    p = np.clip(p.astype(np.float64), _EDGE, 1 - _EDGE)
    return np.log(p) - np.log1p(-p)

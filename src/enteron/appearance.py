"""What the studies look like that a model knows, and whether another one looks like them.

A model knows nothing of pictures unlike those it was fitted on, and is often sure of what it says
about them. Some frames of every study that it knows are kept as points: embeddings of length 1,
projected to the directions in which they differ most, with the distance from these directions as
one more coordinate. A study is as far from a kind of data (drawings, real frames) as the median of
its frames is from their nearest points. The limit of a kind is what all but a few of its own
studies stay below when each is compared with the others; it is not known for kinds of few studies.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.errors import ModelError
from enteron.options import Options, Sha256
from enteron.types import DataKind

FRAMES_KEPT: Final = 24  # of each study, evenly spread
FRAMES_COMPARED: Final = 512  # of a new study, at most
DIRECTIONS: Final = 96
LEAST_STUDIES: Final = 8
"""Fewer studies of a kind do not tell how much its studies differ."""
FALSE_ALARMS: Final = 0.05
"""Share of a kind's own studies that its limit would call unlike."""

Points = NDArray[np.float32]
_Encoded = Annotated[str, Field(max_length=4_000_000)]


class KnownKind(Options):
    """The studies of one kind of data."""

    kind: DataKind
    studies: int = Field(ge=1, le=100_000)
    points: _Encoded  # (studies * frames, directions + 1), float16 in base64
    limit: float | None = Field(default=None, gt=0)  # None: too few studies


class Appearance(Options):
    """`appearance.json`: what the studies look like that trained and calibrated a model."""

    version: Literal[1] = 1
    encoder: Sha256
    """Hash of the encoder's weights: embeddings of others cannot be compared."""
    mean: _Encoded  # (features,), float16 in base64
    directions: _Encoded  # (directions, features)
    kinds: tuple[KnownKind, ...] = Field(max_length=3)


class Likeness(Options):
    """How a study compares with those that a model knows."""

    verdict: Literal["like", "unlike", "unknown"]
    nearest: DataKind | None = None
    """The kind that it is nearest to, in units of the kind's limit."""
    distances: dict[str, float] = Field(default_factory=dict)
    """By kind, its distance as a share of the kind's limit; above 1 it is unlike them."""


def fit_appearance(
    studies: Mapping[DataKind, Sequence[NDArray[np.floating]]], encoder: str
) -> Appearance:
    """From the embeddings (frames, features) of studies, by kind of data."""
    kept: dict[DataKind, list[Points]] = {
        kind: [_some(s, FRAMES_KEPT) for s in group] for kind, group in studies.items() if group
    }
    frames = np.concatenate([frames for group in kept.values() for frames in group])
    # Rounded first: points must be projected with what the file holds.
    mean = frames.mean(axis=0).astype(np.float16)
    centred = frames - mean.astype(np.float32)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:DIRECTIONS].astype(np.float16)
    kinds: list[KnownKind] = []
    for kind, group in kept.items():
        points = [_project(s, mean, directions).astype(np.float16) for s in group]
        every = [_project(_some(s, FRAMES_COMPARED), mean, directions) for s in studies[kind]]
        kinds.append(
            KnownKind(
                kind=kind,
                studies=len(group),
                points=_encode(np.concatenate(points)),
                limit=_limit(every, [p.astype(np.float32) for p in points]),
            )
        )
    return Appearance(
        encoder=encoder, mean=_encode(mean), directions=_encode(directions), kinds=tuple(kinds)
    )


def _limit(studies: Sequence[Points], points: Sequence[Points]) -> float | None:
    """What all but a few of the studies stay below, each compared with the points of the others."""
    if len(studies) < LEAST_STUDIES:
        return None
    distances = [
        _distance(study, np.concatenate([p for other, p in enumerate(points) if other != index]))
        for index, study in enumerate(studies)
    ]
    return float(np.quantile(distances, 1 - FALSE_ALARMS))


def compare(appearance: Appearance, features: NDArray[np.floating], encoder: str) -> Likeness:
    """Compare a study's embeddings (frames, features) with what is known."""
    if encoder != appearance.encoder:
        raise ModelError(
            "'appearance.json' was made with another encoder than the model's",
            "run `enteron calibrate` again on this model",
        )
    if not len(features):
        return Likeness(verdict="unknown")
    mean = _decode(appearance.mean, 1)
    width = mean.size
    frames = _some(features, FRAMES_COMPARED)
    if frames.shape[1] != width:
        raise ModelError(
            f"'appearance.json' has {width} features where embeddings have {frames.shape[1]}",
            "run `enteron calibrate` again on this model",
        )
    directions = _decode(appearance.directions, width)
    study = _project(frames, mean, directions)
    distances: dict[DataKind, float] = {}
    for known in appearance.kinds:
        if known.limit is not None:
            points = _decode(known.points, len(directions) + 1)
            distances[known.kind] = _distance(study, points) / known.limit
    if not distances:
        return Likeness(verdict="unknown")
    nearest = min(distances, key=lambda kind: distances[kind])
    return Likeness(
        verdict="like" if distances[nearest] <= 1 else "unlike",
        nearest=nearest,
        distances={kind: round(distance, 4) for kind, distance in distances.items()},
    )


def _some(features: NDArray[np.floating], most: int) -> Points:
    """Evenly spread frames, as vectors of length 1; frames without finite features are left out."""
    rows = np.unique(np.linspace(0, len(features) - 1, min(most, len(features))).astype(np.int64))
    frames = np.asarray(features[rows], np.float32)
    frames = frames[np.isfinite(frames).all(axis=1)]
    lengths = np.maximum(np.linalg.norm(frames, axis=1, keepdims=True), 1e-12)
    return np.asarray(frames / lengths, np.float32)


def _project(
    frames: Points, mean: NDArray[np.floating], directions: NDArray[np.floating]
) -> Points:
    """(frames, directions + 1): along the directions, and the distance from them."""
    centred = frames - mean.astype(np.float32)
    along = centred @ directions.astype(np.float32).T
    outside = np.maximum((centred**2).sum(axis=1) - (along**2).sum(axis=1), 0)
    return np.concatenate([along, np.sqrt(outside)[:, None]], axis=1).astype(np.float32)


def _distance(study: Points, points: Points) -> float:
    """The median over frames of the distance from the nearest point."""
    squared = (study**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None] - 2 * study @ points.T
    return float(np.median(np.sqrt(np.maximum(squared, 0).min(axis=1))))


def _encode(array: NDArray[np.floating]) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f2").tobytes()).decode()


def _decode(text: str, width: int) -> Points:
    """An array of rows of `width` numbers; a single row for a width of 1."""
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float32)
        table = values if width == 1 else values.reshape(-1, width)
    except ValueError as error:
        raise ModelError(
            "'appearance.json' is damaged", "run `enteron calibrate` again on this model"
        ) from error
    if not table.size or not np.isfinite(table).all():
        raise ModelError(
            "'appearance.json' is damaged", "run `enteron calibrate` again on this model"
        )
    return table

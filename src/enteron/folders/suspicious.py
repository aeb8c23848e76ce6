"""`suspicious.json`: the frames of a reading to look at first, and a promised recall."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from enteron.calibration import Calibration
from enteron.confidence import Guarantee, likeness, study_signature
from enteron.decoding.events import DecodedEvent
from enteron.decoding.suspicious import (
    SuspicionOptions,
    SuspiciousFrame,
    describe,
    finding_probabilities,
    rank_rows,
    region_runs,
)
from enteron.errors import EnteronError
from enteron.files import JSON_LIMIT, json_text, read_json, write_text
from enteron.labels import FINDINGS, REGIONS
from enteron.priors import Priors
from enteron.types import Scores, Unit

if TYPE_CHECKING:
    from enteron.inference.store import Embeddings

SUSPICIOUS: Final = "suspicious.json"
_DECODE_AGAIN: Final = "decode the scores again, or delete the file"

LEVEL: Final = 0.05
"""A study whose p-value is at most this is unlike the fitted ones (at most 1 / (n + 1) where there
are so few of them that no p-value can be smaller)."""


class _Part(BaseModel):
    """A part of the file. Fields of later versions are ignored, so that the file can grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"'{name}' is none of {', '.join(names)}")
        return name

    return check


class ListedFrame(_Part):
    """One picture of the list."""

    frame: int = Field(ge=0)
    time: float | None = None  # seconds, where known
    label: Annotated[str, AfterValidator(_one_of(FINDINGS))]  # the finding that contributes most
    confidence: float = Field(ge=0, le=1)  # probability that the frame shows it
    suspicion: float = Field(ge=0)  # expected number of lesions that it adds
    region: Annotated[str, AfterValidator(_one_of(REGIONS))] | None = None
    event: int | None = None  # number of the event that it lies in
    similar: int = Field(default=0, ge=0)  # frames that look like it and are left out


class Promise(_Part):
    """A promised recall, and whether it holds for this study."""

    recall: float = Field(gt=0, lt=1)
    pictures: int = Field(ge=0)  # of this study that have to be looked at
    minutes: float | None = None  # that fitted studies took on average
    studies: int  # with lesions, that it was fitted on
    devices: dict[str, int] = Field(default_factory=dict)
    device: str | None = None  # of this study
    p_value: float | None = None  # of this study's embeddings among those of the fitted studies
    verdict: Literal["holds", "does not hold", "unknown"]
    reason: str  # a clause


class SuspiciousList(_Part):
    """The content of the file."""

    study: str
    unit: Unit
    calibrated: bool  # whether confidences are probabilities
    folded_by: Literal["time", "time and appearance"]
    weights: dict[str, float] = Field(default_factory=dict)  # of findings, where not 1
    promise: Promise | None = None
    frames: tuple[ListedFrame, ...]


def write_suspicious(
    folder: Path,
    scores: Scores,
    events: Sequence[DecodedEvent],
    priors: Priors,
    calibration: Calibration | None,
    *,
    options: SuspicionOptions | None = None,
    embeddings: "Embeddings | None" = None,
    device: str | None = None,
) -> SuspiciousList:
    """Rank the frames of a decoded study and write the list.

    With a promised recall the list is at least as long as the promise needs. Embeddings fold frames
    that look alike, except where a recall is promised: the promise was fitted without folding.
    """
    options = SuspicionOptions() if options is None else options
    known = Calibration() if calibration is None else calibration
    p = finding_probabilities(scores, region_runs(events, scores), priors, known, options.window)
    guarantee = known.guarantee
    features = None if embeddings is None else _plain_features(embeddings, scores)
    promise: Promise | None = None
    most = options.most
    if guarantee is not None:
        needed = rank_rows(p, scores, SuspicionOptions(), least=guarantee.threshold, most=len(p))
        promise = _promise(guarantee, needed.rows.size, embeddings, features, device)
        if options.weights:
            promise = promise.model_copy(
                update={
                    "verdict": "does not hold",
                    "reason": "findings are weighted, and it was fitted without weights",
                }
            )
        most = max(most, needed.rows.size)
    folding = features if guarantee is None else None
    ranking = rank_rows(p, scores, options, features=folding, most=most)
    content = SuspiciousList(
        study=scores.study,
        unit=scores.unit,
        calibrated=calibration is not None,
        folded_by="time" if folding is None else "time and appearance",
        weights=options.weights,
        promise=promise,
        frames=tuple(
            _listed(suspect, scores)
            for suspect in describe(ranking, p, scores, events, known, options)
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / SUSPICIOUS, _text(content))
    return content


def _text(content: SuspiciousList) -> str:
    """One picture a line."""
    table = content.model_dump(mode="json")
    frames = ",\n".join(json_text(frame) for frame in table.pop("frames"))
    listed = f"[\n{frames}\n]" if frames else "[]"
    return f'{json_text(table)[:-1]}, "frames": {listed}}}\n'


def _listed(suspect: SuspiciousFrame, scores: Scores) -> ListedFrame:
    table: dict[str, Any] = asdict(suspect)
    time = None
    if scores.times is not None:
        row = int(np.searchsorted(scores.axis.frames, suspect.frame))
        time = round(float(scores.times[row]), 3)
    table["suspicion"] = float(f"{suspect.suspicion:.6g}")
    table["confidence"] = round(suspect.confidence, 4)
    return ListedFrame(time=time, **table)


def _plain_features(embeddings: "Embeddings", scores: Scores) -> NDArray[np.floating]:
    """(rows, 512) what the scored frames look like."""
    if not np.array_equal(embeddings.frames[embeddings.readable], scores.axis.frames):
        raise EnteronError(
            f"the embeddings and the scores of study {scores.study} have other frames",
            "read the study again into a new folder",
        )
    return embeddings.appearance


def _promise(
    guarantee: Guarantee,
    pictures: int,
    embeddings: "Embeddings | None",
    features: NDArray[np.floating] | None,
    device: str | None,
) -> Promise:
    p_value: float | None = None
    signatures = guarantee.signatures
    reason = "no embeddings are stored, so this study cannot be compared with the fitted ones"
    verdict: Literal["holds", "does not hold", "unknown"] = "unknown"
    if signatures is None:
        reason = "it was fitted on scores alone, so this study cannot be compared with the others"
    elif embeddings is not None and features is not None:
        if embeddings.key.backbone == signatures.encoder:
            p_value = likeness(signatures, study_signature(features))
            count = len(signatures.points)
            unlike = p_value <= max(LEVEL, 1 / (count + 1) + 1e-9)
            verdict = "does not hold" if unlike else "holds"
            reason = (
                f"the pictures of this study look {'unlike' if unlike else 'like'} those of the "
                f"{count} fitted studies"
            )
        else:
            reason = "it was fitted with another image encoder, so the studies cannot be compared"
    if device is not None and guarantee.devices and device.lower() not in guarantee.devices:
        verdict = "does not hold"
        reason = f"it was fitted on other capsules ({', '.join(guarantee.devices)}), not {device}"
    return Promise(
        recall=guarantee.recall,
        pictures=pictures,
        minutes=guarantee.minutes_per_study,
        studies=guarantee.studies,
        devices=guarantee.devices,
        device=device,
        p_value=None if p_value is None else round(p_value, 4),
        verdict=verdict,
        reason=reason,
    )


def read_suspicious(folder: Path, study: str | None = None) -> SuspiciousList | None:
    """The list of a reading folder; None where it has none, as those of earlier versions.

    With `study`, the list of another study is refused.
    """
    if not (folder / SUSPICIOUS).exists():
        return None
    table = read_json(folder / SUSPICIOUS, _DECODE_AGAIN, limit=JSON_LIMIT)
    try:
        content = SuspiciousList.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise EnteronError(f"{SUSPICIOUS} is damaged at '{where}'", _DECODE_AGAIN) from error
    if study is not None and content.study != study:
        raise EnteronError(
            f"{SUSPICIOUS} is of study {content.study}, the reading of study {study}",
            "the files of two readings were mixed: read one of the studies into a new folder",
        )
    return content


def suspicious_frames(folder: Path) -> tuple[int, ...]:
    """The listed frames of a reading folder, in their order; none where it has no list."""
    content = read_suspicious(folder)
    return () if content is None else tuple(listed.frame for listed in content.frames)

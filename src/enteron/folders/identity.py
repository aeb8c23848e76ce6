"""What a file of a reading belongs to, so that files of different readings are never mixed.

Every file of a reading folder names the study, the content of its files, the model, the
calibration, the decoder's options and the stage that wrote it, as far as its format has room for
that. `run.json` has the SHA-256 of every file besides.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from enteron.errors import EnteronError

if TYPE_CHECKING:
    from enteron.decoding import DecodeOptions
    from enteron.priors import Priors
    from enteron.types import Scores

MIXED = "the files of two readings were mixed: read one of the studies into a new folder"


class ReadingIdentity(BaseModel):
    """What a reading was made of. None: not known, as for scores of another program."""

    # Fields of later versions are ignored, so that the files can grow.
    model_config = ConfigDict(frozen=True, extra="ignore")

    study: str
    """Id of the study."""
    content: str | None = None
    """Hash of the content of the study's files (`enteron.study.content`)."""
    model: str | None = None
    """SHA-256 of the model's weights."""
    calibration: str | None = None
    """SHA-256 of `calibration.json`."""
    decoding: str | None = None
    """Hash of the decoder's options and priors."""
    scores: str | None = None
    """Hash of the scores that were decoded."""

    def at(self, stage: str) -> dict[str, str | None]:
        """The identity as a file of a stage holds it."""
        return {**self.model_dump(), "stage": stage}


_DESCRIPTIONS = {
    "study": "studies",
    "content": "content of the study's files",
    "model": "models",
    "calibration": "calibrations",
    "decoding": "options of the decoder",
    "scores": "scores",
}


def require_same(
    first: tuple[str, ReadingIdentity],
    second: tuple[str, ReadingIdentity],
    fields: Iterable[str] = tuple(_DESCRIPTIONS),
) -> None:
    """Refuse two files, each with its name, that belong to different readings."""
    for field in fields:
        if getattr(first[1], field) != getattr(second[1], field):
            raise EnteronError(
                f"{first[0]} and {second[0]} are of different readings: they name different "
                f"{_DESCRIPTIONS[field]}",
                MIXED if field in ("study", "content") else "read or decode the study again",
            )


# ---- hashes


def scores_hash(scores: "Scores") -> str:
    """Of the values, not of their file: CSV and parquet of the same scores agree."""
    hashed = hashlib.sha256(str(scores.unit).encode())
    hashed.update(scores.axis.frames.astype("<i8").tobytes())
    hashed.update(scores.values.astype("<f4").tobytes())
    if scores.times is not None:
        hashed.update(scores.times.astype("<f8").tobytes())
    return hashed.hexdigest()


def decoding_hash(options: "DecodeOptions", priors: "Priors") -> str:
    """Of everything but scores and calibration that events depend on."""
    content = [options.model_dump(mode="json"), priors.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of those of the files that exist."""
    return {name: file_hash(folder / name) for name in names if (folder / name).is_file()}


def require_described(folder: Path, described: dict[str, str], names: Iterable[str]) -> None:
    """Refuse files that are not those that run.json describes."""
    for name in names:
        path = folder / name
        if name in described and path.is_file() and file_hash(path) != described[name]:
            raise EnteronError(
                f"{name} in '{folder.name}' is not the file that run.json describes: it was "
                "changed, or is of another reading",
                "read or decode the study again",
            )

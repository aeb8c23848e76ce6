"""What `run.json` tells about a run. Every field may be missing: commands write what they know."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from enteron.calibration.value import FrameCalibration
from enteron.errors import EnteronError


class _Facts(BaseModel):
    """Facts of a run: what is not known here is left alone, so that `run.json` can grow."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Unreadable(_Facts):
    """Frames that could not be decoded."""

    count: int = 0
    frames: tuple[int, ...] = ()
    reasons: dict[str, int] = Field(default_factory=dict)


class Redundant(_Facts):
    """Frames that were not encoded since they hardly differ from the one before."""

    count: int = 0
    share: float | None = None


class ModelFacts(_Facts):
    """The model that scored the frames."""

    backbone: str | None = None
    hash: str | None = None
    trained_on: dict[str, Any] = Field(default_factory=dict)
    results: dict[str, Any] = Field(default_factory=dict)
    calibrated: bool | None = None
    split: str | None = None

    @field_validator("trained_on", "results", mode="before")
    @classmethod
    def _nothing(cls, value: Any) -> Any:
        return {} if value is None else value


class RuntimeFacts(_Facts):
    """What ran the model."""

    name: str | None = None
    why: str | None = None
    tta: bool | None = None


class RunFacts(_Facts):
    """Everything that the page tells about a run."""

    command: str | None = None
    study: str | None = None
    rows: int | None = None  # frames of the study
    scored: int | None = None  # of these, rows of scores.parquet: without the unreadable ones
    stride: int | None = None
    rate: float | None = Field(default=None, gt=0)
    rate_note: str | None = None
    unreadable: Unreadable | None = None
    redundant: Redundant | None = None
    model: ModelFacts | None = None
    runtime: RuntimeFacts | None = None
    preset: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    frame_calibration: FrameCalibration | None = None
    thresholds: dict[str, float | None] = Field(default_factory=dict)
    scaling: str | None = None
    notes: tuple[str, ...] = ()
    calibrated: bool | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    timings: dict[str, float] = Field(default_factory=dict)

    @field_validator("model", mode="before")
    @classmethod
    def _hash_alone(cls, value: Any) -> Any:
        # `enteron decode` knows no more of a model than the hash of its calibration.
        return {"hash": value} if isinstance(value, str) else value

    @field_validator("notes", mode="before")
    @classmethod
    def _no_notes(cls, value: Any) -> Any:
        return () if value is None else value

    @field_validator("options", "thresholds", "versions", "timings", mode="before")
    @classmethod
    def _nothing(cls, value: Any) -> Any:
        return {} if value is None else value

    @classmethod
    def from_json(cls, table: Any) -> "RunFacts":
        """The facts of a parsed `run.json`; a field of the wrong kind is named."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise EnteronError(
                f"run.json is damaged at '{where}' ({first['msg'].lower()})",
                "run `enteron read` again, or take the field out of the file",
            ) from error

    @property
    def is_calibrated(self) -> bool | None:
        """Whether scores were calibrated; None when the run does not say."""
        if self.model is not None and self.model.calibrated is not None:
            return self.model.calibrated
        return self.calibrated

    @property
    def unnamed(self) -> int:
        """Unreadable frames whose numbers are not listed."""
        if self.unreadable is None:
            return 0
        return max(0, self.unreadable.count - len(self.unreadable.frames))

    @property
    def rate_assumed(self) -> bool:
        return "assum" in (self.rate_note or "").lower()

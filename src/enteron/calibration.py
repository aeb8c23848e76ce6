"""What a model's scores mean: temperature, bias, thresholds and event rules, and their use.

A `Calibration` is `calibration.json` of a model folder. `enteron.fitting` fits it on studies that
did not train the model; decoding applies it.
"""

import math
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from enteron.confidence import (
    Calibrator,
    EventReliability,
    Guarantee,
    IsotonicCalibrator,
    Reference,
    VennAbersCalibrator,
)
from enteron.context import Coefficient, Context, ContextGain, EventContext
from enteron.errors import ConfigError, shown
from enteron.labels import FINDINGS, LABELS, LANDMARKS
from enteron.options import Options, Sha256, without_defaults
from enteron.types import Scores

UNFITTED_THRESHOLD = 0.5
LANDMARK_FLOOR = 0.55  # paper, section "How was class imbalance handled?", (iii)


def _require_every_label(table: dict[str, object]) -> dict[str, object]:
    missing = [label for label in LABELS if label not in table]
    if missing:
        raise ValueError(f"'{missing[0]}' is missing")
    unknown = sorted(set(table) - set(LABELS))
    if unknown:
        raise ValueError(f"{shown(unknown[0])} is not one of the 17 labels")
    return table


EveryLabel = AfterValidator(_require_every_label)

# Bounds of what a file may ask for. They lie far outside of what any fit gives, and inside of what
# the arithmetic of decoding holds: a value beyond them was not fitted by enteron.
TEMPERATURES: Final = (0.05, 20.0)  # fits search all of it, the paper 0.5 to 2
LARGEST_BIAS: Final = 50.0  # log-odds; those of scores end at 13.8
LARGEST_KAPPA: Final = 100.0
LARGEST_WINDOW: Final = 10_001  # rows of smoothing; the longest that is fitted has about 100
LARGEST_COUNT: Final = 10**12  # of studies, rows or frames
_ROUNDING = 1e-9  # a mean of probabilities may exceed 1 in its last digits

Threshold = Annotated[float, Field(gt=0, le=1)]
MeanShare = Annotated[float, Field(ge=0, le=1 + _ROUNDING)]
Temperature = Annotated[float, Field(ge=TEMPERATURES[0], le=TEMPERATURES[1])]
Bias = Annotated[float, Field(ge=-LARGEST_BIAS, le=LARGEST_BIAS)]
Kappa = Annotated[float, Field(ge=1e-6, le=LARGEST_KAPPA)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Thresholds = Annotated[dict[str, Threshold | None], EveryLabel]
"""A label's threshold; None when it is never emitted (decision 21)."""


def unfitted_thresholds() -> dict[str, float | None]:
    """Without a fit: one half, and the paper's floor for landmarks."""
    return {label: LANDMARK_FLOOR if label in LANDMARKS else UNFITTED_THRESHOLD for label in LABELS}


def no_bias() -> dict[str, float]:
    """Without a fit: log-odds are not shifted."""
    return dict.fromkeys(LABELS, 0.0)


class Bin(Options):
    """Frames whose score fell between two values."""

    low: MeanShare
    high: MeanShare
    count: Count
    score: MeanShare  # mean score in the bin
    share: MeanShare  # share of positives in the bin


class Reliability(Options):
    """How well scores agree with frequencies, over all labels."""

    ece: MeanShare  # expected calibration error: mean |score - share|, by count
    bins: tuple[Bin, ...] = Field(max_length=1000)


class FrameCalibration(Options):
    """Probability = sigmoid(logit(score) / temperature + bias), then one threshold per label."""

    context: Context | None = None
    """What refines scores by those around them in time, before anything else; none in the paper."""

    temperature: Temperature = 1.0

    anatomy_temperature: Temperature | None = None
    """Of regions and landmarks, where their scores come from another part of the model than those
    of findings; None: the same for all labels, as in the paper."""

    bias: Annotated[dict[str, Bias], EveryLabel] = Field(default_factory=no_bias)
    """Added to the log-odds of each label; 0 in the paper. It undoes the change of base rates by
    balanced sampling."""

    thresholds: Thresholds = Field(default_factory=unfitted_thresholds)

    before: Reliability | None = None  # of the model's raw scores
    after: Reliability | None = None  # of the calibrated ones, on the same studies

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "context", "anatomy_temperature")

    def temperature_of(self, label: str) -> float:
        """What the log-odds of a label are divided by."""
        if label in FINDINGS or self.anatomy_temperature is None:
            return self.temperature
        return self.anatomy_temperature

    @model_validator(mode="before")
    @classmethod
    def _drop_devices(cls, table: Any) -> Any:
        """Files of version 0.1 have a table of temperatures by capsule system, always empty."""
        if not isinstance(table, dict) or "devices" not in table:
            return table
        if table["devices"]:
            raise ConfigError(
                "this calibration has temperatures by capsule system ('devices'), which enteron "
                "does not support",
                "fit it again with `enteron calibrate`",
            )
        return {name: value for name, value in table.items() if name != "devices"}


class EventRule(Options):
    """When a run of high scores of one finding is an event, and with what confidence."""

    threshold: Threshold | None  # by F1 of events; None: never emitted
    clinical: Threshold | None  # within the false-alarm budget; None: costs more than it finds
    window: int = Field(ge=1, le=LARGEST_WINDOW)  # rows of smoothing with `clinical`; odd
    # Log-odds that an event is true = intercept + slope * log-odds of its peak.
    intercept: Coefficient
    slope: Coefficient
    curve: IsotonicCalibrator | VennAbersCalibrator | None = Field(
        default=None, discriminator="method"
    )
    """Probability by peak, in place of intercept and slope where those were clearly worse."""


class Silence(Options):
    """Statistics of one label for the rule of silence (preset `challenge`)."""

    presence: float = Field(gt=0, lt=1)  # share of held-out studies that show the label
    expected_ap: float = Field(ge=0, le=1)  # mean AP at 0.5 over those studies
    # Log-odds of presence = intercept + slope * log-odds of the best event.
    intercept: Coefficient
    slope: Coefficient


class FittedFor(Options):
    """What a calibration was fitted for and on, as hashes: no name of a study is stored."""

    origin: Literal["model", "scores"]
    """`model`: by `enteron calibrate`, for the model of the folder. `scores`: by `enteron tune`, on
    scores of a model that enteron does not know."""

    weights: Sha256 | None = None
    """SHA-256 of the model's weights; None for scores."""

    scored_by: Sha256 | None = None
    """What the scores name as their model, where all of them name the same; None for a model."""

    settings: Sha256 | None = None
    """Hash of the model's options and backbone, on which scores depend as well."""

    split: str | None = Field(default=None, pattern="^[0-9a-f]{16,64}$")
    """Hash of the model's split into training, validation and test studies."""

    priors: Sha256
    """Hash of the priors that the fit decoded with; decoding with others is refused."""

    study_ids: tuple[Sha256, ...] = Field(default=(), max_length=100_000)
    """Hashes of the ids of the studies in the fit, sorted."""

    training_studies: Count = 0
    """How many of those studies trained the model: confidences are then too high."""

    left_out_studies: Count = 0
    """Further studies, which trained the model: their findings were scored by models that had not
    seen them, and nothing else of them took part."""

    @model_validator(mode="after")
    def _require_model(self) -> "FittedFor":
        if (self.origin == "model") != (self.weights is not None and self.settings is not None):
            raise ValueError("weights and settings belong to the origin 'model', and to it only")
        if self.origin == "model" and self.scored_by is not None:
            raise ValueError("scored_by belongs to the origin 'scores'")
        return self


LEAST_AUC: Final = 0.6
"""Findings that a model tells apart less well than this on real frames are not reported."""


class Measured(Options):
    """How well a finding's scores told frames apart, in real studies that they had not seen."""

    auc: float = Field(ge=0, le=1)  # mean over studies, or over all frames where they are single
    studies: Count  # that show it
    data: str = Field(max_length=200)  # title of the dataset


class Calibration(Options):
    """Everything fitted on held-out studies of one model."""

    version: Literal[1] = 1
    fitted_for: FittedFor | None = None  # None: not fitted, or by a version before 0.2
    studies: Count = 0  # in the fit; 0: not fitted
    rows: Count = 0
    rates: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=dict)
    """Share of the fitted rows that show each label, for labels that they show at all: the base
    rates that calibrated probabilities contain."""
    paper: FrameCalibration = FrameCalibration()  # temperature from the paper's grid by macro F1
    likelihood: FrameCalibration = FrameCalibration()  # temperature and bias by likelihood
    events: dict[str, EventRule] = Field(default_factory=dict)  # of findings; empty: not fitted
    event_context: EventContext | None = None
    """How likely events of findings are true, by what surrounds them; None: by their peak alone, as
    `events` say."""
    silence: dict[str, Silence] = Field(default_factory=dict)  # of every label; empty: not fitted
    # False alarms per study behind `clinical`.
    budget: float | None = Field(default=None, gt=0, le=1000)
    kappa: Kappa | None = None  # weight of a row in `transit`, if fitted
    low: float | None = Field(default=None, gt=0, le=1)  # lower threshold's share, if fitted
    reliability: dict[str, EventReliability] = Field(default_factory=dict)
    """By finding: confidences of events beside how often they were true, on held-out studies."""
    pictures: dict[str, Calibrator] = Field(default_factory=dict)
    """By finding: probability that a picture of the list of suspicious frames shows it."""
    guarantee: Guarantee | None = None  # a promised recall, where one was asked for
    measured: dict[str, Measured] | None = None
    """By finding, where training left real studies out or others were given to measure on. Findings
    that are missing were not measured, and not reported either; None: nothing was measured."""

    context_gains: dict[str, ContextGain] = Field(default={})
    """By group of labels: what context is worth on left-out studies. Empty: it was not tried, or
    there were too few studies."""
    without_context: "Calibration | None" = None
    """The same fitted without context, for readings that leave it out; none where there is none."""

    reference: Reference | None = None  # what the fitted studies look like; None: before 0.3

    @property
    def unproven(self) -> dict[str, str]:
        """Findings that are not reported since nothing shows that they can be told apart: why."""
        if self.measured is None:
            return {}
        reasons = {
            finding: "never tested on real frames of patients that did not train"
            for finding in FINDINGS
            if finding not in self.measured
        }
        return reasons | {
            finding: f"no better than chance on real frames (AUC {measured.auc:.2f})"
            for finding, measured in self.measured.items()
            if measured.auc < LEAST_AUC
        }

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        later = ("event_context", "context_gains", "without_context")
        return without_defaults(handler(self), self, *later)

    @property
    def uses_context(self) -> bool:
        """Whether scores are refined by those around them, or events judged by them."""
        return self.likelihood.context is not None or self.event_context is not None

    @property
    def training_studies(self) -> int:
        """How many of the fitted studies had trained the model; right calibrations have none."""
        return 0 if self.fitted_for is None else self.fitted_for.training_studies

    @model_validator(mode="after")
    def _require_complete_tables(self) -> "Calibration":
        for label in self.rates:
            if label not in LABELS:
                raise ValueError(f"rates: {shown(label)} is not one of the 17 labels")
        for name, table, labels in (
            ("events", self.events, FINDINGS),
            ("silence", self.silence, LABELS),
        ):
            if table and set(table) != set(labels):
                wrong = sorted(set(table) ^ set(labels))[0]
                raise ValueError(
                    f"{name} must name each of its {len(labels)} labels: {shown(wrong)}"
                )
        return self


def with_or_without_context(calibration: Calibration, context: bool) -> Calibration:
    """The calibration as it is, or the one that was fitted without context."""
    if context or not calibration.uses_context:
        return calibration
    if calibration.without_context is None:
        raise ConfigError(
            "this calibration was fitted with context only", "calibrate again with --no-context"
        )
    return calibration.without_context


EDGE = 1e-6
"""Scores nearer to 0 or 1 are moved here, so that thresholded columns have finite log-odds."""


def logit(p: NDArray[np.floating]) -> NDArray[np.float32]:
    """Log-odds of an array, at most 13.8 either way."""
    clipped = np.clip(p, EDGE, 1 - EDGE).astype(np.float32)
    return np.log(clipped) - np.log1p(-clipped)


def sigmoid(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """Probabilities of an array of log-odds; at least 2e-35, where exp would overflow."""
    return (1 / (1 + np.exp(-np.maximum(x, -80)))).astype(np.float32)


def log_odds(p: float) -> float:
    """Log-odds of one probability, in double precision; finite for 0 and 1."""
    p = min(max(p, EDGE), 1 - EDGE)
    return math.log(p / (1 - p))


def probability(x: float) -> float:
    """Probability of log-odds x, in double precision; 0 where exp would overflow."""
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def calibrated(scores: Scores, calibration: FrameCalibration) -> NDArray[np.float32]:
    """(rows, 17) calibrated probabilities: context first, then temperature and bias.

    Test-time augmentation is averaged before (decision 19): the temperature acts on the log-odds
    of the mean of the two sigmoids, never on each of them.
    """
    bias = np.array([calibration.bias[label] for label in LABELS], dtype=np.float32)
    context = calibration.context
    values = scores.values if context is None else context.refined(scores)
    temperature = np.array([calibration.temperature_of(label) for label in LABELS], np.float32)
    if (temperature == 1).all() and not bias.any():
        return values
    return sigmoid(logit(values) / temperature + bias)

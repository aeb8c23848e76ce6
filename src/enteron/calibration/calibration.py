"""What calibration learns, as one frozen value; it is `calibration.json` of a model folder."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from enteron.errors import ConfigError, nearest
from enteron.labels import FINDINGS, LABELS, LANDMARKS
from enteron.options import Options
from enteron.types import Scores

UNFITTED_THRESHOLD = 0.5
LANDMARK_FLOOR = 0.55  # paper, section "How was class imbalance handled?", (iii)


def _every_label(table: dict[str, object]) -> dict[str, object]:
    for missing in [label for label in LABELS if label not in table]:
        raise ValueError(f"'{missing}' is missing")
    for unknown in sorted(set(table) - set(LABELS)):
        raise ValueError(f"'{unknown}' is not one of the 17 labels")
    return table


EveryLabel = AfterValidator(_every_label)
Threshold = Annotated[float, Field(gt=0, le=1)]
Thresholds = Annotated[dict[str, Threshold | None], EveryLabel]
"""A label's threshold; None when it is never emitted (decision 21)."""


def unfitted_thresholds() -> dict[str, float | None]:
    """Where nothing was fitted: one half, and the paper's floor for landmarks."""
    return {label: LANDMARK_FLOOR if label in LANDMARKS else UNFITTED_THRESHOLD for label in LABELS}


def no_bias() -> dict[str, float]:
    """Where nothing was fitted: log-odds stay where they are."""
    return dict.fromkeys(LABELS, 0.0)


class Bin(Options):
    """Frames whose score fell between two values."""

    low: float
    high: float
    count: int = Field(ge=0)
    score: float  # mean score in the bin
    share: float  # share of positives in the bin


class Reliability(Options):
    """How well scores agree with frequencies, over all labels."""

    ece: float = Field(ge=0)  # expected calibration error: mean |score - share|, by count
    bins: tuple[Bin, ...]


class FrameCalibration(Options):
    """Probability = sigmoid(logit(score) / temperature + bias), then one threshold per label."""

    temperature: float = Field(default=1.0, gt=0)

    bias: Annotated[dict[str, float], EveryLabel] = Field(default_factory=no_bias)
    """Added to the log-odds of each label; 0 in the paper. It takes back what balanced sampling
    did to base rates."""

    devices: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Temperature by capsule system, where it was fitted for one."""

    thresholds: Thresholds = Field(default_factory=unfitted_thresholds)

    before: Reliability | None = None  # of the scores as the model gave them
    after: Reliability | None = None  # of the calibrated ones, on the same studies


class EventRule(Options):
    """When a stretch of high scores is an event, and how far to believe it."""

    threshold: Threshold | None  # by F1 of events; None: never emitted
    clinical: Threshold | None  # within the false-alarm budget; None: not worth its alarms
    window: int = Field(ge=1)  # rows of smoothing that go with `clinical`; odd
    intercept: float  # log-odds that an event is true = intercept + slope * log-odds of its peak
    slope: float


class Silence(Options):
    """What the rule of silence needs for one label (`challenge`)."""

    presence: float = Field(gt=0, lt=1)  # share of held-out studies that show the label
    expected_ap: float = Field(ge=0, le=1)  # mean AP at 0.5 over those, decoded as here
    intercept: float  # log-odds of presence = intercept + slope * log-odds of the best event
    slope: float


class Calibration(Options):
    """Everything learnt on held-out studies of one model."""

    version: Literal[1] = 1
    studies: int = Field(default=0, ge=0)  # it was fitted on; 0: not fitted
    rows: int = Field(default=0, ge=0)
    rates: dict[str, Annotated[float, Field(gt=0, lt=1)]] = Field(default_factory=dict)
    """Share of the fitted rows that show each label that they show at all: the base rates that
    calibrated probabilities contain."""
    paper: FrameCalibration = FrameCalibration()  # temperature from the paper's grid by macro F1
    likelihood: FrameCalibration = FrameCalibration()  # temperature and bias by likelihood
    events: dict[str, EventRule] = Field(default_factory=dict)  # of findings; empty: not fitted
    silence: dict[str, Silence] = Field(default_factory=dict)  # of every label; empty: not fitted
    budget: float | None = Field(default=None, gt=0)  # false alarms per hour behind `clinical`
    kappa: float | None = Field(default=None, gt=0)  # weight of a row in `transit`, if tuned
    low: float | None = Field(default=None, gt=0, le=1)  # lower threshold's share, if tuned

    @model_validator(mode="after")
    def _complete(self) -> "Calibration":
        for name, table, labels in (
            ("events", self.events, FINDINGS),
            ("silence", self.silence, LABELS),
        ):
            if table and set(table) != set(labels):
                wrong = sorted(set(table) ^ set(labels))[0]
                raise ValueError(f"{name} must name each of its {len(labels)} labels: '{wrong}'")
        return self


EDGE = 1e-6
"""Scores nearer to 0 or 1 are moved here, so that thresholded columns have finite log-odds."""


def logit(p: NDArray[np.floating]) -> NDArray[np.float32]:
    """Log-odds, at most 13.8 either way."""
    clipped = np.clip(p, EDGE, 1 - EDGE).astype(np.float32)
    return np.log(clipped) - np.log1p(-clipped)


def sigmoid(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """The probability of log-odds."""
    return (1 / (1 + np.exp(-x))).astype(np.float32)


def calibrated(
    scores: Scores, calibration: FrameCalibration, device: str | None = None
) -> NDArray[np.float32]:
    """(rows, 17) probabilities.

    Test-time augmentation is averaged before (decision 19): the temperature acts on the log-odds
    of the mean of the two sigmoids, never on each of them.
    """
    temperature = calibration.temperature
    if device is not None:
        if device not in calibration.devices:
            raise ConfigError(
                f"there is no temperature for the device '{device}'",
                nearest(device, calibration.devices)
                if calibration.devices
                else "calibrate with studies of that device, or name none",
            )
        temperature = calibration.devices[device]
    bias = np.array([calibration.bias[label] for label in LABELS], dtype=np.float32)
    if temperature == 1 and not bias.any():
        return scores.values
    return sigmoid(logit(scores.values) / np.float32(temperature) + bias)

"""Between probabilities and log-odds."""

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.value import FrameCalibration
from enteron.errors import ConfigError, nearest
from enteron.labels import LABELS
from enteron.types import Scores

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

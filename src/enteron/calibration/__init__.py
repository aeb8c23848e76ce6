"""Calibration: scores of a model made into probabilities, and the thresholds that go with them."""

from enteron.calibration.store import load_calibration, save_calibration
from enteron.calibration.value import Calibration, FrameCalibration

__all__ = ["Calibration", "FrameCalibration", "load_calibration", "save_calibration"]

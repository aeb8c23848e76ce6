"""Calibration: what a model's scores mean, and the thresholds that go with them."""

from enteron.calibration.calibration import Calibration, FrameCalibration

__all__ = ["Calibration", "FrameCalibration"]

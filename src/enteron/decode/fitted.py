"""What a preset needs of a calibration: told before any work, not after it."""

from enteron.calibration.value import Calibration
from enteron.decode.options import DecodeOptions
from enteron.errors import ConfigError

_REMEDY = "give a model that `enteron calibrate` or `enteron tune` has seen, or use 'transit'"


def require_fitted(options: DecodeOptions, calibration: Calibration) -> None:
    """Refuse options that rest on something that was never fitted."""
    if options.findings.threshold == "clinical" and not calibration.events:
        raise ConfigError("thresholds for a budget of false alarms were never fitted", _REMEDY)
    if options.silence and not calibration.silence:
        raise ConfigError(
            "presence and expected AP of labels, for silence, were never fitted", _REMEDY
        )

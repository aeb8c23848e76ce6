"""The four presets: what each is for, as one frozen value."""

from typing import Final

from enteron.decode.options import DecodeOptions, FindingOptions, LandmarkOptions
from enteron.errors import ConfigError, nearest

PAPER: Final = DecodeOptions(calibration="paper", anatomy="state machine")
"""Exactly as the paper writes it: for reproducing its results."""

TRANSIT: Final = DecodeOptions(
    landmarks=LandmarkOptions(method="transition"),
    findings=FindingOptions(
        window=None,
        low=None,
        threshold="events",
        floor=0.1,
        persistence=None,
        longest=None,
        most=None,
    ),
)
"""The best events: durations and run lengths as measured, confidence for everything."""

CHALLENGE: Final = TRANSIT.model_copy(update={"silence": True, "cut": True})
"""For the official score: silent where silence is expected to score better."""

CLINICAL: Final = TRANSIT.model_copy(
    update={"findings": TRANSIT.findings.model_copy(update={"threshold": "clinical"})}
)
"""For a physician: findings within a budget of false alarms per hour."""

PRESETS: Final = {
    "paper": PAPER,
    "transit": TRANSIT,
    "challenge": CHALLENGE,
    "clinical": CLINICAL,
}


def preset(name: str) -> DecodeOptions:
    """The options of a preset."""
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'", nearest(name, PRESETS))
    return PRESETS[name]

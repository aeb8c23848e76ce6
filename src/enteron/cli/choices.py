"""Words that an option accepts."""

from enum import StrEnum


class Device(StrEnum):
    """Capsules that synthetic studies imitate."""

    OLYMPUS = "olympus"
    PILLCAM = "pillcam"
    NAVICAM = "navicam"
    MIXED = "mixed"

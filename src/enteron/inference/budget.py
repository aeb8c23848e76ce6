"""A reading within a given time: what fits, from a quick measurement, and what that costs.

A plan is one of a few settings, the most thorough first. How long each takes follows from the
speed of pictures and encoder on this machine, measured on some frames of the study, and from the
share of frames that the setting encodes; that share and what it loses were measured on other
studies (`enteron bench coarse`) and come with the package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from enteron.errors import ConfigError
from enteron.inference.coarse_to_fine import CoarseOptions
from enteron.inference.views import VIEW_SETS, ViewSet

SPARE: Final = 0.1
"""Share of the time that is kept free: measurements are quick and machines are shared."""

PER_FRAME_AFTER: Final = 0.0004
"""Seconds a frame and view for what follows encoding: head, events, lists (docs/inference.md)."""
PER_FRAME_GLANCE: Final = 0.001
"""Seconds a frame for the glance at every frame and the choice of those to encode: .9 ms on a video
of 20,000 frames with a test run beside (`enteron read --coarse --profile`: glance, head, rest)."""
ONCE: Final = 15.0
"""Seconds for what does not grow with the study: the pictures that are saved, the page."""


@dataclass(frozen=True)
class Setting:
    """How a study may be read, and what was measured of it."""

    views: ViewSet
    coarse: CoarseOptions | None  # None: every frame
    share: float  # of the frames that are encoded
    kept: float | None  # share of the lesions found that are also found in a reading of all frames
    bound: float | None  # lower end of the 95 % interval of `kept`

    @property
    def stride(self) -> int:
        return 1 if self.coarse is None else self.coarse.stride


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("flip", None, 1.0, None, None),
    Setting("none", None, 1.0, None, None),
    Setting("none", CoarseOptions(stride=24, limit=0.01), 0.393, 1.0, 0.862),
    Setting("none", CoarseOptions(stride=24, limit=0.02), 0.372, 0.917, 0.742),
)
"""The most thorough first. Shares and lesions of the coarse ones are those of the real runs of
Kvasir-Capsule with the model in the box, 24 lesions (docs/inference.md); other studies may need
more frames, or fewer."""


@dataclass(frozen=True)
class Speed:
    """What was measured on some frames of the study, in seconds of all threads together."""

    picture: float  # to read, decode and resize a frame
    encode: float  # to encode one picture


def expected_seconds(setting: Setting, frames: int, speed: Speed) -> float:
    """How long a reading with this setting takes.

    Pictures are prepared beside the encoder, but on the same cores, so both count.
    """
    views = len(VIEW_SETS[setting.views])
    per_frame = speed.picture + PER_FRAME_AFTER * views + setting.share * views * speed.encode
    if setting.coarse is not None:
        per_frame += PER_FRAME_GLANCE
    return ONCE + frames * per_frame


def choose_setting(
    minutes: float,
    frames: int,
    speed: Speed,
    settings: Sequence[Setting],
) -> tuple[Setting, float]:
    """The most thorough setting that fits, and the seconds it is expected to take."""
    limit = 60 * minutes * (1 - SPARE)
    for setting in settings:
        seconds = expected_seconds(setting, frames, speed)
        if seconds <= limit:
            return setting, seconds
    fastest = min(settings, key=lambda setting: expected_seconds(setting, frames, speed))
    needed = expected_seconds(fastest, frames, speed) / (1 - SPARE) / 60
    encoded = "every frame" if fastest.share == 1 else f"{fastest.share:.0%} of them"
    raise ConfigError(
        f"{frames:,} frames cannot be read within {minutes:g} minutes on this machine: even the "
        f"fastest reading, which encodes {encoded}, takes about {needed:.0f}",
        f"give --minutes {max(1, round(needed + 0.5)):d}, a faster --runtime, or more cores",
    )


def describe(setting: Setting, seconds: float, runtime: str) -> str:
    """What will be done and what it is expected to cost, in a sentence without a full stop."""
    views = len(VIEW_SETS[setting.views])
    looks = "without the mirror image" if views == 1 else f"{views} views of each"
    if setting.coarse is None:
        what = f"every frame is encoded, {looks}"
        cost = "nothing is left out"
    else:
        what = (
            f"every {setting.coarse.stride}th frame is encoded first and others where it matters, "
            f"about {setting.share:.0%} of all, {looks}"
        )
        cost = "what that misses was never measured"
        if setting.kept is not None and setting.bound is not None:
            cost = (
                f"such readings found {setting.kept:.1%} of the lesions that readings of every "
                f"frame found (at least {setting.bound:.1%}, 95 % interval)"
            )
    return f"{what}, by {runtime}: about {seconds / 60:.1f} minutes; {cost}"

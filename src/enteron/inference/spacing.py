"""How far apart the frames of a clip are, in frames of the original recording (decision 1).

Some studies are stored at every fifth frame and some at every frame. Stored neighbours of one are
then five times as far apart as those of the other, and a model that compares neighbours sees
another speed than it was trained with.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from enteron.errors import ConfigError
from enteron.options import Options

NeighbourStep = Literal["stored", "trained"]


class Spacing(Options):
    """A distance between neighbours in a clip, and how common it was in training."""

    frames: int = Field(ge=1, le=10**9)
    """Frames of the original recording from one frame of a clip to the next."""
    share: float = Field(gt=0, le=1)
    """Share of the training clips."""


def trained_step(spacings: Sequence[Spacing], stride: int) -> int:
    """The step, in stored frames, of the commonest spacing that a study offers.

    `stride`: frames of the original recording from one stored frame to the next.
    """
    offered = [spacing for spacing in spacings if spacing.frames % stride == 0]
    if not offered:
        known = ", ".join(str(spacing.frames) for spacing in spacings)
        raise ConfigError(
            f"the stored frames of the study are {stride} apart, so none are {known} apart, as in "
            "the clips that trained the model",
            "leave out --neighbour-step, to compare stored neighbours",
        )
    return max(offered, key=lambda spacing: (spacing.share, -spacing.frames)).frames // stride

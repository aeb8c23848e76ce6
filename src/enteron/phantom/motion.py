"""How a capsule moves: stalls, slow drift, lively stretches and sudden jumps.

Everything that changes over a study is a smooth function of one coordinate, the activity. While it
is constant the picture does not change, and frame i needs only the arrays drawn here.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.phantom.trace import Array
from enteron.phantom.wall import REGION_LOOKS

Series = NDArray[np.float64]

# Kinds of stretches: mean length in frames, activity per frame (median, deviation of the log).
STALL, DRIFT, LIVELY = 0, 1, 2
_MEAN_LENGTH = (70.0, 16.0, 12.0)
_PACE = ((0.008, 0.6), (0.055, 0.6), (0.165, 0.55))
_STUDY_PACE = 0.3  # deviation of the log of a study's own pace
_JUMP_CHANCE = 0.12  # that a stretch begins with a jump
STALLED_SHARE = 0.13
"""Share of frames in which the capsule hardly moves, so that neighbours differ as real ones do."""

_LONGEST_GAP = 25  # frames; after a longer gap the capsule is simply elsewhere


@dataclass(frozen=True)
class Motion:
    """One value per frame. Lengths in small-bowel radii, angles in radians."""

    kind: NDArray[np.int8]  # STALL, DRIFT or LIVELY
    jump: NDArray[np.bool_]  # the frame comes after a sudden move
    activity: Series  # the coordinate that everything else depends on
    depth: Series  # travelled along the axis
    tilt: Series  # from the axis
    heading: Series  # side to which the camera is tilted
    roll: Series  # of the picture
    aside: NDArray[np.float64]  # (n, 2) position across the lumen, in radii of it
    bend: NDArray[np.float64]  # (n, 2) curvature of the axis
    squeeze: Series  # phase of the peristaltic wave, turns
    strength: Series  # of the wave, 0 to 1
    closure: Series  # of the lumen in front of the capsule, deviation about 1
    ahead: Series  # distance of that closure, deviation about 1
    crease: NDArray[np.float64]  # (n, 4) shape of that closure, deviation about 1 each


def wander(rng: np.random.Generator, position: Series, scale: float) -> Series:
    """Smooth noise of deviation about 1 along `position`, with a bump every `scale`."""
    x = (position - position[0]) / scale
    knots = rng.standard_normal(int(x[-1]) + 3)
    left = x.astype(np.int64)
    part = x - left
    ease = part * part * (3 - 2 * part)
    return (knots[left] * (1 - ease) + knots[left + 1] * ease) * 1.15


def _stretches(
    rng: np.random.Generator, frames: NDArray[np.int64], stalls: float
) -> tuple[NDArray[np.int8], NDArray[np.bool_], Series]:
    """Kind, jump and pace (activity per frame) of every frame."""
    span = int(frames[-1] - frames[0]) + 1
    moving = (1 - stalls) / 2
    share = np.array([stalls, moving, moving])
    chance = share / np.array(_MEAN_LENGTH)
    chance = chance / chance.sum()
    mean = float((chance * np.array(_MEAN_LENGTH)).sum())
    count = int(span / mean * 1.3) + 60
    kinds = rng.choice(3, size=count, p=chance).astype(np.int8)
    lengths = np.array(_MEAN_LENGTH)[kinds] * rng.gamma(1.2, 1 / 1.2, count) + 1
    if lengths.sum() < span:
        lengths *= span / lengths.sum() + 0.01
    ends = np.cumsum(lengths)
    stretch = np.searchsorted(ends, (frames - frames[0]).astype(np.float64), side="right")
    median, spread = np.array(_PACE).T
    pace = median[kinds] * np.exp(spread[kinds] * rng.standard_normal(count))
    starts = np.ones(len(frames), np.bool_)
    starts[1:] = stretch[1:] != stretch[:-1]
    jumps = starts & (rng.random(count)[stretch] < _JUMP_CHANCE)
    jumps[0] = False
    return kinds[stretch], jumps, pace[stretch]


def camera_rotations(motion: Motion, frames: NDArray[np.int64], tilt: Array) -> Array:
    """(m, 3, 3) rotations from the camera's coordinates to the lumen's, with this tilt (m,)."""
    heading, roll = motion.heading[frames], motion.roll[frames]
    zero, one = np.zeros(len(frames)), np.ones(len(frames))

    def about_z(angle: Array) -> Array:
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([c, -s, zero, s, c, zero, zero, zero, one], 1).reshape(-1, 3, 3)

    c, s = np.cos(tilt), np.sin(tilt)
    about_y = np.stack([c, zero, s, zero, one, zero, -s, zero, c], 1).reshape(-1, 3, 3)
    return about_z(heading) @ about_y @ about_z(roll - heading)


def draw_motion(
    rng: np.random.Generator, regions: list[str], frames: NDArray[np.int64], stalls: float
) -> Motion:
    """The motion of a study. `regions` names the region of each frame, `frames` its number."""
    n = len(frames)
    kind, jump, pace = _stretches(rng, frames, stalls)
    pace = pace * np.exp(_STUDY_PACE * rng.standard_normal())
    gap = np.ones(n)
    gap[1:] = np.minimum(np.diff(frames), _LONGEST_GAP)
    # Frames far apart differ more; while the capsule moves, only by the root of the gap.
    step = pace * np.where(kind == STALL, gap, np.sqrt(gap))
    step *= np.exp(0.45 * rng.standard_normal(n))
    step += jump * rng.uniform(0.5, 1.6, n)
    activity = np.cumsum(step)
    names, inverse = np.unique(np.array(regions), return_inverse=True)
    tilt_scale = np.array([REGION_LOOKS[str(name)].tilt for name in names])[inverse]
    travel = np.array([REGION_LOOKS[str(name)].travel for name in names])[inverse]
    forward = 0.55 + 0.9 * wander(rng, activity, 2.5)
    depth = np.cumsum(step * forward * travel * 2.2)
    tilt = tilt_scale * np.abs(0.7 + 0.75 * wander(rng, activity, 1.3))
    side = np.stack([wander(rng, activity, 1.6) for _ in range(2)], axis=1)
    bend = np.stack([wander(rng, activity, 3.0) for _ in range(2)], axis=1)
    return Motion(
        kind=kind,
        jump=jump,
        activity=activity,
        depth=depth - depth.min(),
        tilt=np.minimum(tilt, 1.5),
        heading=2.2 * wander(rng, activity, 2.6),
        roll=1.6 * wander(rng, activity, 2.2),
        aside=0.42 * side,
        bend=0.055 * bend,
        squeeze=np.cumsum(step * 0.35) + rng.random(),
        strength=np.clip(0.55 + 0.35 * wander(rng, activity, 4.0), 0.0, 1.0),
        closure=np.clip(wander(rng, activity, 2.5), -2, 2),
        ahead=np.clip(wander(rng, activity, 2.0), -1.2, 2),
        crease=np.clip(np.stack([wander(rng, activity, 3.0) for _ in range(4)], axis=1), -2, 2),
    )

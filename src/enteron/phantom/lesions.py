"""Where findings sit: one lesion per run of a label, on the wall where the capsule passes.

A run during which the capsule leaves the lesion behind gets another one of the same look, so that
every labelled frame shows the finding and no other frame does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS
from enteron.phantom.motion import Motion
from enteron.phantom.view import Camera, View
from enteron.phantom.wall import REGION
from enteron.runs import runs_of

Matrix = NDArray[np.floating]

# Apparent diameter, as a share of the view's: smallest and largest, drawn log-uniformly.
_SIZE: dict[str, tuple[float, float]] = {
    "active bleeding": (0.22, 0.50),
    "angiectasia": (0.14, 0.31),
    "blood": (0.32, 0.68),
    "erosion": (0.13, 0.25),
    "erythema": (0.18, 0.44),
    "hematin": (0.26, 0.54),
    "lymphangioectasis": (0.19, 0.42),
    "polyp": (0.19, 0.50),
    "ulcer": (0.18, 0.37),
}


_LIT = 1.7  # length up to which a wall is lit well enough to tell what is on it


@dataclass(frozen=True)
class Lesion:
    """One lesion, during [start, stop)."""

    label: str
    start: int
    stop: int
    turn: float  # radians round the axis
    depth: float  # along the axis, as the motion's
    radius: float  # on the wall, small-bowel radii
    size: float  # apparent diameter that it was made for, share of the view's
    aim: tuple[float, float]  # place in the view, -1 to 1, at its first frame
    traits: tuple[float, ...]  # eight numbers from 0 to 1 that fix its look
    strength: float  # contrast; hard examples have little
    run: tuple[int, int]  # the labelled run it belongs to

    def grown(self, i: int) -> float:
        """Size factor at frame i: lesions come into view and leave it."""
        start, stop = self.run
        edge = min(i - start + 1, stop - i)
        return 1.0 - 0.25 / edge


def rotations(motion: Motion, frames: NDArray[np.int64], tilt: NDArray[np.floating]) -> Matrix:
    """(m, 3, 3) turns from the camera's frame to the lumen's."""
    heading, roll = motion.heading[frames], motion.roll[frames]
    zero, one = np.zeros(len(frames)), np.ones(len(frames))

    def about_z(angle: NDArray[np.floating]) -> Matrix:
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([c, -s, zero, s, c, zero, zero, zero, one], 1).reshape(-1, 3, 3)

    c, s = np.cos(tilt), np.sin(tilt)
    about_y = np.stack([c, zero, s, zero, one, zero, -s, zero, c], 1).reshape(-1, 3, 3)
    return about_z(heading) @ about_y @ about_z(roll - heading)


def _meets_wall(
    ray: NDArray[np.floating],
    origin: NDArray[np.floating],
    bend: NDArray[np.floating],
    radius: float,
) -> NDArray[np.floating]:
    """Where a ray meets a smooth tube; at most three radii away."""
    t = np.linspace(0.05, 3.0 * radius, 120)
    path = origin + t[:, None] * ray
    across = path[:, :2] - bend * path[:, 2:] ** 2
    out = np.flatnonzero(np.hypot(across[:, 0], across[:, 1]) > radius)
    return path[out[0] if len(out) else -1]


def _still_seen(
    anchor: tuple[float, float], radius: float, motion: Motion, frames: NDArray[np.int64],
    turns: Matrix, origins: NDArray[np.floating], half_view: float,
) -> NDArray[np.bool_]:  # fmt: skip
    """For each frame whether a place on the wall is well within the view."""
    turn, depth = anchor
    z = depth - motion.depth[frames]
    offset = motion.bend[frames] * z[:, None] ** 2
    place = np.stack(
        [radius * np.cos(turn) + offset[:, 0], radius * np.sin(turn) + offset[:, 1], z], 1
    )
    seen = np.einsum("mji,mj->mi", turns, place - origins)
    far = np.linalg.norm(seen, axis=1)
    angle = np.arccos(np.clip(seen[:, 2] / np.maximum(far, 1e-6), -1, 1))
    return (angle < 0.72 * half_view) & (far > 0.25 * radius) & (far < 2.6 * radius)


def place_lesions(
    labels: NDArray[np.bool_], regions: list[str], motion: Motion, origins: NDArray[np.floating],
    tilt: NDArray[np.floating], camera: Camera, seed: int,
) -> list[Lesion]:  # fmt: skip
    """Every lesion of a study. `origins` (n, 3): the camera's place across the lumen."""
    half_view = camera.field_of_view / 2
    lesions: list[Lesion] = []
    for number, label in enumerate(FINDINGS):
        for start, stop in runs_of(labels[:, COLUMN[label]]).tolist():
            # A lesion depends on its own run alone: other labels do not move it.
            rng = np.random.default_rng([seed, 71, number, start])
            traits = rng.random(8)
            strength = float(np.clip(rng.beta(3.5, 1.3), 0.35, 1.0))
            small, large = _SIZE[label]
            size = float(small * (large / small) ** rng.random())
            frames = np.arange(start, stop)
            turns = rotations(motion, frames, tilt[frames])
            at = 0
            while at < len(frames):
                i = start + at
                reach, angle = 0.55 * np.sqrt(rng.random()), rng.uniform(0, 2 * np.pi)
                aim = (float(reach * np.cos(angle)), float(reach * np.sin(angle)))
                off_axis = reach * half_view
                ray = np.array([np.sin(off_axis) * np.cos(angle), np.sin(off_axis) * np.sin(angle),
                                np.cos(off_axis)])  # fmt: skip
                radius = 0.8 * REGION[regions[i]].radius
                hit = _meets_wall(turns[at] @ ray, origins[i], motion.bend[i], radius)
                across = hit[:2] - motion.bend[i] * hit[2] ** 2
                anchor = (float(np.arctan2(across[1], across[0])), float(motion.depth[i] + hit[2]))
                window = frames[at : at + 400]
                seen = _still_seen(anchor, radius, motion, window, turns[at : at + 400],
                                   origins[window], half_view)  # fmt: skip
                lost = np.flatnonzero(~seen[1:])
                length = int(lost[0]) + 1 if len(lost) else len(window)
                away = float(np.linalg.norm(hit - origins[i]))
                lesions.append(
                    Lesion(
                        label=label, start=i, stop=i + length, turn=anchor[0], depth=anchor[1],
                        radius=float(np.clip(away, 0.3, 2.5) * np.tan(size * half_view)), size=size,
                        aim=aim, traits=tuple(float(t) for t in traits), strength=strength,
                        run=(start, stop),
                    )
                )  # fmt: skip
                at += length
    return lesions


@dataclass(frozen=True)
class Patch:
    """The place of a lesion in one view: centre, tangents and inward normal, and radius."""

    centre: NDArray[np.floating]
    along: NDArray[np.floating]
    across: NDArray[np.floating]
    inward: NDArray[np.floating]
    radius: float
    away: float  # from the camera


def _patch_at(view: View, pixel: tuple[int, int], radius: float | None, size: float) -> Patch:
    """A patch on the wall under a pixel; its radius follows from its size when none is given."""
    v, u = pixel
    side = view.camera.side
    window = np.s_[max(v - 4, 0) : min(v + 5, side), max(u - 4, 0) : min(u + 5, side)]
    centre = view.point[v, u].astype(np.float64)
    inward = view.normal[window].reshape(-1, 3).mean(axis=0).astype(np.float64)
    # Half towards the camera: a lesion on the far side of a fold would be a mere line.
    towards = np.append(view.pose.origin[:2], 0.0) - centre
    away = float(np.linalg.norm(towards)) + 1e-6
    inward = inward / (np.linalg.norm(inward) + 1e-6) + 0.7 * towards / away
    inward = inward / (np.linalg.norm(inward) + 1e-6)
    along = np.cross(inward, [0.3, 0.2, 1.0])
    along /= np.linalg.norm(along) + 1e-6
    if radius is None:
        radius = away * float(np.tan(size * view.camera.field_of_view / 2))
    return Patch(centre, along, np.cross(inward, along), inward, radius, away)


def find_patch(view: View, lesion: Lesion, depth: float) -> Patch:
    """Where a lesion is in a view: on its place on the wall or, if a fold hides that, beside it."""
    z = lesion.depth - depth
    origin = view.pose.origin
    direction = np.array([np.cos(lesion.turn), np.sin(lesion.turn)])
    # The traced point nearest to the lesion's place, whatever the height of the folds there.
    x = view.point[..., 0] - view.pose.bend[0] * view.point[..., 2] ** 2
    y = view.point[..., 1] - view.pose.bend[1] * view.point[..., 2] ** 2
    r = np.sqrt(x * x + y * y) + 1e-6
    apart = 2 * (1 - (x * direction[0] + y * direction[1]) / r) * r * r
    apart += (view.point[..., 2] - z) ** 2
    side = view.camera.side
    across = (np.arange(side) + 0.5) * 2 / side - 1
    rim = np.hypot(across[None, :], across[:, None])
    apart = np.where((view.camera.seen > 0) & (rim < 0.8) & (view.distance < 6), apart, 1e3)
    v, u = divmod(int(np.argmin(apart)), side)
    wanted = 0.42 * np.pi * (lesion.size * side / 2) ** 2
    if apart[v, u] < 0.05 and view.distance[v, u] < _LIT:
        away = float(np.linalg.norm(view.point[v, u] - origin))
        # Near and far change its size, within what stays recognisable.
        apparent = np.arctan(lesion.radius / away) / (view.camera.field_of_view / 2) / lesion.size
        radius = lesion.radius * float(np.clip(apparent, 0.7, 1.5) / apparent)
        patch = _patch_at(view, (v, u), radius, lesion.size)
        if _shown(view, patch) > wanted:
            return patch
    pixels: list[tuple[int, int]] = []
    for turn in range(6):
        c, s = np.cos(1.0472 * turn), np.sin(1.0472 * turn)
        aim = (lesion.aim[0] * c - lesion.aim[1] * s, lesion.aim[0] * s + lesion.aim[1] * c)
        pixels.append(view.pixel(aim))
    # The last resort is the best lit place that is not at the rim.
    lit = np.where((rim < 0.6) & (view.camera.seen > 0), np.abs(view.distance - 0.9), 1e3)
    pixels.append(divmod(int(np.argmin(lit)), side))
    best: tuple[float, Patch] | None = None
    for pixel in pixels:
        patch = _patch_at(view, pixel, None, lesion.size)
        away = float(np.linalg.norm(patch.centre - origin))
        shown = _shown(view, patch) * min(1.0, (_LIT / away) ** 2)
        if best is None or shown > best[0]:
            best = (shown, patch)
        if shown > wanted:
            break
    assert best is not None
    return best[1]


def _shown(view: View, patch: Patch) -> int:
    """Pixels within a patch."""
    apart = view.point - patch.centre.astype(np.float32)
    near = np.einsum("hwc,hwc->hw", apart, apart) < patch.radius**2
    return int(np.count_nonzero(near & (view.camera.seen > 0)))

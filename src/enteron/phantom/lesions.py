"""Findings on the wall: where each lesion lies, where it is in a view, and how it is painted.

Each run of a label has one lesion, on the wall where the capsule passes. A run during which the
capsule leaves the lesion behind gets another one of the same look, so that every labelled frame
shows the finding and no other frame does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN, FINDINGS
from enteron.phantom.camera import Camera, Solids, View, composite
from enteron.phantom.motion import Motion, camera_rotations
from enteron.phantom.trace import F32, Array
from enteron.phantom.wall import REGION_LOOKS, branching_lines, clouds, look_up, wrapped_blur
from enteron.runs import runs_of

# Apparent diameter, as a share of the view's: median, and deviation of its logarithm. Angiectasia,
# erosion, erythema, lymphangioectasis and ulcer are such that what they change in a frame has the
# sizes of Kvasir-Capsule's boxes (`enteron bench phantom_realism`). Its polyps and its blood come
# from one video each: those here are smaller and more varied. There are no boxes of active bleeding
# and hematin.
_SIZE: dict[str, tuple[float, float]] = {
    "active bleeding": (0.34, 0.30),
    "angiectasia": (0.24, 0.26),
    "blood": (0.52, 0.35),
    "erosion": (0.155, 0.30),
    "erythema": (0.185, 0.22),
    "hematin": (0.38, 0.30),
    "lymphangioectasis": (0.29, 0.26),
    "polyp": (0.55, 0.40),
    "ulcer": (0.155, 0.20),
}
_LARGEST = 0.95
_REACH = 1.0  # of the view's half-width: how far from its centre lesions lie at most

_LIT = 1.7  # distance up to which a wall is lit well enough to recognise what is on it


@dataclass(frozen=True)
class Lesion:
    """One lesion, during [start, stop)."""

    label: str
    start: int
    stop: int
    turn: float  # radians round the axis
    depth: float  # along the axis, on the scale of the motion's
    radius: float  # on the wall, small-bowel radii
    size: float  # intended apparent diameter, share of the view's
    aim: tuple[float, float]  # position in the view, -1 to 1, at its first frame
    traits: tuple[float, ...]  # eight numbers from 0 to 1 that determine its look
    strength: float  # contrast; hard examples have little
    run: tuple[int, int]  # the labelled run it belongs to

    def grown(self, i: int) -> float:
        """Size factor at frame i: lesions come into view and leave it."""
        start, stop = self.run
        edge = min(i - start + 1, stop - i)
        return 1.0 - 0.25 / edge


def _wall_hit(ray: Array, origin: Array, bend: Array, radius: float) -> Array:
    """Where a ray meets a smooth tube; at most three radii away."""
    t = np.linspace(0.05, 3.0 * radius, 120)
    path = origin + t[:, None] * ray
    across = path[:, :2] - bend * path[:, 2:] ** 2
    outside = np.flatnonzero(np.hypot(across[:, 0], across[:, 1]) > radius)
    return path[outside[0] if len(outside) else -1]


def _in_view(
    anchor: tuple[float, float], radius: float, motion: Motion, frames: NDArray[np.int64],
    rotations: Array, origins: Array, half_view: float,
) -> NDArray[np.bool_]:  # fmt: skip
    """For each frame whether an anchor (turn, depth) on the wall is well within the view."""
    turn, depth = anchor
    z = depth - motion.depth[frames]
    offset = motion.bend[frames] * z[:, None] ** 2
    points = np.stack(
        [radius * np.cos(turn) + offset[:, 0], radius * np.sin(turn) + offset[:, 1], z], 1
    )
    seen = np.einsum("mji,mj->mi", rotations, points - origins)
    distance = np.linalg.norm(seen, axis=1)
    angle = np.arccos(np.clip(seen[:, 2] / np.maximum(distance, 1e-6), -1, 1))
    near_enough = (distance > 0.25 * radius) & (distance < 2.6 * radius)
    return (angle < 0.95 * half_view) & near_enough


def place_lesions(
    labels: NDArray[np.bool_], regions: list[str], motion: Motion, origins: Array, tilt: Array,
    camera: Camera, seed: int,
) -> list[Lesion]:  # fmt: skip
    """Every lesion of a study. `origins` (n, 3): the camera's position across the lumen."""
    half_view = camera.field_of_view / 2
    lesions: list[Lesion] = []
    for number, label in enumerate(FINDINGS):
        for start, stop in runs_of(labels[:, COLUMN[label]]).tolist():
            # A lesion depends on its own run alone: other labels do not move it.
            rng = np.random.default_rng([seed, 71, number, start])
            traits = rng.random(8)
            strength = float(np.clip(rng.beta(2.8, 1.4), 0.3, 1.0))
            median, deviation = _SIZE[label]
            size = median * float(np.exp(deviation * np.clip(rng.standard_normal(), -2, 2)))
            size = min(size, _LARGEST)
            frames = np.arange(start, stop)
            rotations = camera_rotations(motion, frames, tilt[frames])
            offset = 0
            while offset < len(frames):
                i = start + offset
                # A lesion that fills the view lies in its middle. Small ones lie rather at the rim,
                # as real boxes do: a capsule looks along the lumen, and they are on its wall.
                reach = (_REACH - 0.7 * size) * rng.random() ** (0.25 + 0.5 * size)
                angle = rng.uniform(0, 2 * np.pi)
                aim = (float(reach * np.cos(angle)), float(reach * np.sin(angle)))
                off_axis = reach * half_view
                ray = np.array([np.sin(off_axis) * np.cos(angle), np.sin(off_axis) * np.sin(angle),
                                np.cos(off_axis)])  # fmt: skip
                radius = 0.8 * REGION_LOOKS[regions[i]].radius
                hit = _wall_hit(rotations[offset] @ ray, origins[i], motion.bend[i], radius)
                across = hit[:2] - motion.bend[i] * hit[2] ** 2
                anchor = (float(np.arctan2(across[1], across[0])), float(motion.depth[i] + hit[2]))
                window = frames[offset : offset + 400]
                seen = _in_view(anchor, radius, motion, window, rotations[offset : offset + 400],
                                origins[window], half_view)  # fmt: skip
                lost = np.flatnonzero(~seen[1:])
                length = int(lost[0]) + 1 if len(lost) else len(window)
                distance = float(np.linalg.norm(hit - origins[i]))
                lesions.append(
                    Lesion(
                        label=label, start=i, stop=i + length, turn=anchor[0], depth=anchor[1],
                        radius=float(np.clip(distance, 0.3, 2.5) * np.tan(size * half_view)),
                        size=size, aim=aim, traits=tuple(float(t) for t in traits),
                        strength=strength, run=(start, stop),
                    )
                )  # fmt: skip
                offset += length
    return lesions


@dataclass(frozen=True)
class Patch:
    """The wall under a lesion in one view: centre, tangents and inward normal, and radius."""

    centre: Array
    along: Array
    across: Array
    inward: Array
    radius: float
    distance: float  # from the camera


def _patch_at(view: View, pixel: tuple[int, int], radius: float | None, size: float) -> Patch:
    """The wall under a pixel; without a radius, `size` (share of the view) determines it."""
    v, u = pixel
    side = view.camera.side
    window = np.s_[max(v - 4, 0) : min(v + 5, side), max(u - 4, 0) : min(u + 5, side)]
    centre = view.point[v, u].astype(np.float64)
    inward = view.normal[window].reshape(-1, 3).mean(axis=0).astype(np.float64)
    # Turned halfway towards the camera: on the far side of a fold a lesion would be a mere line.
    towards = np.append(view.pose.origin[:2], 0.0) - centre
    distance = float(np.linalg.norm(towards)) + 1e-6
    inward = inward / (np.linalg.norm(inward) + 1e-6) + 0.7 * towards / distance
    inward = inward / (np.linalg.norm(inward) + 1e-6)
    along = np.cross(inward, [0.3, 0.2, 1.0])
    along /= np.linalg.norm(along) + 1e-6
    if radius is None:
        radius = distance * float(np.tan(size * view.camera.field_of_view / 2))
    return Patch(centre, along, np.cross(inward, along), inward, radius, distance)


def find_patch(view: View, lesion: Lesion, depth: float) -> Patch:
    """The wall under a lesion: at its anchor or, if a fold hides that, beside it."""
    z = lesion.depth - depth
    origin = view.pose.origin
    direction = np.array([np.cos(lesion.turn), np.sin(lesion.turn)])
    # The traced point nearest to the lesion's anchor, whatever the height of the folds there.
    x = view.point[..., 0] - view.pose.bend[0] * view.point[..., 2] ** 2
    y = view.point[..., 1] - view.pose.bend[1] * view.point[..., 2] ** 2
    r = np.sqrt(x * x + y * y) + 1e-6
    apart = 2 * (1 - (x * direction[0] + y * direction[1]) / r) * r * r
    apart += (view.point[..., 2] - z) ** 2
    side = view.camera.side
    across = (np.arange(side) + 0.5) * 2 / side - 1
    rim = np.hypot(across[None, :], across[:, None])
    apart = np.where((view.camera.seen > 0) & (rim < 0.95) & (view.distance < 6), apart, 1e3)
    v, u = divmod(int(np.argmin(apart)), side)
    enough_pixels = 0.42 * np.pi * (lesion.size * side / 2) ** 2
    if apart[v, u] < 0.05 and view.distance[v, u] < _LIT:
        distance = float(np.linalg.norm(view.point[v, u] - origin))
        # Its apparent size changes with the distance, within what stays recognisable.
        angle = np.arctan(lesion.radius / distance)
        apparent = angle / (view.camera.field_of_view / 2) / lesion.size
        radius = lesion.radius * float(np.clip(apparent, 0.7, 1.5) / apparent)
        patch = _patch_at(view, (v, u), radius, lesion.size)
        if _visible_pixels(view, patch) > enough_pixels:
            return patch
    pixels: list[tuple[int, int]] = []
    for turn in range(6):
        c, s = np.cos(1.0472 * turn), np.sin(1.0472 * turn)
        aim = (lesion.aim[0] * c - lesion.aim[1] * s, lesion.aim[0] * s + lesion.aim[1] * c)
        pixels.append(view.pixel(aim))
    # The last resort is the best lit pixel that is not at the rim.
    lit = np.where((rim < 0.6) & (view.camera.seen > 0), np.abs(view.distance - 0.9), 1e3)
    pixels.append(divmod(int(np.argmin(lit)), side))
    best: tuple[float, Patch] | None = None
    for pixel in pixels:
        patch = _patch_at(view, pixel, None, lesion.size)
        distance = float(np.linalg.norm(patch.centre - origin))
        visible = _visible_pixels(view, patch) * min(1.0, (_LIT / distance) ** 2)
        if best is None or visible > best[0]:
            best = (visible, patch)
        if visible > enough_pixels:
            break
    assert best is not None
    return best[1]


def _visible_pixels(view: View, patch: Patch) -> int:
    """Pixels within a patch."""
    apart = view.point - patch.centre.astype(np.float32)
    near = np.einsum("hwc,hwc->hw", apart, apart) < patch.radius**2
    return int(np.count_nonzero(near & (view.camera.seen > 0)))


@lru_cache(maxsize=1)
def _ferns() -> Array:
    """(512, 512) dense winding vessels, 0 to 1, as in an angiectasia."""
    lines = branching_lines(np.random.default_rng(0x6665), (512, 512), 150, 90, 4.0, 0.0)
    return np.clip(lines * 1.3, 0, 1)


@lru_cache(maxsize=1)
def _dots() -> Array:
    """(512, 512) scattered soft dots, 0 to 1, of mixed sizes."""
    rng = np.random.default_rng(0x646F)
    tile = np.zeros((512, 512), np.uint8)
    for _ in range(520):
        x, y = (int(v) for v in rng.integers(0, 512, 2))
        cv2.circle(
            tile, (x, y), int(rng.integers(3, 9)), int(rng.integers(130, 255)), -1, cv2.LINE_AA
        )
    return wrapped_blur(tile.astype(F32) / 255, 1.8)


def _step(values: Array, low: float, high: float) -> Array:
    """0 below `low`, 1 above `high`, smooth between; falls when low > high."""
    part = np.clip((values - low) / (high - low), 0, 1)
    return (part * part * (3 - 2 * part)).astype(F32)


@dataclass(frozen=True)
class Canvas:
    """The pixels near a lesion, as flat arrays, in its own coordinates (1 is its radius)."""

    view: View
    pixels: NDArray[np.int64]
    a: Array
    b: Array
    lesion: Lesion
    down: tuple[float, float]  # direction of gravity in (a, b)

    def noise(self, tile: Array, scale: float, shift: float) -> Array:
        """A tile's values over the lesion, `scale` of its pixels per radius of the lesion."""
        x = self.a * F32(scale) + F32(97 * self.lesion.traits[6] + shift)
        y = self.b * F32(scale) + F32(211 * self.lesion.traits[7])
        return look_up(tile, x, y)

    def reach(self, ragged: float, scale: float = 60.0) -> Array:
        """Distance from the middle with a ragged outline: 1 is the lesion's edge."""
        stretch = 0.75 + 0.5 * self.lesion.traits[0]
        plain = np.sqrt((self.a * stretch) ** 2 + (self.b / stretch) ** 2)
        return (plain * (1 + ragged * self.noise(clouds(), scale, 0.0))).astype(F32)

    def redden(self, amount: Array) -> None:
        self.view.blood.reshape(-1)[self.pixels] += amount

    def raise_wall(self, amount: Array) -> None:
        """Make the wall lighter where it stands up and darker where it lies deep."""
        self.view.furrow.reshape(-1)[self.pixels] += amount

    def furrow(self) -> Array:
        return self.view.furrow.reshape(-1)[self.pixels]

    def add_cover(self, colour: tuple[float, float, float], alpha: Array) -> None:
        """Cover the wall with a colour of opacity alpha."""
        cover = self.view.cover.reshape(-1, 4)
        part = np.ascontiguousarray(cover[self.pixels])[None]
        composite(part, np.array(colour, F32), alpha.astype(F32)[None])
        cover[self.pixels] = part[0]


def _mix(
    low: tuple[float, ...], high: tuple[float, ...], part: float
) -> tuple[float, float, float]:
    r, g, b = (x + (y - x) * part for x, y in zip(low, high, strict=True))
    return r, g, b


def _erythema(canvas: Canvas) -> None:
    strength = canvas.lesion.strength
    inside = _step(canvas.reach(0.20), 1.25, 0.35)
    mottled = 0.85 + 0.30 * canvas.noise(clouds(), 120, 31)
    canvas.redden((0.28 + 0.42 * strength) * inside * np.clip(mottled, 0.2, 1.5))


def _angiectasia(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    inside = _step(canvas.reach(0.28), 1.15, 0.75)
    ferns = canvas.noise(_ferns(), 38 + 30 * t[1], 13)
    flat = 0.25 + 0.75 * t[2]  # from a mere net of vessels to a cherry-red spot
    canvas.redden((0.42 + 0.60 * strength) * inside * (0.55 * flat + 1.0 * ferns))


def _erosion(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    spots = 1 + int(2.6 * t[1])
    for k in range(spots):
        angle, off = 6.28 * (t[2] + k / spots), 0.0 if spots == 1 else 0.62
        size = 0.62 if spots == 1 else 0.42
        a, b = canvas.a - off * np.cos(angle), canvas.b - off * np.sin(angle)
        ragged = 1 + 0.20 * canvas.noise(clouds(), 90, 17.0 * k)
        reach = (np.sqrt(a * a + b * b) * ragged / size).astype(F32)
        canvas.redden((0.20 + 0.40 * strength) * _step(reach, 1.7, 0.8))
        pale = _mix((1.02, 0.90, 0.62), (1.10, 1.04, 0.94), t[3])
        canvas.add_cover(pale, (0.50 + 0.42 * strength) * _step(reach, 0.95, 0.45))


def _ulcer(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    reach = canvas.reach(0.16)
    canvas.redden((0.22 + 0.45 * strength) * _step(reach, 1.5, 0.9))
    rim = np.exp(-(((reach - 0.88) / 0.16) ** 2)).astype(F32)
    canvas.raise_wall(0.30 * rim - 0.20 * _step(reach, 0.8, 0.6))
    fibrin = _mix((0.98, 0.86, 0.56), (1.12, 1.08, 0.94), t[3])
    slough = 0.88 + 0.16 * canvas.noise(clouds(), 110, 53)
    canvas.add_cover(
        fibrin,
        (0.60 + 0.36 * strength) * _step(reach, 0.84, 0.58) * np.clip(slough, 0, 1),
    )
    if t[4] > 0.6:  # a dark spot or vessel in its base
        spot = np.exp(-(((canvas.a - 0.2) ** 2 + canvas.b**2) / 0.02)).astype(F32)
        canvas.add_cover((0.30, 0.06, 0.04), 0.8 * spot)


def _blood(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    reach = canvas.reach(0.42, 40)
    # Blood collects in the furrows.
    low = canvas.noise(clouds(), 75, 5) * 0.75 - 2.6 * canvas.furrow() + 0.7 * (1 - reach)
    film = _step(low, -0.2, 0.9) * _step(reach, 1.45, 0.7)
    canvas.redden((0.5 + 0.7 * strength) * _step(reach, 1.3, 0.5) * (0.35 + 0.65 * film))
    tone = _mix((0.34, 0.035, 0.02), (0.66, 0.07, 0.04), t[1])
    canvas.add_cover(tone, (0.55 + 0.40 * strength) * film)
    canvas.raise_wall(0.12 * film)


def _active_bleeding(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    x, y = canvas.down
    along = canvas.a * x + canvas.b * y  # downstream
    beside = -canvas.a * y + canvas.b * x + 0.16 * canvas.noise(clouds(), 40, 9)
    width = (0.10 + 0.10 * t[1]) + 0.16 * np.clip(along + 0.4, 0, 1.6)
    stream = _step(np.abs(beside / width), 1.15, 0.6) * _step(along, -0.72, -0.5)
    stream = stream * _step(along, 1.5, 0.7)
    pool_reach = np.sqrt((canvas.a - 0.75 * x) ** 2 + (canvas.b - 0.75 * y) ** 2)
    pool = _step((pool_reach * (1 + 0.3 * canvas.noise(clouds(), 60, 3))).astype(F32), 0.85, 0.35)
    canvas.redden((0.35 + 0.75 * strength) * _step(canvas.reach(0.25), 1.35, 0.3))
    fresh = _mix((0.58, 0.03, 0.02), (0.90, 0.09, 0.05), t[2])
    canvas.add_cover(fresh, (0.60 + 0.40 * strength) * np.maximum(stream, 0.85 * pool))
    canvas.raise_wall(0.30 * stream)


def _hematin(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    reach = canvas.reach(0.30, 45)
    inside = _step(reach, 1.25, 0.6)
    specks = canvas.noise(_dots(), 90 + 70 * t[1], 71) + 0.35 * canvas.noise(clouds(), 160, 19)
    streaks = _step(canvas.noise(clouds(), 75, 41) - 1.2 * canvas.furrow(), 0.35, 1.1)
    tone = _mix((0.07, 0.035, 0.02), (0.27, 0.06, 0.03), t[2])
    amount = np.maximum(_step(specks, 0.45, 0.75), (0.35 + 0.6 * t[3]) * streaks)
    canvas.add_cover(tone, (0.55 + 0.45 * strength) * inside * amount)
    canvas.redden(0.30 * strength * inside)


def _lymphangioectasis(canvas: Canvas) -> None:
    t, strength = canvas.lesion.traits, canvas.lesion.strength
    inside = _step(canvas.reach(0.28), 1.2, 0.7)
    dots = canvas.noise(_dots(), 45 + 55 * t[1], 29)
    milk = _mix((1.12, 1.02, 0.74), (1.18, 1.14, 1.04), t[2])
    spots = _step(dots, 0.15, 0.5) * inside
    haze = (0.10 + 0.30 * t[3]) * _step(canvas.reach(0.2), 1.0, 0.2)
    canvas.add_cover(milk, (0.50 + 0.45 * strength) * np.maximum(spots, haze))
    canvas.raise_wall(0.35 * spots)


PAINT: dict[str, Callable[[Canvas], None]] = {
    "active bleeding": _active_bleeding,
    "angiectasia": _angiectasia,
    "blood": _blood,
    "erosion": _erosion,
    "erythema": _erythema,
    "hematin": _hematin,
    "lymphangioectasis": _lymphangioectasis,
    "ulcer": _ulcer,
}
"""Painter of each flat finding. A polyp is a solid instead."""


def paint(view: View, lesion: Lesion, patch: Patch, grown: float, gravity: float) -> Array:
    """Paint a flat lesion; returns (n, n) marks of where it is, 0 to 1."""
    radius = patch.radius * grown
    apart = view.point - patch.centre.astype(F32)
    square = np.einsum("hwc,hwc->hw", apart, apart)
    marks = np.clip(1.7 - np.sqrt(square) / F32(radius), 0, 1) * (view.camera.seen > 0)
    pixels = np.flatnonzero((square < (2.3 * radius) ** 2) & (view.camera.seen > 0))
    if not len(pixels):
        return marks
    spin = 6.283 * lesion.traits[5]
    first = np.cos(spin) * patch.along + np.sin(spin) * patch.across
    second = -np.sin(spin) * patch.along + np.cos(spin) * patch.across
    near = apart.reshape(-1, 3)[pixels]
    a, b = (near @ (axis / radius).astype(F32) for axis in (first, second))
    pull = np.array([np.cos(gravity), np.sin(gravity), 0.15])
    x, y = float(pull @ first), float(pull @ second)
    size = float(np.hypot(x, y)) + 1e-6
    PAINT[lesion.label](Canvas(view, pixels, a, b, lesion, (x / size, y / size)))
    return marks.astype(F32)


def polyp(solids: Solids, lesion: Lesion, patch: Patch, grown: float) -> list[int]:
    """Add a polyp's lobes to the solids; returns their indices."""
    t = lesion.traits
    # Close to the lens it must leave room for the wall around it.
    radius = min(patch.radius, 0.55 * patch.distance) * grown
    axes = np.stack([patch.along, patch.across, patch.inward])
    height = (0.60 + 0.50 * t[1]) * radius
    stretch = 0.82 + 0.36 * t[2]
    centre = patch.centre + patch.inward * (0.05 + 0.40 * t[3]) * radius
    seam, lumps = (0.10 + 0.20 * t[0]) * radius, 0.03 + 0.09 * t[4]
    halves = (radius * stretch, radius / stretch, height)
    indices = [solids.add(centre, axes, halves, seam, lumps, 9 * t[6])]
    for k in range(int(2.5 * t[4])):  # further lobes
        angle = 6.283 * (t[5] + 0.37 * k)
        off = (patch.along * np.cos(angle) + patch.across * np.sin(angle)) * 0.6 * radius
        half = radius * (0.55 + 0.2 * t[(k + 6) % 8])
        indices.append(
            solids.add(centre + off, axes, (half, half * 0.9, half), seam, lumps, 5.0 * k)
        )
    return indices


def colour_polyp(view: View, lesion: Lesion, lobes: list[int]) -> Array:
    """Give a polyp its surface; returns (n, n) marks of where it is."""
    share = view.share_of(lobes)
    pixels = np.flatnonzero(share)
    if not len(pixels):
        return share
    t = lesion.traits
    local = view.local.reshape(-1, 3)[pixels]
    x = local[:, 0] * F32(60) + local[:, 2] * F32(30) + F32(97 * t[6])
    y = local[:, 1] * F32(60) + F32(211 * t[7])

    def noise(tile: Array, finer: float) -> Array:
        return look_up(tile, x * F32(finer), y * F32(finer))

    part = share.reshape(-1)[pixels]
    blood, furrow = view.blood.reshape(-1), view.furrow.reshape(-1)
    redder = -0.05 + 0.25 * t[0] * lesion.strength
    vessels = 0.20 * t[2] * noise(_ferns(), 1.0)
    surface = redder + vessels + 0.12 * noise(clouds(), 1.0) + 0.05 * noise(clouds(), 5.0)
    blood[pixels] += part * (surface - blood[pixels])
    grain = 0.04 + 0.07 * noise(clouds(), 1.0) + (0.05 + 0.08 * t[3]) * noise(clouds(), 6.0)
    furrow[pixels] += part * (grain - furrow[pixels]) - 0.5 * part * (1 - part)
    view.residue.reshape(-1)[pixels] -= 1.5 * part
    return share

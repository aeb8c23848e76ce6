"""How the nine findings look. Each is painted on the wall of a traced view, before it is lit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.phantom.lesions import Lesion, Patch
from enteron.phantom.noise import Field, branching_lines, clouds, look_up, wrapped_blur
from enteron.phantom.view import Solids, View, lay

Values = NDArray[np.floating]
F32 = np.float32


@lru_cache(maxsize=1)
def _ferns() -> Field:
    """(512, 512) dense winding vessels, 0 to 1, as in an angiectasia."""
    lines = branching_lines(np.random.default_rng(0x6665), (512, 512), 150, 90, 4.0, 0.0)
    return np.clip(lines * 1.3, 0, 1)


@lru_cache(maxsize=1)
def _dots() -> Field:
    """(512, 512) scattered soft dots, 0 to 1, of mixed sizes."""
    rng = np.random.default_rng(0x646F)
    tile = np.zeros((512, 512), np.uint8)
    for _ in range(520):
        x, y = (int(v) for v in rng.integers(0, 512, 2))
        cv2.circle(
            tile, (x, y), int(rng.integers(3, 9)), int(rng.integers(130, 255)), -1, cv2.LINE_AA
        )
    return wrapped_blur(tile.astype(F32) / 255, 1.8)


def _step(values: Values, low: float, high: float) -> Values:
    """0 below `low`, 1 above `high`, smooth between; falls when low > high."""
    part = np.clip((values - low) / (high - low), 0, 1)
    return (part * part * (3 - 2 * part)).astype(F32)


@dataclass(frozen=True)
class Canvas:
    """The pixels near a lesion, as flat arrays, in its own coordinates (1 is its radius)."""

    view: View
    pixels: NDArray[np.int64]
    a: Values
    b: Values
    lesion: Lesion
    down: tuple[float, float]  # direction of gravity in (a, b)

    def noise(self, tile: Field, scale: float, shift: float) -> Values:
        """A tile's values over the lesion, `scale` pixels of it per radius."""
        x = self.a * F32(scale) + F32(97 * self.lesion.traits[6] + shift)
        y = self.b * F32(scale) + F32(211 * self.lesion.traits[7])
        return look_up(tile, x, y)

    def reach(self, ragged: float, scale: float = 60.0) -> Values:
        """Distance from the middle with a ragged outline: 1 is the lesion's edge."""
        stretch = 0.75 + 0.5 * self.lesion.traits[0]
        plain = np.sqrt((self.a * stretch) ** 2 + (self.b / stretch) ** 2)
        return (plain * (1 + ragged * self.noise(clouds(), scale, 0.0))).astype(F32)

    def redden(self, amount: Values) -> None:
        self.view.blood.reshape(-1)[self.pixels] += amount

    def raise_wall(self, amount: Values) -> None:
        """Make the wall lighter where it stands up and darker where it lies deep."""
        self.view.furrow.reshape(-1)[self.pixels] += amount

    def furrow(self) -> Values:
        return self.view.furrow.reshape(-1)[self.pixels]

    def lay(self, colour: tuple[float, float, float], alpha: Values) -> None:
        """Cover the wall with an opaque colour."""
        cover = self.view.cover.reshape(-1, 4)
        part = np.ascontiguousarray(cover[self.pixels])[None]
        lay(part, np.array(colour, F32), alpha.astype(F32)[None])
        cover[self.pixels] = part[0]


def _mix(
    low: tuple[float, ...], high: tuple[float, ...], part: float
) -> tuple[float, float, float]:
    r, g, b = (x + (y - x) * part for x, y in zip(low, high, strict=True))
    return r, g, b


def _erythema(on: Canvas) -> None:
    inside = _step(on.reach(0.20), 1.25, 0.35)
    mottled = 0.85 + 0.30 * on.noise(clouds(), 120, 31)
    on.redden((0.50 + 0.75 * on.lesion.strength) * inside * np.clip(mottled, 0.2, 1.5))


def _angiectasia(on: Canvas) -> None:
    t = on.lesion.traits
    inside = _step(on.reach(0.28), 1.15, 0.75)
    ferns = on.noise(_ferns(), 38 + 30 * t[1], 13)
    flat = 0.25 + 0.75 * t[2]  # from a mere net of vessels to a cherry-red spot
    on.redden((0.7 + 0.9 * on.lesion.strength) * inside * (0.55 * flat + 1.0 * ferns))


def _erosion(on: Canvas) -> None:
    t = on.lesion.traits
    spots = 1 + int(2.6 * t[1])
    for k in range(spots):
        angle, off = 6.28 * (t[2] + k / spots), 0.0 if spots == 1 else 0.62
        size = 0.62 if spots == 1 else 0.42
        a, b = on.a - off * np.cos(angle), on.b - off * np.sin(angle)
        ragged = 1 + 0.20 * on.noise(clouds(), 90, 17.0 * k)
        reach = (np.sqrt(a * a + b * b) * ragged / size).astype(F32)
        on.redden((0.35 + 0.65 * on.lesion.strength) * _step(reach, 2.0, 0.8))
        pale = _mix((1.02, 0.90, 0.62), (1.10, 1.04, 0.94), t[3])
        on.lay(pale, (0.50 + 0.42 * on.lesion.strength) * _step(reach, 0.95, 0.45))


def _ulcer(on: Canvas) -> None:
    t = on.lesion.traits
    reach = on.reach(0.16)
    on.redden((0.40 + 0.80 * on.lesion.strength) * _step(reach, 1.5, 0.9))
    rim = np.exp(-(((reach - 0.88) / 0.16) ** 2)).astype(F32)
    on.raise_wall(0.30 * rim - 0.20 * _step(reach, 0.8, 0.6))
    fibrin = _mix((0.98, 0.86, 0.56), (1.12, 1.08, 0.94), t[3])
    slough = 0.88 + 0.16 * on.noise(clouds(), 110, 53)
    on.lay(
        fibrin,
        (0.60 + 0.36 * on.lesion.strength) * _step(reach, 0.84, 0.58) * np.clip(slough, 0, 1),
    )
    if t[4] > 0.6:  # a dark spot or vessel in its base
        spot = np.exp(-(((on.a - 0.2) ** 2 + on.b**2) / 0.02)).astype(F32)
        on.lay((0.30, 0.06, 0.04), 0.8 * spot)


def _blood(on: Canvas) -> None:
    t = on.lesion.traits
    reach = on.reach(0.42, 40)
    # It runs together in the furrows.
    low = on.noise(clouds(), 75, 5) * 0.75 - 2.6 * on.furrow() + 0.7 * (1 - reach)
    film = _step(low, -0.2, 0.9) * _step(reach, 1.45, 0.7)
    on.redden((0.5 + 0.7 * on.lesion.strength) * _step(reach, 1.3, 0.5) * (0.35 + 0.65 * film))
    tone = _mix((0.34, 0.035, 0.02), (0.66, 0.07, 0.04), t[1])
    on.lay(tone, (0.55 + 0.40 * on.lesion.strength) * film)
    on.raise_wall(0.12 * film)


def _active_bleeding(on: Canvas) -> None:
    t = on.lesion.traits
    x, y = on.down
    along = on.a * x + on.b * y  # downstream
    beside = -on.a * y + on.b * x + 0.16 * on.noise(clouds(), 40, 9)
    width = (0.10 + 0.10 * t[1]) + 0.16 * np.clip(along + 0.4, 0, 1.6)
    stream = _step(np.abs(beside / width), 1.15, 0.6) * _step(along, -0.72, -0.5)
    stream = stream * _step(along, 1.5, 0.7)
    pool_reach = np.sqrt((on.a - 0.75 * x) ** 2 + (on.b - 0.75 * y) ** 2)
    pool = _step((pool_reach * (1 + 0.3 * on.noise(clouds(), 60, 3))).astype(F32), 0.85, 0.35)
    on.redden((0.35 + 0.75 * on.lesion.strength) * _step(on.reach(0.25), 1.35, 0.3))
    fresh = _mix((0.58, 0.03, 0.02), (0.90, 0.09, 0.05), t[2])
    on.lay(fresh, (0.60 + 0.40 * on.lesion.strength) * np.maximum(stream, 0.85 * pool))
    on.raise_wall(0.30 * stream)


def _hematin(on: Canvas) -> None:
    t = on.lesion.traits
    reach = on.reach(0.30, 45)
    inside = _step(reach, 1.25, 0.6)
    specks = on.noise(_dots(), 90 + 70 * t[1], 71) + 0.35 * on.noise(clouds(), 160, 19)
    streaks = _step(on.noise(clouds(), 75, 41) - 1.2 * on.furrow(), 0.35, 1.1)
    tone = _mix((0.07, 0.035, 0.02), (0.27, 0.06, 0.03), t[2])
    amount = np.maximum(_step(specks, 0.45, 0.75), (0.35 + 0.6 * t[3]) * streaks)
    on.lay(tone, (0.55 + 0.45 * on.lesion.strength) * inside * amount)
    on.redden(0.30 * on.lesion.strength * inside)


def _lymphangioectasis(on: Canvas) -> None:
    t = on.lesion.traits
    inside = _step(on.reach(0.28), 1.2, 0.7)
    dots = on.noise(_dots(), 45 + 55 * t[1], 29)
    milk = _mix((1.12, 1.02, 0.74), (1.18, 1.14, 1.04), t[2])
    spots = _step(dots, 0.15, 0.5) * inside
    haze = (0.10 + 0.30 * t[3]) * _step(on.reach(0.2), 1.0, 0.2)
    on.lay(milk, (0.50 + 0.45 * on.lesion.strength) * np.maximum(spots, haze))
    on.raise_wall(0.35 * spots)


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
"""Painter of each flat finding; polyps are solids."""


def paint(view: View, lesion: Lesion, patch: Patch, grown: float, gravity: float) -> Values:
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
    """Add a polyp's lobes to the solids; returns their numbers."""
    t = lesion.traits
    # Near the lens it must leave room for the wall around it.
    radius = min(patch.radius, 0.42 * patch.away) * grown
    axes = np.stack([patch.along, patch.across, patch.inward])
    height = (0.60 + 0.50 * t[1]) * radius
    stretch = 0.82 + 0.36 * t[2]
    centre = patch.centre + patch.inward * (0.05 + 0.40 * t[3]) * radius
    seam, lumps = (0.10 + 0.20 * t[0]) * radius, 0.03 + 0.09 * t[4]
    halves = (radius * stretch, radius / stretch, height)
    numbers = [solids.add(centre, axes, halves, seam, lumps, 9 * t[6])]
    for k in range(int(2.5 * t[4])):  # further lobes
        angle = 6.283 * (t[5] + 0.37 * k)
        off = (patch.along * np.cos(angle) + patch.across * np.sin(angle)) * 0.6 * radius
        half = radius * (0.55 + 0.2 * t[(k + 6) % 8])
        numbers.append(
            solids.add(centre + off, axes, (half, half * 0.9, half), seam, lumps, 5.0 * k)
        )
    return numbers


def colour_polyp(view: View, lesion: Lesion, numbers: list[int]) -> Values:
    """Give a polyp its surface; returns (n, n) marks of where it is."""
    share = view.part_of(numbers)
    pixels = np.flatnonzero(share)
    if not len(pixels):
        return share
    t = lesion.traits
    local = view.local.reshape(-1, 3)[pixels]
    x = local[:, 0] * F32(60) + local[:, 2] * F32(30) + F32(97 * t[6])
    y = local[:, 1] * F32(60) + F32(211 * t[7])

    def over(tile: Field, finer: float) -> Values:
        return look_up(tile, x * F32(finer), y * F32(finer))

    part = share.reshape(-1)[pixels]
    blood, furrow = view.blood.reshape(-1), view.furrow.reshape(-1)
    redder = -0.05 + 0.40 * t[0] * lesion.strength
    vessels = 0.45 * t[2] * over(_ferns(), 1.0)
    surface = redder + vessels + 0.12 * over(clouds(), 1.0) + 0.05 * over(clouds(), 5.0)
    blood[pixels] += part * (surface - blood[pixels])
    grain = 0.04 + 0.07 * over(clouds(), 1.0) + (0.05 + 0.08 * t[3]) * over(clouds(), 6.0)
    furrow[pixels] += part * (grain - furrow[pixels]) - 0.5 * part * (1 - part)
    view.residue.reshape(-1)[pixels] -= 1.5 * part
    return share

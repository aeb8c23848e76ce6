"""The walls of the five regions: noise that tiles, and relief, pigment and colours made of it.

Tiles wrap on both axes, so that a wall can be repeated along the lumen and around it.
"""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numba import njit

from enteron.phantom.trace import FINE_RANGE, Array, Bytes

MACRO = (256, 256)  # folds; small enough to stay in the processor's cache while rays march
MICRO = (1024, 1024)  # villi, pits and vessels


def smooth_noise(rng: np.random.Generator, shape: tuple[int, int], cells: tuple[int, int]) -> Array:
    """Noise of mean 0 and deviation 1 that wraps on both axes, with `cells` bumps along each.

    Both sides of `shape` must be multiples of `cells`.
    """
    rows, columns = cells
    pad = 2  # cells; the cubic kernel reaches no further
    grid = np.pad(rng.standard_normal((rows, columns), dtype=np.float32), pad, mode="wrap")
    high, wide = shape[0] // rows, shape[1] // columns
    full = cv2.resize(
        grid, ((columns + 2 * pad) * wide, (rows + 2 * pad) * high), interpolation=cv2.INTER_CUBIC
    )
    field = full[pad * high : pad * high + shape[0], pad * wide : pad * wide + shape[1]]
    return np.ascontiguousarray(field / (field.std() + 1e-6), dtype=np.float32)


def fractal_noise(
    rng: np.random.Generator,
    shape: tuple[int, int],
    cells: tuple[int, int],
    octaves: int,
    gain: float = 0.5,
) -> Array:
    """Octaves of `smooth_noise`, each twice as fine and `gain` times as strong as the last."""
    total = np.zeros(shape, np.float32)
    strength = 1.0
    for octave in range(octaves):
        finer = (cells[0] << octave, cells[1] << octave)
        if finer[0] > shape[0] or finer[1] > shape[1]:
            break
        total += np.float32(strength) * smooth_noise(rng, shape, finer)
        strength *= gain
    return total / np.float32(total.std() + 1e-6)


def wrapped_blur(field: Array, sigma: float) -> Array:
    """Gaussian blur of a tile that wraps around its edges."""
    pad = int(3 * sigma) + 1
    padded = np.pad(field, pad, mode="wrap")
    blurred = cv2.GaussianBlur(padded, (0, 0), sigma)[pad:-pad, pad:-pad]
    return np.ascontiguousarray(blurred, dtype=np.float32)


def branching_lines(
    rng: np.random.Generator,
    shape: tuple[int, int],
    trees: int,
    length: float,
    width: float,
    along: float,
) -> Array:
    """Vessels: trees of winding lines from 0 to 1 that thin out as they branch, on a tile.

    `length` and `width` are in pixels; `along` from 0 (any direction) to 1 (along the rows' axis).
    """
    high, wide = shape
    pad = 64
    canvas = np.zeros((high + 2 * pad, wide + 2 * pad), np.uint8)
    step = 7.0
    # Branches still to draw: x, y, heading, width, steps left, strength.
    branches: list[tuple[float, float, float, float, int, float]] = []
    for _ in range(trees):
        heading = float(rng.uniform(0, 2 * np.pi))
        if rng.random() < along:
            heading = np.pi / 2 + float(rng.normal(0, 0.15)) + (np.pi if rng.random() < 0.5 else 0)
        branches.append(
            (
                float(rng.uniform(0, wide)),
                float(rng.uniform(0, high)),
                heading,
                width * float(rng.uniform(0.6, 1.2)),
                int(length / step * rng.uniform(0.6, 1.3)),
                float(rng.uniform(0.5, 1.0)),
            )
        )
    while branches:
        x, y, heading, thick, steps, strength = branches.pop()
        turns = rng.normal(0, 0.24, max(steps, 1))
        forks = rng.random(max(steps, 1))
        for turn, fork in zip(turns, forks, strict=True):
            heading += float(turn)
            ahead_x, ahead_y = x + step * np.cos(heading), y + step * np.sin(heading)
            shift_x, shift_y = np.floor(x / wide) * wide, np.floor(y / high) * high
            start = (round((x - shift_x + pad) * 8), round((y - shift_y + pad) * 8))
            end = (round((ahead_x - shift_x + pad) * 8), round((ahead_y - shift_y + pad) * 8))
            cv2.line(
                canvas, start, end, int(255 * strength), max(1, round(thick)), cv2.LINE_AA, shift=3
            )
            x, y = float(ahead_x), float(ahead_y)
            thick *= 0.992
            if fork < 0.07 and thick > 1.2:
                side = float(rng.choice([-1.0, 1.0]) * rng.uniform(0.4, 1.0))
                left = int(steps * rng.uniform(0.3, 0.6))
                branches.append((x, y, heading + side, thick * 0.7, left, strength * 0.9))
    folded = canvas[pad:-pad, pad:-pad].copy()
    folded[-pad:] = np.maximum(folded[-pad:], canvas[:pad, pad:-pad])
    folded[:pad] = np.maximum(folded[:pad], canvas[-pad:, pad:-pad])
    folded[:, -pad:] = np.maximum(folded[:, -pad:], canvas[pad:-pad, :pad])
    folded[:, :pad] = np.maximum(folded[:, :pad], canvas[pad:-pad, -pad:])
    return wrapped_blur(folded.astype(np.float32) / 255, 1.2)


@lru_cache(maxsize=1)
def grain() -> Array:
    """(1024, 1024) white noise of deviation 1, the same in every process, for sensors."""
    return np.random.default_rng(0x6772).standard_normal((1024, 1024), dtype=np.float32)


@lru_cache(maxsize=1)
def clouds() -> Array:
    """(512, 512) soft fractal noise that tiles, for fluids, mottling and ragged edges."""
    return fractal_noise(np.random.default_rng(0x636C), (512, 512), (4, 4), 6, 0.6)


@njit(cache=True, error_model="numpy", fastmath=True)
def look_up(tile: Array, x: Array, y: Array) -> Array:
    """Bilinear values (m,) of a tile at columns x and rows y, which wrap (sides: powers of 2)."""
    high, wide = tile.shape
    values = np.empty(x.size, np.float32)
    for k in range(x.size):
        left, top = np.floor(x[k]), np.floor(y[k])
        across, down = x[k] - left, y[k] - top
        i, j = int(top) & (high - 1), int(left) & (wide - 1)
        below, right = (i + 1) & (high - 1), (j + 1) & (wide - 1)
        upper = tile[i, j] + (tile[i, right] - tile[i, j]) * across
        lower = tile[below, j] + (tile[below, right] - tile[below, j]) * across
        values[k] = upper + (lower - upper) * down
    return values


@dataclass(frozen=True)
class RegionLook:
    """What makes a region recognisable. Lengths in small-bowel radii."""

    radius: float
    fold_height: float
    relief: float  # height of the finest relief: villi, pits
    length: float  # of the tile along the axis, before it repeats
    palette: tuple[tuple[float, float, float], ...]  # RGB of the wall from unlit to glaring
    wetness: float  # share of specular highlights
    tilt: float  # how far the camera tends to look away from the axis, radians
    travel: float  # length travelled per unit of activity
    collapse: float  # how far the lumen is closed in front of the capsule, 0 to 1


REGION_LOOKS: dict[str, RegionLook] = {
    "mouth": RegionLook(
        1.35, 0.30, 0.006, 6.0,
        ((0.08, 0.040, 0.032), (0.48, 0.250, 0.160), (0.72, 0.450, 0.335), (0.98, 0.84, 0.72)),
        0.9, 0.45, 0.5, 0.0,
    ),
    "esophagus": RegionLook(
        0.95, 0.26, 0.004, 8.0,
        ((0.10, 0.050, 0.038), (0.49, 0.285, 0.170), (0.74, 0.515, 0.350), (0.98, 0.86, 0.72)),
        0.7, 0.18, 1.2, 0.2,
    ),
    "stomach": RegionLook(
        1.9, 0.85, 0.006, 12.0,
        ((0.09, 0.038, 0.022), (0.50, 0.240, 0.112), (0.74, 0.430, 0.245), (0.98, 0.79, 0.54)),
        0.8, 0.85, 0.7, 0.1,
    ),
    "small intestine": RegionLook(
        1.05, 0.50, 0.009, 8.0,
        ((0.09, 0.040, 0.022), (0.49, 0.252, 0.102), (0.72, 0.442, 0.215), (0.98, 0.80, 0.46)),
        0.2, 0.95, 0.5, 0.56,
    ),
    "colon": RegionLook(
        1.55, 0.62, 0.004, 10.0,
        ((0.08, 0.042, 0.025), (0.46, 0.255, 0.125), (0.70, 0.450, 0.265), (0.97, 0.80, 0.56)),
        0.45, 0.85, 0.6, 0.1,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Wall:
    """One region of one study: tiles over (depth, angle)."""

    look: RegionLook
    heights: Array  # MACRO: folds, 0 to about 1, upwards is into the lumen
    macro: Array  # (*MACRO, 3): the same, and their slopes per cell
    steepest: tuple[float, float]  # rise per length, along the axis and around it
    fine: Bytes  # (*MICRO, 4): fine relief, haemoglobin, furrow, residue


def _ridges(phase: Array, sharpness: float) -> Array:
    """Folds of height 0 to 1 along a phase in turns; sharper ones are thinner."""
    return (0.5 + 0.5 * np.cos(2 * np.pi * phase)) ** np.float32(sharpness)


def _axes(shape: tuple[int, int]) -> tuple[Array, Array]:
    """Depth and angle of a tile's cells, each from 0 to 1."""
    depth = np.arange(shape[0], dtype=np.float32)[:, None] / np.float32(shape[0])
    turn = np.arange(shape[1], dtype=np.float32)[None, :] / np.float32(shape[1])
    return depth, turn


def _folds(name: str, rng: np.random.Generator) -> Array:
    """Folds of a region, a tile of MACRO."""
    depth, turn = _axes(MACRO)
    swell = smooth_noise(rng, MACRO, (8, 8))
    drift = fractal_noise(rng, MACRO, (4, 4), 3)
    if name == "esophagus":
        count = int(rng.integers(3, 6))
        folds = _ridges(turn * count + 0.10 * drift, 1.0) * (0.65 + 0.18 * swell)
        return folds + 0.12 * drift
    if name == "stomach":
        # Rugae: thick folds along the axis that wind and merge.
        count = int(rng.integers(6, 9))
        wind = 0.42 * fractal_noise(rng, MACRO, (8, 4), 2, 0.35)
        folds = _ridges(turn * count + wind, 0.7) * np.clip(0.6 + 0.3 * drift, 0.05, 1.0)
        return folds + 0.10 * swell
    if name == "small intestine":
        # Circular folds, none of which is a full circle: they tilt, fork and fade.
        count = int(rng.integers(6, 11))
        tilt = int(rng.integers(-1, 2))
        wind = 0.34 * fractal_noise(rng, MACRO, (8, 4), 3, 0.6)
        height = np.clip(0.62 + 0.36 * smooth_noise(rng, MACRO, (8, 4)), 0.08, 1.15)
        # Round cushions with narrow furrows between them.
        folds = _ridges(depth * count + tilt * turn + wind, 0.6) * height
        return folds + 0.14 * swell + 0.06 * smooth_noise(rng, MACRO, (16, 16))
    if name == "colon":
        # Haustra: thin half-moon folds between three bands, so that the lumen is a triangle.
        bands = 0.5 - 0.5 * np.cos(2 * np.pi * (3 * turn + 0.05 * drift))
        count = int(rng.integers(5, 8))
        sacs = _ridges(depth * count + 0.10 * drift + 0.04 * swell, 3.5)
        flat = 0.34 * (1 - bands)
        return flat + sacs * (0.30 + 0.55 * (1 - bands)) + 0.09 * swell + 0.05 * drift
    # Mouth: the folds of palate, cheek and tongue are soft and few.
    palate = _ridges(depth * 9 + 0.2 * drift, 1.5) * np.clip(np.cos(2 * np.pi * turn), 0, 1)
    return 0.5 + 0.35 * drift + 0.22 * palate


def _fine_relief(name: str, rng: np.random.Generator) -> Array:
    """Villi and pits of a region, a tile of MICRO."""
    if name == "small intestine":
        # Villi: fine blunt fingers, denser than anything else in the gut.
        villi = 0.8 * smooth_noise(rng, MICRO, (512, 512)) + smooth_noise(rng, MICRO, (256, 256))
        return np.clip(villi * 0.7, -1.2, 1.8) + 0.3 * smooth_noise(rng, MICRO, (64, 64))
    if name == "stomach":
        pits = smooth_noise(rng, MICRO, (256, 256))
        return 0.5 * np.abs(pits) + 0.8 * fractal_noise(rng, MICRO, (32, 32), 2)
    if name == "mouth":
        return fractal_noise(rng, MICRO, (64, 64), 3, 0.8)
    return fractal_noise(rng, MICRO, (16, 16), 4, 0.55)


def _haemoglobin(name: str, rng: np.random.Generator) -> Array:
    """Mottling and vessels of a region, a tile of MICRO."""
    mottle = 0.10 * fractal_noise(rng, MICRO, (8, 8), 5, 0.65)
    if name == "esophagus":
        return mottle * 0.5 + 0.5 * branching_lines(rng, MICRO, 70, 420, 2.0, 0.9)
    if name == "colon":
        thick = branching_lines(rng, MICRO, 26, 380, 2.3, 0.2)
        thin = branching_lines(rng, MICRO, 130, 150, 1.5, 0.1)
        return mottle * 0.8 + 0.62 * thick + 0.42 * thin
    if name == "small intestine":
        return mottle * 0.8 + 0.12 * branching_lines(rng, MICRO, 60, 100, 1.5, 0.0)
    if name == "mouth":
        return mottle * 1.3 + 0.3 * branching_lines(rng, MICRO, 70, 160, 1.5, 0.1)
    return mottle * 1.4


def build_wall(name: str, rng: np.random.Generator) -> Wall:
    """The tiles of one region in one study; some tens of milliseconds."""
    macro = _folds(name, rng)
    micro = _fine_relief(name, rng)
    furrow = macro - wrapped_blur(macro, 9.0)
    furrow = np.pad(furrow, 2, mode="wrap")
    scale = MICRO[0] // MACRO[0]
    furrow = cv2.resize(furrow, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
    furrow = furrow[2 * scale : -2 * scale, 2 * scale : -2 * scale]
    residue = fractal_noise(rng, MICRO, (16, 16), 6, 0.78) - 0.6 * furrow
    fine = np.stack([micro, _haemoglobin(name, rng), furrow + 0.07 * micro, residue], axis=-1)
    slope_depth = (np.roll(macro, -1, 0) - np.roll(macro, 1, 0)) / 2
    slope_turn = (np.roll(macro, -1, 1) - np.roll(macro, 1, 1)) / 2
    folds = np.stack([macro, slope_depth, slope_turn], axis=-1)
    look = REGION_LOOKS[name]
    along = float(np.quantile(np.abs(slope_depth), 0.99)) * MACRO[0] / look.length
    around = float(np.quantile(np.abs(slope_turn), 0.99)) * MACRO[1] / (2 * np.pi * look.radius)
    return Wall(
        look,
        np.ascontiguousarray(macro, dtype=np.float32),
        np.ascontiguousarray(folds, dtype=np.float32),
        (along * look.fold_height, around * look.fold_height),
        np.clip((fine + FINE_RANGE) / (2 * FINE_RANGE) * 255 + 0.5, 0, 255).astype(np.uint8),
    )

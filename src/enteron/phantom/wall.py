"""The walls of the five regions: their relief, their pigment and their colours."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.phantom.noise import (
    Field,
    branching_lines,
    fractal_noise,
    smooth_noise,
    wrapped_blur,
)
from enteron.phantom.trace import FINE_RANGE

MACRO = (256, 256)  # folds; small enough to stay in the processor's cache while rays march
MICRO = (1024, 1024)  # villi, pits and vessels


@dataclass(frozen=True)
class Region:
    """What makes a stretch of the gut look like itself. Lengths in small-bowel radii."""

    radius: float
    fold_height: float
    relief: float  # height of the finest relief: villi, pits
    length: float  # of the tile along the axis, before it repeats
    palette: tuple[tuple[float, float, float], ...]  # RGB of the wall from unlit to glaring
    wetness: float  # share of specular highlights
    tilt: float  # how far the camera tends to look away from the axis, radians
    travel: float  # length travelled per unit of activity


REGION: dict[str, Region] = {
    "mouth": Region(
        1.35, 0.30, 0.006, 6.0,
        ((0.07, 0.03, 0.03), (0.45, 0.20, 0.17), (0.80, 0.50, 0.44), (0.98, 0.86, 0.82)),
        0.9, 0.45, 0.5,
    ),
    "esophagus": Region(
        0.95, 0.26, 0.004, 8.0,
        ((0.09, 0.035, 0.03), (0.48, 0.24, 0.17), (0.83, 0.58, 0.47), (0.98, 0.87, 0.78)),
        0.7, 0.18, 1.2,
    ),
    "stomach": Region(
        1.9, 0.85, 0.006, 12.0,
        ((0.08, 0.03, 0.015), (0.46, 0.18, 0.09), (0.82, 0.47, 0.31), (0.99, 0.82, 0.68)),
        0.8, 0.85, 0.7,
    ),
    "small intestine": Region(
        1.05, 0.66, 0.009, 8.0,
        ((0.085, 0.03, 0.012), (0.43, 0.18, 0.075), (0.80, 0.48, 0.28), (0.99, 0.84, 0.66)),
        0.35, 0.95, 0.5,
    ),
    "colon": Region(
        1.55, 0.62, 0.004, 10.0,
        ((0.055, 0.03, 0.015), (0.38, 0.18, 0.09), (0.74, 0.47, 0.32), (0.97, 0.82, 0.68)),
        0.45, 0.85, 0.6,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Wall:
    """One region of one study: tiles over (depth, angle)."""

    region: Region
    heights: Field  # MACRO: folds, 0 to about 1, upwards is into the lumen
    macro: NDArray[np.floating]  # (*MACRO, 3): the same, and their slopes per cell
    steepest: tuple[float, float]  # rise per length, along the axis and around it
    fine: NDArray[np.uint8]  # (*MICRO, 4): fine relief, haemoglobin, furrow, residue


def _ridges(phase: Field, sharpness: float) -> Field:
    """Folds of height 0 to 1 along a phase in turns; sharper ones are thinner."""
    return (0.5 + 0.5 * np.cos(2 * np.pi * phase)) ** np.float32(sharpness)


def _axes(shape: tuple[int, int]) -> tuple[Field, Field]:
    """Depth and angle of a tile's cells, each from 0 to 1."""
    depth = np.arange(shape[0], dtype=np.float32)[:, None] / np.float32(shape[0])
    turn = np.arange(shape[1], dtype=np.float32)[None, :] / np.float32(shape[1])
    return depth, turn


def _macro(name: str, rng: np.random.Generator) -> Field:
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
        # Circular folds, none of which runs quite round: they tilt, fork and fade.
        count = int(rng.integers(6, 11))
        tilt = int(rng.integers(-1, 2))
        wind = 0.34 * fractal_noise(rng, MACRO, (8, 4), 3, 0.6)
        height = np.clip(0.62 + 0.36 * smooth_noise(rng, MACRO, (8, 4)), 0.08, 1.15)
        folds = _ridges(depth * count + tilt * turn + wind, 1.1) * height
        return folds + 0.14 * swell + 0.06 * smooth_noise(rng, MACRO, (16, 16))
    if name == "colon":
        # Haustra: thin half-moon folds between three bands, so that the lumen is a triangle.
        bands = 0.5 - 0.5 * np.cos(2 * np.pi * (3 * turn + 0.05 * drift))
        count = int(rng.integers(5, 8))
        sacs = _ridges(depth * count + 0.10 * drift + 0.04 * swell, 3.5)
        flat = 0.34 * (1 - bands)
        return flat + sacs * (0.30 + 0.55 * (1 - bands)) + 0.09 * swell + 0.05 * drift
    # Mouth: palate, cheek and tongue are soft and few.
    palate = _ridges(depth * 9 + 0.2 * drift, 1.5) * np.clip(np.cos(2 * np.pi * turn), 0, 1)
    return 0.5 + 0.35 * drift + 0.22 * palate


def _micro(name: str, rng: np.random.Generator) -> Field:
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


def _haemoglobin(name: str, rng: np.random.Generator) -> Field:
    mottle = 0.10 * fractal_noise(rng, MICRO, (8, 8), 5, 0.65)
    if name == "esophagus":
        return mottle * 0.5 + 0.5 * branching_lines(rng, MICRO, 70, 420, 2.0, 0.9)
    if name == "colon":
        thick = branching_lines(rng, MICRO, 26, 380, 2.3, 0.2)
        thin = branching_lines(rng, MICRO, 130, 150, 1.5, 0.1)
        return mottle * 0.8 + 0.62 * thick + 0.42 * thin
    if name == "small intestine":
        return mottle * 1.3 + 0.16 * branching_lines(rng, MICRO, 60, 100, 1.5, 0.0)
    if name == "mouth":
        return mottle * 1.3 + 0.3 * branching_lines(rng, MICRO, 70, 160, 1.5, 0.1)
    return mottle * 1.4


def build_wall(name: str, rng: np.random.Generator) -> Wall:
    """The tiles of one region in one study; some tens of milliseconds."""
    macro = _macro(name, rng)
    micro = _micro(name, rng)
    furrow = macro - wrapped_blur(macro, 9.0)
    furrow = np.pad(furrow, 2, mode="wrap")
    scale = MICRO[0] // MACRO[0]
    furrow = cv2.resize(furrow, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
    furrow = furrow[2 * scale : -2 * scale, 2 * scale : -2 * scale]
    residue = fractal_noise(rng, MICRO, (8, 16), 5, 0.62) - 0.6 * furrow
    fine = np.stack([micro, _haemoglobin(name, rng), furrow + 0.07 * micro, residue], axis=-1)
    slope_depth = (np.roll(macro, -1, 0) - np.roll(macro, 1, 0)) / 2
    slope_turn = (np.roll(macro, -1, 1) - np.roll(macro, 1, 1)) / 2
    folds = np.stack([macro, slope_depth, slope_turn], axis=-1)
    region = REGION[name]
    along = float(np.quantile(np.abs(slope_depth), 0.99)) * MACRO[0] / region.length
    around = float(np.quantile(np.abs(slope_turn), 0.99)) * MACRO[1] / (2 * np.pi * region.radius)
    return Wall(
        region,
        np.ascontiguousarray(macro, dtype=np.float32),
        np.ascontiguousarray(folds, dtype=np.float32),
        (along * region.fold_height, around * region.fold_height),
        np.clip((fine + FINE_RANGE) / (2 * FINE_RANGE) * 255 + 0.5, 0, 255).astype(np.uint8),
    )

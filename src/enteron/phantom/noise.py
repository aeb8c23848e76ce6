"""Noise that tiles: the raw material of walls, fluids and sensors."""

from functools import lru_cache

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

Field = NDArray[np.floating]
"""float32 throughout; numpy's types cannot follow that through arithmetic."""


def smooth_noise(rng: np.random.Generator, shape: tuple[int, int], cells: tuple[int, int]) -> Field:
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
) -> Field:
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


def wrapped_blur(field: Field, sigma: float) -> Field:
    """Gaussian blur of a tile, so that it still tiles."""
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
) -> Field:
    """Vessels: trees of winding lines from 0 to 1 that thin out as they branch, on a tile.

    `length` and `width` are in pixels; `along` from 0 (any direction) to 1 (along the rows' axis).
    """
    high, wide = shape
    pad = 64
    canvas = np.zeros((high + 2 * pad, wide + 2 * pad), np.uint8)
    step = 7.0
    # One branch to draw: x, y, heading, width, steps left, strength.
    todo: list[tuple[float, float, float, float, int, float]] = []
    for _ in range(trees):
        heading = float(rng.uniform(0, 2 * np.pi))
        if rng.random() < along:
            heading = np.pi / 2 + float(rng.normal(0, 0.15)) + (np.pi if rng.random() < 0.5 else 0)
        todo.append(
            (
                float(rng.uniform(0, wide)),
                float(rng.uniform(0, high)),
                heading,
                width * float(rng.uniform(0.6, 1.2)),
                int(length / step * rng.uniform(0.6, 1.3)),
                float(rng.uniform(0.5, 1.0)),
            )
        )
    while todo:
        x, y, heading, thick, steps, strength = todo.pop()
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
                todo.append((x, y, heading + side, thick * 0.7, left, strength * 0.9))
    folded = canvas[pad:-pad, pad:-pad].copy()
    folded[-pad:] = np.maximum(folded[-pad:], canvas[:pad, pad:-pad])
    folded[:pad] = np.maximum(folded[:pad], canvas[-pad:, pad:-pad])
    folded[:, -pad:] = np.maximum(folded[:, -pad:], canvas[pad:-pad, :pad])
    folded[:, :pad] = np.maximum(folded[:, :pad], canvas[pad:-pad, -pad:])
    return wrapped_blur(folded.astype(np.float32) / 255, 1.2)


@lru_cache(maxsize=1)
def grain() -> Field:
    """(1024, 1024) white noise of deviation 1, the same in every process, for sensors."""
    return np.random.default_rng(0x6772).standard_normal((1024, 1024), dtype=np.float32)


@lru_cache(maxsize=1)
def clouds() -> Field:
    """(512, 512) soft fractal noise that tiles, for fluids, mottling and ragged edges."""
    return fractal_noise(np.random.default_rng(0x636C), (512, 512), (4, 4), 6, 0.6)


@njit(cache=True, error_model="numpy", fastmath=True)
def look_up(tile: Field, x: Field, y: Field) -> Field:
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

"""Light and colour: from traced walls to a picture, as the capsule's lamps would show them."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from enteron.phantom.trace import Scalar

Array = NDArray[np.floating]
F32 = np.float32

_kernel: Any = njit(cache=True, error_model="numpy", fastmath=True)

LEVELS = 256
ABSORBED = (0.16, 1.05, 1.10)
"""How strongly haemoglobin takes red, green and blue away."""


def palette_table(stops: NDArray[np.floating]) -> Array:
    """(LEVELS, 3) colours from unlit to glaring, through four stops."""
    places = np.array([0.0, 0.28, 0.64, 1.0])
    levels = np.linspace(0, 1, LEVELS)
    return np.stack([np.interp(levels, places, stops[:, c]) for c in range(3)], 1).astype(F32)


@_kernel
def illuminate(
    seen: NDArray[np.uint8],
    rays: Array,
    turn_matrix: Array,
    normal: Array,
    distance: Array,
    furrow: Array,
    lamp: Array,
    wetness: Scalar,
    light: Array,
    glint: Array,
) -> float:
    """Fill the light that falls on each pixel and the glints; returns the mean light.

    lamp (3,): the place of the lamps beside the lens, in the camera's frame.
    """
    height, width = seen.shape
    total, count = 0.0, 1
    for v in range(height):
        for u in range(width):
            if seen[v, u] == 0:
                light[v, u] = 0
                glint[v, u] = 0
                continue
            rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
            t = distance[v, u]
            # From the wall to the lamps, in the camera's frame.
            lx, ly, lz = lamp[0] - rx * t, lamp[1] - ry * t, lamp[2] - rz * t
            size = F32(1.0) / math.sqrt(lx * lx + ly * ly + lz * lz)
            lx, ly, lz = lx * size, ly * size, lz * size
            n0, n1, n2 = normal[v, u, 0], normal[v, u, 1], normal[v, u, 2]
            nx = turn_matrix[0, 0] * n0 + turn_matrix[1, 0] * n1 + turn_matrix[2, 0] * n2
            ny = turn_matrix[0, 1] * n0 + turn_matrix[1, 1] * n1 + turn_matrix[2, 1] * n2
            nz = turn_matrix[0, 2] * n0 + turn_matrix[1, 2] * n1 + turn_matrix[2, 2] * n2
            facing = max(F32(0.0), nx * lx + ny * ly + nz * lz)
            # Tissue scatters: light wraps round edges, and neighbours light each other.
            soft = F32(0.30) + F32(0.70) * facing
            cavity = min(F32(1.35), max(F32(0.35), F32(1.0) + F32(1.0) * furrow[v, u]))
            level = soft * cavity / ((t * t + F32(0.45)) * (F32(1.0) + F32(0.12) * t * t)) + F32(
                0.01
            )
            light[v, u] = level
            total += level
            count += 1
            hx, hy, hz = lx - rx, ly - ry, lz - rz
            size = F32(1.0) / math.sqrt(hx * hx + hy * hy + hz * hz + F32(1e-9))
            gloss = (nx * hx + ny * hy + nz * hz) * size
            if gloss > F32(0.97):
                sharp = (gloss - F32(0.97)) / F32(0.03)
                sharp *= sharp
                glint[v, u] = wetness * sharp * sharp / (F32(0.5) + t)
            else:
                glint[v, u] = 0
    return total / count


@_kernel
def colour(
    seen: NDArray[np.uint8],
    light: Array,
    glint: Array,
    blood: Array,
    cover: Array,
    distance: Array,
    table: Array,
    absorbed: Array,
    lamp_tone: Array,
    fog: Array,
    swirl: Array,
    gain: Scalar,
    picture: Array,
) -> None:
    """Fill the picture (h, w, 3), 0 to about 1.

    blood (h, w): haemoglobin of the wall. cover (h, w, 4): opaque colour on it and its share.
    lamp_tone (3,): colour of white things. fog (4,): colour of the fluid, and its density per
    length; swirl (h, w): its unevenness, about 1.
    """
    height, width = seen.shape
    for v in range(height):
        for u in range(width):
            if seen[v, u] == 0:
                for c in range(3):
                    picture[v, u, c] = 0
                continue
            shade = F32(1.0) - math.exp(-light[v, u] * gain)
            place = shade * F32(LEVELS - 1)
            cell = min(int(place), LEVELS - 2)
            part = place - F32(cell)
            alpha = cover[v, u, 3]
            bright = F32(0.06) + F32(1.02) * math.sqrt(shade)
            veil = F32(1.0) - math.exp(-fog[3] * distance[v, u])
            # The fluid is lit too, less the further the wall behind it.
            murk = veil * (F32(0.30) + F32(0.70) * shade)
            for c in range(3):
                wall = table[cell, c] + (table[cell + 1, c] - table[cell, c]) * part
                wall *= math.exp(-absorbed[c] * blood[v, u])
                laid = cover[v, u, c] * lamp_tone[c] * bright
                wall += (laid - wall) * alpha
                wall += fog[c] * murk * swirl[v, u] - wall * veil
                picture[v, u, c] = wall + glint[v, u]

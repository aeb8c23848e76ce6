"""Ray tracing of a lumen: where each pixel's ray meets the wall, and how the wall lies there.

The lumen is a tube around a bent axis whose radius is a height map over (depth, angle). Lengths are
in radii of a relaxed small bowel (about 12 mm). The capsule sits at depth 0 of its own frame; z
points along the axis, away from the mouth.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float32]

F32 = np.float32
COARSE = 4  # pixels per side of a block that shares one coarse ray
FAR = F32(9.0)
"""Length at which a ray is given up: nothing there is lit."""

RING_ANGLES = 128
"""A narrowing is a row: its place, its half-width, then its amount (0 to 1) at so many angles."""


_fast = njit(cache=True, inline="always", error_model="numpy", fastmath=True)
_kernel = njit(cache=True, error_model="numpy", fastmath=True)


@_fast
def _angle(y: float, x: float) -> float:
    """Angle of (x, y) from 0 to 1 (turns), to 1e-4 turns: enough for a lookup, faster than atan2."""
    across, up = abs(x), abs(y)
    low, high = min(across, up), max(across, up)
    ratio = low / (high + F32(1e-9))
    square = ratio * ratio
    turn = ratio * (F32(0.15915) + square * (F32(-0.0524) + square * (F32(0.0285) - square * F32(0.0102))))
    if up > across:
        turn = F32(0.25) - turn
    if x < 0:
        turn = F32(0.5) - turn
    if y < 0:
        turn = F32(1.0) - turn
    return turn


@_fast
def _corner(row: float, column: float, high: int, wide: int) -> tuple[int, int, int, int]:
    """The four neighbours of a place (not negative) in a tile whose sides are powers of two."""
    top = np.uint32(row) & np.uint32(high - 1)
    left = np.uint32(column) & np.uint32(wide - 1)
    bottom = (top + np.uint32(1)) & np.uint32(high - 1)
    right = (left + np.uint32(1)) & np.uint32(wide - 1)
    return top, bottom, left, right


@_fast
def _part(place: float) -> float:
    return place - F32(np.uint32(place))


@_fast
def _fold(tile: Array, row: float, column: float) -> float:
    """Bilinear height in a tile (rows, columns, 3) of heights and slopes."""
    top, bottom, left, right = _corner(row, column, tile.shape[0], tile.shape[1])
    down, across = _part(row), _part(column)
    upper = tile[top, left, 0] + (tile[top, right, 0] - tile[top, left, 0]) * across
    lower = tile[bottom, left, 0] + (tile[bottom, right, 0] - tile[bottom, left, 0]) * across
    return upper + (lower - upper) * down


@_fast
def _narrowing(turn: float, z: float, rings: Array) -> float:
    """What is left of the radius, 0 to 1, where rings of muscle close the lumen."""
    left = F32(1.0)
    for k in range(rings.shape[0]):
        offset = (z - rings[k, 0]) / rings[k, 1]
        rest = F32(1.0) - offset * offset
        if rest > 0:
            place = turn * F32(RING_ANGLES)
            cell = np.uint32(place) & np.uint32(RING_ANGLES - 1)
            after = (cell + np.uint32(1)) & np.uint32(RING_ANGLES - 1)
            amount = rings[k, 2 + cell]
            amount += (rings[k, 2 + after] - amount) * _part(place)
            left *= F32(1.0) - rest * rest * amount
    return left


@_fast
def _march(
    dx: float,
    dy: float,
    dz: float,
    start: float,
    ox: float,
    oy: float,
    bx: float,
    by: float,
    macro: Array,
    fine: Array,
    shape: Array,
    rings: Array,
) -> float:
    """Length of a ray from the camera to the wall, sought from `start` on."""
    t, before, gap_before = start, start, F32(1.0)
    per_row, per_fine = F32(macro.shape[0]) / shape[3], F32(fine.shape[0]) / shape[3]
    wide, wide_fine = F32(macro.shape[1]), F32(fine.shape[1])
    outside = False
    for _ in range(40):
        z = t * dz
        x = ox + t * dx - bx * z * z
        y = oy + t * dy - by * z * z
        # The capsule presses the folds beside it flat.
        compress = min(F32(1.0), F32(0.25) + F32(0.6) * t)
        turn = _angle(y, x)
        depth, around = z + shape[4], turn + shape[5]
        radius = shape[0] - shape[1] * compress * _fold(macro, depth * per_row, around * wide)
        radius = max(radius * _narrowing(turn, z, rings), F32(0.03))
        gap = radius - math.sqrt(x * x + y * y)
        if gap < F32(0.05):
            gap -= shape[2] * _fold(fine, depth * per_fine, around * wide_fine)
        if gap < F32(0.006):
            if gap < 0 and outside:
                t = before + (t - before) * gap_before / (gap_before - gap + F32(1e-6))
            elif gap < 0 and t > F32(0.15):
                t = max(F32(0.12), F32(0.7) * t)  # the start lay behind a fold: step back
                continue
            break
        # Newton's step where the wall comes nearer, kept short enough not to jump over a fold.
        closing = (gap_before - gap) / (t - before + F32(1e-6))
        stride = F32(0.7) * gap
        if outside and closing > F32(0.05):
            stride = max(stride, min(F32(1.02) * gap / closing, F32(1.8) * gap))
        before, gap_before, outside = t, gap, True
        t += max(F32(0.01), stride)
        if t > FAR:
            return FAR
    return t


@_kernel
def trace_wall(
    rays: Array,
    seen: NDArray[np.uint8],
    turn_matrix: Array,
    origin: Array,
    bend: Array,
    macro: Array,
    fine: Array,
    shape: Array,
    rings: Array,
    point: Array,
    normal: Array,
    distance: Array,
    pigment: Array,
) -> None:
    """Fill, for every seen pixel, the hit `point`, `normal`, `distance` and wall `pigment`.

    rays (h, w, 3): unit directions of the pixels in the camera's frame. macro (.., 3): folds and
    their slopes per cell. fine (.., 4): fine relief, haemoglobin, furrow, residue. shape: radius, fold height,
    relief, tile length, depth of the capsule, tile turn. pigment (h, w, 3): the last three. Points are relative to
    the capsule's place on the axis.
    """
    height, width = seen.shape
    # A coarse pass tells the fine one where to start: most of a ray's way is empty.
    rows, columns = (height + COARSE - 1) // COARSE, (width + COARSE - 1) // COARSE
    coarse = np.empty((rows + 4, columns + 4), np.float32)
    coarse[:] = FAR
    r00, r01, r02 = turn_matrix[0, 0], turn_matrix[0, 1], turn_matrix[0, 2]
    r10, r11, r12 = turn_matrix[1, 0], turn_matrix[1, 1], turn_matrix[1, 2]
    r20, r21, r22 = turn_matrix[2, 0], turn_matrix[2, 1], turn_matrix[2, 2]
    ox, oy, bx, by = origin[0], origin[1], bend[0], bend[1]
    for i in range(rows):
        for j in range(columns):
            v, u = min(COARSE * i + COARSE // 2, height - 1), min(COARSE * j + COARSE // 2, width - 1)
            rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
            coarse[i + 2, j + 2] = _march(
                r00 * rx + r01 * ry + r02 * rz,
                r10 * rx + r11 * ry + r12 * rz,
                r20 * rx + r21 * ry + r22 * rz,
                F32(0.12), ox, oy, bx, by, macro, fine, shape, rings,
            )  # fmt: skip
    high, wide = F32(macro.shape[0]), F32(macro.shape[1])
    fine_high, fine_wide = F32(fine.shape[0]), F32(fine.shape[1])
    for i in range(rows):
        for j in range(columns):
            near = FAR
            for k in range(5):
                for m in range(5):
                    near = min(near, coarse[i + k, j + m])
            start = max(F32(0.12), F32(0.82) * near - F32(0.05))
            for v in range(COARSE * i, min(COARSE * (i + 1), height)):
                for u in range(COARSE * j, min(COARSE * (j + 1), width)):
                    if seen[v, u] == 0:
                        continue
                    rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
                    dx = r00 * rx + r01 * ry + r02 * rz
                    dy = r10 * rx + r11 * ry + r12 * rz
                    dz = r20 * rx + r21 * ry + r22 * rz
                    t = _march(dx, dy, dz, start, ox, oy, bx, by, macro, fine, shape, rings)
                    z = t * dz
                    px, py = ox + t * dx, oy + t * dy
                    x, y = px - bx * z * z, py - by * z * z
                    turn = _angle(y, x)
                    compress = min(F32(1.0), F32(0.25) + F32(0.6) * t)
                    r = math.sqrt(x * x + y * y) + F32(1e-6)
                    round_r = F32(6.2831853) * r
                    # Folds: smooth slopes, read from the tile.
                    row = (z + shape[4]) / shape[3] * high
                    column = (turn + shape[5]) * wide
                    top, bottom, left, right = _corner(row, column, macro.shape[0], macro.shape[1])
                    down, across = _part(row), _part(column)
                    w00, w01 = (F32(1) - down) * (F32(1) - across), (F32(1) - down) * across
                    w10, w11 = down * (F32(1) - across), down * across
                    fold = (
                        w00 * macro[top, left, 0] + w01 * macro[top, right, 0]
                        + w10 * macro[bottom, left, 0] + w11 * macro[bottom, right, 0]
                    )  # fmt: skip
                    rise_z = (
                        w00 * macro[top, left, 1] + w01 * macro[top, right, 1]
                        + w10 * macro[bottom, left, 1] + w11 * macro[bottom, right, 1]
                    )  # fmt: skip
                    rise_a = (
                        w00 * macro[top, left, 2] + w01 * macro[top, right, 2]
                        + w10 * macro[bottom, left, 2] + w11 * macro[bottom, right, 2]
                    )  # fmt: skip
                    amount = shape[1] * compress
                    slope_z = -amount * rise_z * high / shape[3]
                    slope_a = -amount * rise_a * wide / round_r
                    if rings.shape[0] > 0:
                        plain = shape[0] - amount * fold
                        left_here = _narrowing(turn, z, rings)
                        slope_z = slope_z * left_here + plain * (
                            _narrowing(turn, z + F32(0.01), rings) - left_here
                        ) * F32(100)
                        slope_a = slope_a * left_here + plain * (
                            _narrowing(turn + F32(0.002), z, rings) - left_here
                        ) * F32(500) / round_r
                    # Fine relief: the slope between texels, fading where a pixel covers many.
                    row = (z + shape[4]) / shape[3] * fine_high
                    column = (turn + shape[5]) * fine_wide
                    top, bottom, left, right = _corner(row, column, fine.shape[0], fine.shape[1])
                    down, across = _part(row), _part(column)
                    w00, w01 = (F32(1) - down) * (F32(1) - across), (F32(1) - down) * across
                    w10, w11 = down * (F32(1) - across), down * across
                    a, b = fine[top, left, 0], fine[top, right, 0]
                    c, d = fine[bottom, left, 0], fine[bottom, right, 0]
                    fade = shape[2] / (F32(1.0) + F32(1.5) * t * t)
                    slope_z -= fade * ((c - a) * (F32(1) - across) + (d - b) * across) * fine_high / shape[3]
                    slope_a -= fade * ((b - a) * (F32(1) - down) + (d - c) * down) * fine_wide / round_r
                    for channel in range(3):
                        pigment[v, u, channel] = (
                            w00 * fine[top, left, channel + 1] + w01 * fine[top, right, channel + 1]
                            + w10 * fine[bottom, left, channel + 1]
                            + w11 * fine[bottom, right, channel + 1]
                        )  # fmt: skip
                    # The wall is where r - R(turn, z) = 0; its normal points inwards.
                    ux, uy = x / r, y / r
                    nx, ny = -(ux + uy * slope_a), -(uy - ux * slope_a)
                    nz = slope_z + (bx * ux + by * uy) * F32(2) * z
                    size = F32(1.0) / math.sqrt(nx * nx + ny * ny + nz * nz)
                    point[v, u, 0], point[v, u, 1], point[v, u, 2] = px, py, z
                    normal[v, u, 0], normal[v, u, 1], normal[v, u, 2] = nx * size, ny * size, nz * size
                    distance[v, u] = t


@_kernel
def trace_solids(
    rays: Array,
    seen: NDArray[np.uint8],
    turn_matrix: Array,
    origin: Array,
    centres: Array,
    frames: Array,
    bounds: Array,
    point: Array,
    normal: Array,
    distance: Array,
    solid: NDArray[np.int8],
    local: Array,
) -> None:
    """Put ellipsoids before the traced wall; `solid` gets their number, `local` the unit-ball point.

    centres (m, 3) beside the points; frames (m, 3, 3): rows are axes divided by their half-lengths;
    bounds (m,): radius of a ball around each.
    """
    height, width = seen.shape
    for k in range(centres.shape[0]):
        cx = centres[k, 0] - origin[0]
        cy = centres[k, 1] - origin[1]
        cz = centres[k, 2] 
        frame = frames[k]
        away = math.sqrt(cx * cx + cy * cy + cz * cz) + 1e-6
        limit = -1.0
        if bounds[k] < away:
            limit = math.sqrt(1 - (bounds[k] / away) ** 2) * away
        ox = -(frame[0, 0] * cx + frame[0, 1] * cy + frame[0, 2] * cz)
        oy = -(frame[1, 0] * cx + frame[1, 1] * cy + frame[1, 2] * cz)
        oz = -(frame[2, 0] * cx + frame[2, 1] * cy + frame[2, 2] * cz)
        inner = ox * ox + oy * oy + oz * oz - 1
        if inner <= 0.05:  # the camera would be inside
            continue
        for v in range(height):
            for u in range(width):
                if seen[v, u] == 0:
                    continue
                rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
                dx = turn_matrix[0, 0] * rx + turn_matrix[0, 1] * ry + turn_matrix[0, 2] * rz
                dy = turn_matrix[1, 0] * rx + turn_matrix[1, 1] * ry + turn_matrix[1, 2] * rz
                dz = turn_matrix[2, 0] * rx + turn_matrix[2, 1] * ry + turn_matrix[2, 2] * rz
                if dx * cx + dy * cy + dz * cz < limit:
                    continue
                ax = frame[0, 0] * dx + frame[0, 1] * dy + frame[0, 2] * dz
                ay = frame[1, 0] * dx + frame[1, 1] * dy + frame[1, 2] * dz
                az = frame[2, 0] * dx + frame[2, 1] * dy + frame[2, 2] * dz
                a = ax * ax + ay * ay + az * az
                b = ax * ox + ay * oy + az * oz
                root = b * b - a * inner
                if root <= 0:
                    continue
                t = (-b - math.sqrt(root)) / a
                if t < 0.05 or t >= distance[v, u]:
                    continue
                lx, ly, lz = ox + t * ax, oy + t * ay, oz + t * az
                nx = frame[0, 0] * lx + frame[1, 0] * ly + frame[2, 0] * lz
                ny = frame[0, 1] * lx + frame[1, 1] * ly + frame[2, 1] * lz
                nz = frame[0, 2] * lx + frame[1, 2] * ly + frame[2, 2] * lz
                size = 1.0 / math.sqrt(nx * nx + ny * ny + nz * nz)
                normal[v, u, 0], normal[v, u, 1], normal[v, u, 2] = nx * size, ny * size, nz * size
                point[v, u, 0] = origin[0] + t * dx
                point[v, u, 1] = origin[1] + t * dy
                point[v, u, 2] = t * dz
                distance[v, u] = t
                solid[v, u] = k
                local[v, u, 0], local[v, u, 1], local[v, u, 2] = lx, ly, lz

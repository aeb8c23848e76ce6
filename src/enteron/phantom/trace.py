"""Ray tracing and shading of a lumen, as compiled kernels.

`trace` finds where each pixel's ray meets the wall and the wall's normal there; `illuminate` and
`colour` turn that into light and colour. The lumen is a tube around a bent axis whose radius is a
height map over (depth, angle), with rings of muscle that narrow it and ellipsoids that grow out of
its wall. Lengths are in radii of a relaxed small bowel (about 12 mm). The capsule is at depth 0 of
its own coordinates; z points along the axis, away from the mouth.

Pictures must stay the same bytes: the order of operations in the kernels is part of the result.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.floating]
"""float32 throughout the renderer; numpy's types cannot follow that through arithmetic."""

Bytes = NDArray[np.uint8]
Scalar = Any  # float32 or uint32 in compiled code, which pyright would call float
F32 = np.float32
U32 = np.uint32

COARSE = 4  # pixels per side of a block that shares one coarse ray
NEAR = F32(0.12)  # the dome keeps tissue at least so far from the lens
FAR = F32(6.0)  # a ray is followed no further: nothing there is lit

RING_ANGLES = 128
"""Angles at which a narrowing is sampled. It is stored as a row: its depth, its half-width, then
the amount (0 to 1) by which it closes the lumen at each angle."""

FINE_RANGE = F32(4.0)
"""Fine tiles hold bytes: 0 to 255 stand for -FINE_RANGE to FINE_RANGE."""

PALETTE_LEVELS = 256
ABSORBED = (0.16, 1.05, 1.10)
"""How strongly haemoglobin absorbs red, green and blue."""

_BYTE = F32(8.0 / 255.0)
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": True,
    "_nrt": False,  # nothing here allocates; counting references in the inner loops costs a third
}
_kernel: Any = njit(**_OPTIONS)
_inner: Any = njit(inline="always", **_OPTIONS)  # numba's own inlining is a quarter faster
_shading_kernel: Any = njit(cache=True, error_model="numpy", fastmath=True)


@_inner
def _angle(y: Scalar, x: Scalar) -> Scalar:
    """Angle of (x, y) in turns, 0 to 1, to 1e-4: enough for a lookup, faster than atan2."""
    across, up = abs(x), abs(y)
    low, high = min(across, up), max(across, up)
    ratio = low / (high + F32(1e-9))
    square = ratio * ratio
    series = F32(-0.0524) + square * (F32(0.0285) - square * F32(0.0102))
    turn = ratio * (F32(0.15915) + square * series)
    if up > across:
        turn = F32(0.25) - turn
    if x < 0:
        turn = F32(0.5) - turn
    if y < 0:
        turn = F32(1.0) - turn
    return turn


@_inner
def _corner(
    row: Scalar, column: Scalar, high: int, wide: int
) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Rows and columns around a position (not negative) in a tile; its sides are powers of 2."""
    top = U32(row) & U32(high - 1)
    left = U32(column) & U32(wide - 1)
    return top, (top + U32(1)) & U32(high - 1), left, (left + U32(1)) & U32(wide - 1)


@_inner
def _fraction(position: Scalar) -> Scalar:
    return position - F32(U32(position))


@_inner
def _fold(tile: Array, row: Scalar, column: Scalar) -> Scalar:
    """Bilinear height in a tile."""
    top, bottom, left, right = _corner(row, column, tile.shape[0], tile.shape[1])
    down, across = _fraction(row), _fraction(column)
    upper = tile[top, left] + (tile[top, right] - tile[top, left]) * across
    lower = tile[bottom, left] + (tile[bottom, right] - tile[bottom, left]) * across
    return upper + (lower - upper) * down


@_inner
def _narrowing(turn: Scalar, z: Scalar, rings: Array) -> Scalar:
    """What is left of the radius, 0 to 1, where rings of muscle close the lumen."""
    left = F32(1.0)
    for k in range(rings.shape[0]):
        offset = (z - rings[k, 0]) / rings[k, 1]
        rest = F32(1.0) - offset * offset
        if rest > 0:
            position = turn * F32(RING_ANGLES)
            cell = U32(position) & U32(RING_ANGLES - 1)
            after = (cell + U32(1)) & U32(RING_ANGLES - 1)
            amount = rings[k, 2 + cell]
            amount += (rings[k, 2 + after] - amount) * _fraction(position)
            left *= F32(1.0) - rest * rest * amount
    return left


@_inner
def _solid(
    px: Scalar, py: Scalar, pz: Scalar, k: int, centres: Array, frames: Array, forms: Array
) -> Scalar:
    """Approximate distance to ellipsoid k, which may be lumpy."""
    x, y, z = px - centres[k, 0], py - centres[k, 1], pz - centres[k, 2]
    a = frames[k, 0, 0] * x + frames[k, 0, 1] * y + frames[k, 0, 2] * z
    b = frames[k, 1, 0] * x + frames[k, 1, 1] * y + frames[k, 1, 2] * z
    c = frames[k, 2, 0] * x + frames[k, 2, 1] * y + frames[k, 2, 2] * z
    reach = math.sqrt(a * a + b * b + c * c)
    if reach < F32(1.6) and forms[k, 2] > 0:
        lumps = math.sin(F32(4.1) * a + forms[k, 3]) * math.sin(F32(3.7) * b + F32(1.3))
        reach += forms[k, 2] * (lumps + F32(0.5) * math.sin(F32(6.3) * (b + c) + forms[k, 3]))
    return (reach - F32(1.0)) * forms[k, 0]


@_inner
def _merged(
    gap: Scalar, px: Scalar, py: Scalar, pz: Scalar, centres: Array, frames: Array, forms: Array
) -> Scalar:
    """Free distance at a point: the gap to the wall, less the solids that merge with the wall."""
    for k in range(centres.shape[0]):
        away = _solid(px, py, pz, k, centres, frames, forms)
        soft = forms[k, 1]
        mix = max(F32(0.0), min(F32(1.0), F32(0.5) + F32(0.5) * (gap - away) / soft))
        gap = gap + (away - gap) * mix - soft * mix * (F32(1.0) - mix)
    return gap


@_inner
def _gap(
    t: Scalar, dx: Scalar, dy: Scalar, dz: Scalar, ox: Scalar, oy: Scalar, bx: Scalar, by: Scalar,
    heights: Array, shape: Array, rings: Array, centres: Array, frames: Array, forms: Array,
) -> Scalar:  # fmt: skip
    """Free distance across the lumen at length t of a ray; negative inside the wall."""
    z = t * dz
    px, py = ox + t * dx, oy + t * dy
    x, y = px - bx * z * z, py - by * z * z
    # The capsule presses the folds beside it flat.
    compress = min(F32(1.0), F32(0.25) + F32(0.6) * t)
    turn = _angle(y, x)
    row = (z + shape[4]) * F32(heights.shape[0]) / shape[3]
    radius = shape[0] - shape[1] * compress * _fold(heights, row, turn * F32(heights.shape[1]))
    gap = max(radius * _narrowing(turn, z, rings), F32(0.03)) - math.sqrt(x * x + y * y)
    return _merged(gap, px, py, z, centres, frames, forms)


@_kernel
def _march(
    dx: Scalar, dy: Scalar, dz: Scalar, start: Scalar, ox: Scalar, oy: Scalar, bx: Scalar,
    by: Scalar, heights: Array, shape: Array, rings: Array, centres: Array, frames: Array,
    forms: Array,
) -> Scalar:  # fmt: skip
    """Length of a ray from the camera to the wall, searched from `start` on."""
    t, before, gap_before, outside = start, start, F32(1.0), False
    # The wall rises no faster than its steepest fold, so this share of a gap is free.
    sideways = math.sqrt(max(F32(0), F32(1) - dz * dz))
    free = F32(1.5) / (sideways * (F32(1) + shape[6]) + shape[5] * abs(dz))
    for _ in range(90):
        gap = _gap(t, dx, dy, dz, ox, oy, bx, by, heights, shape, rings, centres, frames, forms)
        if gap < F32(0.006) + F32(0.004) * t:
            if gap < 0 and outside:
                t = before + (t - before) * gap_before / (gap_before - gap + F32(1e-6))
            elif gap < 0 and t > F32(0.15):
                t = max(NEAR, F32(0.7) * t)  # the start lay behind a fold: step back
                continue
            break
        stride = min(gap * free, F32(0.8))
        for k in range(rings.shape[0]):
            to_ring = abs(t * dz - rings[k, 0]) - rings[k, 1]
            stride = min(stride, max(to_ring + F32(0.03), F32(0.16) * rings[k, 1]))
        before, gap_before, outside = t, gap, True
        t += max(F32(0.008) + F32(0.015) * t, stride)
        if t > FAR:
            return FAR
    return t


@_kernel
def trace(
    rays: Array, seen: Bytes, rotation: Array, origin: Array, bend: Array, heights: Array,
    macro: Array, fine: Bytes, shape: Array, rings: Array, centres: Array, frames: Array,
    forms: Array, point: Array, normal: Array, distance: Array, pigment: Array,
    solid: NDArray[np.int8], share: Array, local: Array, coarse: Array,
) -> None:  # fmt: skip
    """Fill, for every seen pixel, the hit `point`, `normal`, `distance` and wall `pigment`.

    rays (h, w, 3): unit directions of the pixels in the camera's coordinates. heights: folds; macro
    (.., 3): the same with their slopes per cell. fine (.., 4): relief, haemoglobin, furrow and
    residue as bytes. shape: radius, fold height, relief, tile length, depth of the capsule,
    steepest rise of the wall along the axis and around it. Solids: centres (m, 3); frames
    (m, 3, 3), rows are axes over half-lengths; forms (m, 4): shortest half-length, softness of
    the seam, lumpiness and its phase. Where a solid is hit, `solid` is its index, `share` its
    part (0 to 1) and `local` the point on its unit ball. `coarse` is a work buffer. Points are
    relative to the capsule's position on the axis.
    """
    height, width = seen.shape
    # A coarse pass tells the fine one where to start: most of a ray's length is empty.
    rows, columns = (height + COARSE - 1) // COARSE, (width + COARSE - 1) // COARSE
    for i in range(rows + 4):
        for j in range(columns + 4):
            coarse[i, j] = FAR
    r00, r01, r02 = rotation[0, 0], rotation[0, 1], rotation[0, 2]
    r10, r11, r12 = rotation[1, 0], rotation[1, 1], rotation[1, 2]
    r20, r21, r22 = rotation[2, 0], rotation[2, 1], rotation[2, 2]
    ox, oy, bx, by = origin[0], origin[1], bend[0], bend[1]
    for i in range(rows):
        for j in range(columns):
            v = min(COARSE * i + COARSE // 2, height - 1)
            u = min(COARSE * j + COARSE // 2, width - 1)
            rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
            coarse[i + 2, j + 2] = _march(
                r00 * rx + r01 * ry + r02 * rz, r10 * rx + r11 * ry + r12 * rz,
                r20 * rx + r21 * ry + r22 * rz, NEAR, ox, oy, bx, by, heights, shape, rings,
                centres, frames, forms,
            )  # fmt: skip
    high, wide = F32(macro.shape[0]), F32(macro.shape[1])
    fine_high, fine_wide = F32(fine.shape[0]), F32(fine.shape[1])
    one = F32(1.0)
    for v in range(height):
        for u in range(width):
            if seen[v, u] == 0:
                continue
            i, j = v // COARSE, u // COARSE
            near, far = FAR, F32(0.0)
            for k in range(1, 4):
                for m in range(1, 4):
                    near = min(near, coarse[i + k, j + m])
                    far = max(far, coarse[i + k, j + m])
            rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
            dx = r00 * rx + r01 * ry + r02 * rz
            dy = r10 * rx + r11 * ry + r12 * rz
            dz = r20 * rx + r21 * ry + r22 * rz
            if far - near < F32(0.40) * near:
                # Smooth wall: one secant step between points just in front of it and behind it.
                down = (F32(v) - F32(COARSE // 2)) / F32(COARSE) + F32(2)
                across = (F32(u) - F32(COARSE // 2)) / F32(COARSE) + F32(2)
                top, left = U32(down), U32(across)
                down, across = down - F32(top), across - F32(left)
                upper = coarse[top, left] * (one - across) + coarse[top, left + 1] * across
                lower = coarse[top + 1, left] * (one - across) + coarse[top + 1, left + 1] * across
                guess = upper + (lower - upper) * down
                half = min(F32(0.02) + F32(0.15) * (far - near), F32(0.5) * guess)
                t, back = guess - half, guess + half
                front = _gap(
                    t, dx, dy, dz, ox, oy, bx, by, heights, shape, rings, centres, frames, forms
                )
                behind = _gap(
                    back, dx, dy, dz, ox, oy, bx, by, heights, shape, rings, centres, frames, forms
                )
                cross = front / (front - behind) if front - behind > F32(1e-5) else F32(0.5)
                t += (back - t) * max(F32(-0.5), min(F32(1.5), cross))
            else:
                start = max(NEAR, F32(0.92) * near - F32(0.04))
                t = _march(
                    dx, dy, dz, start, ox, oy, bx, by, heights, shape, rings, centres, frames, forms
                )
            z = t * dz
            px, py = ox + t * dx, oy + t * dy
            x, y = px - bx * z * z, py - by * z * z
            turn = _angle(y, x)
            compress = min(one, F32(0.25) + F32(0.6) * t)
            r = math.sqrt(x * x + y * y) + F32(1e-6)
            round_r = F32(6.2831853) * max(r, F32(0.05))
            # Folds: smooth slopes, read from the tile.
            row, column = (z + shape[4]) / shape[3] * high, turn * wide
            top, bottom, left, right = _corner(row, column, macro.shape[0], macro.shape[1])
            down, across = _fraction(row), _fraction(column)
            w00, w01 = (one - down) * (one - across), (one - down) * across
            w10, w11 = down * (one - across), down * across
            fold = w00 * macro[top, left, 0] + w01 * macro[top, right, 0]
            fold += w10 * macro[bottom, left, 0] + w11 * macro[bottom, right, 0]
            rise_z = w00 * macro[top, left, 1] + w01 * macro[top, right, 1]
            rise_z += w10 * macro[bottom, left, 1] + w11 * macro[bottom, right, 1]
            rise_a = w00 * macro[top, left, 2] + w01 * macro[top, right, 2]
            rise_a += w10 * macro[bottom, left, 2] + w11 * macro[bottom, right, 2]
            amount = shape[1] * compress
            slope_z = -amount * rise_z * high / shape[3]
            slope_a = -amount * rise_a * wide / round_r
            plain = shape[0] - amount * fold
            if rings.shape[0] > 0:
                here = _narrowing(turn, z, rings)
                deeper = _narrowing(turn, z + F32(0.01), rings) - here
                around = _narrowing(turn + F32(0.002), z, rings) - here
                slope_z = slope_z * here + plain * deeper * F32(100)
                slope_a = slope_a * here + plain * around * F32(500) / round_r
                plain *= here
            # Fine relief: the slope between texels, fading where a pixel covers many.
            row, column = (z + shape[4]) / shape[3] * fine_high, turn * fine_wide
            top, bottom, left, right = _corner(row, column, fine.shape[0], fine.shape[1])
            down, across = _fraction(row), _fraction(column)
            w00, w01 = (one - down) * (one - across), (one - down) * across
            w10, w11 = down * (one - across), down * across
            a, b = F32(fine[top, left, 0]), F32(fine[top, right, 0])
            c, d = F32(fine[bottom, left, 0]), F32(fine[bottom, right, 0])
            # Where the lumen closes the tile is squeezed: its texture would become streaks.
            squeezed = min(one, F32(1.6) * r / shape[0])
            # Villi stand upright: seen from the side they do not become furrows.
            upright = min(one, F32(0.1) + F32(1.3) * abs(dx * x + dy * y) / r)
            fade = _BYTE * shape[2] * squeezed * upright / (one + F32(1.5) * t * t)
            slope_z -= fade * ((c - a) * (one - across) + (d - b) * across) * fine_high / shape[3]
            slope_a -= fade * ((b - a) * (one - down) + (d - c) * down) * fine_wide / round_r
            for channel in range(3):
                value = w00 * F32(fine[top, left, channel + 1])
                value += w01 * F32(fine[top, right, channel + 1])
                value += w10 * F32(fine[bottom, left, channel + 1])
                value += w11 * F32(fine[bottom, right, channel + 1])
                pigment[v, u, channel] = (value * _BYTE - FINE_RANGE) * squeezed
            # The wall is where r - R(turn, z) = 0; its normal points inwards.
            ux, uy = x / r, y / r
            nx, ny = -(ux + uy * slope_a), -(uy - ux * slope_a)
            nz = slope_z + (bx * ux + by * uy) * F32(2) * z
            size = one / math.sqrt(nx * nx + ny * ny + nz * nz)
            nx, ny, nz = nx * size, ny * size, nz * size
            gap = plain - r
            for k in range(centres.shape[0]):
                away = _solid(px, py, z, k, centres, frames, forms)
                soft = forms[k, 1]
                mix = max(F32(0.0), min(one, F32(0.5) + F32(0.5) * (gap - away) / soft))
                if mix <= 0:
                    continue
                step = F32(0.01)
                sx = _solid(px + step, py, z, k, centres, frames, forms) - away
                sy = _solid(px, py + step, z, k, centres, frames, forms) - away
                sz = _solid(px, py, z + step, k, centres, frames, forms) - away
                size = one / (math.sqrt(sx * sx + sy * sy + sz * sz) + F32(1e-9))
                nx += (sx * size - nx) * mix
                ny += (sy * size - ny) * mix
                nz += (sz * size - nz) * mix
                gap = gap + (away - gap) * mix - soft * mix * (one - mix)
                if mix > F32(0.5) or mix > share[v, u]:
                    share[v, u] = mix
                    solid[v, u] = k
                    x, y, w = px - centres[k, 0], py - centres[k, 1], z - centres[k, 2]
                    for axis in range(3):
                        local[v, u, axis] = (
                            frames[k, axis, 0] * x + frames[k, axis, 1] * y + frames[k, axis, 2] * w
                        )
            size = one / math.sqrt(nx * nx + ny * ny + nz * nz + F32(1e-9))
            point[v, u, 0], point[v, u, 1], point[v, u, 2] = px, py, z
            normal[v, u, 0], normal[v, u, 1], normal[v, u, 2] = nx * size, ny * size, nz * size
            distance[v, u] = t


def palette_table(stops: Array) -> Array:
    """(PALETTE_LEVELS, 3) colours from unlit to glaring, through four stops (4, 3)."""
    positions = np.array([0.0, 0.28, 0.64, 1.0])
    levels = np.linspace(0, 1, PALETTE_LEVELS)
    return np.stack([np.interp(levels, positions, stops[:, c]) for c in range(3)], 1).astype(F32)


@_shading_kernel
def illuminate(
    seen: Bytes,
    rays: Array,
    rotation: Array,
    normal: Array,
    distance: Array,
    furrow: Array,
    lamp: Array,
    wetness: Scalar,
    light: Array,
    glint: Array,
) -> None:
    """Fill the light that falls on each pixel and the glints.

    lamp (3,): position of the lamps beside the lens, in the camera's coordinates.
    """
    height, width = seen.shape
    for v in range(height):
        for u in range(width):
            if seen[v, u] == 0:
                light[v, u] = 0
                glint[v, u] = 0
                continue
            rx, ry, rz = rays[v, u, 0], rays[v, u, 1], rays[v, u, 2]
            t = distance[v, u]
            # From the wall to the lamps, in the camera's coordinates.
            lx, ly, lz = lamp[0] - rx * t, lamp[1] - ry * t, lamp[2] - rz * t
            size = F32(1.0) / math.sqrt(lx * lx + ly * ly + lz * lz)
            lx, ly, lz = lx * size, ly * size, lz * size
            n0, n1, n2 = normal[v, u, 0], normal[v, u, 1], normal[v, u, 2]
            nx = rotation[0, 0] * n0 + rotation[1, 0] * n1 + rotation[2, 0] * n2
            ny = rotation[0, 1] * n0 + rotation[1, 1] * n1 + rotation[2, 1] * n2
            nz = rotation[0, 2] * n0 + rotation[1, 2] * n1 + rotation[2, 2] * n2
            facing = max(F32(0.0), nx * lx + ny * ly + nz * lz)
            # Tissue scatters: light wraps around edges, and neighbours light each other.
            soft = F32(0.56) + F32(0.44) * facing
            cavity = min(
                F32(1.35),
                max(F32(0.45), F32(1.0) + F32(0.8) * furrow[v, u]),
            )
            # Lamps around the lens and light from wall to wall: it falls off slowly at first.
            level = soft * cavity / (F32(1.3) + t * t) + F32(0.012) * cavity
            light[v, u] = level
            hx, hy, hz = lx - rx, ly - ry, lz - rz
            size = F32(1.0) / math.sqrt(hx * hx + hy * hy + hz * hz + F32(1e-9))
            gloss = (nx * hx + ny * hy + nz * hz) * size
            if gloss > F32(0.97):
                sharp = (gloss - F32(0.97)) / F32(0.03)
                sharp *= sharp
                glint[v, u] = wetness * sharp * sharp / (F32(0.5) + t)
            else:
                glint[v, u] = 0


@_shading_kernel
def exposure_gain(seen: Bytes, light: Array, target: Scalar) -> float:
    """The gain for which the mean shade, 1 - exp(-gain light), of the picture is the target."""
    height, width = seen.shape
    gain = 1.0
    for _ in range(8):  # Newton's steps; the mean is concave in the gain
        shade, slope, count = 0.0, 0.0, 1
        for v in range(1, height, 3):
            for u in range(1, width, 3):
                if seen[v, u]:
                    dark = math.exp(-gain * light[v, u])
                    shade += 1.0 - dark
                    slope += light[v, u] * dark
                    count += 1
        gain = max(0.25 * gain, gain + (target * count - shade) / (slope + 1e-9))
    return gain


@_shading_kernel
def colour(
    seen: Bytes,
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
            position = shade * F32(PALETTE_LEVELS - 1)
            cell = min(int(position), PALETTE_LEVELS - 2)
            part = position - F32(cell)
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

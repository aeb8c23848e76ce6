"""The capsule's camera: its rays, the traced view of one frame, and what each device makes of it.

A frame is drawn in three steps. The `View` traces the wall from a pose and collects pigments and
covers (lesions, landmarks, residue). `enteron.phantom.trace` shades it. `develop` turns the shaded
picture into the device's frame: colour response, noise, border, text.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
from numba import njit

from enteron.errors import EnteronError, nearest
from enteron.phantom.trace import COARSE, F32, Array, Bytes, trace
from enteron.phantom.wall import Wall, grain


@dataclass(frozen=True)
class Camera:
    """Directions of the pixels of a square fisheye picture, and which of them are seen."""

    rays: Array  # (n, n, 3) unit directions in the camera's coordinates
    seen: Bytes  # (n, n)
    field_of_view: float  # radians over the picture's width

    @property
    def side(self) -> int:
        return self.seen.shape[0]


def fisheye(seen: Bytes, field_of_view: float) -> Camera:
    """A camera whose angle from the optical axis grows evenly with the distance from the centre."""
    side = seen.shape[0]
    across = (np.arange(side) + 0.5) * 2 / side - 1
    x, y = np.meshgrid(across, across)
    rho = np.maximum(np.hypot(x, y), 1e-6)
    angle = np.minimum(rho * field_of_view / 2, 1.9)
    ratio = np.sin(angle) / rho
    rays = np.stack([x * ratio, y * ratio, np.cos(angle)], axis=-1)
    return Camera(np.ascontiguousarray(rays, dtype=F32), seen, field_of_view)


@dataclass(frozen=True)
class Device:
    """How one capsule turns light into a frame. Lengths in pixels of the frame."""

    size: int  # of the square frame
    picture: int  # side of the square that holds the picture
    inner: int  # side at which the picture is rendered: real ones are softer than their frames
    border: Literal["octagon", "circle", "cut circle"]
    field_of_view: float  # degrees over the picture's width
    matrix: tuple[tuple[float, float, float], ...]  # colour response, rows give R, G, B
    gamma: float
    vignette: float  # light lost at the border, 0 to 1
    sharpen: float  # edge enhancement of the capsule's own processing
    noise: float  # grey levels
    quality: int  # of the JPEG through which the recorder stored the frame
    seconds: float  # between two frame numbers


DEVICES: dict[str, Device] = {
    "olympus": Device(
        336, 336, 190, "octagon", 134.0,
        ((1.04, 0.00, -0.02), (0.01, 0.99, 0.01), (-0.02, 0.06, 0.93)),
        0.95, 0.06, 0.55, 1.3, 75, 0.5,
    ),
    "pillcam": Device(
        512, 452, 216, "cut circle", 148.0,
        ((0.97, 0.02, 0.02), (0.02, 0.95, 0.04), (0.02, 0.08, 0.92)),
        1.02, 0.45, 0.30, 2.0, 88, 0.33,
    ),
    "navicam": Device(
        480, 464, 208, "circle", 140.0,
        ((0.90, 0.10, 0.03), (0.06, 0.84, 0.10), (0.10, 0.10, 0.98)),
        0.86, 0.38, 0.0, 2.6, 74, 0.25,
    ),
}  # fmt: skip


def find_device(name: str) -> Device:
    """The device of that name; an error suggests the nearest one."""
    if name not in DEVICES:
        raise EnteronError(f"'{name}' is not a capsule that can be drawn", nearest(name, DEVICES))
    return DEVICES[name]


@lru_cache(maxsize=3)
def device_camera(name: str) -> Camera:
    """Rays of a device's inner picture, a little beyond its border for the resampling."""
    device = find_device(name)
    return fisheye(_outline(device, device.inner, -0.04), np.radians(device.field_of_view))


def _outline(device: Device, side: int, inset: float) -> Bytes:
    """Mask, 0 or 255, of the picture at a resolution; `inset` in shares of the radius."""
    across = (np.arange(side) + 0.5) * 2 / side - 1
    x, y = np.abs(np.meshgrid(across, across))
    if device.border == "octagon":
        inside = (np.maximum(x, y) < 1 - inset) & (x + y < 1.675 - inset)
    else:
        inside = np.hypot(x, y) < 1 - inset
        if device.border == "cut circle":
            inside &= np.maximum(x, y) < 0.965 - inset
    return np.where(inside, 255, 0).astype(np.uint8)


@dataclass(frozen=True)
class Pose:
    """Position and direction of the camera, and the shape of the lumen around it."""

    rotation: Array  # (3, 3) from the camera's coordinates to the lumen's
    origin: Array  # (3,) beside the axis; z is 0
    bend: Array  # (2,) curvature of the axis
    depth: float  # along the tile
    rings: Array  # (k, 2 + RING_ANGLES) narrowings


@dataclass
class Solids:
    """Ellipsoids that grow out of the wall: polyps, lips of a valve, teeth."""

    centres: list[Array] = field(default_factory=list)
    frames: list[Array] = field(default_factory=list)  # rows: axis / half-length
    forms: list[tuple[float, float, float, float]] = field(default_factory=list)

    def add(
        self,
        centre: Array,
        axes: Array,
        halves: tuple[float, float, float],
        seam: float,
        lumps: float = 0.0,
        phase: float = 0.0,
    ) -> int:
        """Add one with orthonormal `axes` (rows) and its half-lengths; returns its index.

        `seam` is the length over which it merges with the wall.
        """
        self.centres.append(centre)
        self.frames.append(axes / np.array(halves)[:, None])
        self.forms.append((min(halves), seam, lumps, phase))
        return len(self.forms) - 1

    def __len__(self) -> int:
        return len(self.forms)


@njit(cache=True, error_model="numpy")
def composite(cover: Array, tint: Array, alpha: Array) -> None:
    """Put a colour (3,) with opacity alpha (h, w) over what covers the wall already (h, w, 4)."""
    for v in range(alpha.shape[0]):
        for u in range(alpha.shape[1]):
            top = alpha[v, u]
            if top <= 0:
                continue
            under = cover[v, u, 3] * (F32(1.0) - top)
            for c in range(3):
                cover[v, u, c] = (tint[c] * top + cover[v, u, c] * under) / (top + under)
            cover[v, u, 3] = top + under


class View:
    """Buffers of one frame, (n, n) each: geometry from the tracer, pigments from the painters."""

    def __init__(self, camera: Camera, pose: Pose, wall: Wall, fold: float, relief: float) -> None:
        side = camera.side
        self.camera = camera
        self.pose = pose
        self._wall = wall
        length = wall.look.length
        # Rays look back by less than 10: adding entire tiles keeps the depth positive.
        depth = pose.depth % length + length * np.ceil(10.0 / length)
        self._shape = np.array(
            [
                wall.look.radius,
                fold * wall.look.fold_height,
                relief * wall.look.relief,
                length,
                depth,
                0.15 + fold * wall.steepest[0],
                fold * wall.steepest[1],
            ],
            F32,
        )
        self.point = np.zeros((side, side, 3), F32)
        self.normal = np.zeros((side, side, 3), F32)
        self.distance = np.full((side, side), 9.0, F32)
        self.cover = np.zeros((side, side, 4), F32)  # opaque colour and its share
        self.solid = np.full((side, side), -1, np.int8)  # index of the solid seen
        self.share = np.zeros((side, side), F32)  # of that solid in its seam with the wall
        self.local = np.zeros((side, side, 3), F32)  # point on the solid's unit ball
        self.trace(Solids())

    def trace(self, solids: Solids) -> None:
        """Find what each pixel sees; the pigments become those of the bare wall."""
        camera, pose, count = self.camera, self.pose, len(solids)
        pigment = np.zeros((*camera.seen.shape, 3), F32)
        trace(
            camera.rays, camera.seen, pose.rotation, pose.origin, pose.bend, self._wall.heights,
            self._wall.macro, self._wall.fine, self._shape, pose.rings,
            np.array(solids.centres, F32).reshape(count, 3),
            np.array(solids.frames, F32).reshape(count, 3, 3),
            np.array(solids.forms, F32).reshape(count, 4),
            self.point, self.normal, self.distance, pigment, self.solid, self.share, self.local,
            np.empty((camera.side // COARSE + 6, camera.side // COARSE + 6), F32),
        )  # fmt: skip
        self.blood = np.ascontiguousarray(pigment[..., 0])  # haemoglobin
        self.furrow = np.ascontiguousarray(pigment[..., 1])  # negative in the depth of furrows
        self.residue = np.ascontiguousarray(pigment[..., 2])  # where dirt sticks, as noise

    def share_of(self, solids: list[int]) -> Array:
        """(n, n) share, 0 to 1, of these solids in each pixel."""
        return np.where(np.isin(self.solid, solids), self.share, F32(0))

    def add_cover(self, tint: tuple[float, float, float], alpha: Array) -> None:
        """Cover the wall with a colour of opacity alpha (n, n)."""
        composite(self.cover, np.array(tint, F32), alpha.astype(F32))

    def pixel(self, aim: tuple[float, float]) -> tuple[int, int]:
        """Row and column of a position in the view, each coordinate from -1 to 1."""
        side = self.camera.side
        x, y = (int(np.clip((a + 1) / 2 * side, 0, side - 1)) for a in aim)
        return y, x


def develop(
    name: str, picture: Array, number: int, study: int, noise_offset: tuple[int, int]
) -> Bytes:
    """The frame, RGB uint8, that a device makes of a picture (inner, inner, 3) of 0 to 1.

    `number` is the frame's, for the clock; `study` selects date and text colour; `noise_offset`,
    two numbers from 0 to 1023, selects the sensor noise.
    """
    device = find_device(name)
    light = cv2.transform(picture * _falloff(name), np.array(device.matrix, np.float32))
    np.clip(light, 0, 1, out=light)
    light = cv2.pow(light, device.gamma) * np.float32(255)
    small = cv2.convertScaleAbs(light)
    full = cv2.resize(small, (device.picture, device.picture), interpolation=cv2.INTER_CUBIC)
    if device.sharpen:
        soft = cv2.GaussianBlur(full, (0, 0), 1.6)
        full = cv2.addWeighted(full, 1 + device.sharpen, soft, -device.sharpen, 0)
    brighter, darker = _sensor_noise(name)
    top, left = (value % (1024 - device.picture) for value in noise_offset)
    window = np.s_[top : top + device.picture, left : left + device.picture]
    full = cv2.subtract(cv2.add(full, brighter[window]), darker[window])
    packed = cv2.imencode(".jpg", full, [cv2.IMWRITE_JPEG_QUALITY, device.quality])[1]
    stored = np.asarray(cv2.imdecode(packed, cv2.IMREAD_COLOR), np.uint8)
    inside = np.bitwise_and(stored, _border(name))
    if device.picture == device.size:
        frame = inside
    else:
        frame = np.zeros((device.size, device.size, 3), np.uint8)
        margin = (device.size - device.picture) // 2
        frame[margin : margin + device.picture, margin : margin + device.picture] = inside
    _burn_in(name, frame, number, study)
    return np.ascontiguousarray(frame, dtype=np.uint8)


@lru_cache(maxsize=3)
def _falloff(name: str) -> Array:
    """(inner, inner, 1) light that the vignette leaves, 0 to 1."""
    device = find_device(name)
    across = (np.arange(device.inner) + 0.5) * 2 / device.inner - 1
    x, y = np.meshgrid(across, across)
    lost = device.vignette * np.clip(np.hypot(x, y), 0, 1.2) ** 2.4
    return (1 - lost)[..., None].astype(np.float32)


@lru_cache(maxsize=3)
def _sensor_noise(name: str) -> tuple[Bytes, Bytes]:
    """Noise that brightens and that darkens, (1024, 1024, 3): luminance and some colour."""
    noise = grain()
    coarse = cv2.GaussianBlur(noise, (0, 0), 1.1)
    coarse /= coarse.std()
    levels = find_device(name).noise
    colour = [0.75 * coarse + 0.45 * np.roll(coarse, (37 * c, 91 * c), (0, 1)) for c in range(3)]
    signed = np.stack(colour, axis=-1) * levels
    return np.clip(signed, 0, 255).astype(np.uint8), np.clip(-signed, 0, 255).astype(np.uint8)


@lru_cache(maxsize=3)
def _border(name: str) -> Bytes:
    device = find_device(name)
    mask = _outline(device, device.picture, 0.006)
    return np.repeat(mask[..., None], 3, axis=2)


def _burn_in(name: str, frame: Bytes, number: int, study: int) -> None:
    """Overlay text: dates in the year 00 and models called phantoms, since nobody was examined."""
    seconds = number * find_device(name).seconds
    day = f"{study % 28 + 1:02d}"
    if name == "pillcam":
        tone = (240, 200, 40) if study % 2 else (60, 220, 60)
        _write(frame, _clock(seconds), 4, 18, 0.5, tone)
        _write(frame, f"{day} Jan 00", 424, 18, 0.5, (235, 235, 235))
        _write(frame, "0P", 4, 40, 0.45, (235, 235, 235))
        _write(frame, "Phantom*SB3", 4, 504, 0.45, (235, 235, 235))
    elif name == "navicam":
        _write(frame, f"0000-01-{day}", 4, 14, 0.36, (190, 200, 255))
        _write(frame, _clock(seconds), 4, 30, 0.36, (190, 200, 255))
        _write(frame, f"No.{number:06d}", 398, 14, 0.36, (190, 200, 255))
        _write(frame, "PHANTOM NC", 4, 472, 0.36, (190, 200, 255))


def _clock(seconds: float) -> str:
    total = int(seconds)
    return f"{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}"


def _write(
    frame: Bytes, text: str, x: int, y: int, scale: float, tone: tuple[int, int, int]
) -> None:
    cv2.putText(frame, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, tone, 1, cv2.LINE_AA)


def outside_world(camera: Camera, seed: int, activity: float) -> Array:
    """(n, n, 3) picture of a room, far out of focus; it turns with the capsule's activity."""
    rng = np.random.default_rng([seed, 76])
    size = 48
    wall = np.array([0.62, 0.66, 0.70]) * rng.uniform(0.6, 1.1)
    room = np.ones((size, size, 3), F32) * wall.astype(F32)
    for _ in range(9):
        tone = rng.uniform(0.15, 0.95) * np.exp(rng.normal(0, 0.15, 3))
        x, y, w, h = (int(v) for v in rng.integers(2, size // 2, 4))
        corner = (x * 2 - w // 2, y * 2 - h // 2)
        cv2.rectangle(room, corner, (corner[0] + w, corner[1] + h), [float(t) for t in tone], -1)
    skin = np.array([0.85, 0.62, 0.50]) * rng.uniform(0.6, 1.1)
    middle = (int(rng.integers(8, 40)), int(rng.integers(24, 46)))
    cv2.ellipse(
        room, middle, (13, 17), float(rng.uniform(0, 90)), 0, 360, [float(t) for t in skin], -1
    )
    room = cv2.GaussianBlur(room, (0, 0), 1.6)
    side = camera.side
    spin = cv2.getRotationMatrix2D(
        (size / 2, size / 2), 25 * activity + 90 * rng.random(), side / size
    )
    spin[:, 2] += side / 2 - size / 2
    picture = cv2.warpAffine(
        room, spin, (side, side), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT
    )
    return np.ascontiguousarray(picture * (camera.seen > 0)[..., None], dtype=F32)

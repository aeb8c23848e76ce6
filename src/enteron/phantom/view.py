"""The traced view of one frame: what every later step paints on and reads from."""

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from enteron.phantom.trace import COARSE, trace
from enteron.phantom.wall import Wall

Array = NDArray[np.floating]
F32 = np.float32


@njit(cache=True, error_model="numpy")
def lay(cover: Array, tint: Array, alpha: Array) -> None:
    """Lay a colour (3,) over what covers the wall already (h, w, 4), by shares (h, w)."""
    for v in range(alpha.shape[0]):
        for u in range(alpha.shape[1]):
            top = alpha[v, u]
            if top <= 0:
                continue
            under = cover[v, u, 3] * (F32(1.0) - top)
            for c in range(3):
                cover[v, u, c] = (tint[c] * top + cover[v, u, c] * under) / (top + under)
            cover[v, u, 3] = top + under


@dataclass(frozen=True)
class Camera:
    """Directions of the pixels of a square fisheye picture, and which of them are seen."""

    rays: Array  # (n, n, 3) unit directions in the camera's frame
    seen: NDArray[np.uint8]  # (n, n)
    field_of_view: float  # radians over the picture's width

    @property
    def side(self) -> int:
        return self.seen.shape[0]


def fisheye(seen: NDArray[np.uint8], field_of_view: float) -> Camera:
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
class Pose:
    """Where the capsule is in its stretch of lumen, and what the lumen does there."""

    turn: Array  # (3, 3) from the camera's frame to the lumen's
    origin: Array  # (3,) beside the axis; z is 0
    bend: Array  # (2,) curvature of the axis
    depth: float  # along the tile
    rings: Array  # (k, 2 + RING_ANGLES) narrowings


@dataclass
class Solids:
    """Ellipsoids that grow out of the wall: polyps, lips of a valve, teeth."""

    centres: list[NDArray[np.floating]] = field(default_factory=list)
    frames: list[NDArray[np.floating]] = field(default_factory=list)  # rows: axis / half-length
    forms: list[tuple[float, float, float, float]] = field(default_factory=list)

    def add(
        self,
        centre: NDArray[np.floating],
        axes: NDArray[np.floating],
        halves: tuple[float, float, float],
        seam: float,
        lumps: float = 0.0,
        phase: float = 0.0,
    ) -> int:
        """Add one with orthonormal `axes` (rows) and its half-lengths; returns its number.

        `seam` is the length over which it merges with the wall.
        """
        self.centres.append(centre)
        self.frames.append(axes / np.array(halves)[:, None])
        self.forms.append((min(halves), seam, lumps, phase))
        return len(self.forms) - 1

    def __len__(self) -> int:
        return len(self.forms)


class View:
    """Buffers of one frame, (n, n) each: geometry from the tracer, pigments from the painters."""

    def __init__(self, camera: Camera, pose: Pose, wall: Wall, fold: float, relief: float) -> None:
        side = camera.side
        self.camera = camera
        self.pose = pose
        self._wall = wall
        length = wall.region.length
        # Rays look back by at most their reach: whole tiles keep the depth positive.
        depth = pose.depth % length + length * np.ceil(10.0 / length)
        self._shape = np.array(
            [
                wall.region.radius,
                fold * wall.region.fold_height,
                relief * wall.region.relief,
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
        self.solid = np.full((side, side), -1, np.int8)  # number of the solid seen
        self.share = np.zeros((side, side), F32)  # of that solid in its seam with the wall
        self.local = np.zeros((side, side, 3), F32)  # point on the solid's unit ball
        self.trace(Solids())

    def trace(self, solids: Solids) -> None:
        """Find what each pixel sees; pigments become the bare wall's."""
        camera, pose, count = self.camera, self.pose, len(solids)
        pigment = np.zeros((*camera.seen.shape, 3), F32)
        trace(
            camera.rays, camera.seen, pose.turn, pose.origin, pose.bend, self._wall.heights,
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

    def part_of(self, numbers: list[int]) -> NDArray[np.floating]:
        """(n, n) share, 0 to 1, of some solids in each pixel."""
        return np.where(np.isin(self.solid, numbers), self.share, F32(0))

    def lay(self, tint: tuple[float, float, float], alpha: NDArray[np.floating]) -> None:
        """Cover the wall with an opaque colour, by shares (n, n)."""
        lay(self.cover, np.array(tint, F32), alpha.astype(F32))

    def pixel(self, aim: tuple[float, float]) -> tuple[int, int]:
        """Row and column of a place in the view, each coordinate from -1 to 1."""
        side = self.camera.side
        x, y = (int(np.clip((a + 1) / 2 * side, 0, side - 1)) for a in aim)
        return y, x

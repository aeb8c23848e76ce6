"""The traced view of one frame: what every later step paints on and reads from."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from enteron.phantom.trace import trace_solids, trace_wall
from enteron.phantom.wall import Wall

Array = NDArray[np.float32]
F32 = np.float32


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
    """Ellipsoids that stand in the lumen: polyps, lips of a valve, teeth."""

    centres: list[NDArray[np.float64]] = field(default_factory=list)
    frames: list[NDArray[np.float64]] = field(default_factory=list)  # rows: axis / half-length
    bounds: list[float] = field(default_factory=list)

    def add(
        self,
        centre: NDArray[np.float64],
        axes: NDArray[np.float64],
        halves: tuple[float, float, float],
    ) -> int:
        """Add one with orthonormal `axes` (rows) and its half-lengths; returns its number."""
        self.centres.append(centre)
        self.frames.append(axes / np.array(halves)[:, None])
        self.bounds.append(max(halves))
        return len(self.bounds) - 1

    def __len__(self) -> int:
        return len(self.bounds)


class View:
    """Buffers of one frame, (n, n) each: geometry from the tracer, pigments from the painters."""

    def __init__(self, camera: Camera, pose: Pose, wall: Wall, fold: float, relief: float) -> None:
        side = camera.side
        self.camera = camera
        self.pose = pose
        self.point = np.zeros((side, side, 3), F32)
        self.normal = np.zeros((side, side, 3), F32)
        self.distance = np.full((side, side), 9.0, F32)
        self.cover = np.zeros((side, side, 4), F32)  # opaque colour and its share
        self.solid = np.full((side, side), -1, np.int8)
        self.local = np.zeros((side, side, 3), F32)  # point on the unit ball, where there is a solid
        pigment = np.zeros((side, side, 3), F32)
        length = wall.region.length
        # Rays look back by at most their reach: whole tiles keep the depth from getting negative.
        depth = pose.depth % length + length * np.ceil(10.0 / length)
        shape = np.array(
            [
                wall.region.radius,
                fold * wall.region.fold_height,
                relief * wall.region.relief,
                length,
                depth,
                0.0,
            ],
            F32,
        )
        trace_wall(
            camera.rays, camera.seen, pose.turn, pose.origin, pose.bend, wall.macro, wall.fine, shape,
            pose.rings, self.point, self.normal, self.distance, pigment,
        )  # fmt: skip
        self.blood = np.ascontiguousarray(pigment[..., 0])  # haemoglobin
        self.furrow = np.ascontiguousarray(pigment[..., 1])  # negative in the depth of furrows
        self.residue = np.ascontiguousarray(pigment[..., 2])  # where dirt sticks, as noise

    def place_solids(self, solids: Solids) -> None:
        """Put solids before the wall, with a dark seam where they touch it."""
        if not len(solids):
            return
        for centre, frame in zip(solids.centres, solids.frames, strict=True):
            near = (self.point - centre.astype(F32)) @ frame.T.astype(F32)
            reach = np.sqrt(np.einsum("hwc,hwc->hw", near, near))
            self.furrow -= 0.45 * np.clip(1.5 - reach, 0, 0.5) / 0.5
        trace_solids(
            self.camera.rays, self.camera.seen, self.pose.turn, self.pose.origin,
            np.array(solids.centres, F32), np.array(solids.frames, F32),
            np.array(solids.bounds, F32), self.point, self.normal, self.distance, self.solid,
            self.local,
        )  # fmt: skip

    def pixel(self, aim: tuple[float, float]) -> tuple[int, int]:
        """Row and column of a place in the view, each coordinate from -1 to 1."""
        side = self.camera.side
        x, y = (int(np.clip((a + 1) / 2 * side, 0, side - 1)) for a in aim)
        return y, x

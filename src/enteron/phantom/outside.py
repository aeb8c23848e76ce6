"""Before the capsule is swallowed: a blurred room, a hand, a face."""

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.phantom.view import Camera

F32 = np.float32


def outside_world(camera: Camera, seed: int, place: float) -> NDArray[np.floating]:
    """(n, n, 3) picture of a room, far out of focus; it turns with the activity `place`."""
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
        (size / 2, size / 2), 25 * place + 90 * rng.random(), side / size
    )
    spin[:, 2] += side / 2 - size / 2
    picture = cv2.warpAffine(
        room, spin, (side, side), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT
    )
    return np.ascontiguousarray(picture * (camera.seen > 0)[..., None], dtype=F32)

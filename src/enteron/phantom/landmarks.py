"""The three landmarks and the mouth: narrowings, lips, teeth, the border of two mucosas."""

from dataclasses import dataclass

import numpy as np

from enteron.phantom.camera import Solids, View
from enteron.phantom.trace import F32, RING_ANGLES, Array
from enteron.phantom.wall import clouds, look_up

_ANGLES = np.arange(RING_ANGLES) * 2 * np.pi / RING_ANGLES


@dataclass(frozen=True)
class Landmark:
    """One landmark, during a run [start, stop) of its label."""

    label: str
    start: int
    stop: int
    depth: float  # of the landmark along the axis, on the scale of the motion's
    traits: tuple[float, ...]  # six numbers from 0 to 1 that determine its look

    def ahead(self, depth: float, radius: float) -> float:
        """Its distance in front of the camera, kept where it can be seen."""
        nearest = 0.75 if self.label == "z-line" else 1.0
        return float(np.clip(self.depth - depth, nearest * radius, 1.7 * radius))


def ring(ahead: float, half_width: float, amount: Array | float) -> Array:
    """One narrowing of the lumen, as the tracer reads it; `ahead` is its distance."""
    row = np.empty(2 + RING_ANGLES, F32)
    row[0], row[1] = ahead, half_width
    row[2:] = np.clip(amount, 0.0, 0.985)
    return row


def puckered(amount: float, petals: int, depth: float, phase: float) -> Array:
    """Amount of a closure over the angles, with folds that run into it."""
    return amount + depth * np.cos(petals * _ANGLES + phase)


def creased(amount: float, count: int, shape: Array) -> Array:
    """Amount of a collapse over the angles: round cushions with narrow creases between them.

    shape (4,): numbers of deviation about 1 that change the creases' directions and depth.
    """
    warped = _ANGLES + 0.40 * np.sin(_ANGLES + 1.5 * shape[0]) + 0.5 * shape[1]
    warped = warped + 0.22 * np.sin(2 * _ANGLES + 1.5 * shape[2])
    crease = (1 - np.abs(np.sin(count * warped / 2))) ** 2
    return amount * (1 - (0.30 + 0.12 * shape[3]) * crease)


def landmark_rings(mark: Landmark, ahead: float, radius: float) -> list[Array]:
    """The narrowings that a landmark makes."""
    t = mark.traits
    if mark.label == "pylorus":
        # A round sphincter in a smooth wall, from a pin-hole to half open.
        opening = 0.10 + 0.30 * t[0] ** 2
        petals = puckered(1 - opening, 5 + int(4 * t[1]), 0.012 + 0.02 * t[2], 6.28 * t[3])
        return [ring(ahead, (0.35 + 0.25 * t[4]) * radius, petals)]
    if mark.label == "ileocecal valve":
        # A slit between two lips.
        spin = 6.28 * t[3]
        slit = 0.80 + 0.05 * t[0] - 0.14 * np.cos(2 * (_ANGLES - spin))
        return [ring(ahead, 0.55 * radius, slit)]
    return [
        ring(
            ahead + 0.9 * radius,
            0.8 * radius,
            puckered(0.25 + 0.45 * t[0], 3 + int(4 * t[1]), 0.03, 9 * t[1]),
        )
    ]


def valve_lips(solids: Solids, mark: Landmark, ahead: float, radius: float) -> list[int]:
    """Add the two lips of the ileocecal valve to the solids; returns their indices."""
    t = mark.traits
    spin = 6.28 * t[3]
    along = np.array([np.cos(spin), np.sin(spin), 0.0])
    across = np.array([-np.sin(spin), np.cos(spin), 0.0])
    axes = np.stack([along, across, np.array([0.0, 0.0, 1.0])])
    indices = []
    for side in (-1.0, 1.0):
        centre = across * side * (0.24 + 0.07 * t[1]) * radius + np.array([0, 0, ahead])
        halves = ((0.50 + 0.12 * t[2]) * radius, 0.20 * radius, (0.26 + 0.1 * t[4]) * radius)
        indices.append(solids.add(centre, axes, halves, 0.16 * radius, 0.06, 9 * t[5] + side))
    return indices


def colour_lips(view: View, lips: list[int]) -> None:
    """Fat makes the lips of the valve yellow and smooth."""
    share = view.share_of(lips)
    view.blood -= share * (0.12 + 0.7 * view.blood)
    view.furrow += share * (0.12 - 0.6 * view.furrow)
    view.add_cover((0.95, 0.80, 0.52), 0.38 * share)


def colour_z_line(view: View, mark: Landmark, ahead: float) -> None:
    """Beyond a ragged line the pale lining of the esophagus gives way to red gastric mucosa."""
    t = mark.traits
    x, y, z = view.point[..., 0], view.point[..., 1], view.point[..., 2]
    turn = np.arctan2(y, x)
    # The outline: tongues of uneven length, and a ragged edge.
    waves = np.arange(2, 8)  # per turn
    phases = 6.2832 * np.modf(np.outer(waves, np.array(t[2:5])).sum(axis=1) * 7.3)[0]
    flames = np.zeros_like(turn)
    for wave, phase in zip(waves, phases, strict=True):
        flames += np.sin(wave * turn + phase).astype(F32) / F32(1 + 0.35 * wave)
    edge = look_up(clouds(), turn.ravel() * F32(40), z.ravel() * F32(60)).reshape(turn.shape)
    lengths = (0.16 + 0.22 * t[5]) * flames + 0.07 * edge
    beyond = np.clip((z - ahead - lengths) * 14, -1, 1).astype(F32)
    inside = 0.5 + 0.5 * beyond
    view.blood += inside * (0.32 + 0.30 * t[0]) - (1 - inside) * (0.08 + 0.35 * view.blood)
    view.furrow += 0.08 * np.exp(-((beyond / 0.5) ** 2))
    view.add_cover((0.97, 0.89, 0.80), 0.28 * (1 - inside))


def mouth_solids(solids: Solids, traits: Array) -> tuple[list[int], list[int]]:
    """Add rows of teeth and a tongue; returns the indices of the teeth and of the tongue."""
    teeth: list[int] = []
    tongue: list[int] = []
    for row in (-1.0, 1.0):
        if traits[0 if row < 0 else 1] < 0.25:
            continue
        for k in range(9):
            angle = (k - 4) * 0.27
            height = row * (0.72 + 0.10 * traits[2])
            centre = np.array([np.sin(angle), height, 0.20 + np.cos(angle)])
            c, s = np.cos(angle), np.sin(angle)
            axes = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
            width = 0.150 + 0.012 * np.sin(3.1 * k + 9 * traits[3])
            tall = 0.30 + 0.05 * np.sin(2.3 * k + 5 * traits[4])
            teeth.append(solids.add(centre, axes, (width, tall, 0.10), 0.015, 0.05, 2.0 * k))
    if traits[4] > 0.3:
        centre = np.array([0.3 * (traits[5] - 0.5), 0.75, 0.9 + 0.3 * traits[3]])
        tongue.append(solids.add(centre, np.eye(3), (0.60, 0.40, 0.85), 0.12, 0.05, 9 * traits[3]))
    return teeth, tongue


def colour_mouth(view: View, teeth: list[int], tongue: list[int]) -> None:
    """Ivory teeth; a tongue of fine papillae."""
    share = view.share_of(teeth)
    view.add_cover((0.99, 0.95, 0.82), 0.95 * np.clip(share * 2 - 0.8, 0, 1))
    view.furrow += share * (0.25 - view.furrow)
    share = view.share_of(tongue)
    x, z = view.local[..., 0].ravel(), view.local[..., 2].ravel()
    papillae = look_up(clouds(), x * F32(900), z * F32(1100)).reshape(share.shape)
    view.furrow += share * (0.20 * papillae)
    view.blood += share * (0.15 - 0.10 * papillae)
    view.add_cover((0.93, 0.82, 0.78), 0.30 * share)

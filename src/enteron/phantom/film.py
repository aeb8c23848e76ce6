"""The pictures of a synthetic study: from labels to frames.

A `Film` draws the patient, the motion and the nuisances once; then any frame can be drawn alone.
"""

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.errors import LabelError
from enteron.labels import COLUMN, FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.phantom.camera import (
    Pose,
    Solids,
    View,
    develop,
    device_camera,
    find_device,
    outside_world,
)
from enteron.phantom.landmarks import (
    Landmark,
    colour_lips,
    colour_mouth,
    colour_z_line,
    creased,
    landmark_rings,
    mouth_solids,
    puckered,
    ring,
    valve_lips,
)
from enteron.phantom.lesions import (
    Lesion,
    colour_polyp,
    find_patch,
    paint,
    place_lesions,
    polyp,
)
from enteron.phantom.motion import STALLED_SHARE, Motion, camera_rotations, draw_motion
from enteron.phantom.trace import (
    ABSORBED,
    F32,
    RING_ANGLES,
    Array,
    Bytes,
    colour,
    exposure_gain,
    illuminate,
    palette_table,
)
from enteron.phantom.veil import (
    Veil,
    bubble,
    defocus,
    draw_veil,
    flood,
    fringe,
    lose_depth,
    occlude,
    soil,
    swirls,
)
from enteron.phantom.wall import REGION_LOOKS, Wall, build_wall
from enteron.runs import runs_of

RENDERER = 3
"""Number of this renderer; pictures of another one differ and must not be mixed with its own."""

_LANDMARK_TILT = 0.40  # radians at most: the camera looks towards a landmark

# Automatic exposure. Real Olympus frames have a mean L* of 47 to 50 nearly all the time.
_MEAN_SHADE = 0.52  # of the wall's palette, before anything covers it
_MEAN_LUMINANCE, _MEAN_RED = 0.436, 0.645  # of the whole picture, 0 to 1
_LUMINANCE = np.array([0.30, 0.59, 0.11])  # weights of red, green and blue

# Colours of the mucosa differ between patients mostly in blue: orange, tan, pink and grey. These
# are the three principal axes of the logarithms of red, green and blue over the medians of 30 real
# videos, each times its deviation.
_TINTS = np.array([[-0.022, 0.022, 0.177], [0.028, -0.023, 0.006], [0.016, 0.019, 0.0]])


@dataclass(frozen=True)
class Patient:
    """What all frames of a study share."""

    tint: Array  # (3,) factors on RGB
    pallor: float  # of the mucosa, -1 to 1
    dirtiness: float  # 0 to 1
    brightness: float
    fold: float  # factor on fold heights
    relief: float  # factor on villi
    vessels: float  # factor on haemoglobin of the wall
    creases: int  # of a closed lumen


def _draw_patient(rng: np.random.Generator) -> Patient:
    return Patient(
        tint=np.exp(np.clip(rng.standard_normal(3), -2.2, 2.2) @ _TINTS),
        pallor=float(np.clip(rng.normal(0, 0.35), -1, 1)),
        dirtiness=float(rng.beta(1.5, 2.5)),
        brightness=float(np.exp(rng.normal(0, 0.01))),
        fold=float(rng.uniform(0.8, 1.2)),
        relief=float(np.exp(np.clip(rng.normal(-0.2, 0.4), -1.2, 0.6))),
        vessels=float(rng.uniform(0.6, 1.3)),
        creases=int(rng.integers(4, 9)),
    )


def _region_names(labels: NDArray[np.bool_]) -> list[str]:
    """The region of each row; a row without one has the region of the row before."""
    regions = labels[:, : len(REGIONS)]
    labelled = np.flatnonzero(regions.any(axis=1))
    if not len(labelled):
        return ["small intestine"] * len(labels)
    index = np.searchsorted(labelled, np.arange(len(labels)), side="right") - 1
    latest = labelled[np.maximum(index, 0)]
    return [REGIONS[int(k)] for k in regions[latest].argmax(axis=1)]


class Film:
    """The frames of a study; frame i is a pure function of (labels, device, seed, i).

    labels (n, 17), columns in the order of `enteron.labels.LABELS`. `frame_numbers` (n,) default
    to 0, 1, ...; wider steps move the capsule further. `stalls` is the share of frames in which it
    hardly moves.
    """

    def __init__(
        self,
        labels: NDArray[np.bool_],
        device: str,
        seed: int,
        frame_numbers: NDArray[np.int64] | None = None,
        stalls: float = STALLED_SHARE,
    ) -> None:
        labels = np.ascontiguousarray(labels, dtype=np.bool_)
        if labels.ndim != 2 or labels.shape[1] != len(LABELS) or not len(labels):
            raise LabelError(
                f"labels have shape {labels.shape}",
                f"give at least one row and {len(LABELS)} columns",
            )
        find_device(device)  # an unknown name is an error now, not at the first frame
        numbers = np.arange(len(labels)) if frame_numbers is None else np.asarray(frame_numbers)
        if numbers.shape != (len(labels),):
            raise LabelError(
                f"there are {numbers.size} frame numbers for {len(labels)} rows of labels",
                "give one number per row",
            )
        self._labels = labels
        self._device = device
        self._seed = seed
        self._numbers = numbers.astype(np.int64)
        self._regions = _region_names(labels)
        motion_seed, veil_seed, patient_seed = np.random.SeedSequence([seed, 1]).spawn(3)
        self._patient = _draw_patient(np.random.default_rng(patient_seed))
        self.motion: Motion = draw_motion(
            np.random.default_rng(motion_seed), self._regions, self._numbers, stalls
        )
        self._veil: Veil = draw_veil(
            np.random.default_rng(veil_seed), self._regions, self.motion, self._patient.dirtiness
        )
        radius = np.array([REGION_LOOKS[name].radius for name in REGIONS])
        radii = radius[[REGIONS.index(name) for name in self._regions]]
        aside = self.motion.aside
        limit = np.maximum(np.hypot(aside[:, 0], aside[:, 1]) / 0.55, 1.0)
        landmark = labels[:, [COLUMN[name] for name in LANDMARKS]].any(axis=1)
        across = aside / limit[:, None] * np.where(landmark, 0.35, 1.0)[:, None] * radii[:, None]
        self._origins = np.concatenate([across, np.zeros((len(labels), 1))], axis=1)
        self._tilt = np.where(
            landmark, np.minimum(self.motion.tilt, _LANDMARK_TILT), self.motion.tilt
        )
        self._walls: dict[str, Wall] = {}
        self._palettes: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self._labels)

    @cached_property
    def lesions(self) -> list[Lesion]:
        """Every lesion, in the order of labels and frames."""
        return place_lesions(
            self._labels, self._regions, self.motion, self._origins, self._tilt,
            device_camera(self._device), self._seed,
        )  # fmt: skip

    @cached_property
    def _lesions_at(self) -> dict[int, list[Lesion]]:
        by_frame: dict[int, list[Lesion]] = {}
        for lesion in self.lesions:
            for i in range(lesion.start, lesion.stop):
                by_frame.setdefault(i, []).append(lesion)
        return by_frame

    @cached_property
    def _landmarks_at(self) -> dict[int, Landmark]:
        by_frame: dict[int, Landmark] = {}
        for number, label in enumerate(LANDMARKS):
            for start, stop in runs_of(self._labels[:, COLUMN[label]]).tolist():
                rng = np.random.default_rng([self._seed, 72, number, start])
                middle = (start + stop) // 2
                radius = REGION_LOOKS[self._regions[middle]].radius
                depth = float(self.motion.depth[middle] + rng.uniform(0.9, 1.4) * radius)
                traits = tuple(float(t) for t in rng.random(6))
                for i in range(start, stop):
                    by_frame[i] = Landmark(label, start, stop, depth, traits)
        return by_frame

    def _wall(self, name: str) -> Wall:
        """The wall of a region; its palette is made at the same time."""
        if name not in self._walls:
            rng = np.random.default_rng([self._seed, 73, REGIONS.index(name)])
            self._walls[name] = build_wall(name, rng)
            stops = np.array(REGION_LOOKS[name].palette)
            # Each region of each patient has its own shade, wider than regions differ.
            shift = np.exp(rng.normal(0, 0.05, 3) * [0.3, 0.4, 1.2])
            grey = stops.mean(axis=1, keepdims=True)
            stops = grey + (stops - grey) * (1 - 0.12 * self._patient.pallor + rng.normal(0, 0.04))
            # Glare keeps more of the lamps' own colour.
            keep = np.array([1.0, 1.0, 0.8, 0.45])[:, None]
            stops = stops * (self._patient.tint * shift) ** keep
            self._palettes[name] = palette_table(stops / max(1.0, float(stops.max())))
        return self._walls[name]

    def _pose(self, i: int, mark: Landmark | None, radius: float) -> Pose:
        motion = self.motion
        rings: list[Array] = []
        if mark is not None:
            rings += landmark_rings(mark, mark.ahead(float(motion.depth[i]), radius), radius)
        elif self._regions[i] != "mouth":
            rings.append(self._collapse(i, radius))
            # A peristaltic wave comes towards the camera from a distance of 6.
            phase = float(motion.squeeze[i])
            ahead = (1 - phase % 1.0) * 6.0
            fade = float(np.clip((ahead - 0.9) / 0.8, 0, 1) * np.clip((6.0 - ahead) / 1.0, 0, 1))
            amount = 0.9 * float(motion.strength[i]) * fade
            if amount > 0.05:
                petals = 4 + int(phase) % 4
                rings.append(
                    ring(ahead * radius**0.5, 1.4, puckered(amount, petals, 0.12 * amount, phase))
                )
        rotation = camera_rotations(motion, np.array([i]), self._tilt[i : i + 1])[0]
        bend = motion.bend[i] * (0.3 if mark is not None else 1.0) / radius
        return Pose(
            rotation.astype(F32),
            self._origins[i].astype(F32),
            bend.astype(F32),
            float(motion.depth[i]),
            np.stack(rings) if rings else np.zeros((0, 2 + RING_ANGLES), F32),
        )

    def _collapse(self, i: int, radius: float) -> Array:
        """The wall that closes in front of the capsule, with creases that run into the closure."""
        motion, looks = self.motion, REGION_LOOKS[self._regions[i]]
        amount = float(np.clip(looks.collapse + 0.45 * motion.closure[i], 0.0, 0.96))
        ahead = (1.55 + 0.45 * motion.ahead[i]) * radius
        return ring(ahead, 1.5 * radius, creased(amount, self._patient.creases, motion.crease[i]))

    def _paint(self, view: View, i: int, mark: Landmark | None) -> Array:
        """Paint everything on the wall; returns (n, n) marks, 0 to 1, of where findings are."""
        name = self._regions[i]
        radius = REGION_LOOKS[name].radius
        veil = self._veil
        solids = Solids()
        lips: list[int] = []
        if mark is not None and mark.label == "ileocecal valve":
            lips = valve_lips(solids, mark, mark.ahead(view.pose.depth, radius), radius)
        teeth: list[int] = []
        tongue: list[int] = []
        if name == "mouth":
            traits = np.random.default_rng([self._seed, 74]).random(6)
            teeth, tongue = mouth_solids(solids, traits)
        lesions = self._lesions_at.get(i, [])
        patches = [find_patch(view, lesion, view.pose.depth) for lesion in lesions]
        polyps = [
            polyp(solids, lesion, patch, lesion.grown(i)) if lesion.label == "polyp" else []
            for lesion, patch in zip(lesions, patches, strict=True)
        ]
        if len(solids):
            view.trace(solids)
        view.blood *= F32(self._patient.vessels)
        if lips:
            colour_lips(view, lips)
        if name == "mouth":
            colour_mouth(view, teeth, tongue)
        if mark is not None and mark.label == "z-line":
            colour_z_line(view, mark, mark.ahead(view.pose.depth, radius))
        soil(view, float(veil.residue[i]), float(veil.hue[i]), 0.75 if name == "colon" else 0.2)
        marks = np.zeros_like(view.distance)
        gravity = float(veil.down[i])
        for lesion, patch, lobes in zip(lesions, patches, polyps, strict=True):
            if lobes:
                marks = np.maximum(marks, colour_polyp(view, lesion, lobes))
            else:
                marks = np.maximum(marks, paint(view, lesion, patch, lesion.grown(i), gravity))
        flood(view, float(veil.pool[i]), gravity, radius, float(veil.hue[i]), marks)
        return marks

    def _picture(self, i: int) -> Array:
        """(inner, inner, 3) light on the sensor, 0 to about 1."""
        name, veil, patient = self._regions[i], self._veil, self._patient
        camera = device_camera(self._device)
        wall = self._wall(name)
        mark = self._landmarks_at.get(i)
        fold = patient.fold * (0.35 if mark is not None and mark.label == "pylorus" else 1.0)
        view = View(camera, self._pose(i, mark, wall.look.radius), wall, fold, patient.relief)
        marks = self._paint(view, i, mark)
        # An annotator saw what is labelled, so neither fluid nor defocus may hide it.
        labelled = mark is not None or bool(marks.any())
        light, glint = np.empty_like(view.distance), np.empty_like(view.distance)
        picture = np.empty_like(view.point)
        lamp = np.array([0.05, -0.04, 0.0], F32)
        illuminate(
            camera.seen, camera.rays, view.pose.rotation, view.normal, view.distance, view.furrow,
            lamp, F32(0.5 * wall.look.wetness), light, glint,
        )  # fmt: skip
        occlude(light, view.distance)
        gain = exposure_gain(camera.seen, light, F32(_MEAN_SHADE))
        hue = float(veil.hue[i])
        clear, murky = np.array([0.62, 0.44, 0.18]), np.array([0.42, 0.38, 0.15])
        fog = np.append(
            clear * (1 - hue) + murky * hue, min(float(veil.fog[i]), 0.3 if labelled else 9)
        )
        palette = self._palettes[name]
        lamp_tone = palette[-1] / palette[-1].max()
        swirl = swirls(camera.side, float(self.motion.activity[i]), float(veil.hue[i]))
        colour(
            camera.seen, light, glint, view.blood, view.cover, view.distance, palette,
            np.array(ABSORBED, F32), lamp_tone, fog.astype(F32), swirl, F32(gain), picture,
        )  # fmt: skip
        picture = fringe(picture, float(self.motion.activity[i]), patient.relief)
        picture = lose_depth(picture, view.distance)
        bubble(picture, float(veil.bubbles[i]), float(self.motion.activity[i]), marks)
        # The recorder keeps the picture's mean brightness, whatever it shows; red counts once more,
        # so that a lumen full of blood stays dark.
        mean_colour = np.array(cv2.mean(picture, mask=camera.seen)[:3])
        level = 0.5 * (mean_colour @ _LUMINANCE / _MEAN_LUMINANCE + mean_colour[0] / _MEAN_RED)
        target = patient.brightness * float(veil.exposure[i])
        picture *= F32(np.clip(target / (level + 1e-6), 0.5, 1.4))
        return defocus(picture, min(float(veil.blur[i]), 0.8 if labelled else 9.0))

    def _is_outside(self, i: int) -> bool:
        """Whether the capsule is not swallowed yet, as at the beginning of some recordings."""
        if self._regions[i] != "mouth" or self._seed % 3 == 0:
            return False
        first = self._regions.index("mouth")
        return i - first < 6 and not self._labels[i, COLUMN[FINDINGS[0]] :].any()

    def frame(self, i: int) -> Bytes:
        """Frame i, RGB (size, size, 3)."""
        if not 0 <= i < len(self):
            raise IndexError(f"frame {i} of {len(self)}")
        top, left = np.random.default_rng([self._seed, 75, i]).integers(0, 1024, 2)
        if self._is_outside(i):
            activity = float(self.motion.activity[i])
            picture = outside_world(device_camera(self._device), self._seed, activity)
        else:
            picture = self._picture(i)
        return develop(
            self._device, picture, int(self._numbers[i]), self._seed, (int(top), int(left))
        )

"""What hides the wall: fluid, pools, bubbles, residue, blur and wrong exposure."""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from enteron.phantom.camera import View
from enteron.phantom.motion import Motion, wander
from enteron.phantom.trace import F32, Array
from enteron.phantom.wall import clouds, smooth_noise

# How wet each region is, and how much fluid stands in it.
_WET = {"mouth": 0.3, "esophagus": 0.25, "stomach": 0.8, "small intestine": 0.9, "colon": 1.3}
_POOLS = {"mouth": 0.0, "esophagus": 0.0, "stomach": 0.7, "small intestine": 0.45, "colon": 0.9}

_FLICKER = 0.006  # deviation of the exposure from one frame to the next


@dataclass(frozen=True)
class Veil:
    """Nuisances of every frame, one value per frame each."""

    fog: Array  # density per length
    hue: Array  # of the fluid: 0 clear yellow, 1 green or brown
    residue: Array  # share of the wall that dirt covers
    bubbles: Array  # share of the view under froth
    pool: Array  # level of standing fluid, in radii below the axis; large is none
    down: Array  # direction of gravity across the lumen, radians
    blur: Array  # defocus in inner pixels
    exposure: Array  # factor on the automatic one


def draw_veil(
    rng: np.random.Generator, regions: list[str], motion: Motion, dirtiness: float
) -> Veil:
    """The nuisances of a study; `dirtiness` from 0 (well prepared) to 1."""
    activity = motion.activity
    wet = np.array([_WET[name] for name in regions])
    pools = np.array([_POOLS[name] for name in regions])

    def sometimes(scale: float, above: float) -> Array:
        """0 most of the time, 1 and more in spells."""
        return np.maximum(wander(rng, activity, scale) - above, 0)

    fog = wet * (0.03 + 0.25 * dirtiness * sometimes(3.0, 0.2) + 0.30 * sometimes(5.0, 1.3))
    # At times fluid fills the lumen and nothing shows where the capsule is. Real studies have
    # minutes of that; an annotator knows the region from the frames before and after.
    murk = wet * 4.0 * sometimes(4.0, 1.5 - 0.5 * dirtiness)
    spells = sometimes(4.0, 0.9 - 0.5 * dirtiness)
    step = np.diff(activity, prepend=activity[0])
    shaken = np.minimum(step, 0.5) * (rng.random(len(activity)) < 0.5)
    return Veil(
        fog=np.minimum(np.minimum(fog, 1.1) + murk, 5.0),
        hue=np.clip(0.5 + 0.4 * wander(rng, activity, 8.0), 0, 1),
        residue=np.clip(wet * (0.55 * dirtiness * sometimes(3.0, 0.5)), 0, 0.5),
        bubbles=np.clip(wet * 0.35 * sometimes(2.5, 1.0 - 0.3 * dirtiness), 0, 0.4),
        pool=np.where(pools * spells > 0.05, np.maximum(0.95 - 0.7 * pools * spells, 0.2), 9.0),
        down=2.0 * wander(rng, activity, 6.0),
        # Pressed against the wall, the lens is out of focus for a while.
        blur=0.25 + 0.5 * sometimes(2.0, 0.6) + 3.0 * shaken + 6.0 * sometimes(3.0, 1.6),
        exposure=np.exp(
            0.02 * wander(rng, activity, 1.5)
            - 0.2 * sometimes(2.0, 2.0)
            + _FLICKER * rng.standard_normal(len(activity))
        ),
    )


@lru_cache(maxsize=1)
def _froth() -> tuple[Array, Array]:
    """(512, 512) tiles of bubbles: factors on the brightness, and share inside a bubble."""
    rng = np.random.default_rng(0x6672)
    light, inside = np.full((640, 640), 100, np.uint8), np.zeros((640, 640), np.uint8)
    for radius in np.sort(rng.gamma(2.2, 4.0, 650))[::-1] + 2:
        x, y = (int(v) for v in rng.integers(64, 576, 2))
        r = int(min(radius, 30))
        # Grey 100 leaves the picture as it is. A film of fluid: dark outline, bright rim, and
        # the lamps mirrored in it.
        cv2.circle(light, (x, y), r, int(rng.integers(88, 108)), -1, cv2.LINE_AA)
        cv2.circle(light, (x, y), r, int(rng.integers(30, 70)), 1, cv2.LINE_AA)
        if r > 4:
            start = float(rng.uniform(0, 360))
            rim = int(rng.integers(130, 190))
            cv2.ellipse(
                light, (x, y), (r - 1, r - 1), start, 0, float(rng.uniform(120, 330)), rim, 1,
                cv2.LINE_AA,
            )  # fmt: skip
        if r > 7:
            for off in (-r // 5, r // 5):
                cv2.circle(light, (x + off, y - r // 4), max(1, r // 12), 180, -1, cv2.LINE_AA)
        cv2.circle(inside, (x, y), r, 255, -1, cv2.LINE_AA)
    light = cv2.GaussianBlur(light, (0, 0), 0.6)[64:576, 64:576]
    return light.astype(F32) / 100, inside[64:576, 64:576].astype(F32) / 255


def _window(tile: Array, side: int, corner: tuple[float, float]) -> Array:
    """A (side, side) piece of a tile, which wraps, from a corner in pixels."""
    rows = (np.arange(side) + int(corner[0])) % tile.shape[0]
    columns = (np.arange(side) + int(corner[1])) % tile.shape[1]
    return tile[rows][:, columns]


def soil(view: View, share: float, hue: float, dark: float) -> None:
    """Add residue to the wall: yellow-green flakes to brown stool."""
    if share < 0.01:
        return
    yellow, brown = np.array([1.08, 1.04, 0.95]), np.array([0.46, 0.30, 0.13])
    tint = yellow * (1 - dark) + brown * dark
    tint = tint * (1 - 0.22 * hue * np.array([1.0, 0.15, 0.5]))
    alpha = np.clip((view.residue - F32(2.1 - 2.4 * share)) * F32(3.0), 0, F32(0.95))
    view.add_cover((float(tint[0]), float(tint[1]), float(tint[2])), alpha)
    # Crumbs: lumps catch the light, gaps between them do not.
    view.furrow += alpha * (
        F32(0.9) * (view.residue - np.round(view.residue * 3) / 3) * 3 + F32(0.15)
    )


def flood(view: View, level: float, down: float, radius: float, hue: float, spare: Array) -> None:
    """Fill the lower side of the lumen with standing fluid; `spare` (n, n) marks what stays dry."""
    if level > 1.0:
        return
    low = view.point[..., 0] * np.cos(down).astype(F32) + view.point[..., 1] * np.sin(down).astype(
        F32
    )
    ripple = 0.04 * _window(clouds(), view.camera.side, (down * 40, level * 300))
    under = (low - level * radius).astype(F32) + ripple
    alpha = np.clip(under * 8, 0, 1) * np.clip(0.55 + under * 1.2, 0, 0.93) * (1 - spare)
    tint = np.array([0.56, 0.44, 0.13]) * (1 - hue) + np.array([0.38, 0.38, 0.11]) * hue
    view.add_cover((float(tint[0]), float(tint[1]), float(tint[2])), alpha)
    gravity = np.array([-np.cos(down), -np.sin(down), 0], F32)
    view.normal += (gravity - view.normal) * (0.75 * alpha[..., None])


def swirls(side: int, activity: float, strength: float) -> Array:
    """(side, side) unevenness of the fluid, about 1, that drifts with the activity."""
    coarse = _window(clouds(), side // 2, (activity * 31, activity * 17))
    full = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_LINEAR)
    wisps = np.maximum(full - F32(0.6), 0)
    return F32(1.0) + F32(0.15) * full + F32(0.2 + 0.8 * strength) * wisps


def bubble(picture: Array, share: float, activity: float, spare: Array) -> None:
    """Put froth over part of the picture; it drifts with the activity."""
    if share < 0.02:
        return
    side = picture.shape[0]
    drift = (activity * 23.0, activity * 37.0)
    density = _window(clouds(), side, (drift[0] * 0.7 + 100, drift[1] * 0.7))
    mask = np.clip((density - 2.2 + 5.0 * share) * 3, 0, 1) * (1 - 0.85 * spare)
    if not mask.any():
        return
    light, inside = (_window(tile, side, drift) for tile in _froth())
    weight = (mask * inside)[..., None]
    # Glints of bubbles are whiter than the wall behind them.
    white = picture.mean(axis=2, keepdims=True) * np.array([1.25, 1.15, 0.70], F32)
    shine = np.maximum(light - 1, 0)[..., None]
    picture += (
        (light[..., None] - 1) * (picture + (white - picture) * np.minimum(shine, 1))
    ) * weight


def occlude(light: Array, distance: Array) -> None:
    """Take light from places behind their surroundings: little of it gets between folds."""
    side = distance.shape[0]
    for share, amount in ((0.05, 1.6), (0.015, 1.0)):
        around = cv2.GaussianBlur(np.minimum(distance, F32(4.0)), (0, 0), share * side)
        behind = np.clip(distance / around - F32(1.02), 0, 1)
        light /= F32(1) + F32(amount) * behind


@lru_cache(maxsize=1)
def _villi() -> tuple[Array, Array]:
    """(512, 512) offsets across and down, deviation 1, of a picture seen through villi."""
    rng = np.random.default_rng(0x7669)
    first, second = (smooth_noise(rng, (512, 512), (256, 256)) for _ in range(2))
    return first, second


def fringe(picture: Array, activity: float, strength: float) -> Array:
    """The picture with ragged outlines: villi stand on every edge."""
    side = picture.shape[0]
    across, down = (_window(tile, side, (activity * 97, activity * 61)) for tile in _villi())
    rows, columns = np.indices((side, side), dtype=F32)
    reach = F32(0.75 * min(strength, 1.2) * side / 190)
    shifted = cv2.remap(
        picture,
        columns + reach * across,
        rows + reach * down,
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return np.asarray(shifted, F32)


def lose_depth(picture: Array, distance: Array) -> Array:
    """The picture with everything far away out of focus."""
    far = np.clip((distance - F32(1.3)) * F32(0.8), 0, 1)[..., None]
    if not far.any():
        return picture
    soft = cv2.GaussianBlur(picture, (0, 0), 1.8)
    return picture + (soft - picture) * far


def defocus(picture: Array, sigma: float) -> Array:
    """The picture out of focus by `sigma` pixels."""
    if sigma < 0.3:
        return picture
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma), F32)

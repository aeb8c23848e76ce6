"""Three capsules: their picture's border, their colours and sharpness, and what they burn in."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError, nearest
from enteron.phantom.noise import grain
from enteron.phantom.view import Camera, fisheye

Image = NDArray[np.uint8]


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


DEVICE: dict[str, Device] = {
    "olympus": Device(
        336, 336, 190, "octagon", 134.0,
        ((1.04, 0.00, -0.02), (0.01, 0.99, 0.01), (-0.02, 0.06, 0.93)),
        0.95, 0.22, 0.55, 1.3, 92, 0.5,
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


def device_named(name: str) -> Device:
    """The device of that name; an error tells the nearest one."""
    if name not in DEVICE:
        raise EnteronError(f"'{name}' is not a capsule that can be drawn", nearest(name, DEVICE))
    return DEVICE[name]


def _outline(device: Device, side: int, inset: float) -> Image:
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


@lru_cache(maxsize=3)
def camera_of(name: str) -> Camera:
    """Rays of a device's inner picture, a little beyond its border for the resampling."""
    device = device_named(name)
    return fisheye(_outline(device, device.inner, -0.04), np.radians(device.field_of_view))


@lru_cache(maxsize=3)
def _border(name: str) -> Image:
    device = device_named(name)
    mask = _outline(device, device.picture, 0.006)
    return np.repeat(mask[..., None], 3, axis=2)


@lru_cache(maxsize=3)
def _falloff(name: str) -> NDArray[np.floating]:
    device = device_named(name)
    across = (np.arange(device.inner) + 0.5) * 2 / device.inner - 1
    x, y = np.meshgrid(across, across)
    lost = device.vignette * np.clip(np.hypot(x, y), 0, 1.2) ** 2.4
    return (1 - lost)[..., None].astype(np.float32)


@lru_cache(maxsize=3)
def _specks(name: str) -> tuple[Image, Image]:
    """Sensor noise that brightens and that darkens, (1024, 1024, 3): luminance and some colour."""
    noise = grain()
    coarse = cv2.GaussianBlur(noise, (0, 0), 1.1)
    coarse /= coarse.std()
    levels = device_named(name).noise
    colour = [0.75 * coarse + 0.45 * np.roll(coarse, (37 * c, 91 * c), (0, 1)) for c in range(3)]
    signed = np.stack(colour, axis=-1) * levels
    return np.clip(signed, 0, 255).astype(np.uint8), np.clip(-signed, 0, 255).astype(np.uint8)


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _write(
    frame: Image, text: str, x: int, y: int, scale: float, tone: tuple[int, int, int]
) -> None:
    cv2.putText(frame, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, tone, 1, cv2.LINE_AA)


def _burn_in(name: str, frame: Image, number: int, study: int) -> None:
    """Overlay text: dates in the year 00 and models called phantoms, since nobody was examined."""
    seconds = number * device_named(name).seconds
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


def develop(
    name: str, picture: NDArray[np.floating], number: int, study: int, dice: tuple[int, int]
) -> Image:
    """The frame, RGB uint8, that a device makes of a picture (inner, inner, 3) of 0 to 1.

    `number` is the frame's, for the clock; `study` picks date and text colour; `dice` are two
    numbers from 0 to 1023 that pick the sensor noise.
    """
    device = device_named(name)
    light = cv2.transform(picture * _falloff(name), np.array(device.matrix, np.float32))
    np.clip(light, 0, 1, out=light)
    light = cv2.pow(light, device.gamma) * np.float32(255)
    small = cv2.convertScaleAbs(light)
    full = cv2.resize(small, (device.picture, device.picture), interpolation=cv2.INTER_CUBIC)
    if device.sharpen:
        soft = cv2.GaussianBlur(full, (0, 0), 1.6)
        full = cv2.addWeighted(full, 1 + device.sharpen, soft, -device.sharpen, 0)
    brighter, darker = _specks(name)
    top, left = (value % (1024 - device.picture) for value in dice)
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

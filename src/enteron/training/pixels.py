"""Turning and colouring of pictures of bytes, several times as fast as torchvision's kernels.

Those make a dozen passes over floats. These give the same pixels, but for one grey level where a
sum rounds otherwise, so that training waits for decoding and not for random changes. All take
pictures (n, 3, height, width) and one set of numbers for all of them.
"""

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

Pictures = NDArray[np.uint8]
Plane = NDArray[np.uint8]  # one channel of one picture, flat

COLOURS = ("brightness", "contrast", "saturation", "hue")
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # as torchvision numbers them

# Loops over whole planes that read a pixel before they write it: LLVM then takes eight at a time.
_kernel: Any = njit(cache=True, error_model="numpy")

# Weights of red, green and blue in a grey value, those of torchvision.
_RED, _GREEN, _BLUE = np.float32(0.2989), np.float32(0.587), np.float32(0.114)
_WHITE = np.float32(255.0)
# Back to bytes as torchvision rounds: [0, 1] times 255.999, cut off.
_TO_BYTE = np.float32(255.999 / 255.0)
_ZERO, _ONE, _FOUR, _SIX = np.float32(0.0), np.float32(1.0), np.float32(4.0), np.float32(6.0)


def turned(pictures: Pictures, degrees: float) -> Pictures:
    """Turned about the centre, bilinear, black beyond the edge; positive is anticlockwise."""
    height, width = pictures.shape[-2:]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    out = np.empty(pictures.shape, np.uint8)  # contiguous, whatever the layout of the input
    for plane, made in zip(_planes(pictures), _planes(out), strict=True):
        cv2.warpAffine(plane, matrix, (width, height), dst=made, borderValue=0)
    return out


def coloured(pictures: Pictures, changes: Iterable[tuple[int, float]]) -> Pictures:
    """Brightness, contrast, saturation and hue by the given factors, in the given order."""
    out = pictures.copy()
    flat = out.reshape(*out.shape[:2], -1)
    for kind, factor in changes:
        if kind == BRIGHTNESS:
            _scale(flat, np.float32(factor), np.zeros(len(flat), np.float32))
        elif kind == CONTRAST:
            _scale(flat, np.float32(factor), np.float32(1.0 - factor) * _grey_means(flat))
        elif kind == SATURATION:
            _saturate(flat, np.float32(factor))
        elif kind == HUE:
            _shift_hue(flat, np.float32(6.0 * factor))
        else:
            raise ValueError(f"no change of colour has the number {kind}")
    return out


def _planes(pictures: Pictures) -> Pictures:
    return pictures.reshape(-1, *pictures.shape[-2:])


@_kernel
def _scale(flat: Pictures, factor: np.float32, shifts: NDArray[np.float32]) -> None:
    """Every byte times the factor plus its picture's shift."""
    for number in range(len(flat)):
        for channel in range(3):
            plane = flat[number, channel]
            for place in range(len(plane)):
                plane[place] = _byte(np.float32(plane[place]) * factor + shifts[number])


@_kernel
def _grey_means(flat: Pictures) -> NDArray[np.float32]:
    """Of every picture, the mean of its grey values, each rounded down."""
    means = np.empty(len(flat), np.float32)
    for number in range(len(flat)):
        red, green, blue = flat[number, 0], flat[number, 1], flat[number, 2]
        total = 0
        for place in range(len(red)):
            total += np.int32(_grey(red[place], green[place], blue[place]))
        means[number] = total / len(red)
    return means


@_kernel
def _saturate(flat: Pictures, factor: np.float32) -> None:
    for number in range(len(flat)):
        _saturate_planes(flat[number, 0], flat[number, 1], flat[number, 2], factor)


@_kernel
def _saturate_planes(reds: Plane, greens: Plane, blues: Plane, factor: np.float32) -> None:
    rest = _ONE - factor
    for place in range(len(reds)):
        red, green, blue = reds[place], greens[place], blues[place]
        grey = rest * _whole(_grey(red, green, blue))
        reds[place] = _byte(np.float32(red) * factor + grey)
        greens[place] = _byte(np.float32(green) * factor + grey)
        blues[place] = _byte(np.float32(blue) * factor + grey)


@_kernel
def _shift_hue(flat: Pictures, turn: np.float32) -> None:
    for number in range(len(flat)):
        _shift_planes(flat[number, 0], flat[number, 1], flat[number, 2], turn)


@_kernel
def _shift_planes(reds: Plane, greens: Plane, blues: Plane, turn: np.float32) -> None:
    """`turn` in sixths of the circle of colours."""
    for place in range(len(reds)):
        red = np.float32(reds[place])
        green = np.float32(greens[place])
        blue = np.float32(blues[place])
        most = max(red, max(green, blue))
        spread = most - min(red, min(green, blue))
        # Grey has no hue; whatever it is given, a spread of 0 leaves the pixel as it is.
        each = _ONE / max(spread, _ONE)
        of_red = (green - blue) * each
        of_green = np.float32(2.0) + (blue - red) * each
        of_blue = _FOUR + (red - green) * each
        hue = of_red if most == red else (of_green if most == green else of_blue)
        hue = hue + turn + _SIX  # positive, whatever the turn
        reds[place] = _channel(hue + np.float32(5.0), most, spread)
        greens[place] = _channel(hue + np.float32(3.0), most, spread)
        blues[place] = _channel(hue + _ONE, most, spread)


@_kernel
def _channel(angle: np.float32, most: np.float32, spread: np.float32) -> np.uint8:
    """How much of a channel a hue has: all within a sixth of its own, none opposite of it."""
    angle = angle - _SIX * _whole(angle * np.float32(1.0 / 6.0))
    missing = min(max(min(angle, _FOUR - angle), _ZERO), _ONE)
    return _byte((most - spread * missing) * _TO_BYTE)


@_kernel
def _grey(red: np.uint8, green: np.uint8, blue: np.uint8) -> np.float32:
    return np.float32(red) * _RED + np.float32(green) * _GREEN + np.float32(blue) * _BLUE


@_kernel
def _whole(value: np.float32) -> np.float32:
    """Rounded down; for positive values (`math.floor` would go through 64 bits)."""
    return np.float32(np.int32(value))


@_kernel
def _byte(value: np.float32) -> np.uint8:
    return np.uint8(np.int32(min(max(value, _ZERO), _WHITE)))

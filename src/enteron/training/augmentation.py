"""Random changes of pictures, one draw for all frames of a clip (decision 14)."""

from collections.abc import Callable, Iterable
from typing import Any

import cv2
import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from enteron.model import torchvision_operators
from enteron.training.options import AugmentationOptions
from enteron.training.sampling import generator

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


class Augmentation:
    """Crop, flips, rotation, colours, grey, erasing, on square pictures of bytes.

    Transforms and draws are torchvision's; the two that take longest have kernels of our own.
    """

    def __init__(self, options: AugmentationOptions, size: int) -> None:
        torchvision_operators.declare()
        from torchvision.transforms import v2

        rotation = v2.RandomRotation(options.rotation)  # pyright: ignore[reportArgumentType]
        jitter = v2.ColorJitter(
            brightness=options.brightness,
            contrast=options.contrast,
            saturation=options.saturation,
            hue=options.hue,
        )

        def turn(pictures: torch.Tensor) -> torch.Tensor:
            drawn = rotation.make_params([pictures])
            return torch.from_numpy(turned(pictures.numpy(), drawn["angle"]))

        def colour(pictures: torch.Tensor) -> torch.Tensor:
            drawn = jitter.make_params([pictures])
            factors = [drawn[f"{name}_factor"] for name in COLOURS]
            order = [int(kind) for kind in drawn["fn_idx"]]
            changes = [(kind, factors[kind]) for kind in order if factors[kind] is not None]
            return torch.from_numpy(coloured(pictures.numpy(), changes))

        self._steps: list[Callable[[torch.Tensor], torch.Tensor]] = [
            v2.RandomResizedCrop(size, scale=options.scale, ratio=options.ratio, antialias=True),
            v2.RandomHorizontalFlip(options.horizontal),
            v2.RandomVerticalFlip(options.vertical),
            turn,
            colour,
            v2.RandomGrayscale(options.grayscale),
            v2.RandomErasing(options.erasing, scale=options.erased),
        ]
        self._made_of = (options, size)

    def __reduce__(self) -> tuple[type["Augmentation"], tuple[AugmentationOptions, int]]:
        # A worker makes its own: torchvision's classes cannot be imported before `declare`.
        return type(self), self._made_of

    def __call__(self, pictures: torch.Tensor, seed: int) -> torch.Tensor:
        """Pictures (n, 3, size, size), uint8, all changed by the draw that the seed decides."""
        # Given several pictures in one tensor, torchvision draws once for all of them.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            for step in self._steps:
                pictures = step(pictures)
            return pictures


def mixing_share(alpha: float, *counters: int) -> float:
    """Lambda of one batch, max(Beta(alpha, alpha), 0.5) (decision 13); 1 for alpha 0."""
    if alpha == 0:
        return 1.0
    drawn = generator(*counters, "mixup").beta(alpha, alpha)
    return float(max(drawn, 1 - drawn))


def mix(
    clips: torch.Tensor, targets: torch.Tensor, share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each clip (n, frames, ...) and its targets with those of its neighbour in the batch.

    The same share for all frames of a clip, so that its frames still differ by time alone. Draws
    of a batch are independent, so a fixed partner is as random as a shuffled one; and places
    2i and 2i + 1 are always in the hands of the same process.
    """
    if share == 1:
        return clips, targets
    order = torch.arange(len(clips), device=clips.device)
    partner = torch.minimum(order ^ 1, order[-1:])  # the last of an odd number stays as it is
    mixed = share * clips + (1 - share) * clips[partner]
    return mixed, share * targets + (1 - share) * targets[partner]

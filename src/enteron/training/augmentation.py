"""Augmentation of clips, one draw for all their frames (decision 14), and temporal mixup.

Transforms and random draws are torchvision's. Rotation and colour changes, which take longest, have
kernels of our own that give torchvision's pixels to within one grey level.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cv2
import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from enteron.model import torchvision_operators
from enteron.training.options import AugmentationOptions
from enteron.training.sampling import generator

Images = NDArray[np.uint8]  # (n, 3, height, width), or (n, 3, pixels) where flat
Plane = NDArray[np.uint8]  # one channel of one image, flat

_LARGEST_SIDE = 1024  # of a kept picture, in pixels

COLOURS = ("brightness", "contrast", "saturation", "hue")
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # torchvision's numbers

# Each loop runs over a full plane and reads a pixel before it writes it: LLVM can vectorise that.
_kernel: Any = njit(cache=True, error_model="numpy")

# torchvision's weights of red, green and blue in a grey value.
_RED, _GREEN, _BLUE = np.float32(0.2989), np.float32(0.587), np.float32(0.114)
_WHITE = np.float32(255.0)
# torchvision's conversion to bytes: [0, 1] times 255.999, truncated.
_TO_BYTE = np.float32(255.999 / 255.0)
_ZERO, _ONE, _FOUR, _SIX = np.float32(0.0), np.float32(1.0), np.float32(4.0), np.float32(6.0)


def rotate(images: Images, degrees: float) -> Images:
    """Rotate about the centre, anticlockwise, bilinear, with black beyond the edge."""
    height, width = images.shape[-2:]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    out = np.empty(images.shape, np.uint8)  # contiguous, whatever the layout of the input
    for plane, rotated in zip(_planes(images), _planes(out), strict=True):
        cv2.warpAffine(plane, matrix, (width, height), dst=rotated, borderValue=0)
    return out


def adjust_colours(images: Images, changes: Iterable[tuple[int, float]]) -> Images:
    """Apply (kind, factor) changes of brightness, contrast, saturation and hue in this order."""
    out = images.copy()
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
            raise ValueError(f"{kind} is not the number of a colour change")
    return out


def _planes(images: Images) -> Images:
    return images.reshape(-1, *images.shape[-2:])


@_kernel
def _scale(flat: Images, factor: np.float32, shifts: NDArray[np.float32]) -> None:
    """Multiply every byte by the factor and add the shift of its image."""
    for image in range(len(flat)):
        for channel in range(3):
            plane = flat[image, channel]
            for pixel in range(len(plane)):
                plane[pixel] = _byte(np.float32(plane[pixel]) * factor + shifts[image])


@_kernel
def _grey_means(flat: Images) -> NDArray[np.float32]:
    """(n,) mean of each image's grey values, each rounded down."""
    means = np.empty(len(flat), np.float32)
    for image in range(len(flat)):
        red, green, blue = flat[image, 0], flat[image, 1], flat[image, 2]
        total = 0
        for pixel in range(len(red)):
            total += np.int32(_grey(red[pixel], green[pixel], blue[pixel]))
        means[image] = total / len(red)
    return means


@_kernel
def _saturate(flat: Images, factor: np.float32) -> None:
    for image in range(len(flat)):
        _saturate_planes(flat[image, 0], flat[image, 1], flat[image, 2], factor)


@_kernel
def _saturate_planes(reds: Plane, greens: Plane, blues: Plane, factor: np.float32) -> None:
    rest = _ONE - factor
    for pixel in range(len(reds)):
        red, green, blue = reds[pixel], greens[pixel], blues[pixel]
        grey = rest * _floor(_grey(red, green, blue))
        reds[pixel] = _byte(np.float32(red) * factor + grey)
        greens[pixel] = _byte(np.float32(green) * factor + grey)
        blues[pixel] = _byte(np.float32(blue) * factor + grey)


@_kernel
def _shift_hue(flat: Images, turn: np.float32) -> None:
    for image in range(len(flat)):
        _shift_planes(flat[image, 0], flat[image, 1], flat[image, 2], turn)


@_kernel
def _shift_planes(reds: Plane, greens: Plane, blues: Plane, turn: np.float32) -> None:
    """Shift the hue by `turn`, in sixths of the colour circle."""
    for pixel in range(len(reds)):
        red = np.float32(reds[pixel])
        green = np.float32(greens[pixel])
        blue = np.float32(blues[pixel])
        most = max(red, max(green, blue))
        spread = most - min(red, min(green, blue))
        # Grey has no hue; with a spread of 0 any hue leaves the pixel unchanged.
        scale = _ONE / max(spread, _ONE)
        of_red = (green - blue) * scale
        of_green = np.float32(2.0) + (blue - red) * scale
        of_blue = _FOUR + (red - green) * scale
        hue = of_red if most == red else (of_green if most == green else of_blue)
        hue = hue + turn + _SIX  # positive for every turn
        reds[pixel] = _channel(hue + np.float32(5.0), most, spread)
        greens[pixel] = _channel(hue + np.float32(3.0), most, spread)
        blues[pixel] = _channel(hue + _ONE, most, spread)


@_kernel
def _channel(angle: np.float32, most: np.float32, spread: np.float32) -> np.uint8:
    """A channel's value: `most` within a sixth of its own hue, `most - spread` opposite of it."""
    angle = angle - _SIX * _floor(angle * np.float32(1.0 / 6.0))
    missing = min(max(min(angle, _FOUR - angle), _ZERO), _ONE)
    return _byte((most - spread * missing) * _TO_BYTE)


@_kernel
def _grey(red: np.uint8, green: np.uint8, blue: np.uint8) -> np.float32:
    return np.float32(red) * _RED + np.float32(green) * _GREEN + np.float32(blue) * _BLUE


@_kernel
def _floor(value: np.float32) -> np.float32:
    """Round a positive value down (`math.floor` would go through 64 bits)."""
    return np.float32(np.int32(value))


@_kernel
def _byte(value: np.float32) -> np.uint8:
    return np.uint8(np.int32(min(max(value, _ZERO), _WHITE)))


ErasedBox = tuple[int, int, int, int]
"""Top, left, height and width in pixels; four times 0 where nothing is erased."""

_NOTHING: ErasedBox = (0, 0, 0, 0)


class Augmentation:
    """Crop, flips, colour changes, grayscale, rotation and erasing, in this order (decision 14).

    The crop is taken from the pictures as they are, so that its pixels are the camera's and not
    enlarged ones. Erasing makes a rectangle 0 after normalisation, so here it is only drawn:
    `erase` carries it out.
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

        def random_rotation(images: torch.Tensor) -> torch.Tensor:
            drawn = rotation.make_params([images])
            return torch.from_numpy(rotate(images.numpy(), drawn["angle"]))

        def random_colours(images: torch.Tensor) -> torch.Tensor:
            drawn = jitter.make_params([images])
            factors = [drawn[f"{name}_factor"] for name in COLOURS]
            order = [int(kind) for kind in drawn["fn_idx"]]
            changes = [(kind, factors[kind]) for kind in order if factors[kind] is not None]
            return torch.from_numpy(adjust_colours(images.numpy(), changes))

        self._crop = v2.RandomResizedCrop(
            size, scale=options.scale, ratio=options.ratio, antialias=True
        )
        self._transforms: list[Callable[[torch.Tensor], torch.Tensor]] = [
            v2.RandomHorizontalFlip(options.horizontal),
            v2.RandomVerticalFlip(options.vertical),
            random_colours,
            v2.RandomGrayscale(options.grayscale),
            random_rotation,
        ]
        self._erasing = v2.RandomErasing(options.erasing, scale=options.erased)
        self._arguments = (options, size)

    def __reduce__(self) -> tuple[type["Augmentation"], tuple[AugmentationOptions, int]]:
        # A worker builds its own: torchvision's classes cannot be imported before `declare`.
        return type(self), self._arguments

    def __call__(
        self, pictures: Sequence[torch.Tensor], seed: int
    ) -> tuple[torch.Tensor, ErasedBox]:
        """Pictures (3, height, width), uint8, all changed by the same draw from `seed`.

        Returns images (n, 3, size, size), still uint8, and the rectangle to erase.
        """
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            images = self._cropped(pictures)
            # torchvision draws once for all images of a tensor.
            for transform in self._transforms:
                images = transform(images)
            return images, self._rectangle(images)

    @property
    def kept_side(self) -> int:
        """The side of a square picture whose smallest crop still has `size` pixels."""
        options, size = self._arguments
        narrowest = min(options.ratio[0], 1 / options.ratio[1])
        side = size / math.sqrt(options.scale[0] * narrowest)
        return min(_LARGEST_SIDE, 16 * math.ceil(side / 16))

    def _cropped(self, pictures: Sequence[torch.Tensor]) -> torch.Tensor:
        """The same part of every picture, resized; it is drawn on the last one, the current frame.

        Pictures of a study hardly ever differ in size; where they do, the part is the same share
        of their sides.
        """
        height, width = pictures[-1].shape[1:]
        drawn = self._crop.make_params([pictures[-1]])
        if all(picture.shape[1:] == (height, width) for picture in pictures):
            return self._crop.transform(torch.stack(list(pictures)), drawn)
        images: list[torch.Tensor] = []
        for picture in pictures:
            down, across = picture.shape[1] / height, picture.shape[2] / width
            part = {
                "top": int(drawn["top"] * down),
                "left": int(drawn["left"] * across),
                "height": max(int(drawn["height"] * down), 1),
                "width": max(int(drawn["width"] * across), 1),
            }
            images.append(self._crop.transform(picture[None], part)[0])
        return torch.stack(images)

    def _rectangle(self, images: torch.Tensor) -> ErasedBox:
        if torch.rand(1) >= self._erasing.p:
            return _NOTHING
        drawn = self._erasing.make_params([images])
        if drawn["v"] is None:  # no rectangle fits
            return _NOTHING
        return drawn["i"], drawn["j"], drawn["h"], drawn["w"]


def erase(clips: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Normalised clips (n, frames, 3, size, size) with the box (n, 4) of each at 0, in place."""
    for clip, (top, left, height, width) in zip(clips, boxes.tolist(), strict=True):
        clip[..., top : top + height, left : left + width] = 0
    return clips


def mixup_weight(alpha: float, *counters: int) -> float:
    """Lambda of one batch, max(B, 0.5) with B from Beta(alpha, alpha) (decision 13).

    1 for alpha 0. The counters (seed, epoch, batch) determine the draw.
    """
    if alpha == 0:
        return 1.0
    return max(float(generator(*counters, "mixup").beta(alpha, alpha)), 0.5)


def mixup(
    clips: torch.Tensor, targets: torch.Tensor, known: torch.Tensor, weight: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mix each clip (n, frames, ...) and its targets with those of its neighbour in the batch.

    All frames of a clip have the same weight, so that they still differ by time alone. The draws of
    a batch are independent, so a fixed partner is as random as a shuffled one; and positions 2i and
    2i + 1 always belong to the same process. A label that is unknown in one of the two is unknown
    in the mixture.
    """
    if weight == 1:
        return clips, targets, known
    order = torch.arange(len(clips), device=clips.device)
    partner = torch.minimum(order ^ 1, order[-1:])  # the last of an odd number is its own partner
    mixed = weight * clips + (1 - weight) * clips[partner]
    mixed_targets = weight * targets + (1 - weight) * targets[partner]
    return mixed, mixed_targets, known & known[partner]

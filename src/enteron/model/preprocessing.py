"""From a picture to what a backbone expects: size, interpolation, normalisation."""

import hashlib
import json
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError, ModelError
from enteron.options import Options

if TYPE_CHECKING:  # torch is imported where it runs, so that options load without it
    import torch

Triple = tuple[float, float, float]


class Preprocessing(Options):
    """How a backbone wants its pictures. Embeddings are comparable only under the same hash."""

    size: int = 224
    """Pixels of the square that goes in."""

    mean: Triple = (0.5, 0.5, 0.5)
    """Per channel, of values from 0 to 1."""

    std: Triple = (0.5, 0.5, 0.5)
    """Per channel, of values from 0 to 1."""

    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    """Resampling, with antialiasing."""

    resize: Literal["shortest", "squash"] = "shortest"
    """The shorter side to `size` and the middle cut out, or both sides to `size`."""

    def hash(self) -> str:
        """SHA-256 of the fields in a fixed order."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def apply(self, pictures: "torch.Tensor") -> "torch.Tensor":
        """Pictures (n, 3, height, width), uint8 RGB, to (n, 3, size, size) float32."""
        return self.normalise(self.square(pictures))

    def square(self, pictures: "torch.Tensor") -> "torch.Tensor":
        """Pictures (n, 3, height, width), uint8 RGB, to (n, 3, size, size), still uint8."""
        import torch
        from torch.nn import functional

        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[1] != 3:
            raise ModelError(
                f"pictures have shape {tuple(pictures.shape)} and type {pictures.dtype}",
                "give uint8 RGB pictures as (n, 3, height, width)",
            )
        # Channels-last is torch's fast uint8 path, and rounds after each axis as Pillow does.
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        height, width = pictures.shape[2:]
        target = self._target(height, width)
        if target != (height, width):
            pictures = functional.interpolate(
                pictures, size=target, mode=self.interpolation, antialias=True, align_corners=False
            )
        top, left = round((target[0] - self.size) / 2), round((target[1] - self.size) / 2)
        return pictures[:, :, top : top + self.size, left : left + self.size]

    def normalise(self, squares: "torch.Tensor") -> "torch.Tensor":
        """Squares (n, 3, size, size), uint8, to float32 as the backbone wants them."""
        import torch

        mean = torch.tensor(self.mean, device=squares.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=squares.device).view(3, 1, 1)
        return (squares.float() / 255 - mean) / std

    def _target(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing, before the middle is cut out."""
        if self.resize == "squash":
            return self.size, self.size
        short, long = sorted((height, width))
        grown = int(self.size * long / short)
        return (self.size, grown) if height <= width else (grown, self.size)


def flipped(images: "torch.Tensor") -> "torch.Tensor":
    """The mirror image (left and right exchanged) of images or clips (..., height, width)."""
    return images.flip(-1)


def window_rows(count: int, step: int = 1, frames: int = 3) -> NDArray[np.int64]:
    """Rows (count, frames) of every frame's clip in a study of `count` stored frames.

    The clip of row t is (t - 2 step, t - step, t), clamped at the study's first frame (decision 1).
    `array[window_rows(...)]` makes clips of pictures as well as windows of embeddings.
    """
    if count < 0 or step < 1 or frames < 1:
        raise EnteronError(
            f"there are no clips of {frames} frames, {step} apart, in {count} frames",
            "give a step and a number of frames of at least 1",
        )
    back = np.arange(frames - 1, -1, -1, dtype=np.int64) * step
    return np.maximum(np.arange(count, dtype=np.int64)[:, None] - back, 0)

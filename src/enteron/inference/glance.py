"""A glance at every frame: a tiny network that guesses what the model would say of it.

Coarse to fine (`coarse_to_fine`) has to decide which frames to encode, and the frames that were
encoded say little about what lies between two of them while the capsule moves. So all frames are
looked at, at 56 x 56 pixels, by a network that costs a fiftieth of the encoder: three
convolutions, the mean and the maximum of what they give over the picture, and a log-odds for each
label. It imitates the model and knows nothing of lesions by itself (`enteron.fitting.glance`); its
guesses are corrected by the frames around that were encoded, and never become scores.

Frames are taken one by one, and every sum has its order, so a guess has the same bits in any chunk,
on any number of threads.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.files import read_bytes
from enteron.kernels import compiled
from enteron.labels import LABELS
from enteron.model.tensor_table import read_table

SMALL: Final = 56
"""Pixels along each side of a small picture."""

CHANNELS: Final = (3, 16, 32, 64)
"""Of the picture and after each convolution, which halves the sides."""

LIMIT: Final = 10_000_000  # bytes of a file
LARGEST: Final = 12.0  # log-odds


def small_picture(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(56, 56, 3) of an image (3, size, size) as the encoder takes it.

    Each pixel is the mean of what it covers.
    """
    import cv2

    planes = [cv2.resize(p, (SMALL, SMALL), interpolation=cv2.INTER_AREA) for p in image]
    return np.stack(planes, axis=-1)


def tensor_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the network's tensors."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (before, after) in enumerate(pairwise(CHANNELS)):
        shapes[f"convolution.{layer}.weight"] = (3, 3, before, after)
        shapes[f"convolution.{layer}.bias"] = (after,)
    shapes["output.weight"] = (2 * CHANNELS[-1], len(LABELS))
    shapes["output.bias"] = (len(LABELS),)
    return shapes


@dataclass(frozen=True)
class Glance:
    """The network. `tensors` are those of `tensor_shapes`, float32."""

    tensors: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        for name, shape in tensor_shapes().items():
            tensor = self.tensors.get(name)
            if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
                raise ModelError(f"a glance has no tensor {name} of shape {shape}", "fit it again")
            if not np.isfinite(tensor).all():
                raise ModelError(f"the tensor {name} of a glance is not finite", "fit it again")

    def log_odds(self, pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(n, 17) what the model is likely to say of each of the small pictures (n, 56, 56, 3)."""
        convolve = compiled(_convolve)
        result = np.empty((len(pictures), len(LABELS)), np.float32)
        weights, bias = self.tensors["output.weight"], self.tensors["output.bias"]
        for index, picture in enumerate(pictures):
            values = picture.astype(np.float32) * np.float32(1 / 127.5) - np.float32(1)
            for layer, channels in enumerate(CHANNELS[1:]):
                side = values.shape[0] // 2
                after = np.empty((side, side, channels), np.float32)
                convolve(
                    values,
                    self.tensors[f"convolution.{layer}.weight"],
                    self.tensors[f"convolution.{layer}.bias"],
                    after,
                )
                values = after
            places = values.reshape(-1, values.shape[2])
            pooled = np.concatenate([places.mean(axis=0), places.max(axis=0)])
            # Not a matrix product, whose order of sums may depend on the number of threads.
            result[index] = (pooled[:, None] * weights).sum(axis=0) + bias
        return np.clip(result, -LARGEST, LARGEST)


def glance_content(glance: Glance) -> bytes:
    """A glance as a safetensors file; equal ones give equal bytes. Needs the library."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(glance.tensors[name]) for name in tensor_shapes()})


def read_glance(path: Path) -> tuple[Glance, str]:
    """A glance from its safetensors file, and the SHA-256 of that file."""
    table = read_table(path)
    content = read_bytes(path, LIMIT, "copy it again", error=ModelError)
    tensors = {
        name: np.frombuffer(content[entry.begin : entry.end], "<f4").reshape(entry.shape)
        for name, entry in table.items()
        if entry.dtype == "F32"
    }
    return Glance(tensors), hashlib.sha256(content).hexdigest()


def _convolve(
    values: NDArray[np.float32],
    weights: NDArray[np.float32],
    bias: NDArray[np.float32],
    result: NDArray[np.float32],
) -> None:
    """3 x 3 with a stride of 2, surrounded by zeros, and ReLU: (2n, 2n, c) to (n, n, k)."""
    side, channels = values.shape[0], values.shape[2]
    count = bias.size
    for y in range(result.shape[0]):
        for x in range(result.shape[1]):
            sums = result[y, x]
            for k in range(count):
                sums[k] = bias[k]
            for dy in range(3):
                row = 2 * y + dy - 1
                if row < 0 or row >= side:
                    continue
                for dx in range(3):
                    column = 2 * x + dx - 1
                    if column < 0 or column >= side:
                        continue
                    for c in range(channels):
                        value = values[row, column, c]
                        factors = weights[dy, dx, c]
                        for k in range(count):
                            sums[k] += value * factors[k]
            for k in range(count):
                sums[k] = max(sums[k], np.float32(0))

"""The network's inputs: from a decoded picture to a normalised image, and from frames to clips.

torch is imported only where it runs, so that options load without it.
"""

import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from enteron.errors import EnteronError, ModelError
from enteron.model.resampling import RESAMPLING, Interpolation, resize
from enteron.options import Options, without_defaults

if TYPE_CHECKING:
    import torch

    from enteron.study.field_of_view import Circle

Mean = Annotated[float, Field(ge=0, le=1)]
Deviation = Annotated[float, Field(ge=0.01, le=10)]
Border = Literal["kept", "masked"]


class Preprocessing(Options):
    """Size, resampling and normalisation that a backbone expects.

    Embeddings are comparable only if they were computed under the same `images_hash`.
    """

    size: int = Field(default=224, ge=8, le=1024)
    """Width and height of the image that goes into the backbone, in pixels."""

    mean: tuple[Mean, Mean, Mean] = (0.5, 0.5, 0.5)
    """Subtracted from red, green and blue, after values were scaled to 0..1."""

    std: tuple[Deviation, Deviation, Deviation] = (0.5, 0.5, 0.5)
    """Each channel is divided by it, after values were scaled to 0..1."""

    interpolation: Interpolation = "bicubic"
    """Resampling, with antialiasing: Pillow's."""

    resize: Literal["shortest", "squash"] = "shortest"
    """`shortest`: the shorter side to `size` and a centre crop; `squash`: both sides to `size`."""

    border: Border = "kept"
    """`masked`: the square around the circle inside the capsule's field of view to `size`, black
    outside the circle; every capsule's pictures then have the same shape."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "border")

    def hash(self) -> str:
        """SHA-256 of the fields in a fixed order."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def images_hash(self) -> str:
        """Of what the bytes of images depend on: the fields, and the resampling of pictures.

        Stored embeddings and stored images refer to it. A model's weights do not: between versions
        of the resampling a few pixels in a thousand differ by one grey level.
        """
        return hashlib.sha256(f"{self.hash()}:{RESAMPLING}".encode()).hexdigest()

    def apply(self, picture: NDArray[np.uint8]) -> "torch.Tensor":
        """A picture (height, width, 3), uint8 RGB, to an image (3, size, size), float32."""
        import torch

        return self.normalise(torch.from_numpy(self.resize_and_crop(picture))[None])[0]

    def resize_and_crop(
        self, picture: NDArray[np.uint8], circle: "Circle | None" = None
    ) -> NDArray[np.uint8]:
        """A picture (height, width, 3), RGB, to an image (3, size, size), still uint8.

        `circle` is the one inside the field of view, where the border is masked; None: a circle in
        the middle of the picture.
        """
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise ModelError(
                f"a picture has shape {picture.shape} and type {picture.dtype}",
                "give uint8 RGB pictures as (height, width, 3)",
            )
        picture = self._cut(picture, circle)
        height, width = picture.shape[:2]
        target = self._resized_shape(height, width)
        resized = resize(picture, *target, self.interpolation)
        top, left = round((target[0] - self.size) / 2), round((target[1] - self.size) / 2)
        image = resized[top : top + self.size, left : left + self.size].transpose(2, 0, 1)
        return np.ascontiguousarray(image * _disc(self.size) if self.border == "masked" else image)

    def unresized(
        self, picture: NDArray[np.uint8], circle: "Circle | None" = None
    ) -> NDArray[np.uint8]:
        """A picture (height, width, 3) as it is, as (3, height, width); of a masked border the
        square around the circle, black outside of it.
        """
        part = self._cut(picture, circle).transpose(2, 0, 1)
        image = part if self.border == "kept" else part * _disc(part.shape[-1])
        return np.ascontiguousarray(image)

    def _cut(self, picture: NDArray[np.uint8], circle: "Circle | None") -> NDArray[np.uint8]:
        """A picture (height, width, 3), where the border is masked without what is beyond it."""
        if self.border == "kept":
            return picture
        height, width = picture.shape[:2]
        left, top, side, _ = self.shown_part(height, width, circle)
        return picture[top : top + side, left : left + side]

    def shown_part(
        self, height: int, width: int, circle: "Circle | None" = None
    ) -> tuple[int, int, int, int]:
        """Left, top, width and height, in pixels of a picture, of the part that images show."""
        if self.border == "masked":
            from enteron.study.field_of_view import default_circle

            circle = circle or default_circle(height, width)
            side = min(round(2 * circle.radius), height, width)
            left = min(max(round(circle.x - circle.radius), 0), width - side)
            top = min(max(round(circle.y - circle.radius), 0), height - side)
            return left, top, side, side
        if self.resize == "squash":
            return 0, 0, width, height
        side = min(height, width)
        return round((width - side) / 2), round((height - side) / 2), side, side

    def normalise(self, images: "torch.Tensor") -> "torch.Tensor":
        """Images (n, 3, size, size), uint8, to float32 with `mean` and `std` applied."""
        import torch

        mean = torch.tensor(self.mean, device=images.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(3, 1, 1)
        return (images.float() / 255 - mean) / std

    def _resized_shape(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing, before the crop."""
        if self.resize == "squash":
            return self.size, self.size
        short, long = sorted((height, width))
        longer_side = int(self.size * long / short)
        return (self.size, longer_side) if height <= width else (longer_side, self.size)


@cache
def _disc(size: int) -> NDArray[np.uint8]:
    """(size, size): 1 inside the largest circle, 0 outside; symmetric, so flips commute."""
    offsets = np.arange(size) + 0.5 - size / 2
    return (offsets[:, None] ** 2 + offsets**2 <= (size / 2) ** 2).astype(np.uint8)


def flipped(images: "torch.Tensor") -> "torch.Tensor":
    """Mirror images or clips (..., height, width) left to right."""
    return images.flip(-1)


def window_rows(count: int, step: int = 1, frames: int = 3) -> NDArray[np.int64]:
    """Rows (count, frames) of every frame's clip in a study of `count` stored frames.

    The clip of row t is (t - 2 step, t - step, t), clamped at the study's first frame (decision 1).
    `array[window_rows(...)]` gathers clips of images as well as windows of embeddings.
    """
    if count < 0 or step < 1 or frames < 1:
        raise EnteronError(
            f"{count} frames have no clips of {frames} frames that are {step} apart",
            "give a step and a number of frames of at least 1",
        )
    offsets = np.arange(frames - 1, -1, -1, dtype=np.int64) * step
    return np.maximum(np.arange(count, dtype=np.int64)[:, None] - offsets, 0)

"""The encoder interface: a backbone in some runtime, from a batch of images to embeddings."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.model.preprocessing import Preprocessing

ImageBatch = NDArray[np.uint8]
"""(n, 3, size, size) RGB, as `Preprocessing.resize_and_crop` returns them."""

Features = NDArray[np.float32]
"""(n, width), one embedding per image: 512 features, then local evidence where there is any."""


class Encoder(Protocol):
    """A backbone ready to run. It normalises its own input, so images travel as bytes."""

    @property
    def runtime(self) -> str:
        """Runtime and precision: `torch`, `onnx`, `onnx-int8`; part of a store's key."""
        ...

    @property
    def batch(self) -> int:
        """Images per call at which it runs well. It may change the last bit of an embedding."""
        ...

    @property
    def backbone_hash(self) -> str:
        """Hash of the weights as loaded, before any quantisation."""
        ...

    @property
    def width(self) -> int:
        """Numbers of an embedding: `BackboneSpec.width`."""
        ...

    @property
    def preprocessing(self) -> Preprocessing:
        """What it expects of images."""
        ...

    def encode(self, images: ImageBatch) -> Features:
        """Images (n, 3, size, size), uint8, to embeddings (n, width), for any n."""
        ...


def require_image_batch(images: ImageBatch, preprocessing: Preprocessing) -> ImageBatch:
    """The images in contiguous memory; refuse another shape or type.

    Flipped views and channels-last memory would run other kernels, with other last bits.
    """
    size = preprocessing.size
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (3, size, size):
        raise ModelError(
            f"the encoder got an array of shape {images.shape} and type {images.dtype}",
            f"give uint8 images (n, 3, {size}, {size}) from `Preprocessing.resize_and_crop`",
        )
    return np.ascontiguousarray(images)

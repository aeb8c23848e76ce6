"""Pictures for the tests of inference."""

import numpy as np

from enteron.inference.encoder import Squares
from tests.model.making import smooth_images


def squares(count: int, seed: int = 0) -> Squares:
    """Blurred noise as uint8 (count, 3, 224, 224)."""
    images = smooth_images(count, seed=seed).numpy() if count else np.zeros((0, 3, 224, 224))
    return np.clip(images * 60 + 128, 0, 255).astype(np.uint8)

"""Images and backbones for the tests of inference."""

import numpy as np
import torch

from enteron.inference.encoder import ImageBatch
from enteron.model.backbones import Backbone, tiny_backbone
from tests.model.making import smooth_images

BLOCKS = 2


def image_batch(count: int, seed: int = 0) -> ImageBatch:
    """Blurred noise as uint8 (count, 3, 224, 224)."""
    images = smooth_images(count, seed=seed).numpy() if count else np.zeros((0, 3, 224, 224))
    return np.clip(images * 60 + 128, 0, 255).astype(np.uint8)


def small_vit(differential: bool = False) -> Backbone:
    """`vit-tiny` with random weights and two of its twelve blocks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = tiny_backbone(differential)
    trunk = backbone.trunk
    blocks = trunk.get_submodule("blocks")
    assert isinstance(blocks, torch.nn.Sequential)
    trunk.blocks = blocks[:BLOCKS]
    return backbone

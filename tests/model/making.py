"""Small stand-ins for what is heavy."""

import torch
from torch import nn

from enteron.model.backbones import Backbone
from enteron.model.options import BackboneSpec
from enteron.model.preprocessing import Preprocessing


class FakeBackbone(Backbone):
    """Images of 8 x 8 to 512 features through one layer: no timm, no download."""

    def __init__(self) -> None:
        spec = BackboneSpec(
            name="vit-tiny", trunk="vit_tiny_patch16_224", preprocessing=Preprocessing(size=8)
        )
        super().__init__(nn.Flatten(), nn.Linear(192, 512, bias=False), spec)


def smooth_images(count: int, size: int = 224, seed: int = 0) -> torch.Tensor:
    """Blurred noise (count, 3, size, size): pictures with structure."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 7, 7, generator=generator)
    return nn.functional.interpolate(coarse, size=size, mode="bilinear")

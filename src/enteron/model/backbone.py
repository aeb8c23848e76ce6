"""One interface for every image encoder: a batch of images to embeddings of 512 numbers."""

import torch
from torch import nn

from enteron.config import Options
from enteron.model.options import FEATURES, BackboneName
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import weights_hash


class BackboneSpec(Options):
    """What is needed to build a backbone again before its stored weights go in."""

    name: BackboneName
    """Which backbone."""

    trunk: str
    """timm's name of the trunk's architecture."""

    differential: bool = False
    """Whether the attention is differential."""

    preprocessing: Preprocessing
    """What it expects of pictures."""


class Backbone(nn.Module):
    """A trunk and its projection to 512 features; together the backbone group (decision 18)."""

    def __init__(self, trunk: nn.Module, projection: nn.Linear, spec: BackboneSpec) -> None:
        super().__init__()
        self.trunk = trunk
        self.projection = projection
        self.spec = spec

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, size, size), preprocessed, to embeddings (n, 512), not normalised."""
        return self.projection(self.trunk(images))

    def hash(self) -> str:
        """SHA-256 of the weights: embeddings of another hash come from another encoder."""
        return weights_hash(self.state_dict())


def seeded_projection(width: int, seed: int) -> nn.Linear:
    """A random projection to 512 features, the same on every machine, keeping lengths on average.

    It stands in where no trained projection exists; fixed, so that stored embeddings stay valid.
    """
    projection = nn.Linear(width, FEATURES, bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        projection.weight.normal_(std=FEATURES**-0.5, generator=generator)
    return projection

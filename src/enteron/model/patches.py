"""Local evidence: what each patch of a frame says about the findings.

A lesion covers a few percent of a frame, and pooled features hardly see it. EfficientNet-Lite0's
maps are brought to a common grid of 7 x 7 patches; each patch is described as it is and relative to
the mean of its own frame, since a lesion is what differs from its surroundings; one linear layer
turns descriptions into logits, and a frame's evidence is the mean of its best patches.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

from enteron.labels import FINDINGS

GRID = 7  # patches along each side: 32 x 32 pixels of 224
STAGES = (2, 4, 6)  # blocks of EfficientNet-Lite0 whose maps are used
CHANNELS = 40 + 112 + 320  # of these maps together
BEST_PATCHES = 3  # the evidence of a frame is their mean: lesions have 1.7 patches in the median


def patch_maps(trunk: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps (n, 472, 7, 7) of images (n, 3, 224, 224), and the trunk's pooled features (n, 1280)."""
    features = trunk.get_submodule("bn1")(trunk.get_submodule("conv_stem")(images))
    maps: list[torch.Tensor] = []
    for index, block in enumerate(trunk.get_submodule("blocks").children()):
        features = block(features)
        if index in STAGES:
            maps.append(_on_grid(features))
    pooled = trunk.get_submodule("bn2")(trunk.get_submodule("conv_head")(features)).mean((2, 3))
    return torch.cat(maps, dim=1), pooled


def _on_grid(features: torch.Tensor) -> torch.Tensor:
    factor = features.shape[-1] // GRID
    return functional.avg_pool2d(features, factor) if factor > 1 else features


class LocalEvidence(nn.Module):
    """Logits of the findings in each patch, and their summary for the frame."""

    mean: torch.Tensor
    spread: torch.Tensor

    def __init__(self, channels: int = CHANNELS, *, relative: bool = True) -> None:
        """`relative`: whether patches are also described relative to their frame."""
        super().__init__()
        self.relative = relative
        width = channels * (2 if relative else 1)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.linear = nn.Linear(width, len(FINDINGS))
        nn.init.zeros_(self.linear.weight)
        nn.init.constant_(self.linear.bias, -3.0)  # lesions are rare

    def standardise_by(self, maps: Iterable[torch.Tensor]) -> None:
        """Take mean and spread of descriptions from batches of maps."""
        count, total, squares = 0, self.mean.double() * 0, self.mean.double() * 0
        for batch in maps:
            descriptions = self.describe(batch).flatten(0, 1).double()
            count += len(descriptions)
            total += descriptions.sum(0)
            squares += descriptions.square().sum(0)
        mean = total / count
        self.mean.copy_(mean)
        self.spread.copy_((squares / count - mean.square()).clamp(min=0).sqrt() + 1e-4)

    def describe(self, maps: torch.Tensor) -> torch.Tensor:
        """Descriptions (n, 49, 944) of the patches of maps (n, 472, 7, 7)."""
        patches = maps.flatten(2).transpose(1, 2)
        if not self.relative:
            return patches
        return torch.cat((patches, patches - patches.mean(dim=1, keepdim=True)), dim=2)

    def patch_logits(self, maps: torch.Tensor) -> torch.Tensor:
        """Logits (n, 49, 9) of maps (n, 472, 7, 7): the layer applied to standardised descriptions.

        Standardisation and the mean over the frame are moved into the weights, so that no
        description is ever computed: three times as fast.
        """
        patches = maps.flatten(2).transpose(1, 2)
        weight = self.linear.weight / self.spread
        bias = self.linear.bias - weight @ self.mean
        if not self.relative:
            return functional.linear(patches, weight, bias)
        own, relative = weight.chunk(2, dim=1)  # of the patch, and of its difference to the frame
        frame = functional.linear(patches.mean(dim=1, keepdim=True), -relative, bias)
        return functional.linear(patches, own + relative) + frame

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Evidence (n, 9): the mean logit of each finding's best patches."""
        return self.patch_logits(maps).topk(BEST_PATCHES, dim=1).values.mean(dim=1)

"""One learnable direction per label, compared with the frame by angle (paper, eq. 4)."""

import math

import torch
from torch import nn
from torch.nn.functional import normalize

from enteron.labels import LABELS
from enteron.model.options import FEATURES

WEIGHT = 0.3
START = 10.0
LARGEST = 100.0


class Prototypes(nn.Module):
    """0.3 s cos(f_curr, P), added to [a; p] (paper, eq. 4; decision 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(len(LABELS), FEATURES))  # P
        self.log_scale = nn.Parameter(torch.tensor(math.log(START)))

    @property
    def scale(self) -> torch.Tensor:
        """The scale s = exp(log s), at most 100."""
        return self.log_scale.clamp(max=math.log(LARGEST)).exp()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """f_curr (n, 512) to what is added to the logits (n, 17)."""
        cosine = normalize(current, dim=1) @ normalize(self.directions, dim=1).T
        return WEIGHT * self.scale * cosine

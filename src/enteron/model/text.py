"""The contrastive path: frames against learnable text features (paper, eq. 5)."""

import math

import torch
from torch import nn
from torch.nn.functional import normalize

from enteron.errors import ModelError
from enteron.labels import LABELS
from enteron.model.options import FEATURES

START = 1 / 0.07
LARGEST = 100.0


class TextContrast(nn.Module):
    """z_con = f_curr / |f_curr| T' exp(tau) (paper, eq. 5; decision 9)."""

    def __init__(self, start: torch.Tensor | None = None) -> None:
        """`start` (17, 512) comes from a text tower; without one T starts at random directions."""
        super().__init__()
        shape = (len(LABELS), FEATURES)
        if start is None:
            start = torch.randn(shape)
        if start.shape != shape:
            raise ModelError(
                f"text features have shape {tuple(start.shape)}, not {shape}",
                "give one embedding of 512 numbers per label, in the order of the labels",
            )
        self.features = nn.Parameter(normalize(start.detach().clone(), dim=1))  # T
        self.log_scale = nn.Parameter(torch.tensor(math.log(START)))  # tau

    @property
    def scale(self) -> torch.Tensor:
        """exp(tau), at most 100."""
        return self.log_scale.clamp(max=math.log(LARGEST)).exp()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """f_curr (n, 512) to contrastive logits (n, 17)."""
        return self.scale * (normalize(current, dim=1) @ normalize(self.features, dim=1).T)

"""Local Differencing Attention: what neighbouring frames share is subtracted (paper, eq. 1)."""

from typing import NamedTuple

import torch
from torch import nn

from enteron.model.options import FEATURES

HEADS = 8
START = 0.8
LARGEST = 2.0


class TemporalFeatures(NamedTuple):
    """What goes on from a clip: the current frame, and how it differs from the one before."""

    current: torch.Tensor  # (n, 512), f_curr
    delta: torch.Tensor  # (n, 512)


class LocalDifferencing(nn.Module):
    """F_LDA = F - lambda * MultiheadAttn(LN(F)), with Q = K = V (paper, eq. 1; decision 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = nn.MultiheadAttention(FEATURES, HEADS, batch_first=True)
        self.raw_strength = nn.Parameter(torch.tensor(START))

    @property
    def strength(self) -> torch.Tensor:
        """Lambda = clamp(parameter, 0, 2)."""
        return self.raw_strength.clamp(0.0, LARGEST)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Windows (n, frames, 512) to the same shape."""
        normed = self.norm(windows)
        readout, _ = self.attention(normed, normed, normed, need_weights=False)
        return windows - self.strength * readout


def temporal_features(windows: torch.Tensor) -> TemporalFeatures:
    """f_curr = F_LDA[-1] and delta = f_curr - F_LDA[-2] (paper, section 2.1; decision 3).

    A window of one frame has nothing before it: its delta is zero.
    """
    current = windows[:, -1]
    before = windows[:, -2] if windows.shape[1] > 1 else current
    return TemporalFeatures(current, current - before)

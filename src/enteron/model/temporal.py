"""Local Differencing Attention: what neighbouring frames share is subtracted (paper, eq. 1)."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

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
        return windows - self.strength * self._attend(*self._projected(windows))

    def over_study(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The last two of every window (n, 2, 512), from features (m, 512) and rows (n, frames).

        Neither the norm nor the projections look at a frame's neighbours, so they are made once
        for each frame of a study and not once for each window it is in.
        """
        query, key, value = self._projected(features)
        last = rows[:, -2:]
        return features[last] - self.strength * self._attend(query[last], key[rows], value[rows])

    def _projected(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values (..., 512) of LN(features)."""
        attention = self.attention
        made = functional.linear(
            self.norm(features), attention.in_proj_weight, attention.in_proj_bias
        )
        query, key, value = made.chunk(3, dim=-1)
        return query, key, value

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Multi-head attention: queries (n, q, 512) over keys and values (n, frames, 512)."""
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (query, key, value))
        readout = functional.scaled_dot_product_attention(q, k, v)
        return self.attention.out_proj(readout.transpose(1, 2).flatten(-2))


def temporal_features(windows: torch.Tensor) -> TemporalFeatures:
    """f_curr = F_LDA[-1] and delta = f_curr - F_LDA[-2] (paper, section 2.1; decision 3).

    A window of one frame has nothing before it: its delta is zero.
    """
    current = windows[:, -1]
    before = windows[:, -2] if windows.shape[1] > 1 else current
    return TemporalFeatures(current, current - before)

"""Differential attention in a pretrained ViT, for the paper's comparison with its predecessor."""

from typing import Any

import torch
from torch import nn

from enteron.errors import ModelError

START = 0.8


class DifferentialAttention(nn.Module):
    """Self-attention whose second half of heads is subtracted from the first.

    With softmax readouts R1 and R2 of the two halves the output is [R1 - lambda R2; R2], one
    learnable lambda a layer. All weights are those of the attention it replaces: at lambda 0 the
    layer still computes what it was trained to compute.
    """

    def __init__(self, attention: Any, start: float = START) -> None:
        super().__init__()
        if attention.num_heads % 2:
            raise ModelError(
                f"the ViT has {attention.num_heads} heads, which are not two halves",
                "choose a ViT with an even number of heads, or leave `differential` off",
            )
        self.heads: int = attention.num_heads
        self.qkv: nn.Linear = attention.qkv
        self.proj: nn.Linear = attention.proj
        self.proj_drop: nn.Module = attention.proj_drop
        self.strength = nn.Parameter(torch.tensor(start))  # lambda

    def forward(
        self, tokens: torch.Tensor, attn_mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """Tokens (n, count, width) to the same shape; the other two arguments are timm's."""
        n, count, width = tokens.shape
        qkv = self.qkv(tokens).view(n, count, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (n, heads, count, width / heads)
        readout = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal
        )
        first, second = readout.chunk(2, dim=1)
        mixed = torch.cat((first - self.strength * second, second), dim=1)
        return self.proj_drop(self.proj(mixed.transpose(1, 2).reshape(n, count, width)))


def make_differential(vit: nn.Module) -> None:
    """Replace every block's attention in place, keeping its pretrained weights."""
    for block in vit.get_submodule("blocks").children():
        block.attn = DifferentialAttention(block.get_submodule("attn"))

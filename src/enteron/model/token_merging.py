"""Token merging in a ViT (ToMe, Bolya et al., ICLR 2023): similar tokens become one.

Nothing is trained: in every block, after attention, the eight most similar pairs of tokens are
averaged. Pairs are between tokens of even and of odd places, by the cosine of their keys; the
class token stays as it is. A token that stands for several counts as several in attention.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from enteron.errors import ModelError
from enteron.model.backbones import Backbone, DifferentialAttention

MERGED = 8
"""Tokens fewer after each block: 197 become 101 in a ViT of twelve blocks."""


class MergingTrunk(nn.Module):
    """The trunk of a ViT with the same weights, whose tokens become fewer."""

    def __init__(self, trunk: Any, merged: int = MERGED) -> None:
        super().__init__()
        self.trunk = trunk
        self.merged = merged

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, size, size), preprocessed, to features (n, width)."""
        trunk = self.trunk
        tokens = trunk.norm_pre(trunk.patch_drop(trunk._pos_embed(trunk.patch_embed(images))))
        sizes = torch.ones_like(tokens[..., :1])  # for how many patches each token stands
        for block in trunk.blocks:
            attended, keys = _attend(block.attn, block.norm1(tokens), sizes)
            tokens = tokens + block.drop_path1(block.ls1(attended))
            tokens, sizes = merge_tokens(tokens, sizes, keys, self.merged)
            tokens = tokens + block.drop_path2(block.ls2(block.mlp(block.norm2(tokens))))
        return trunk.forward_head(trunk.norm(tokens))


def merging_backbone(backbone: Backbone, merged: int = MERGED) -> Backbone:
    """The same backbone, sharing its weights, with merged tokens."""
    if backbone.spec.name == "lite":
        raise ModelError("'lite' has no tokens to merge", "use --runtime onnx, or onnx-int8")
    merging = Backbone(MergingTrunk(backbone.trunk, merged), backbone.projection, backbone.spec)
    return merging.eval()


def _attend(
    attention: Any, tokens: torch.Tensor, sizes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What attention gives, and the mean key of each token (n, count, width / heads)."""
    n, count, width = tokens.shape
    differential = isinstance(attention, DifferentialAttention)
    heads = attention.heads if differential else attention.num_heads
    qkv = attention.qkv(tokens).view(n, count, 3, heads, width // heads)
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    counts = sizes.log().transpose(1, 2)[:, None]  # (n, 1, 1, count)
    readout = functional.scaled_dot_product_attention(query, key, value, attn_mask=counts)
    if differential:
        first, second = readout.chunk(2, dim=1)
        readout = torch.cat((first - attention.strength * second, second), dim=1)
    return attention.proj(readout.transpose(1, 2).reshape(n, count, width)), key.mean(dim=1)


def merge_tokens(
    tokens: torch.Tensor, sizes: torch.Tensor, keys: torch.Tensor, merged: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (n, count, width) and their sizes (n, count, 1), `merged` fewer of them.

    Each token of an even place, the class token at 0 excepted, looks for the most similar one of
    an odd place; the pairs that are most similar are merged, weighted by size. The rest of the
    even ones come first, in their order.
    """
    merged = min(merged, (tokens.shape[1] - 1) // 2)
    if merged <= 0:
        return tokens, sizes
    directions = functional.normalize(keys, dim=-1)
    similar = directions[:, ::2] @ directions[:, 1::2].transpose(1, 2)
    similarity, partner = similar.max(dim=-1)
    similarity = torch.cat(
        (torch.full_like(similarity[:, :1], -2.0), similarity[:, 1:]), dim=1
    )  # the class token last
    order = similarity.topk(similarity.shape[1], dim=1).indices
    rest = order[:, merged:]
    leaving, staying = order[:, :merged], rest.topk(rest.shape[1], dim=1, largest=False).values
    weighted = torch.cat((tokens * sizes, sizes), dim=-1)
    even, odd = weighted[:, ::2], weighted[:, 1::2]
    moved = _take(even, leaving)
    to = partner.gather(1, leaving)
    places = torch.arange(odd.shape[1], device=to.device)
    into = (to[:, None, :] == places[None, :, None]).to(tokens.dtype)  # (n, odd, merged)
    together = torch.cat((_take(even, staying), odd + into @ moved), dim=1)
    sums, counts = together[..., :-1], together[..., -1:]
    return sums / counts, counts


def _take(tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[-1]))

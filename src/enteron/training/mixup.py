"""Temporal mixup: pairs of clips and their targets, interpolated (paper, section 2.6)."""

import torch

from enteron.training.randomness import generator


def mixing_share(alpha: float, *counters: int) -> float:
    """Lambda of one batch, max(Beta(alpha, alpha), 0.5) (decision 13); 1 for alpha 0."""
    if alpha == 0:
        return 1.0
    drawn = generator(*counters, "mixup").beta(alpha, alpha)
    return float(max(drawn, 1 - drawn))


def mix(
    clips: torch.Tensor, targets: torch.Tensor, share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each clip (n, frames, ...) and its targets with those of its neighbour in the batch.

    The same share for all frames of a clip, so that its frames still differ by time alone. Draws
    of a batch are independent, so a fixed partner is as random as a shuffled one; and places
    2i and 2i + 1 are always in the hands of the same process.
    """
    if share == 1:
        return clips, targets
    order = torch.arange(len(clips), device=clips.device)
    partner = torch.minimum(order ^ 1, order[-1:])  # the last of an odd number stays as it is
    mixed = share * clips + (1 - share) * clips[partner]
    return mixed, share * targets + (1 - share) * targets[partner]

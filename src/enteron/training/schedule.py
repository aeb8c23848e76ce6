"""AdamW in two groups, and one cycle of their learning rates (decisions 16 and 18)."""

import math

import torch

from enteron.model.network import Network
from enteron.training.options import OptimiserOptions, ScheduleOptions


def make_optimiser(
    network: Network, options: OptimiserOptions, frozen: bool
) -> torch.optim.Optimizer:
    """AdamW; every group keeps its largest rate under 'largest'."""
    groups = [{"params": list(network.head_parameters()), "largest": options.head_rate}]
    if not frozen:
        groups.append(
            {"params": list(network.backbone_parameters()), "largest": options.backbone_rate}
        )
    return torch.optim.AdamW(
        groups, lr=options.head_rate, betas=options.betas, weight_decay=options.decay, fused=True
    )


def rate_factor(step: int, steps: int, options: ScheduleOptions) -> float:
    """The learning rate of step `step` of `steps`, as a share of the largest.

    A cosine up from 1/start to 1, then down to 1/(start end): the values of torch's OneCycleLR,
    without its state.
    """
    first = 1 / options.start
    last = first / options.end
    top = options.rise * steps - 1  # the step of the largest rate; not always a whole number
    if step <= top:
        return _cosine(first, 1.0, step / top if top > 0 else 1.0)
    return _cosine(1.0, last, (step - top) / (steps - 1 - top))


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """The rates of the step that comes."""
    for group in optimiser.param_groups:
        group["lr"] = factor * group["largest"]


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

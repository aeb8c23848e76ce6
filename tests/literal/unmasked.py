"""The objective, mixup and sampler as they were before labels could be unknown.

Kept as written then: where every label is known, training must give the same bits.
"""

import numpy as np
import torch
from torch.nn import functional


def asymmetric_focal(
    logits: torch.Tensor,
    targets: torch.Tensor,
    gamma_positive: float = 1.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
) -> torch.Tensor:
    shifted = (torch.sigmoid(logits) - margin).clamp(min=0)
    error = targets * torch.sigmoid(-logits) + (1 - targets) * shifted
    exponent = targets * gamma_positive + (1 - targets) * gamma_negative
    cross_entropy = targets * functional.logsigmoid(logits) + (1 - targets) * torch.log1p(-shifted)
    return (-(error.clamp(min=1e-12) ** exponent) * cross_entropy).mean()


def contrastive(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)


def positive_weights(positives: torch.Tensor, samples: int) -> torch.Tensor:
    positives = positives.to(torch.get_default_dtype())
    ratio = (samples - positives) / positives.clamp(min=1)
    ratio = torch.where(positives > 0, ratio, torch.full_like(ratio, 50.0))
    return ratio.clamp(1.0, 50.0)


def mixup(
    clips: torch.Tensor, targets: torch.Tensor, weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if weight == 1:
        return clips, targets
    order = torch.arange(len(clips))
    partner = torch.minimum(order ^ 1, order[-1:])
    mixed = weight * clips + (1 - weight) * clips[partner]
    return mixed, weight * targets + (1 - weight) * targets[partner]


def sample_weights(labels: np.ndarray) -> np.ndarray:
    count = labels.sum(axis=0)
    per_label = 1 / np.sqrt((count + 1) / max(len(labels), 1))
    return np.where(labels.any(axis=1), (labels * per_label).max(axis=1, initial=0.0), 1.0)

"""The context head in torch, for training; `context.py` has what it computes, without torch."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from enteron.labels import ANATOMY, FINDINGS
from enteron.model.context import LOG_ODDS_SCALE
from enteron.model.options import FEATURES, ContextOptions
from enteron.model.time_means import mean_gradient, time_means


class _TimeMeans(torch.autograd.Function):
    """`time_means` of rows (n, channels), with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        positions: NDArray[np.float64],
        scales: tuple[float, ...],
    ) -> torch.Tensor:
        ctx.positions, ctx.scales = positions, scales
        means = time_means(rows.detach().cpu().numpy(), positions, scales)
        return torch.from_numpy(means).to(rows.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gradient = gradients[0].cpu().numpy()
        rows = mean_gradient(gradient, ctx.positions, ctx.scales)
        return torch.from_numpy(rows).to(gradients[0].device), None, None


class _Branch(nn.Module):
    """Corrections of some labels, from the channels of a frame and their means over time."""

    def __init__(
        self, labels: int, inputs: int, scales: tuple[float, ...], extra: int, hidden: int
    ) -> None:
        super().__init__()
        self.scales = scales
        width = inputs * (1 + 2 * len(scales)) + extra
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.out = nn.Linear(hidden or width, labels)
        nn.init.zeros_(self.out.weight)  # the head starts as no change at all
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        channels: torch.Tensor,
        positions: NDArray[np.float64],
        extra: torch.Tensor | None,
        dropout: float,
    ) -> torch.Tensor:
        """Channels (n, inputs) and extra inputs (n, extra) to corrections (n, labels)."""
        means = torch.Tensor(_TimeMeans.apply(channels, positions, self.scales))
        parts = [channels, means.flatten(1)]
        if extra is not None:
            parts.append(extra)
        inputs = nn.functional.dropout(torch.cat(parts, dim=1), dropout, self.training)
        if self.hidden is not None:
            inputs = torch.relu(self.hidden(inputs))
            inputs = nn.functional.dropout(inputs, dropout, self.training)
        return self.out(inputs)


class ContextLayers(nn.Module):
    """Logits of all frames of a study (n, 17), refined by what lies around each of them."""

    def __init__(self, options: ContextOptions) -> None:
        super().__init__()
        self.options = options
        self.feature_mean: torch.Tensor
        self.feature_scale: torch.Tensor
        features = options.features
        self.project = nn.Linear(FEATURES, features) if features else None
        if features:
            self.register_buffer("feature_mean", torch.zeros(FEATURES))
            self.register_buffer("feature_scale", torch.ones(FEATURES))
        self.anatomy = _Branch(
            len(ANATOMY), len(ANATOMY) + features, options.anatomy_scales, 0, options.hidden
        )
        self.findings = _Branch(
            len(FINDINGS),
            len(FINDINGS) + features,
            options.finding_scales,
            len(ANATOMY) if options.conditioned else 0,
            options.hidden,
        )

    def forward(
        self,
        logits: torch.Tensor,
        embeddings: torch.Tensor | None,
        positions: NDArray[np.float64],
        dropout: float = 0.0,
    ) -> torch.Tensor:
        """Logits (n, 17) and embeddings (n, 512) of a study's frames, in the order of time."""
        scaled = logits / LOG_ODDS_SCALE
        anatomy, findings = scaled[:, : len(ANATOMY)], scaled[:, len(ANATOMY) :]
        parts: list[torch.Tensor] = []
        if self.project is not None:
            assert embeddings is not None
            centred = (embeddings - self.feature_mean) / self.feature_scale
            parts = [torch.relu(self.project(centred))]
        refined = logits[:, : len(ANATOMY)] + self.anatomy(
            torch.cat([anatomy, *parts], dim=1), positions, None, dropout
        )
        seen = torch.sigmoid(refined) if self.options.conditioned else None
        return torch.cat(
            [
                refined,
                logits[:, len(ANATOMY) :]
                + self.findings(torch.cat([findings, *parts], dim=1), positions, seen, dropout),
            ],
            dim=1,
        )

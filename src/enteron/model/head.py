"""The Anatomy Context Head: anatomy from a frame, findings from a frame and its anatomy."""

import torch
from torch import nn

from enteron.labels import ANATOMY, FINDINGS
from enteron.model.options import FEATURES
from enteron.model.temporal import TemporalFeatures

SQUEEZED = 32
HIDDEN = 256


class Excitation(nn.Module):
    """x = BN(f * sigmoid(W2 ReLU(W1 f))) (paper, eq. 2; decision 4)."""

    def __init__(self, biases: bool) -> None:
        super().__init__()
        self.squeeze = nn.Linear(FEATURES, SQUEEZED, bias=biases)  # W1, 32 x 512
        self.excite = nn.Linear(SQUEEZED, FEATURES, bias=biases)  # W2, 512 x 32
        self.norm = nn.BatchNorm1d(FEATURES)

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """Features (n, 512) to the same shape."""
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(current))))
        return self.norm(current * gate)


class Pathology(nn.Module):
    """p = W_p2 ReLU(W_p1 [x; delta; sigmoid(a)]) (paper, eq. 3; decisions 5 and 7)."""

    def __init__(self, dropout: float, biases: bool, conditioned: bool) -> None:
        super().__init__()
        self.conditioned = conditioned
        width = 2 * FEATURES + (len(ANATOMY) if conditioned else 0)  # 1032
        self.hidden = nn.Linear(width, HIDDEN, bias=biases)  # W_p1
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(HIDDEN, len(FINDINGS), bias=biases)  # W_p2

    def forward(
        self, features: torch.Tensor, delta: torch.Tensor, anatomy: torch.Tensor
    ) -> torch.Tensor:
        """Features and delta (n, 512), anatomy logits (n, 8) to finding logits (n, 9)."""
        parts = [features, delta]
        if self.conditioned:
            # Not detached: findings may correct the anatomy they rest on.
            parts.append(torch.sigmoid(anatomy))
        return self.out(self.dropout(torch.relu(self.hidden(torch.cat(parts, dim=1)))))


class AnatomyContextHead(nn.Module):
    """[a; p] from f_curr and delta (paper, section 2.2)."""

    def __init__(
        self, dropout: float = 0.4, biases: bool = False, conditioned: bool = True
    ) -> None:
        super().__init__()
        self.excitation = Excitation(biases)
        self.dropout = nn.Dropout(dropout)
        self.anatomy = nn.Linear(FEATURES, len(ANATOMY), bias=biases)  # W_anat
        self.pathology = Pathology(dropout, biases, conditioned)

    def forward(self, temporal: TemporalFeatures) -> torch.Tensor:
        """Logits (n, 17), columns in the order of LABELS."""
        features = self.dropout(self.excitation(temporal.current))
        anatomy = self.anatomy(features)
        return torch.cat((anatomy, self.pathology(features, temporal.delta, anatomy)), dim=1)

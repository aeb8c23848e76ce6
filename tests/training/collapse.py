"""A toy in which prototypes collapse: rare labels that are only ever seen inside a common one.

Frames lie near the direction of their region; a finding adds a small direction of its own and is
as rare as in Galar. Under cross-entropy nearly all of a rare prototype's gradient comes from the
same negatives, and its few positives look like their region: rare prototypes become alike, and
like the region.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from enteron.labels import ANATOMY, LABELS
from enteron.model.network import Prototypes
from enteron.training.losses import angular_separation

FRAMES = 2000
POSITIVES = 2  # frames of each finding, all in the colon: 1 in 1000
SHARES = {"stomach": 0.1, "small intestine": 0.3, "colon": 0.6}
FINDING_LENGTH = 0.2  # of a finding's own direction, where a region's has length 1
NOISE_LENGTH = 0.3
COLON = LABELS.index("colon")
FIRST_FINDING = len(ANATOMY)


@dataclass(frozen=True)
class Run:
    """Prototypes after training, and how alike the findings' were on the way."""

    cosines: torch.Tensor  # (17, 17)
    likeness: list[float]  # per step: mean cosine of two findings' prototypes


def toy_frames(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (frames, 512) and labels (frames, 17)."""
    generator = torch.Generator().manual_seed(seed)
    directions = normalize(torch.randn(len(LABELS), 512, generator=generator), dim=1)
    targets = torch.zeros(FRAMES, len(LABELS))
    start = 0
    for region, share in SHARES.items():
        stop = start + round(share * FRAMES)
        targets[start:stop, LABELS.index(region)] = 1
        start = stop
    in_colon = torch.nonzero(targets[:, COLON])[:, 0]
    for number, column in enumerate(range(FIRST_FINDING, len(LABELS))):
        targets[in_colon[number * POSITIVES : (number + 1) * POSITIVES], column] = 1
    lengths = torch.ones(len(LABELS), 1)
    lengths[FIRST_FINDING:] = FINDING_LENGTH
    noise = NOISE_LENGTH * torch.randn(FRAMES, 512, generator=generator) / 512**0.5
    return targets @ (lengths * directions) + noise, targets


def train_prototypes(angular_weight: float, steps: int = 300, seed: int = 0) -> Run:
    """Prototypes alone, under cross-entropy and the given weight of L_ang (the paper's is 0.05)."""
    features, targets = toy_frames(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        prototypes = Prototypes()
    optimiser = torch.optim.Adam(prototypes.parameters(), lr=0.05)
    likeness = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(prototypes(features), targets)
        loss = loss + angular_weight * angular_separation(prototypes.directions)
        loss.backward()
        optimiser.step()
        likeness.append(finding_likeness(cosines_of(prototypes)))
    return Run(cosines_of(prototypes), likeness)


def cosines_of(prototypes: Prototypes) -> torch.Tensor:
    """All pairs (17, 17)."""
    directions = normalize(prototypes.directions.detach(), dim=1)
    return directions @ directions.T


def finding_likeness(cosines: torch.Tensor) -> float:
    """Mean cosine over pairs of different findings."""
    block = cosines[FIRST_FINDING:, FIRST_FINDING:]
    count = len(block)
    return float((block.sum() - block.diagonal().sum()) / (count * (count - 1)))

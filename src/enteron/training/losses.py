"""The training objective (paper, sections 2.4 to 2.7) as pure functions of tensors."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from enteron.training.options import LossOptions, SoftTargets

_PAPER = LossOptions()
_SMALLEST_ERROR = 1e-12


@dataclass(frozen=True)
class Losses:
    """The objective as two weighted sums, and its four terms before weighting. All are scalars."""

    data: torch.Tensor  # depends on the batch: weighted classification and contrastive
    structure: torch.Tensor  # depends on the weights only: weighted orthogonality and angular
    classification: torch.Tensor
    contrastive: torch.Tensor
    orthogonality: torch.Tensor
    angular: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        """L of the paper."""
        return self.data + self.structure


def smooth_labels(targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Y (1 - e) + (1 - y) e (decision 12)."""
    return targets * (1 - smoothing) + (1 - targets) * smoothing


def asymmetric_focal(
    logits: torch.Tensor,
    targets: torch.Tensor,
    known: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    *,
    gamma_positive: float = _PAPER.gamma_positive,
    gamma_negative: float = _PAPER.gamma_negative,
    margin: float = _PAPER.margin,
    soft_targets: SoftTargets = _PAPER.soft_targets,
) -> torch.Tensor:
    """Asymmetric focal loss, mean over the known labels (paper, section 2.5; decision 10).

    With p = sigmoid(logit) and q = max(p - margin, 0), for hard labels:
    -y (1 - p)^gamma+ log(p) - (1 - y) q^gamma- log(1 - q). For soft targets (decision 12) `joint`
    has one weight, (y (1 - p) + (1 - y) q)^(y gamma+ + (1 - y) gamma-), on the cross-entropy
    y log(p) + (1 - y) log(1 - q); `separate` weights the two terms by y and 1 - y. `weights` (17,)
    multiply the loss of a positive, as in the prior submission (decision 32).
    """
    logits = _at_least_float32(logits)
    targets = targets.to(logits.dtype)
    shifted = (torch.sigmoid(logits) - margin).clamp(min=0)
    # logsigmoid stays finite where log(sigmoid) would be minus infinity.
    log_positive, log_negative = functional.logsigmoid(logits), torch.log1p(-shifted)
    if soft_targets == "joint":
        error = targets * torch.sigmoid(-logits) + (1 - targets) * shifted
        exponent = targets * gamma_positive + (1 - targets) * gamma_negative
        # Exponents below 1 have no finite gradient at 0.
        weight = error.clamp(min=_SMALLEST_ERROR) ** exponent
        losses = -weight * (targets * log_positive + (1 - targets) * log_negative)
    else:
        positive = torch.sigmoid(-logits) ** gamma_positive * log_positive
        negative = shifted**gamma_negative * log_negative
        losses = -(targets * positive + (1 - targets) * negative)
    if weights is not None:
        losses = losses * (targets * weights.to(losses.dtype) + (1 - targets))
    return losses.mean() if known is None else (losses * _known_weights(known, losses)).mean()


def _known_weights(known: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Weights whose mean times losses is the mean over what is known; 0 if nothing is known.

    They are exactly 1 where everything is known, so that the result then has the bits of a plain
    mean, and so have its gradients.
    """
    count = known.sum().to(losses.dtype).clamp(min=1)
    return known.to(losses.dtype) * (known.numel() / count)


def positive_weights(
    positives: torch.Tensor,
    samples: torch.Tensor | int,
    largest: float = _PAPER.largest_weight,
) -> torch.Tensor:
    """w_c = min(N_neg / N_pos, largest), at least 1, from counts per label (decision 11).

    `samples`: those in which the label is known. A label without positives gets the largest
    weight, the limit for few positives.
    """
    positives = positives.to(torch.get_default_dtype())
    ratio = (samples - positives) / positives.clamp(min=1)
    ratio = torch.where(positives > 0, ratio, torch.full_like(ratio, largest))
    return ratio.clamp(1.0, largest)


def contrastive_loss(
    logits: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    known: torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-entropy of the contrastive logits, positives weighted per label (decision 11).

    Mean over the known labels.
    """
    logits = _at_least_float32(logits)
    return functional.binary_cross_entropy_with_logits(
        logits,
        targets.to(logits.dtype),
        weight=None if known is None else _known_weights(known, logits),
        pos_weight=weights.to(logits.dtype),
    )


def orthogonality(anatomy: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """||W_anat W_p1'||, Frobenius, not squared (paper, section 2.6; decision 6).

    `anatomy` (8, 512) and `hidden` (256, 512 or more), of which the first columns belong to x.
    """
    overlap = _at_least_float32(anatomy) @ _at_least_float32(hidden[:, : anatomy.shape[1]]).T
    return torch.linalg.vector_norm(overlap)


def angular_separation(prototypes: torch.Tensor) -> torch.Tensor:
    """Mean squared cosine over all ordered pairs of different prototypes (C, d) (paper, eq. 6)."""
    directions = functional.normalize(_at_least_float32(prototypes), dim=1)
    count = len(directions)
    cosines = directions @ directions.T
    pairs = cosines - torch.diag_embed(cosines.diagonal())
    return pairs.square().sum() / (count * (count - 1))


def total_loss(
    logits: torch.Tensor,
    contrastive: torch.Tensor | None,
    targets: torch.Tensor,
    known: torch.Tensor | None = None,
    *,
    positive_weight: torch.Tensor,
    orthogonal: tuple[torch.Tensor, torch.Tensor] | None,
    prototypes: torch.Tensor | None,
    smoothing: float = 0.0,
    options: LossOptions = _PAPER,
) -> Losses:
    """L = L_cls + 0.4 L_con + 0.01 L_orth + 0.05 L_ang (paper, section 2.7).

    Logits, targets and `known` are (n, 17); labels that are not known have no loss, and None means
    that all are. `smoothing` applies to L_cls only (decision 12): the options'
    value in training, 0 in validation. `orthogonal` is W_anat and W_p1. A part that the network
    does not have (None) adds 0.
    """
    classification = asymmetric_focal(
        logits,
        smooth_labels(targets, smoothing),
        known,
        positive_weight if options.weighted_classification else None,
        gamma_positive=options.gamma_positive,
        gamma_negative=options.gamma_negative,
        margin=options.margin,
        soft_targets=options.soft_targets,
    )
    zero = classification.new_zeros(())
    contrast = (
        zero
        if contrastive is None
        else contrastive_loss(contrastive, targets, positive_weight, known)
    )
    overlap = zero if orthogonal is None else orthogonality(*orthogonal)
    separation = zero if prototypes is None else angular_separation(prototypes)
    return Losses(
        data=options.classification * classification + options.contrastive * contrast,
        structure=options.orthogonality * overlap + options.angular * separation,
        classification=classification,
        contrastive=contrast,
        orthogonality=overlap,
        angular=separation,
    )


def _at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Convert half precision: powers and logarithms of small numbers need float32."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values

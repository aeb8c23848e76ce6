"""The network of the paper: a backbone, and everything after it (equations 1 to 5).

It takes clips of images, or windows of embeddings that were computed before; after the backbone
both run through the same code.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.nn.functional import normalize

from enteron.errors import ModelError
from enteron.labels import ANATOMY, FINDINGS, LABELS
from enteron.model import biomedclip
from enteron.model.backbones import (
    Backbone,
    BackboneSpec,
    empty_lite,
    empty_vit,
    lite_backbone,
    tiny_backbone,
)
from enteron.model.options import FEATURES, ModelOptions

# ---- equation 1: Local Differencing Attention

ATTENTION_HEADS = 8
LAMBDA_START = 0.8
LAMBDA_MAX = 2.0


class TemporalFeatures(NamedTuple):
    """What the head sees of a clip: the current frame, and its difference to the one before."""

    current: torch.Tensor  # (n, 512), f_curr
    delta: torch.Tensor  # (n, 512)


class LocalDifferencing(nn.Module):
    """F_LDA = F - lambda * MultiheadAttn(LN(F)), with Q = K = V (paper, eq. 1; decision 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = nn.MultiheadAttention(FEATURES, ATTENTION_HEADS, batch_first=True)
        self.raw_strength = nn.Parameter(torch.tensor(LAMBDA_START))

    @property
    def strength(self) -> torch.Tensor:
        """Lambda = clamp(parameter, 0, 2)."""
        return self.raw_strength.clamp(0.0, LAMBDA_MAX)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Windows (n, frames, 512) to the same shape."""
        return windows - self.strength * self._attend(*self._project(windows))

    def over_study(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The last two rows of every window (n, 2, 512).

        `features` (m, 512) are the frames of a study, `rows` (n, frames) its windows. Neither the
        norm nor the projections look at a frame's neighbours, so they are computed once for each
        frame and not once for each window that it is in.
        """
        query, key, value = self._project(features)
        last = rows[:, -2:]
        return features[last] - self.strength * self._attend(query[last], key[rows], value[rows])

    def _project(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values (..., 512) of LN(features)."""
        attention = self.attention
        projected = functional.linear(
            self.norm(features), attention.in_proj_weight, attention.in_proj_bias
        )
        query, key, value = projected.chunk(3, dim=-1)
        return query, key, value

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Multi-head attention: queries (n, q, 512) over keys and values (n, frames, 512)."""
        q, k, v = (
            t.unflatten(-1, (ATTENTION_HEADS, -1)).transpose(1, 2) for t in (query, key, value)
        )
        readout = functional.scaled_dot_product_attention(q, k, v)
        return self.attention.out_proj(readout.transpose(1, 2).flatten(-2))


def temporal_features(windows: torch.Tensor) -> TemporalFeatures:
    """f_curr = F_LDA[-1] and delta = f_curr - F_LDA[-2] (paper, section 2.1; decision 3).

    A window of one frame has no frame before it: its delta is zero.
    """
    current = windows[:, -1]
    previous = windows[:, -2] if windows.shape[1] > 1 else current
    return TemporalFeatures(current, current - previous)


# ---- equations 2 and 3: the anatomy context head

SQUEEZED_WIDTH = 32
HIDDEN_WIDTH = 256


class Excitation(nn.Module):
    """x = BN(f * sigmoid(W2 ReLU(W1 f))) (paper, eq. 2; decision 4)."""

    def __init__(self, biases: bool) -> None:
        super().__init__()
        self.squeeze = nn.Linear(FEATURES, SQUEEZED_WIDTH, bias=biases)  # W1, 32 x 512
        self.excite = nn.Linear(SQUEEZED_WIDTH, FEATURES, bias=biases)  # W2, 512 x 32
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
        self.hidden = nn.Linear(width, HIDDEN_WIDTH, bias=biases)  # W_p1
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(HIDDEN_WIDTH, len(FINDINGS), bias=biases)  # W_p2

    def forward(
        self, features: torch.Tensor, delta: torch.Tensor, anatomy: torch.Tensor
    ) -> torch.Tensor:
        """Features and delta (n, 512), anatomy logits (n, 8) to finding logits (n, 9)."""
        parts = [features, delta]
        if self.conditioned:
            # Not detached: findings may correct the anatomy that they depend on.
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


class AnatomyHead(nn.Module):
    """The anatomy of the head alone, where findings come from local evidence (not in the paper)."""

    def __init__(self, dropout: float, biases: bool) -> None:
        super().__init__()
        self.excitation = Excitation(biases)
        self.dropout = nn.Dropout(dropout)
        self.anatomy = nn.Linear(FEATURES, len(ANATOMY), bias=biases)  # W_anat

    def forward(self, temporal: TemporalFeatures) -> torch.Tensor:
        """Logits (n, 17), columns in the order of LABELS; those of findings are 0."""
        logits = self.anatomy(self.dropout(self.excitation(temporal.current)))
        return functional.pad(logits, (0, len(FINDINGS)))


class LinearHead(nn.Module):
    """One linear layer of 17 outputs on f_curr: the prior submission's head (decision 32)."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(FEATURES, len(LABELS))

    def forward(self, temporal: TemporalFeatures) -> torch.Tensor:
        """Logits (n, 17), columns in the order of LABELS."""
        return self.out(self.dropout(temporal.current))


# ---- equation 4: prototypes

PROTOTYPE_WEIGHT = 0.3
PROTOTYPE_SCALE_START = 10.0
PROTOTYPE_SCALE_MAX = 100.0


class Prototypes(nn.Module):
    """0.3 s cos(f_curr, P), added to [a; p] (paper, eq. 4; decision 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(len(LABELS), FEATURES))  # P
        self.log_scale = nn.Parameter(torch.tensor(math.log(PROTOTYPE_SCALE_START)))

    @property
    def scale(self) -> torch.Tensor:
        """The scale s = exp(log s), at most 100."""
        return self.log_scale.clamp(max=math.log(PROTOTYPE_SCALE_MAX)).exp()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """f_curr (n, 512) to the term (n, 17) that is added to the logits."""
        cosine = normalize(current, dim=1) @ normalize(self.directions, dim=1).T
        return PROTOTYPE_WEIGHT * self.scale * cosine


# ---- equation 5: the contrastive path

TEXT_SCALE_START = 1 / 0.07
TEXT_SCALE_MAX = 100.0


class TextContrast(nn.Module):
    """z_con = f_curr / |f_curr| T' exp(tau) (paper, eq. 5; decision 9)."""

    def __init__(self, start: torch.Tensor | None = None, *, fixed: bool = False) -> None:
        """`start` (17, 512) comes from a text tower; without it, T starts at random directions.

        `fixed`: T stays as it starts, and only its scale is trained.
        """
        super().__init__()
        shape = (len(LABELS), FEATURES)
        if start is None:
            start = torch.randn(shape)
        if start.shape != shape:
            raise ModelError(
                f"text features have shape {tuple(start.shape)}, not {shape}",
                "give one embedding of 512 numbers per label, in the order of the labels",
            )
        directions = normalize(start.detach().clone(), dim=1)
        self.features = nn.Parameter(directions, requires_grad=not fixed)  # T
        self.log_scale = nn.Parameter(torch.tensor(math.log(TEXT_SCALE_START)))  # tau

    @property
    def scale(self) -> torch.Tensor:
        """exp(tau), at most 100."""
        return self.log_scale.clamp(max=math.log(TEXT_SCALE_MAX)).exp()

    def forward(self, current: torch.Tensor) -> torch.Tensor:
        """f_curr (n, 512) to contrastive logits (n, 17)."""
        return self.scale * (normalize(current, dim=1) @ normalize(self.features, dim=1).T)


# ---- local evidence (not in the paper)


class EvidenceTerm(nn.Module):
    """scale * evidence + bias, added to the finding logits; one scale and bias per finding."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(len(FINDINGS)))
        self.bias = nn.Parameter(torch.zeros(len(FINDINGS)))

    def forward(self, evidence: torch.Tensor) -> torch.Tensor:
        """Evidence (n, 9) to the term (n, 17) that is added to the logits."""
        return functional.pad(self.scale * evidence + self.bias, (len(ANATOMY), 0))


# ---- the network


class Outputs(NamedTuple):
    """Logits of each clip's last frame; columns in the order of LABELS."""

    logits: torch.Tensor  # (n, 17), y-hat of eq. 4
    contrastive: torch.Tensor | None  # (n, 17), z_con of eq. 5; none without that path


class Network(nn.Module):
    """Backbone, Local Differencing Attention, anatomy head, prototypes, contrastive path."""

    def __init__(
        self, backbone: Backbone, options: ModelOptions, text: torch.Tensor | None = None
    ) -> None:
        """`text` (17, 512): the text tower's embeddings of the labels' prompts, if it has one."""
        super().__init__()
        self.options = options
        self.backbone = backbone
        self.differencing = LocalDifferencing() if options.local_differencing else nn.Identity()
        self.head = _make_head(options)
        self.prototypes = Prototypes() if options.prototypes else None
        self.contrast = (
            TextContrast(text, fixed=options.text == "fixed") if options.contrastive else None
        )
        self.evidence = EvidenceTerm() if options.local_evidence else None
        if self.evidence is not None and options.findings == "evidence":
            # Its scales are fitted on evidence of left-out studies; the head's data know none.
            self.evidence.requires_grad_(False)

    def forward(self, clips: torch.Tensor) -> Outputs:
        """Clips of images (n, frames, 3, size, size), or windows of embeddings (n, frames, width).

        The width of an embedding is 512; local evidence adds nine numbers.
        """
        frames, width = self.options.frames, self.backbone.spec.width
        if clips.ndim == 5 and clips.shape[1] == frames:
            return self.classify(self.encode(clips))
        if clips.ndim == 3 and clips.shape[1:] == (frames, width):
            return self.classify(clips)
        raise ModelError(
            f"the network got an array of shape {tuple(clips.shape)}",
            f"give clips of images (n, {frames}, 3, height, width) or windows of embeddings "
            f"(n, {frames}, {width})",
        )

    def encode(self, clips: torch.Tensor) -> torch.Tensor:
        """Clips of images (n, frames, 3, size, size) to windows of embeddings."""
        return self.backbone(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])

    def classify(self, windows: torch.Tensor) -> Outputs:
        """Everything after the backbone, for windows of embeddings (n, frames, width)."""
        temporal = temporal_features(self.differencing(windows[..., :FEATURES]))
        return self._outputs(temporal, windows[..., FEATURES:])

    def classify_study(self, features: torch.Tensor, rows: torch.Tensor) -> Outputs:
        """The same as `classify(features[rows])`, but work per frame is done once per frame.

        `features` (m, width) are a study's embeddings, `rows` (n, frames) its windows.
        """
        if isinstance(self.differencing, LocalDifferencing):
            last_two = self.differencing.over_study(features[:, :FEATURES], rows)
            return self._outputs(temporal_features(last_two), features[:, FEATURES:][rows])
        return self.classify(features[rows])

    @torch.inference_mode()
    def probabilities(
        self, features: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Sigmoids (n, 17) of `classify_study`, as arrays."""
        device = next(self.head_parameters()).device
        outputs = self.classify_study(
            torch.from_numpy(features).to(device), torch.from_numpy(rows).to(device)
        )
        return outputs.logits.sigmoid().cpu().numpy()

    def _outputs(self, temporal: TemporalFeatures, evidence: torch.Tensor) -> Outputs:
        """`evidence` (n, frames, 9) of each clip; (n, frames, 0) without local evidence."""
        logits = self.head(temporal)
        if self.prototypes is not None:
            logits = logits + self.prototypes(temporal.current)
        if self.evidence is not None:
            if self.options.findings == "evidence":
                logits = functional.pad(logits[:, : len(ANATOMY)], (0, len(FINDINGS)))
                logits = logits + self.evidence(evidence.mean(dim=1))
            else:
                logits = logits + self.evidence(evidence[:, -1])
        contrastive = None if self.contrast is None else self.contrast(temporal.current)
        return Outputs(logits, contrastive)

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """The image trunk and its projection (decision 18)."""
        return self.backbone.parameters()

    @property
    def orthogonal_weights(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """W_anat and W_p1, whose overlap the objective keeps small; None without W_p1."""
        if not isinstance(self.head, AnatomyContextHead):
            return None
        return self.head.anatomy.weight, self.head.pathology.hidden.weight

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Everything after the backbone (decision 18)."""
        return (p for name, p in self.named_parameters() if not name.startswith("backbone."))


def _make_head(options: ModelOptions) -> AnatomyContextHead | AnatomyHead | LinearHead:
    if options.head == "linear":
        return LinearHead(options.dropout)
    if options.findings == "evidence":
        return AnatomyHead(options.dropout, options.biases)
    return AnatomyContextHead(options.dropout, options.biases, options.anatomy_conditioning)


def start_network(options: ModelOptions, seed: int = 42) -> Network:
    """A network before training: pretrained backbone, and a head drawn from the seed.

    42 is the paper's seed. The global random state of torch is left untouched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone, text = start_backbone(options)
        preprocessing = backbone.spec.preprocessing.model_copy(update={"border": options.border})
        backbone.spec = backbone.spec.model_copy(update={"preprocessing": preprocessing})
        return Network(backbone, options, text)


def start_backbone(options: ModelOptions) -> tuple[Backbone, torch.Tensor | None]:
    """The backbone with its pretrained weights, and text features if it has a text tower."""
    if options.backbone == "biomedclip":
        folder = options.bundle
        if folder is None:
            folder = biomedclip.fetch(options.download)
        loaded = biomedclip.biomedclip(folder, options.differential)
        return loaded.backbone, loaded.text
    if options.backbone == "lite":
        return lite_backbone(local_evidence=options.local_evidence), None
    return tiny_backbone(options.differential), None


def empty_backbone(spec: BackboneSpec) -> Backbone:
    """The layers of a backbone, for weights from a model folder."""
    return empty_lite(spec) if spec.name == "lite" else empty_vit(spec)

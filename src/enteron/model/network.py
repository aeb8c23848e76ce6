"""The network of the paper: a backbone, and the same code after it for clips and embeddings."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from enteron.errors import ModelError
from enteron.model.backbone import Backbone
from enteron.model.head import AnatomyContextHead
from enteron.model.options import FEATURES, ModelOptions
from enteron.model.prototypes import Prototypes
from enteron.model.temporal import LocalDifferencing, TemporalFeatures, temporal_features
from enteron.model.text import TextContrast


class Outputs(NamedTuple):
    """What the network says about each clip's last frame; columns in the order of LABELS."""

    logits: torch.Tensor  # (n, 17), y-hat of eq. 4
    contrastive: torch.Tensor | None  # (n, 17), z_con of eq. 5; none without that path


class Network(nn.Module):
    """Backbone, differencing of neighbours, anatomy head, prototypes, contrastive path."""

    def __init__(
        self, backbone: Backbone, options: ModelOptions, text: torch.Tensor | None = None
    ) -> None:
        """`text` (17, 512): the text tower's embeddings of the labels' prompts, if there is one."""
        super().__init__()
        self.options = options
        self.backbone = backbone
        self.differencing = LocalDifferencing() if options.local_differencing else nn.Identity()
        self.head = AnatomyContextHead(
            options.dropout, options.biases, options.anatomy_conditioning
        )
        self.prototypes = Prototypes() if options.prototypes else None
        self.contrast = TextContrast(text) if options.contrastive else None

    def forward(self, clips: torch.Tensor) -> Outputs:
        """Clips of images (n, frames, 3, size, size) or windows of embeddings (n, frames, 512)."""
        frames = self.options.frames
        if clips.ndim == 5 and clips.shape[1] == frames:
            return self.read(self.encode(clips))
        if clips.ndim == 3 and clips.shape[1:] == (frames, FEATURES):
            return self.read(clips)
        raise ModelError(
            f"the network got an array of shape {tuple(clips.shape)}",
            f"give clips of images (n, {frames}, 3, height, width) or windows of embeddings "
            f"(n, {frames}, {FEATURES})",
        )

    def encode(self, clips: torch.Tensor) -> torch.Tensor:
        """Clips of images (n, frames, 3, size, size) to windows of embeddings (n, frames, 512)."""
        return self.backbone(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])

    def read(self, windows: torch.Tensor) -> Outputs:
        """Everything after the backbone, from windows of embeddings (n, frames, 512)."""
        return self._outputs(temporal_features(self.differencing(windows)))

    def read_study(self, features: torch.Tensor, rows: torch.Tensor) -> Outputs:
        """The same as `read(features[rows])`, from a study's embeddings (m, 512) and rows (n,
        frames), without doing for every window what is needed once for every frame.
        """
        if isinstance(self.differencing, LocalDifferencing):
            return self._outputs(temporal_features(self.differencing.over_study(features, rows)))
        return self.read(features[rows])

    def _outputs(self, temporal: TemporalFeatures) -> Outputs:
        logits = self.head(temporal)
        if self.prototypes is not None:
            logits = logits + self.prototypes(temporal.current)
        contrastive = None if self.contrast is None else self.contrast(temporal.current)
        return Outputs(logits, contrastive)

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """The image trunk and its projection (decision 18)."""
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Everything else."""
        return (p for name, p in self.named_parameters() if not name.startswith("backbone."))

"""Options of the network and its backbone. They load without torch."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from enteron.errors import ConfigError, shown
from enteron.labels import FINDINGS
from enteron.model.preprocessing import Border, Preprocessing
from enteron.options import Options, without_defaults

BackboneName = Literal["biomedclip", "lite", "vit-tiny"]

TRUNKS: dict[BackboneName, tuple[str, ...]] = {
    "biomedclip": ("vit_base_patch16_224", "vit_tiny_patch16_224"),  # the second for small bundles
    "lite": ("tf_efficientnet_lite0",),
    "vit-tiny": ("vit_tiny_patch16_224",),
}
"""The trunks that each backbone may have, by timm's names.

timm and open_clip would also take names with a prefix such as `hf-hub:` or `local-dir:`, and fetch
what those refer to from the network or the disk. No file may name anything but these.
"""

VIT_SIZE = 224
"""Width and height, in pixels, of the pictures that every ViT above takes."""

FEATURES = 512
"""Features of a frame's embedding, the same for every backbone."""

EVIDENCE = len(FINDINGS)
"""Numbers that local evidence adds to a frame's embedding, one per finding."""


_ONLY_LITE = "local evidence reads the maps of EfficientNet-Lite0, so the backbone must be lite"


class BackboneSpec(Options):
    """What is needed to rebuild a backbone before its stored weights are loaded."""

    name: BackboneName
    """Name of the backbone."""

    trunk: str
    """Architecture of the trunk: one of `TRUNKS`, by timm's name."""

    differential: bool = False
    """Whether the attention is differential."""

    local_evidence: bool = False
    """Whether embeddings end with the evidence of patches for each finding."""

    preprocessing: Preprocessing
    """Size and normalisation of its input images."""

    @model_validator(mode="after")
    def _require_known_trunk(self) -> Self:
        require_known_trunk(self.name, self.trunk)
        if self.local_evidence and self.name != "lite":
            raise ValueError(_ONLY_LITE)
        return self

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(handler(self), self, "local_evidence")

    @property
    def width(self) -> int:
        """Numbers of a frame's embedding."""
        return FEATURES + (EVIDENCE if self.local_evidence else 0)


def require_known_trunk(backbone: BackboneName, trunk: str) -> None:
    """Refuse a trunk that the backbone does not have."""
    if trunk not in TRUNKS[backbone]:
        known = " or ".join(f"'{name}'" for name in TRUNKS[backbone])
        raise ConfigError(
            f"the backbone '{backbone}' cannot have the trunk {shown(trunk)}",
            f"use {known}: no other trunk is loaded, from the network or the disk",
        )


class ModelOptions(Options):
    """The defaults are the network of the paper; other values are ablations or alternatives."""

    backbone: BackboneName = "biomedclip"
    """The image encoder: the paper's, the small default, or a random one for tests."""

    bundle: Path | None = None
    """Folder with BiomedCLIP in open_clip's format; None means the copy in the hub's cache."""

    download: bool = False
    """Whether BiomedCLIP may be downloaded from the hub. Nothing is downloaded otherwise."""

    differential: bool = False
    """Differential attention in the ViT, as in the authors' earlier submission."""

    frames: Literal[1, 3] = 3
    """Frames of a clip; its last frame is the one that is classified. 1 is an ablation."""

    neighbour_step: int = Field(default=1, ge=1, le=1000)
    """Distance between a clip's frames, counted in stored frames (decision 1)."""

    dropout: float = Field(default=0.4, ge=0, lt=1)
    """Dropout after x and after the pathology network's ReLU (decision 7)."""

    biases: bool = False
    """Whether W1, W2, W_anat, W_p1 and W_p2 carry biases; equations 2 and 3 write none."""

    head: Literal["anatomy-context", "linear"] = "anatomy-context"
    """What turns features into logits: the paper's Anatomy Context Head, or one linear layer of 17
    outputs on the current frame, as in the authors' earlier submission (decision 32)."""

    local_differencing: bool = True
    """Whether clips pass through Local Differencing Attention (eq. 1)."""

    anatomy_conditioning: bool = True
    """Whether the findings see the soft anatomy (eq. 3)."""

    prototypes: bool = True
    """Whether prototypes augment the logits (eq. 4)."""

    contrastive: bool = True
    """Whether the contrastive path exists (eq. 5)."""

    text: Literal["learnt", "fixed"] = "learnt"
    """Whether training changes the text features of the contrastive path."""

    local_evidence: bool = False
    """Whether patches of a frame, taught by boxes, speak for findings; only with `lite`."""

    findings: Literal["head", "evidence"] = "head"
    """Where the logits of findings come from: the head, with local evidence added where there is
    any; or local evidence alone, its mean over the clip, so that the head learns anatomy only. The
    second is for data whose regions and lesions come from different sources (drawings and real
    frames): a shared head learns to tell the sources apart."""

    border: Border = "kept"
    """What becomes of the black border and its text: see `Preprocessing.border`."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.backbone != "biomedclip" and (self.bundle is not None or self.download):
            raise ValueError(f"bundle and download belong to biomedclip, not to {self.backbone}")
        if self.bundle is not None and self.download:
            raise ValueError("with a local bundle, download is not needed")
        if self.head == "linear" and self.anatomy_conditioning:
            raise ValueError(
                "a linear head has no anatomy conditioning: set anatomy_conditioning to false"
            )
        if self.backbone == "lite" and self.differential:
            raise ValueError("lite has no attention, so it cannot be differential")
        if self.local_evidence and self.backbone != "lite":
            raise ValueError(_ONLY_LITE)
        if self.findings == "evidence" and not self.local_evidence:
            raise ValueError("findings by evidence alone need local_evidence = true")
        if self.findings == "evidence" and (self.head == "linear" or self.anatomy_conditioning):
            raise ValueError(
                "where findings come from evidence alone the head is of anatomy: set head to "
                "anatomy-context and anatomy_conditioning to false"
            )
        return self

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(
            handler(self), self, "head", "text", "local_evidence", "findings", "border"
        )

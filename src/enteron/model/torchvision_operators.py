"""Lets torchvision import beside a CPU build of torch. Import this before torchvision or timm.

PyPI's torchvision is built for CUDA, and its compiled operators do not load beside a CPU torch. Its
import then fails when it registers fake versions of two of them (`operator torchvision::nms does
not exist`). Declaring the two is enough: enteron never calls them.
"""

import torch

_MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# The declarations last as long as this object.
_library: torch.library.Library | None = None


def declare() -> None:
    """Declare the operators, unless torchvision has already registered its own."""
    global _library
    if _library is not None or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _MISSING:
        library.define(schema)
    _library = library

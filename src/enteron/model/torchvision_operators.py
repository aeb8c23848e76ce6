"""Lets torchvision import beside a CPU build of torch. Import this before torchvision or timm.

The registry's torchvision is built for CUDA; its compiled operators do not load beside a CPU torch,
and its import then fails where it registers fake versions of two of them (`operator
torchvision::nms does not exist`). Declaring the two is enough: enteron never calls them.
"""

import torch

_MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# The library must stay referenced: its declarations go with it.
_library: torch.library.Library | None = None


def declare() -> None:
    """Declare the operators, unless a torchvision that fits its torch already has."""
    global _library
    if _library is not None or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _MISSING:
        library.define(schema)
    _library = library

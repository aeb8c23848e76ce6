"""What the machine could do at best: its own fp32 GEMM peak, and the operations of a backbone."""

import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from enteron.inference.torch_runtime import torch_threads
from enteron.model.backbones import Backbone

_SIDE = 2048  # large enough that memory does not limit the product
_ROUNDS = 7


def gemm_peak(threads: int, rounds: int = _ROUNDS) -> float:
    """Operations a second of a large square fp32 product in torch, median of several."""
    one, other = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    seconds = []
    with torch_threads(threads), torch.inference_mode():
        torch.mm(one, other)
        for _ in range(rounds):
            begin = time.perf_counter()
            torch.mm(one, other)
            seconds.append(time.perf_counter() - begin)
    return 2 * _SIDE**3 / statistics.median(seconds)


def backbone_operations(backbone: Backbone) -> int:
    """Operations of one picture, two to a multiplication and addition.

    Products inside attention are included: off the fused path the counter sees them.
    """
    size = backbone.spec.preprocessing.size
    picture = torch.zeros(1, 3, size, size)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        backbone.eval()(picture)
    return counter.get_total_flops()

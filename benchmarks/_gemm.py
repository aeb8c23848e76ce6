"""The fp32 GEMM peak of the machine, and the operations that a backbone needs."""

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
    """Operations per second of a large fp32 matrix product in torch, median of several."""
    left, right = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    seconds = []
    with torch_threads(threads), torch.inference_mode():
        torch.mm(left, right)
        for _ in range(rounds):
            start = time.perf_counter()
            torch.mm(left, right)
            seconds.append(time.perf_counter() - start)
    return 2 * _SIDE**3 / statistics.median(seconds)


def backbone_operations(backbone: Backbone) -> int:
    """Operations for one image; a multiplication and an addition count as two.

    Products inside attention are included: outside the fused kernel the counter sees them.
    """
    size = backbone.spec.preprocessing.size
    image = torch.zeros(1, 3, size, size)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        backbone.eval()(image)
    return counter.get_total_flops()

"""How fast the machine could be: its GEMM peak, and the operations that an encoder needs."""

import statistics
import time
from typing import Final

import numpy as np

_SIDE = 1024  # a product takes some 30 ms on two cores
_ROUNDS = 5

OPERATIONS: Final[dict[str, float]] = {
    "tf_efficientnet_lite0": 0.769e9,
    "vit_base_patch16_224": 35.13e9,
    "vit_tiny_patch16_224": 2.507e9,
}
"""By trunk: operations for one picture, its projection to 512 included; a multiplication and an
addition count as two. `tests/inference/test_peak.py` counts them again with torch."""


def operations(trunk: str) -> float | None:
    """Operations for one picture of an encoder with this trunk; None where nobody counted."""
    return OPERATIONS.get(trunk)


def gemm_peak() -> float:
    """Operations a second of a large product in single precision, on all threads numpy may use."""
    rng = np.random.default_rng(0)
    left, right = (rng.random((_SIDE, _SIDE), dtype=np.float32) for _ in range(2))
    np.matmul(left, right)  # the first call starts threads
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        np.matmul(left, right)
        seconds.append(time.perf_counter() - start)
    return 2 * _SIDE**3 / statistics.median(seconds)

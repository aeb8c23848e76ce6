"""The GEMM peaks of the machine in fp32 and int8, and the operations that a backbone needs."""

import statistics
import time

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
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


def int8_gemm_peak(threads: int, rounds: int = _ROUNDS) -> float:
    """The same for a product of uint8 and int8 in ONNX Runtime, whose kernels `onnx-int8` runs."""
    random = np.random.default_rng(0)
    right = random.integers(-64, 64, (_SIDE, _SIDE), dtype=np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["left", "right"], ["product"])],
        "product",
        [helper.make_tensor_value_info("left", TensorProto.UINT8, (_SIDE, _SIDE))],
        [helper.make_tensor_value_info("product", TensorProto.INT32, (_SIDE, _SIDE))],
        [numpy_helper.from_array(right, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {"left": random.integers(0, 256, (_SIDE, _SIDE), dtype=np.uint8)}
    session.run(None, inputs)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        session.run(None, inputs)
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

"""OpenVINO on the CPU, in fp32: an optional runtime for the same graphs as ONNX Runtime."""

from importlib import import_module
from typing import Any

import numpy as np

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, Squares
from enteron.inference.runtimes.squares import whole_squares
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing

_A_THREAD = 8  # pictures a thread and call, as for ONNX Runtime


class OpenvinoEncoder:
    """As many pictures at a time as there are threads, each on one of them."""

    runtime = "openvino"

    def __init__(
        self, graph: bytes, backbone_hash: str, preprocessing: Preprocessing, threads: int
    ) -> None:
        openvino = _openvino()
        self.backbone_hash = backbone_hash
        self.preprocessing = preprocessing
        self.batch = _A_THREAD * threads
        core = openvino.Core()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
            # Some processors would be given bf16 without being asked.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = core.compile_model(core.read_model(graph), "CPU", settings)
        self._queue = openvino.AsyncInferQueue(compiled, threads)

    def encode(self, squares: Squares) -> Features:
        """Squares (n, 3, size, size) uint8 to embeddings (n, 512)."""
        squares = whole_squares(squares, self.preprocessing)
        features = np.empty((len(squares), FEATURES), np.float32)

        def keep(request: Any, row: int) -> None:
            features[row] = request.get_output_tensor(0).data[0]

        self._queue.set_callback(keep)
        for row in range(len(squares)):
            self._queue.start_async({0: squares[row : row + 1]}, row)
        self._queue.wait_all()
        return features


def openvino_installed() -> bool:
    """Whether the optional package is there."""
    from importlib.util import find_spec

    return find_spec("openvino") is not None


def _openvino() -> Any:
    try:
        return import_module("openvino")  # an extra that type checkers need not have
    except ImportError as error:
        raise EnteronError(
            "OpenVINO is not installed",
            "pip install -c constraints.txt 'enteron[openvino]', or use another runtime",
        ) from error

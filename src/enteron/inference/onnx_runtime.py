"""ONNX Runtime on the CPU: a graph of one picture, several pictures side by side."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np
import onnxruntime

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, Squares, whole_squares
from enteron.inference.onnx_graph import INPUT, OUTPUT
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing

_A_THREAD = 8  # pictures a thread and call: at the end of a call the threads wait for each other


class OnnxEncoder:
    """One session of one thread, called from as many threads as there are cores.

    Pictures share no work, so threads inside an operator would only wait for each other, and spin
    while they do; and a picture's embedding cannot depend on its neighbours in a batch.
    """

    def __init__(
        self,
        graph: bytes,
        runtime: str,
        backbone_hash: str,
        preprocessing: Preprocessing,
        threads: int,
    ) -> None:
        self.runtime = runtime
        self.backbone_hash = backbone_hash
        self.preprocessing = preprocessing
        self.batch = _A_THREAD * threads
        self._session = open_session(graph)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="enteron-encode")

    def encode(self, squares: Squares) -> Features:
        """Squares (n, 3, size, size) uint8 to embeddings (n, 512)."""
        squares = whole_squares(squares, self.preprocessing)
        features = np.empty((len(squares), FEATURES), np.float32)

        def encode_one(row: int) -> None:
            given = {INPUT: squares[row : row + 1]}
            features[row] = np.asarray(self._session.run([OUTPUT], given)[0])

        for _ in self._pool.map(encode_one, range(len(squares))):
            pass  # an error in a thread comes out here
        return features


def open_session(graph: bytes) -> onnxruntime.InferenceSession:
    """A session that runs on the thread that calls it, and on no other."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


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

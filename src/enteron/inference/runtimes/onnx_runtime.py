"""ONNX Runtime on the CPU: a graph of one picture, several pictures side by side."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime

from enteron.inference.encoder import Features, Squares
from enteron.inference.runtimes.export import INPUT, OUTPUT
from enteron.inference.runtimes.squares import whole_squares
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

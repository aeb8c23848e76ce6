"""ONNX Runtime and OpenVINO on the CPU: graphs of one image, several images side by side.

Nothing here needs torch: a graph that was exported before is enough to encode.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, ImageBatch, require_image_batch
from enteron.model.preprocessing import Preprocessing

GRAPH_INPUT, GRAPH_OUTPUT = "images", "features"
"""Names of the input (1, 3, size, size), uint8, and the output (1, width) of an encoder's graph."""

GRAPH_MAPS = "maps"
"""Name of the other output of a graph of maps."""

_IMAGES_PER_THREAD = 8  # in one call: at the end of a call the threads wait for each other


class OnnxEncoder:
    """One single-threaded session, called from as many threads as there are cores.

    Images share no work: threads inside an operator would spin while they wait for each other. An
    image's embedding cannot depend on the other images of its batch.
    """

    def __init__(
        self,
        graph: bytes | onnxruntime.InferenceSession,
        runtime: str,
        backbone_hash: str,
        preprocessing: Preprocessing,
        threads: int,
    ) -> None:
        self.runtime = runtime
        self.backbone_hash = backbone_hash
        self.quantisation: str | None = None
        """Hash of the graph, where it holds more than the weights: see `StoreKey.quantisation`."""
        self.preprocessing = preprocessing
        self.batch = _IMAGES_PER_THREAD * threads
        self._session = open_session(graph) if isinstance(graph, bytes) else graph
        self.width = int(self._session.get_outputs()[0].shape[1])
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="enteron-encode")

    def encode(self, images: ImageBatch) -> Features:
        """Images (n, 3, size, size), uint8, to embeddings (n, width)."""
        images = require_image_batch(images, self.preprocessing)
        features = np.empty((len(images), self.width), np.float32)

        def encode_row(row: int) -> None:
            inputs = {GRAPH_INPUT: images[row : row + 1]}
            features[row] = np.asarray(self._session.run([GRAPH_OUTPUT], inputs)[0])

        for _ in self._pool.map(encode_row, range(len(images))):
            pass  # an error in a thread is raised here
        return features


class MapEncoder:
    """Maps of patches and features of images, from a graph of `export_maps_graph`."""

    def __init__(self, graph: bytes, preprocessing: Preprocessing, threads: int) -> None:
        self.preprocessing = preprocessing
        self._session = open_session(graph)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="enteron-encode")

    def encode(self, images: ImageBatch) -> tuple[NDArray[np.float16], Features]:
        """Images (n, 3, size, size), uint8, to maps (n, 472, 7, 7) and features (n, 512)."""
        images = require_image_batch(images, self.preprocessing)

        def encode_row(row: int) -> list[NDArray[np.float32]]:
            outputs = self._session.run(
                [GRAPH_MAPS, GRAPH_OUTPUT], {GRAPH_INPUT: images[row : row + 1]}
            )
            return [np.asarray(output)[0] for output in outputs]

        rows = list(self._pool.map(encode_row, range(len(images))))
        maps, features = (np.stack([row[part] for row in rows]) for part in (0, 1))
        return maps.astype(np.float16), features


def open_session(
    graph: bytes, tensors: Mapping[str, NDArray[np.generic]] | None = None, threads: int = 1
) -> onnxruntime.InferenceSession:
    """A session that runs only on the thread that calls it, unless it is given more.

    `tensors` are those of the graph that it does not hold itself.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only: the caller tells them in a sentence
    if tensors:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in tensors.values()]
        options.add_external_initializers(list(tensors), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class OpenvinoEncoder:
    """As many images at a time as there are threads, one thread each."""

    runtime = "openvino"

    def __init__(
        self, graph: bytes, backbone_hash: str, preprocessing: Preprocessing, threads: int
    ) -> None:
        openvino = _import_openvino()
        self.backbone_hash = backbone_hash
        self.preprocessing = preprocessing
        self.batch = _IMAGES_PER_THREAD * threads
        core = openvino.Core()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
            # The default on some processors is bf16.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = core.compile_model(core.read_model(graph), "CPU", settings)
        self.width = int(compiled.output(0).shape[1])
        self._queue = openvino.AsyncInferQueue(compiled, threads)

    def encode(self, images: ImageBatch) -> Features:
        """Images (n, 3, size, size), uint8, to embeddings (n, width)."""
        images = require_image_batch(images, self.preprocessing)
        features = np.empty((len(images), self.width), np.float32)

        def on_result(request: Any, row: int) -> None:
            features[row] = request.get_output_tensor(0).data[0]

        self._queue.set_callback(on_result)
        for row in range(len(images)):
            self._queue.start_async({0: images[row : row + 1]}, row)
        self._queue.wait_all()
        return features


def openvino_installed() -> bool:
    """Whether the optional package is installed."""
    return find_spec("openvino") is not None


def _import_openvino() -> Any:
    try:
        return import_module("openvino")  # an extra that type checkers need not have
    except ImportError as error:
        raise EnteronError(
            "OpenVINO is not installed",
            "pip install -c constraints.txt 'enteron[openvino]', or use another runtime",
        ) from error

"""A model as the graphs of its folder: encoder and head in ONNX Runtime, without torch."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.inference.graph_weights import stored_tensors
from enteron.labels import LABELS
from enteron.model.options import BackboneSpec, ModelOptions
from enteron.model.tensor_table import TensorEntry

if TYPE_CHECKING:
    import onnxruntime

    from enteron.inference.onnx_runtime import OnnxEncoder
    from enteron.model.backbones import Backbone

ENCODER_GRAPH = "encoder.onnx"
"""Images (1, 3, size, size), uint8, to features (1, width)."""
HEAD_GRAPH = "head.onnx"
"""Features (m, width) and rows (n, frames), int64, to logits (n, 17): `Network.classify_study`."""
INT8_GRAPH = "encoder-int8.onnx"
"""The encoder with its convolutions in int8; a folder may have none."""

HEAD_FEATURES, HEAD_ROWS, HEAD_LOGITS = "features", "rows", "logits"

_PACK_AGAIN = "copy the whole model folder again, or pack the model again"


@dataclass(frozen=True)
class StoredGraph:
    """A graph of a model folder with the tensors that it takes from the weights' file."""

    name: str
    graph: bytes
    tensors: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(
        cls, name: str, graph: bytes, weights: bytes, table: Mapping[str, TensorEntry]
    ) -> "StoredGraph":
        return cls(name, graph, stored_tensors(graph, weights, table, name))

    def session(self, threads: int = 1) -> "onnxruntime.InferenceSession":
        """A session; what the runtime refuses is told in a sentence."""
        from enteron.inference.onnx_runtime import open_session

        try:
            return open_session(self.graph, self.tensors, threads)
        except Exception as error:  # ONNX Runtime's own exceptions have no common base
            raise ModelError(
                f"'{self.name}' is not a graph that can be run", _PACK_AGAIN
            ) from error


@dataclass(frozen=True, eq=False)
class GraphBackbone:
    """The encoder of a packed model folder, in the place of a `Backbone`."""

    spec: BackboneSpec
    backbone_hash: str
    graph: StoredGraph
    load: "Callable[[], Backbone]"
    """The same in torch, for the runtimes that need it."""
    int8: StoredGraph | None = None
    """The encoder in int8, if the folder has it."""

    def hash(self) -> str:
        """Of the weights, as `Backbone.hash`."""
        return self.backbone_hash

    def encoder(self, threads: int) -> "OnnxEncoder":
        """The encoder that runs the stored graph."""
        return self._encoder(self.graph, "onnx", threads)

    def int8_encoder(self, threads: int) -> "OnnxEncoder":
        """The encoder that runs the stored graph in int8."""
        if self.int8 is None:
            raise ModelError(
                "the model folder has no encoder in int8",
                "use --runtime onnx, or pack the model again with `enteron pack --int8 DATA`",
            )
        encoder = self._encoder(self.int8, "onnx-int8", threads)
        encoder.quantisation = hashlib.sha256(self.int8.graph).hexdigest()
        return encoder

    def _encoder(self, graph: StoredGraph, runtime: str, threads: int) -> "OnnxEncoder":
        from enteron.inference.onnx_runtime import GRAPH_INPUT, GRAPH_OUTPUT, OnnxEncoder

        size = self.spec.preprocessing.size
        session = graph.session()
        _require_shapes(
            graph.name,
            session,
            {GRAPH_INPUT: (1, 3, size, size)},
            {GRAPH_OUTPUT: (1, self.spec.width)},
        )
        return OnnxEncoder(session, runtime, self.backbone_hash, self.spec.preprocessing, threads)


class GraphHead:
    """Everything after the encoder, as a stored graph."""

    def __init__(self, options: ModelOptions, width: int, graph: StoredGraph, threads: int) -> None:
        self.options = options
        self._session = graph.session(threads)
        _require_shapes(
            graph.name,
            self._session,
            {HEAD_FEATURES: (None, width), HEAD_ROWS: (None, options.frames)},
            {HEAD_LOGITS: (None, len(LABELS))},
        )

    def probabilities(
        self, features: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Sigmoids (n, 17) of windows (n, frames): rows of embeddings (m, width)."""
        inputs = {HEAD_FEATURES: features, HEAD_ROWS: rows}
        logits = np.asarray(self._session.run([HEAD_LOGITS], inputs)[0], np.float32)
        # exp of a number that is never positive: neither overflow nor a warning.
        decay = np.exp(-np.abs(logits))
        return (np.where(logits >= 0, 1, decay) / (1 + decay)).astype(np.float32)


Shape = tuple[int | None, ...]


def _require_shapes(
    name: str,
    session: "onnxruntime.InferenceSession",
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
) -> None:
    """Refuse a graph with other inputs or outputs; None is a size that is not fixed."""
    for expected, arguments in ((inputs, session.get_inputs()), (outputs, session.get_outputs())):
        found = {
            argument.name: tuple(side if isinstance(side, int) else None for side in argument.shape)
            for argument in arguments
        }
        if found != dict(expected):
            raise ModelError(f"'{name}' is the graph of another network", _PACK_AGAIN)

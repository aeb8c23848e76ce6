"""torch on a CUDA card: half precision, compiled. Not tried by the authors, who had no card."""

import copy

import numpy as np
import torch

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, Squares
from enteron.inference.runtimes.squares import whole_squares
from enteron.model.backbone import Backbone
from enteron.model.options import FEATURES

PRECISIONS = {"cuda-fp16": torch.float16, "cuda-bf16": torch.bfloat16}


class CudaEncoder:
    """A compiled encoder under autocast; every batch has the same shape, so it compiles once."""

    batch = 64

    def __init__(self, backbone: Backbone, runtime: str) -> None:
        if not torch.cuda.is_available():
            raise EnteronError(
                f"runtime '{runtime}' needs a CUDA card, and torch sees none",
                "use --runtime auto, or install a torch built for CUDA",
            )
        self.runtime = runtime
        self.backbone_hash = backbone.hash()
        self.preprocessing = backbone.spec.preprocessing
        self._precision = PRECISIONS[runtime]
        self._network = torch.compile(copy.deepcopy(backbone).eval().cuda())

    def encode(self, squares: Squares) -> Features:
        """Squares (n, 3, size, size) uint8 to embeddings (n, 512), `batch` pictures at a time."""
        squares = whole_squares(squares, self.preprocessing)
        features = np.empty((len(squares), FEATURES), np.float32)
        for start in range(0, len(squares), self.batch):
            given = squares[start : start + self.batch]
            filled = np.zeros((self.batch, *given.shape[1:]), np.uint8)
            filled[: len(given)] = given
            images = self.preprocessing.normalise(torch.from_numpy(filled).cuda())
            with torch.inference_mode(), torch.autocast("cuda", self._precision):
                encoded = self._network(images)
            features[start : start + len(given)] = encoded[: len(given)].float().cpu().numpy()
        return features

"""torch as it is: the reference that every other runtime is measured against."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, Squares, whole_squares
from enteron.model.backbones import Backbone
from enteron.model.options import FEATURES


class TorchEncoder:
    """Eager torch in fp32 on the CPU. Exact: what `Backbone.forward` computes, and nothing else.

    The backbone is put into evaluation mode; it must not change while the encoder is used.
    """

    runtime = "torch"
    batch = 8  # more does not make a ViT faster on a CPU, and costs memory

    def __init__(self, backbone: Backbone, threads: int) -> None:
        self.backbone_hash = backbone.hash()
        self.preprocessing = backbone.spec.preprocessing
        self._network: nn.Module = backbone.eval()
        self._threads = threads

    def encode(self, squares: Squares) -> Features:
        """Squares (n, 3, size, size) uint8 to embeddings (n, 512), `batch` pictures at a time."""
        squares = whole_squares(squares, self.preprocessing)
        features = np.empty((len(squares), FEATURES), np.float32)
        with torch_threads(self._threads), torch.inference_mode():
            for start in range(0, len(squares), self.batch):
                rows = slice(start, start + self.batch)
                images = self.preprocessing.normalise(torch.from_numpy(squares[rows]))
                features[rows] = self._network(images).numpy()
        return features


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """One number of threads holds for all of torch in a process: set it, and put it back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchInt8Encoder(TorchEncoder):
    """Linear layers in int8, the rest in fp32; reproducible as long as batches are the same."""

    runtime = "torch-int8"

    def __init__(self, backbone: Backbone, threads: int) -> None:
        super().__init__(backbone, threads)
        with warnings.catch_warnings():
            # torch calls this deprecated in favour of another package; it is still there and works.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            try:
                self._network = torch.ao.quantization.quantize_dynamic(
                    backbone, {nn.Linear}, dtype=torch.qint8
                )
            except (AttributeError, RuntimeError) as error:
                raise EnteronError(
                    "this torch cannot quantise linear layers on this processor",
                    "use --runtime onnx-int8, or --runtime exact",
                ) from error


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

"""The torch runtimes: eager fp32 (the exact reference), dynamic int8, and compiled CUDA."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from enteron.errors import EnteronError
from enteron.inference.encoder import Features, ImageBatch, require_image_batch
from enteron.model.backbones import Backbone


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads, which is global to the process, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchEncoder:
    """Eager torch in fp32 on the CPU: exactly what `Backbone.forward` computes.

    The backbone is put into evaluation mode and must not change while the encoder is in use.
    """

    runtime = "torch"
    batch = 8  # more does not make a ViT faster on a CPU, and costs memory

    def __init__(self, backbone: Backbone, threads: int) -> None:
        self.backbone_hash = backbone.hash()
        self.width = backbone.spec.width
        self.preprocessing = backbone.spec.preprocessing
        self._network: nn.Module = backbone.eval()
        self._threads = threads

    def encode(self, images: ImageBatch) -> Features:
        """Images (n, 3, size, size), uint8, to embeddings (n, width), `batch` images at a time."""
        images = require_image_batch(images, self.preprocessing)
        features = np.empty((len(images), self.width), np.float32)
        with torch_threads(self._threads), torch.inference_mode():
            for start in range(0, len(images), self.batch):
                rows = slice(start, start + self.batch)
                inputs = self.preprocessing.normalise(torch.from_numpy(images[rows]))
                features[rows] = self._network(inputs).numpy()
        return features


class TorchInt8Encoder(TorchEncoder):
    """Linear layers in int8, the rest in fp32; reproducible only with the same batches."""

    runtime = "torch-int8"

    def __init__(self, backbone: Backbone, threads: int) -> None:
        super().__init__(backbone, threads)
        with warnings.catch_warnings():
            # torch deprecates this in favour of another package; it still works.
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


CUDA_PRECISIONS: dict[str, torch.dtype | None] = {
    "cuda": None,
    "cuda-fp16": torch.float16,
    "cuda-bf16": torch.bfloat16,
}
"""The precision of each runtime under autocast; None: fp32, without TF32 (torch's default)."""

DEVICE = "cuda"
"""Where these runtimes compute. Tests replace it, to run everything but the kernels without a
card."""


class CudaEncoder:
    """A compiled backbone, under autocast or not. Batches have one shape, so it compiles once."""

    batch = 64

    def __init__(self, backbone: Backbone, runtime: str) -> None:
        if not torch.cuda.is_available():
            raise EnteronError(
                f"runtime '{runtime}' needs a CUDA card, and torch sees none",
                "use --runtime auto, or install a torch built for CUDA",
            )
        self.runtime = runtime
        self.backbone_hash = backbone.hash()
        self.width = backbone.spec.width
        self.preprocessing = backbone.spec.preprocessing
        self._precision = CUDA_PRECISIONS[runtime]
        self._network = torch.compile(copy.deepcopy(backbone).eval().to(DEVICE))

    def encode(self, images: ImageBatch) -> Features:
        """Images (n, 3, size, size), uint8, to embeddings (n, width), `batch` images at a time."""
        images = require_image_batch(images, self.preprocessing)
        features = np.empty((len(images), self.width), np.float32)
        for start in range(0, len(images), self.batch):
            part = images[start : start + self.batch]
            padded = np.zeros((self.batch, *part.shape[1:]), np.uint8)
            padded[: len(part)] = part
            inputs = self.preprocessing.normalise(torch.from_numpy(padded).to(DEVICE))
            with (
                torch.inference_mode(),
                torch.autocast(DEVICE, self._precision, enabled=self._precision is not None),
            ):
                outputs = self._network(inputs)
            features[start : start + len(part)] = outputs[: len(part)].float().cpu().numpy()
        return features

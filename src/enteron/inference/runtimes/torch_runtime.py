"""torch as it is: the reference that every other runtime is measured against."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from enteron.inference.encoder import Features, Squares
from enteron.inference.runtimes.squares import whole_squares
from enteron.model.backbone import Backbone
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

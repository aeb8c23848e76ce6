"""torch's own dynamic int8 of the linear layers: for machines without ONNX Runtime.

Activations get one scale for the whole batch, so an embedding depends on the pictures beside it.
One picture at a time would mend that, and is no faster than fp32.
"""

import warnings

import torch
from torch import nn

from enteron.errors import EnteronError
from enteron.inference.runtimes.torch_runtime import TorchEncoder
from enteron.model.backbone import Backbone


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

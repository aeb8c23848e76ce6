"""A backbone as an ONNX graph that takes one picture's bytes, normalisation included."""

import warnings

import torch
from torch import nn

from enteron.model.backbone import Backbone

INPUT, OUTPUT = "squares", "features"
OPSET = 20  # the first with Gelu as one operator


class _Encoding(nn.Module):
    """What an encoder computes, from bytes on."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, squares: torch.Tensor) -> torch.Tensor:
        return self.backbone(self.backbone.spec.preprocessing.normalise(squares))


def export_graph(backbone: Backbone) -> bytes:
    """The graph of squares (1, 3, size, size) uint8 to features (1, 512) float32.

    One picture, of fixed shape: pictures are run side by side on the cores, never joined, so no
    embedding can depend on what it was batched with.
    """
    size = backbone.spec.preprocessing.size
    picture = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.inference_mode():
        # The exporter uses something of torch's that torch has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(
            _Encoding(backbone).eval(),
            (picture,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
    assert program is not None
    return program.model_proto.SerializeToString()

"""Packing: a model folder that is smaller, and that is read without torch.

Rounding to 16 bits changes the weights a little, so a packed model is another model: a calibration
is fitted for its own weights, after packing.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from enteron.errors import ModelError
from enteron.files import RECORD_LIMIT, make_folder, read_bytes, write_bytes
from enteron.folders.left_out import LEFT_OUT
from enteron.folders.model import (
    CALIBRATION,
    PRIORS,
    RECORD,
    SPLIT,
    TRAINING,
    WEIGHTS,
    ModelRecord,
    load_calibration,
    load_model,
    require_fitted_for,
    write_record,
)
from enteron.locks import folder_lock
from enteron.model.requirements import require_torch
from enteron.model.tensor_table import read_table

if TYPE_CHECKING:
    import torch

    from enteron.model.network import Network


@dataclass(frozen=True)
class PackedFolder:
    """What was written."""

    record: ModelRecord
    size: int  # bytes of all files
    calibrated: bool
    """Whether a calibration was copied: only where rounding changed nothing."""


def pack_model(model: Path, out: Path, *, name: str | None = None) -> PackedFolder:
    """Write a packed copy of a model folder: weights in half precision, and graphs of the network.

    `name` is what pages call the model; without one it keeps its name.
    """
    require_torch("packing a model")
    network, record = load_model(model)
    if (out / RECORD).exists():
        raise ModelError(f"'{out.name}' holds a model already", "give a new folder")
    make_folder(out, error=ModelError)
    with folder_lock(out):
        return _pack(network, record, model, out, name)


def _pack(
    network: "Network", record: ModelRecord, model: Path, out: Path, name: str | None
) -> PackedFolder:
    from safetensors.torch import save

    from enteron.inference.graph_model import ENCODER_GRAPH, HEAD_GRAPH
    from enteron.inference.packed_graphs import packed_encoder, packed_head

    tensors = _rounded(network)
    content = save(tensors)
    network.load_state_dict(tensors)  # as it will be loaded: its hash is that of rounded weights
    write_bytes(out / WEIGHTS, content)
    table = read_table(out / WEIGHTS)
    graphs = {
        ENCODER_GRAPH: packed_encoder(network, table),
        HEAD_GRAPH: packed_head(network, table),
    }
    for file, graph in graphs.items():
        write_bytes(out / file, graph)
    packed = ModelRecord.model_validate(
        record.model_dump()
        | {
            "name": record.name if name is None else name,
            "precision": "half",
            "backbone_hash": network.backbone.hash(),
            "weights_hash": hashlib.sha256(content).hexdigest(),
            "graphs": {file: hashlib.sha256(graph).hexdigest() for file, graph in graphs.items()},
        }
    )
    for file in (SPLIT, PRIORS):
        _copy(model / file, out / file)
    left_out = model / TRAINING / LEFT_OUT
    if left_out.is_dir():  # calibration needs them; nothing else does
        make_folder(out / TRAINING / LEFT_OUT, error=ModelError)
        for path in sorted(left_out.glob("*.parquet")):
            _copy(path, out / TRAINING / LEFT_OUT / path.name)
    calibrated = _still_fits(model, packed)
    if calibrated:
        _copy(model / CALIBRATION, out / CALIBRATION)
    write_record(out, packed)
    size = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    return PackedFolder(packed, size, calibrated)


def _rounded(network: "Network") -> "dict[str, torch.Tensor]":
    """The tensors as they are stored: matrices and convolutions in 16 bits.

    Biases, scales and the statistics of norms stay in 32: they are few, a variance may be too
    small or too large for 16 bits, and the rounding of one of them shifts a whole channel.
    """
    import torch

    tensors: dict[str, torch.Tensor] = {}
    for name, value in network.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        if tensor.is_floating_point() and tensor.ndim > 1:
            half = tensor.half()
            if not torch.isfinite(half).all():
                raise ModelError(
                    f"'{name}' has numbers that are too large for 16 bits",
                    "train the model again with weight decay: weights beyond 65,504 are no good",
                )
            tensor = half
        tensors[name] = tensor
    return tensors


def _still_fits(model: Path, packed: ModelRecord) -> bool:
    """Whether the calibration of the folder is one of the packed weights too."""
    if not (model / CALIBRATION).exists():
        return False
    try:
        require_fitted_for(load_calibration(model), packed)
    except ModelError:
        return False
    return True


def _copy(file: Path, to: Path) -> None:
    if file.exists():
        write_bytes(to, read_bytes(file, RECORD_LIMIT, "copy the model folder again"))

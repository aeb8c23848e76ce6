"""Packing: a model folder that is smaller, and that is read without torch.

Rounding to 16 bits changes the weights a little, so a packed model is another model: a calibration
is fitted for its own weights, after packing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enteron.datasets.layouts import open_dataset
from enteron.errors import ModelError, StudyError
from enteron.files import RECORD_LIMIT, make_folder, read_bytes, write_bytes
from enteron.folders.left_out import LEFT_OUT
from enteron.folders.model import (
    APPEARANCE,
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
from enteron.inference.encoder import ImageBatch
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.locks import folder_lock
from enteron.model.preprocessing import Preprocessing
from enteron.model.requirements import require_torch
from enteron.model.tensor_table import read_table

if TYPE_CHECKING:
    import torch

    from enteron.model.network import Network

_INT8_IMAGES = 48  # by which int8 is calibrated: about a gigabyte of memory


@dataclass(frozen=True)
class PackedFolder:
    """What was written."""

    record: ModelRecord
    size: int  # bytes of all files
    calibrated: bool
    """Whether a calibration was copied: only where rounding changed nothing."""


def pack_model(
    model: Path, out: Path, *, name: str | None = None, int8: Sequence[Path] = ()
) -> PackedFolder:
    """Write a packed copy of a model folder: weights in half precision, and graphs of the network.

    `name` is what pages call the model; without one it keeps its name. With datasets for `int8`
    there is also an encoder in int8, calibrated on some of their frames.
    """
    require_torch("packing a model")
    network, record = load_model(model)
    if int8 and record.backbone.name != "lite":
        raise ModelError(
            f"int8 is measured for EfficientNet-Lite0, and the model has '{record.backbone.name}'",
            "pack it without --int8: `--runtime onnx-int8` quantises ViTs as it loads them",
        )
    if (out / RECORD).exists():
        raise ModelError(f"'{out.name}' holds a model already", "give a new folder")
    images = calibration_images(int8, record.backbone.preprocessing) if int8 else None
    make_folder(out, error=ModelError)
    with folder_lock(out):
        return _pack(network, record, model, out, name, images)


def calibration_images(roots: Sequence[Path], preprocessing: Preprocessing) -> ImageBatch:
    """Images of labelled datasets, the same number of each, evenly over studies and frames."""
    images: list[ImageBatch] = []
    for root in roots:
        studies = list(open_dataset(root).studies.values())
        share = _INT8_IMAGES // len(roots)
        found = []
        for index in range(share):
            place = index * len(studies) // share
            same = [k for k in range(share) if k * len(studies) // share == place]
            with studies[place].open() as study:
                row = (2 * same.index(index) + 1) * len(study) // (2 * len(same))
                frame = study.frame(int(study.numbers[row]))
                image = prepare_frame(frame, preprocessing, study_fields(study, preprocessing))
            if image.image is not None:
                found.append(image.image)
        if not found:
            raise StudyError(
                f"no frame of '{root.name}' that int8 would be calibrated on can be read",
                "name another dataset",
            )
        images.append(np.stack(found))
    return np.concatenate(images)


def _pack(
    network: "Network",
    record: ModelRecord,
    model: Path,
    out: Path,
    name: str | None,
    images: ImageBatch | None,
) -> PackedFolder:
    from safetensors.torch import save

    from enteron.inference.graph_model import ENCODER_GRAPH, HEAD_GRAPH, INT8_GRAPH
    from enteron.inference.packed_graphs import packed_encoder, packed_head, packed_int8

    tensors = _rounded(network)
    content = save(tensors)
    network.load_state_dict(tensors)  # as it will be loaded: its hash is that of rounded weights
    write_bytes(out / WEIGHTS, content)
    table = read_table(out / WEIGHTS)
    graphs = {
        ENCODER_GRAPH: packed_encoder(network, table),
        HEAD_GRAPH: packed_head(network, table),
    }
    if images is not None:
        graphs[INT8_GRAPH] = packed_int8(network, table, images)
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
        for file in (CALIBRATION, APPEARANCE):
            _copy(model / file, out / file)
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

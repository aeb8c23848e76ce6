"""Files of tensors: read without pickle, checked before anything is allocated, hashed.

A safetensors file starts with a table of names, types, shapes and offsets. It is checked here,
against the file and against the network, before the library allocates what it asks for. A torch
file is a zip archive; it is read with `weights_only`, after a check that nothing in it unpacks to
more than the file holds.
"""

import hashlib
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from enteron.errors import ModelError, shown
from enteron.files import WEIGHTS_LIMIT, decode_text, open_file, parse_json

Weights = Mapping[str, torch.Tensor]

_LARGEST_HEADER = 10_000_000  # bytes; BiomedCLIP's has 40,000
_MOST_TENSORS = 20_000
_MOST_DIMENSIONS = 8
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_METADATA = "__metadata__"
_NEVER_UNPICKLED = (
    "copy it again, or convert it to safetensors where it was made; enteron never unpickles objects"
)


@dataclass(frozen=True)
class _Listed:
    """A tensor as the header of a file lists it."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def read_weights(
    path: Path, expected: Weights, remedy: str, *, unused: tuple[str, ...] = ()
) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, or of a torch file that contains only tensors.

    Names, shapes and kinds of number must be those of `expected`; tensors named in `unused` may be
    there too, and are left out. `remedy` says how to get a file that fits.
    """
    if not path.is_file():
        raise ModelError(f"'{path.name}' is missing", "copy it into the folder")
    if path.suffix == ".safetensors":
        listed = _read_header(path)
        _check_listed(listed, expected, unused, path.name, remedy)
        try:
            weights = load_file(path)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise ModelError(
                f"'{path.name}' is not a complete safetensors file ({error})", "copy it again"
            ) from error
    else:
        weights = _read_torch_file(path)
        listed = {name: _Listed(t.dtype, tuple(t.shape)) for name, t in weights.items()}
        _check_listed(listed, expected, unused, path.name, remedy)
    return {name: tensor for name, tensor in weights.items() if name in expected}


def _check_listed(
    listed: Mapping[str, _Listed],
    expected: Weights,
    unused: tuple[str, ...],
    file: str,
    remedy: str,
) -> None:
    """Refuse tensors that are missing, unknown, or of another shape or kind; name the first."""
    for name, tensor in expected.items():
        if name not in listed:
            raise ModelError(f"'{file}' has no tensor '{name}'", remedy)
        found = listed[name]
        if found.shape != tuple(tensor.shape):
            raise ModelError(
                f"'{name}' in '{file}' has shape {shown(found.shape)} where "
                f"{tuple(tensor.shape)} is needed",
                remedy,
            )
        if found.dtype.is_floating_point != tensor.dtype.is_floating_point:
            raise ModelError(
                f"'{name}' in '{file}' has numbers of type {found.dtype} where {tensor.dtype} is "
                "needed",
                remedy,
            )
    unknown = next((n for n in listed if n not in expected and n not in unused), None)
    if unknown is not None:
        raise ModelError(
            f"'{file}' has a tensor {shown(unknown)} that the network does not use", remedy
        )


# ---- safetensors


def _read_header(path: Path) -> dict[str, _Listed]:
    """The table at the start of a safetensors file, checked against the size of the file."""
    try:
        return _checked_header(path)
    except ValueError as error:
        raise ModelError(
            f"'{path.name}' is not a complete safetensors file (its header {error})",
            "copy it again",
        ) from error


def _checked_header(path: Path) -> dict[str, _Listed]:
    source = f"the header of '{path.name}'"
    with open_file(path, WEIGHTS_LIMIT, "copy it again", error=ModelError) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(_LARGEST_HEADER, size - 8):
            raise ValueError("is longer than the file, or longer than any model needs")
        text = decode_text(file.read(length), source, "copy it again", error=ModelError)
    table = parse_json(text, source, "copy it again", error=ModelError)
    if not isinstance(table, dict):
        raise ValueError("is not a table")  # noqa: TRY004
    metadata = table.pop(_METADATA, None)
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("has metadata that are not a table")
    if not 0 < len(table) <= _MOST_TENSORS:
        raise ValueError(f"lists {len(table):,} tensors")
    listed: dict[str, _Listed] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in table.items():
        listed[name], span = _checked_entry(name, entry)
        spans.append(span)
    # Tensors lie one after the other, from the header to the end of the file.
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise ValueError("lists tensors that overlap, or bytes that belong to none")
        position = end
    if position != size - 8 - length:
        raise ValueError("does not fit the size of the file")
    return listed


def _checked_entry(name: str, entry: object) -> tuple[_Listed, tuple[int, int]]:
    """A line of the header: type and shape, and where the numbers lie."""
    shown_name = shown(name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"does not say type, shape and place of {shown_name}")
    dtype, shape, offsets = (entry[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise ValueError(f"gives {shown_name} a type of numbers that enteron does not read")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"gives {shown_name} a shape that is none")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"gives {shown_name} a place that is none")
    size = math.prod(shape) * _TYPES[dtype].itemsize
    if offsets[1] - offsets[0] != size:
        raise ValueError(f"gives {shown_name} more or fewer bytes than its shape has")
    return _Listed(_TYPES[dtype], tuple(shape)), (offsets[0], offsets[1])


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)


# ---- torch files


def _read_torch_file(path: Path) -> dict[str, torch.Tensor]:
    damaged = f"'{path.name}' is damaged, or contains objects other than tensors"
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise ModelError(damaged, _NEVER_UNPICKLED) from error
    # torch stores records as they are. Packed ones may unpack to any size.
    packed = any(r.compress_type != zipfile.ZIP_STORED for r in records)
    if packed or sum(record.file_size for record in records) > path.stat().st_size:
        raise ModelError(
            f"'{path.name}' is a packed archive, which torch does not write", _NEVER_UNPICKLED
        )
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise ModelError(damaged, _NEVER_UNPICKLED) from error
    return _named_tensors(stored, path.name)


def _named_tensors(stored: object, file: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, without an outer `state_dict` table or `module.` prefixes."""
    if isinstance(stored, dict) and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    if not isinstance(stored, dict) or not all(
        isinstance(name, str) and _is_plain(value) for name, value in stored.items()
    ):
        raise ModelError(f"'{file}' is not a table of named tensors", "give a state dictionary")
    if stored and all(name.startswith("module.") for name in stored):
        return {name.removeprefix("module."): value for name, value in stored.items()}
    return stored


def _is_plain(value: object) -> bool:
    """Whether a value is a tensor of ordinary numbers in memory: not sparse, not quantised."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.dtype in _TYPES.values()
        and value.device.type == "cpu"
    )


# ---- hash


def weights_hash(weights: Weights) -> str:
    """SHA-256 over names, types, shapes and values, independent of order and of file format."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

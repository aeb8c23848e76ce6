"""Files of tensors: read without pickle, checked before anything is allocated, hashed.

The table at the start of a safetensors file is checked against the file (`tensor_table.py`) and,
here, against the network, before the library allocates what it asks for. A torch file is a zip
archive; it is read with `weights_only`, after a check that nothing in it unpacks to more than the
file holds.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from enteron.errors import ModelError, shown
from enteron.model.tensor_table import read_table

Weights = Mapping[str, torch.Tensor]

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
        listed = {n: _Listed(_TYPES[e.dtype], e.shape) for n, e in read_table(path).items()}
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

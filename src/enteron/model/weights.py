"""Weights: named tensors from files, checked against those that a network expects.

Pickled objects are never loaded.
"""

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from enteron.errors import ModelError

Weights = Mapping[str, torch.Tensor]


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Named tensors of a safetensors file, or of a torch file that contains only tensors."""
    if not path.is_file():
        raise ModelError(f"'{path.name}' is missing", "copy it into the folder")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ModelError(
                f"'{path.name}' is not a complete safetensors file ({error})", "copy it again"
            ) from error
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ModelError(
            f"'{path.name}' is damaged, or contains objects other than tensors",
            "copy it again, or convert it to safetensors where it was made; "
            "enteron never unpickles objects",
        ) from error
    return _named_tensors(stored, path.name)


def _named_tensors(stored: object, file: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, without an outer `state_dict` table or `module.` prefixes."""
    if isinstance(stored, dict) and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    if not isinstance(stored, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in stored.items()
    ):
        raise ModelError(f"'{file}' is not a table of named tensors", "give a state dictionary")
    if stored and all(name.startswith("module.") for name in stored):
        return {name.removeprefix("module."): value for name, value in stored.items()}
    return stored


def check_weights(weights: Weights, expected: Weights, file: str, remedy: str) -> None:
    """Refuse weights with a tensor missing, unknown or of another shape; the message names it."""
    for name, tensor in expected.items():
        if name not in weights:
            raise ModelError(f"'{file}' has no tensor '{name}'", remedy)
        if weights[name].shape != tensor.shape:
            raise ModelError(
                f"'{name}' in '{file}' has shape {tuple(weights[name].shape)} where "
                f"{tuple(tensor.shape)} is needed",
                remedy,
            )
    unknown = next((name for name in weights if name not in expected), None)
    if unknown is not None:
        raise ModelError(f"'{file}' has a tensor '{unknown}' that the network does not use", remedy)


def weights_hash(weights: Weights) -> str:
    """SHA-256 over names, types, shapes and values, independent of order and of file format."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

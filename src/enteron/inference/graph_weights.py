"""Graphs without weights: an ONNX file whose tensors lie in the safetensors file beside it.

The file is read here with neither onnx nor torch. ONNX lets a graph name any file for its tensors;
of a model folder's graphs every tensor must be one of the folder's own file, whole, by its place,
type and shape. The runtime gets the numbers from memory and opens no file itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.errors import ModelError
from enteron.model.tensor_table import TensorEntry

WEIGHTS_FILE = "model.safetensors"
"""The only file that a graph may name."""

_COPY_AGAIN = "copy the whole model folder again, or pack the model again"

# Types of numbers: ONNX's codes, and those of safetensors.
ONNX_TYPES = {"F32": 1, "F16": 10, "I64": 7}
_NUMPY_TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}

# Fields of ONNX's messages, by their numbers in onnx.proto.
_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTIONS = 7, 20, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSORS = (5, 10)
_ATTRIBUTE_OTHERS = (6, 11, 22, 23)  # graphs and sparse tensors: ours have none
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 1, 2, 8, 13, 14


def stored_tensors(
    graph: bytes, weights: bytes, table: Mapping[str, TensorEntry], name: str
) -> dict[str, NDArray[np.generic]]:
    """The tensors that a graph takes from the safetensors file, by their names in the graph.

    `weights` is the content of that file and `table` its table; `name` is the graph's file, for
    messages. A graph that asks for anything else is refused.
    """
    places = {(entry.begin, entry.end): entry for entry in table.values()}
    arrays: dict[str, NDArray[np.generic]] = {}
    try:
        for tensor in _external_tensors(graph):
            if tensor.location != WEIGHTS_FILE:
                raise ModelError(
                    f"'{name}' takes numbers from another file than '{WEIGHTS_FILE}'", _COPY_AGAIN
                )
            entry = places.get((tensor.offset, tensor.offset + tensor.length))
            if (
                entry is None
                or entry.shape != tensor.shape
                or ONNX_TYPES.get(entry.dtype) != tensor.type
            ):
                raise ModelError(
                    f"'{name}' asks for a tensor that '{WEIGHTS_FILE}' does not have", _COPY_AGAIN
                )
            numbers = np.frombuffer(weights[entry.begin : entry.end], _NUMPY_TYPES[entry.dtype])
            arrays[tensor.name] = numbers.reshape(entry.shape)
    except (ValueError, IndexError) as error:
        raise ModelError(f"'{name}' is not a graph that enteron wrote", _COPY_AGAIN) from error
    return arrays


@dataclass(frozen=True)
class _ExternalTensor:
    name: str
    type: int  # ONNX's code
    shape: tuple[int, ...]
    location: str
    offset: int  # bytes
    length: int


def _external_tensors(model: bytes) -> Iterator[_ExternalTensor]:
    """The initializers that lie in another file; a ValueError for what our graphs do not have."""
    for field, value in _fields(model):
        if field in (_MODEL_TRAINING, _MODEL_FUNCTIONS):
            raise ValueError("functions or training")
        if field != _MODEL_GRAPH:
            continue
        for part, content in _fields(_message(value)):
            if part == _GRAPH_SPARSE:
                raise ValueError("sparse tensors")
            if part == _GRAPH_NODE:
                _require_plain_node(_message(content))
            if part == _GRAPH_INITIALIZER and _is_external(_message(content)):
                yield _external_tensor(_message(content))


def _require_plain_node(node: bytes) -> None:
    """Refuse nodes with graphs of their own, or with tensors in other files."""
    for field, attribute in _fields(node):
        if field != _NODE_ATTRIBUTE:
            continue
        for part, content in _fields(_message(attribute)):
            if part in _ATTRIBUTE_OTHERS:
                raise ValueError("a graph inside of a node")
            if part in _ATTRIBUTE_TENSORS and _is_external(_message(content)):
                raise ValueError("a constant in another file")


def _is_external(tensor: bytes) -> bool:
    return any(
        field == _TENSOR_EXTERNAL or (field == _TENSOR_LOCATION and value != 0)
        for field, value in _fields(tensor)
    )


def _external_tensor(tensor: bytes) -> _ExternalTensor:
    shape: list[int] = []
    place: dict[str, str] = {}
    name, kind = "", 0
    for field, value in _fields(tensor):
        if field == _TENSOR_DIMS:
            shape += [value] if isinstance(value, int) else _packed_numbers(value)
        elif field == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif field == _TENSOR_NAME:
            name = _message(value).decode()
        elif field == _TENSOR_EXTERNAL:
            pair = {part: _message(content).decode() for part, content in _fields(_message(value))}
            place[pair.get(1, "")] = pair.get(2, "")
    if set(place) != {"location", "offset", "length"}:
        raise ValueError("a tensor without a place")
    return _ExternalTensor(
        name, kind, tuple(shape), place["location"], int(place["offset"]), int(place["length"])
    )


# ---- Protocol Buffers: a message is a list of numbered fields


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; an IndexError or ValueError where the message is damaged."""
    position = 0
    while position < len(message):
        key, position = _number(message, position)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _number(message, position)
            yield field, value
            continue
        if kind == 2:
            length, position = _number(message, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("an unknown kind of field")
        if position + length > len(message):
            raise ValueError("a field longer than its message")
        yield field, message[position : position + length]
        position += length


def _number(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits to the byte, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number of more than 64 bits")


def _packed_numbers(content: bytes) -> list[int]:
    numbers: list[int] = []
    position = 0
    while position < len(content):
        value, position = _number(content, position)
        numbers.append(value)
    return numbers


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")  # noqa: TRY004
    return value

"""Files of tensors: headers are checked before anything is allocated, objects never unpickled."""

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from enteron.errors import EnteronError, ModelError
from enteron.model.weights import read_weights

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.arange(4), "c": torch.tensor(1.5)}
CONTENT = save(TENSORS)
LENGTH = struct.unpack("<Q", CONTENT[:8])[0]
HEADER = json.loads(CONTENT[8 : 8 + LENGTH])
DATA = CONTENT[8 + LENGTH :]


def packed(header: object, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def changed(name: str, **entries) -> bytes:
    return packed({**HEADER, name: {**HEADER[name], **entries}})


def read(path: Path) -> dict[str, torch.Tensor]:
    return read_weights(path, TENSORS, "copy it again")


def refusal(path: Path) -> str | None:
    """The sentence that refuses a file; None where all of its tensors are read."""
    try:
        assert set(read(path)) == set(TENSORS)
    except EnteronError as error:
        return str(error)
    return None


def test_what_was_saved_is_read(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(CONTENT)
    torch.save({"state_dict": {f"module.{k}": v for k, v in TENSORS.items()}}, tmp_path / "w.bin")
    for name in ("w.safetensors", "w.bin"):
        weights = read(tmp_path / name)
        assert set(weights) == set(TENSORS)
        assert all(torch.equal(weights[key], TENSORS[key]) for key in TENSORS)


def test_tensors_that_are_known_to_be_unused_are_left_out(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(save({**TENSORS, "old": torch.zeros(2)}))
    weights = read_weights(tmp_path / "w.safetensors", TENSORS, "", unused=("old",))
    assert set(weights) == set(TENSORS)
    with pytest.raises(ModelError, match="a tensor 'old' that the network does not use"):
        read(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "longer than the file"),
        (b"garbage", "longer than the file"),
        (CONTENT[:-1], "does not fit the size of the file"),
        (CONTENT + b"\0", "does not fit the size of the file"),
        (CONTENT[:40], "longer than the file"),
        (struct.pack("<Q", 2**63) + CONTENT[8:], "longer than the file"),
        (struct.pack("<Q", 11_000_000) + bytes(12_000_000), "longer than any model needs"),
        (packed(b"\xff" * 20), "is not text in UTF-8"),
        (packed(b"{"), "is not JSON"),
        (packed([]), "is not a table"),
        (packed({}), "lists 0 tensors"),
        (packed(b'{"a": 1, "a": 2}'), "has the key 'a' twice"),
        (packed(b'{"a": ' * 5000 + b"1" + b"}" * 5000), "nests too deeply"),
        (packed(b'{"a": %s}' % (b"9" * 5000)), "of 5000 digits"),
        (packed({f"t{i}": 0 for i in range(20_001)}), "lists 20,001 tensors"),
        (packed({**HEADER, "a": 1}), "does not say type, shape and place of 'a'"),
        (packed({**HEADER, "__metadata__": 1}), "metadata that are not a table"),
        (changed("a", dtype="F8_E4M3"), "a type of numbers that enteron does not read"),
        (changed("a", dtype=["F32"]), "a type of numbers that enteron does not read"),
        (changed("a", shape=[2, -3]), "a shape that is none"),
        (changed("a", shape=[1] * 9), "a shape that is none"),
        (changed("a", shape=[10**9, 10**9]), "more or fewer bytes than its shape has"),
        (changed("a", shape=[2.0, 3]), "a shape that is none"),
        (changed("a", shape=[True, 6]), "a shape that is none"),
        (changed("a", data_offsets=[0]), "a place that is none"),
        (changed("b", data_offsets=HEADER["a"]["data_offsets"]), "more or fewer bytes|overlap"),
        (
            packed({**HEADER, "d": {**HEADER["a"]}}),
            "tensors that overlap, or bytes that belong to none",
        ),
        (packed({k: v for k, v in HEADER.items() if k != "b"}), "bytes that belong to none|size"),
        (changed("a", shape=[3, 2]), r"'a' in 'w.safetensors' has shape \(3, 2\) where \(2, 3\)"),
        (changed("a", dtype="I32"), r"'a' in .* numbers of type torch.int32 where torch.float32"),
    ],
)
def test_damaged_safetensors_are_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        read(path)
    assert "w.safetensors" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_pipe_is_no_file_of_weights(tmp_path):
    os.mkfifo(tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match=r"'w\.safetensors' is missing"):
        read(tmp_path / "w.safetensors")


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(TENSORS)),
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.sampled_from(["F32", "F4", ""]),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
)
def test_any_value_in_a_header_is_read_or_refused(tmp_path_factory, name, key, value):
    path = tmp_path_factory.mktemp("fuzz") / "w.safetensors"
    path.write_bytes(changed(name, **{key: value}))
    assert refusal(path) is None or "w.safetensors" in str(refusal(path))


@settings(max_examples=150)
@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=12))
def test_any_bytes_in_a_file_are_read_or_refused(tmp_path_factory, position, replacement):
    path = tmp_path_factory.mktemp("fuzz") / "w.safetensors"
    path.write_bytes(CONTENT[:position] + replacement + CONTENT[position + len(replacement) :])
    assert refusal(path) is None or "w.safetensors" in str(refusal(path))


# ---- torch files


class Trap:
    """An object that would run code while it is unpickled."""

    def __reduce__(self):
        return (os.system, ("touch sprung",))


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
        archive.writestr("archive/data/0", bytes(50_000_000))


def claiming_more(path: Path) -> None:
    """A storage of 2^40 numbers in the table, of six in the archive."""
    torch.save({"a": torch.arange(6.0)}, path)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    table = next(name for name in records if name.endswith("data.pkl"))
    # BININT1 6 (`K\x06`) is the number of elements; LONG1 of six bytes in its place.
    records[table] = records[table].replace(b"K\x06t", b"\x8a\x06\0\0\0\0\0\x01t", 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(b""), "is damaged"),
        (lambda p: p.write_bytes(b"garbage" * 999), "is damaged"),
        (lambda p: p.write_bytes(b"PK\x03\x04" + bytes(999)), "is damaged"),
        (lambda p: p.write_bytes(b"\x80\x02}q\0."), "is damaged"),
        (lambda p: p.write_bytes(pickle.dumps(Trap(), protocol=2)), "is damaged"),
        (lambda p: torch.save({"a": Trap()}, p), "is damaged"),
        (lambda p: torch.save(Trap(), p, _use_new_zipfile_serialization=False), "is damaged"),
        (lambda p: torch.save({"a": print}, p), "is damaged"),
        (lambda p: torch.save([1, 2], p), "not a table of named tensors"),
        (lambda p: torch.save({1: torch.zeros(1)}, p), "not a table of named tensors"),
        (lambda p: torch.save({"a": torch.zeros(3).to_sparse()}, p), "not a table of named"),
        (lambda p: torch.save({"a": torch.zeros(1).expand(10**12)}, p), "'a' in 'w.bin' has shape"),
        (zip_bomb, "is a packed archive"),
        (claiming_more, "is damaged"),
    ],
)
def test_hostile_torch_files_are_refused_and_run_nothing(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "w.bin"
    make(path)
    with pytest.raises(ModelError, match=message) as caught:
        read(path)
    assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "sprung").exists()


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=8))
def test_any_bytes_in_a_torch_file_are_read_or_refused(tmp_path_factory, position, replacement):
    path = tmp_path_factory.mktemp("fuzz") / "w.bin"
    torch.save(dict(TENSORS), path)
    content = path.read_bytes()
    position %= len(content)
    path.write_bytes(content[:position] + replacement + content[position + len(replacement) :])
    assert refusal(path) is None or "w.bin" in str(refusal(path))

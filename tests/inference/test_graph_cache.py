"""The cache of graphs: built once, never trusted without its seal, never in the way."""

import hashlib
import os
import stat

import numpy as np
import pytest

from enteron.inference import graph_cache as cache
from enteron.inference.graph_cache import cached_graph, graph_folder, graph_key
from enteron.inference.onnx_graph import export_graph
from enteron.inference.runtimes import make_encoder
from tests.inference.making import image_batch, small_vit
from tests.model.making import FakeBackbone

ROUNDING = 2e-5


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ENTERON_CACHE", str(tmp_path / "cache"))


def accepted(graph: bytes) -> bool:
    return True


def stored(key: str = "k"):
    return graph_folder() / f"{key}.graph"


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("ENTERON_CACHE", str(tmp_path / "own"))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("ENTERON_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "enteron"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_folder() == tmp_path / "home" / ".cache" / "enteron"


def test_a_graph_is_built_once():
    built = []

    def build():
        built.append(1)
        return b"graph"

    assert [cached_graph("k", build, accepted) for _ in range(3)] == [b"graph"] * 3
    assert len(built) == 1
    assert cached_graph("other", build, accepted) == b"graph"
    assert len(built) == 2


def test_folder_and_key_are_the_users_alone():
    cached_graph("k", lambda: b"graph", accepted)
    assert mode(graph_folder()) == 0o700
    assert mode(graph_folder() / "key") == 0o600
    assert sorted(path.name for path in graph_folder().iterdir()) == ["k.graph", "key"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"H"),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        #  What exchanging graph and digest was before: both belong together, without the key.
        lambda path: path.write_bytes(hashlib.sha256(b"other").digest() + b"other"),
        lambda path: (path.parent / "key").write_bytes(bytes(32)),
        lambda path: (path.parent / "key").write_bytes(b"short"),
        lambda path: (path.parent / "key").unlink(),
        lambda path: (path.parent / "key").chmod(0o644),
    ],
    ids=[
        *("cut", "changed", "empty", "missing", "exchanged with its digest"),
        *("another key", "damaged key", "no key", "a key that others can read"),
    ],
)
def test_an_entry_without_the_users_seal_is_built_again(damage):
    cached_graph("k", lambda: b"graph", accepted)
    damage(stored())
    assert cached_graph("k", lambda: b"again", accepted) == b"again"
    assert cached_graph("k", lambda: b"never", accepted) == b"again"
    assert mode(graph_folder() / "key") == 0o600


def test_a_graph_is_not_accepted_under_another_name():
    cached_graph("mine", lambda: b"mine", accepted)
    cached_graph("yours", lambda: b"yours", accepted)
    stored("yours").replace(stored("mine"))
    assert cached_graph("mine", lambda: b"again", accepted) == b"again"


def test_an_unsealed_graph_is_never_run():
    """Whoever puts a file into the folder must not get it opened by ONNX Runtime."""
    cached_graph("k", lambda: b"graph", accepted)
    stored().write_bytes(bytes(32) + b"hostile")
    seen = []
    cached_graph("k", lambda: b"again", lambda graph: not seen.append(graph))
    assert seen == []
    cached_graph("k", lambda: b"never", lambda graph: not seen.append(graph))
    assert seen == [b"again"]


def test_a_folder_that_others_could_enter_is_closed_and_gets_a_new_key():
    cached_graph("k", lambda: b"graph", accepted)
    key = (graph_folder() / "key").read_bytes()
    graph_folder().chmod(0o755)
    assert cached_graph("k", lambda: b"again", accepted) == b"again"
    assert mode(graph_folder()) == 0o700
    assert (graph_folder() / "key").read_bytes() != key


def test_a_folder_that_is_a_link_is_not_used(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    graph_folder().parent.mkdir()
    graph_folder().symlink_to(elsewhere)
    assert [cached_graph("k", lambda: b"graph", accepted) for _ in range(2)] == [b"graph"] * 2
    assert list(elsewhere.iterdir()) == []


def test_a_folder_of_another_user_is_not_used(monkeypatch):
    cached_graph("k", lambda: b"graph", accepted)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert cached_graph("k", lambda: b"again", accepted) == b"again"
    monkeypatch.setattr(os, "getuid", lambda: own)
    assert cached_graph("k", lambda: b"never", accepted) == b"graph"


def test_the_graphs_that_were_not_used_for_longest_are_deleted(monkeypatch):
    monkeypatch.setattr(cache, "MOST_GRAPHS", 3)
    for age, name in enumerate("abc"):
        cached_graph(name, lambda: b"graph", accepted)
        os.utime(stored(name), (1000 + age, 1000 + age))
    cached_graph("a", lambda: b"never", accepted)  # used again: "b" is now the oldest
    cached_graph("d", lambda: b"graph", accepted)
    assert sorted(path.stem for path in graph_folder().glob("*.graph")) == ["a", "c", "d"]
    monkeypatch.setattr(cache, "MOST_BYTES", 50)  # each takes 37 bytes with its seal
    cached_graph("e", lambda: b"graph", accepted)
    assert [path.stem for path in graph_folder().glob("*.graph")] == ["e"]


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("ENTERON_CACHE", str(file / "cache"))
    backbone, images = FakeBackbone(), image_batch(2)[..., :8, :8]
    features = make_encoder(backbone, "onnx").encode(images)
    np.testing.assert_allclose(
        features, make_encoder(backbone, "exact").encode(images), atol=ROUNDING
    )
    assert file.read_text() == "not a folder"


def test_a_damaged_graph_does_not_reach_the_encoder():
    backbone, images = FakeBackbone(), image_batch(2)[..., :8, :8]
    expected = make_encoder(backbone, "onnx").encode(images)
    (path,) = graph_folder().glob("*.graph")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF  # a weight: still a valid graph
    path.write_bytes(content)
    np.testing.assert_array_equal(make_encoder(backbone, "onnx").encode(images), expected)


@pytest.mark.parametrize("kind", ["another backbone's", "garbage", "nothing"])
def test_a_graph_that_does_not_encode_as_the_backbone_is_built_again(kind):
    """Even with the right seal, as somebody with the user's own rights could make it."""
    backbone, images = FakeBackbone(), image_batch(2)[..., :8, :8]
    expected = make_encoder(backbone, "onnx").encode(images)
    (path,) = graph_folder().glob("*.graph")
    other = {"another backbone's": export_graph(FakeBackbone()), "garbage": b"\x08" * 99}
    graph = other.get(kind, b"")
    secret = (graph_folder() / "key").read_bytes()
    path.write_bytes(cache._seal(path.stem, graph, secret) + graph)
    np.testing.assert_array_equal(make_encoder(backbone, "onnx").encode(images), expected)


def test_an_honest_graph_is_found_faithful(monkeypatch):
    """Both kinds pass their own check: nothing is exported a second time."""
    from enteron.inference import onnx_graph

    vit = small_vit()
    first = {name: make_encoder(vit, name).encode(image_batch(2)) for name in ("onnx", "onnx-int8")}
    monkeypatch.setattr(onnx_graph, "export_graph", None)
    monkeypatch.setattr(onnx_graph, "quantise_graph", None)
    for name, features in first.items():
        again = make_encoder(vit, name).encode(image_batch(2))
        np.testing.assert_array_equal(again, features)


def test_keys_differ_with_whatever_changes_the_graph(monkeypatch):
    spec = small_vit().spec
    keys = {
        graph_key(spec, "a", "fp32"),
        graph_key(spec, "b", "fp32"),
        graph_key(spec, "a", "int8"),
        graph_key(spec.model_copy(update={"differential": True}), "a", "fp32"),
        graph_key(
            spec.model_copy(
                update={"preprocessing": spec.preprocessing.model_copy(update={"size": 384})}
            ),
            "a",
            "fp32",
        ),
    }
    monkeypatch.setattr(cache, "version", lambda name: "0.0")
    keys.add(graph_key(spec, "a", "fp32"))
    assert len(keys) == 6

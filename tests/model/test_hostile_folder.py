"""Model folders and bundles from strangers: nothing is fetched, built huge, or read elsewhere."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
import torch

from enteron.errors import ConfigError, ModelError
from enteron.folders.model import load_model, read_record, save_model
from enteron.model.biomedclip import biomedclip, open_bundle
from enteron.model.network import start_network
from enteron.model.options import TRUNKS, BackboneSpec, ModelOptions
from enteron.model.preprocessing import Preprocessing
from tests.model.bundles import SMALL, configuration, make_bundle


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No name is looked up; attempts are counted, even caught ones."""
    attempts: list[object] = []

    def refuse(*arguments, **_):
        attempts.append(arguments)
        raise OSError("the network is off")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert attempts == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(folder, start_network(ModelOptions(backbone="vit-tiny")))
    return folder


@pytest.fixture
def model(saved, tmp_path) -> Path:
    """A copy whose model.json can be changed; the weights are linked."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(saved / "model.json", folder)
    (folder / "model.safetensors").hardlink_to(saved / "model.safetensors")
    return folder


def change(folder: Path, path: str, value: object) -> None:
    table = json.loads((folder / "model.json").read_text())
    *sections, name = path.split(".")
    inner = table
    for section in sections:
        inner = inner[section]
    inner[name] = value
    if path.startswith("backbone.preprocessing"):
        # Whoever makes a folder can make its hashes fit.
        try:
            preprocessing = Preprocessing.model_validate(table["backbone"]["preprocessing"])
            table["preprocessing_hash"] = preprocessing.hash()
        except ValueError:
            pass
    (folder / "model.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    "trunk",
    [
        "hf-hub:someone/model",
        "hf_hub:someone/model",
        "local-dir:/tmp/model",
        "https://example.org/model",
        "vit_huge_patch14_224",
        "vit_base_patch16_224",
        "tf_efficientnet_lite0",
        "../../model",
        "",
        "x" * 10_000,
    ],
)
def test_a_trunk_that_is_not_known_is_refused_before_timm_sees_it(model, trunk, monkeypatch):
    import timm

    monkeypatch.setattr(timm, "create_model", None)
    change(model, "backbone.trunk", trunk)
    with pytest.raises(
        ModelError, match=r"'vit-tiny' cannot have the trunk .*; use 'vit_tiny_pat"
    ) as e:
        load_model(model)
    assert len(str(e.value)) < 300


def test_every_known_trunk_is_one_that_timm_builds_without_weights():
    import timm

    for names in TRUNKS.values():
        assert all(timm.is_model(name) for name in names)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("options.neighbour_step", 10**9, r"neighbour_step = 1000000000 is not valid"),
        ("options.neighbour_step", 0, "neighbour_step = 0"),
        ("options.frames", 10**9, "frames = 1000000000"),
        ("options.width", 10**9, r"\[options\] width is not an option"),
        ("options.bundle", "/etc", "bundle|outside of its folder"),
        ("backbone.preprocessing.size", 10**9, "size = 1000000000"),
        ("backbone.preprocessing.size", 0, "size = 0"),
        ("backbone.preprocessing.size", 96, "a ViT pictures of 96 pixels, where it takes 224"),
        ("backbone.preprocessing.std", [0, 0, 0], r"std\] 0 = 0"),
        ("backbone.preprocessing.mean", [1e308, 0, 0], r"mean\] 0 = 1e\+308"),
        ("backbone.preprocessing.mean", [0.5] * 9, "mean"),
        ("backbone_hash", "x", "backbone_hash = 'x' is not valid"),
        ("weights_hash", "../../x", "weights_hash = '../../x' is not valid"),
        ("split_hash", "x" * 9999, "split_hash"),
        ("results", {"a": "b"}, r"\[results\] a"),
        ("training_studies", [{"id": "1"}], "training_studies"),
        ("labels", [{}] * 17, "label 0 .* is {} where enteron has 'mouth'"),
        ("format", [1] * 999, "has format"),
    ],
)
def test_values_beyond_their_bounds_are_refused_by_name(model, path, value, message):
    change(model, path, value)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert "model.json" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_biomedclip_model_does_not_go_looking_for_its_bundle(model):
    table = json.loads((model / "model.json").read_text())
    table["options"] |= {"backbone": "biomedclip", "download": True}
    table["backbone"]["name"] = "biomedclip"
    (model / "model.json").write_text(json.dumps(table))
    with pytest.raises(ModelError, match="refers to weights outside of its folder"):
        read_record(model)


def test_a_model_json_that_is_no_file_does_not_hang(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    os.mkfifo(folder / "model.json")
    with pytest.raises(ModelError, match=r"'model\.json' cannot be read \(it is a pipe"):
        read_record(folder)
    (folder / "model.json").unlink()
    (folder / "model.json").mkdir()
    with pytest.raises(ModelError, match=r"'model\.json' cannot be read"):
        read_record(folder)
    with pytest.raises(ModelError, match=r"has no 'model\.json'"):
        read_record(tmp_path / "none")


def test_a_sparse_model_json_is_not_read_whole(tmp_path):
    with (tmp_path / "model.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ModelError, match=r"'model\.json' has 1,100 GB, more than the 4\.2 MB"):
        read_record(tmp_path)


def test_specifications_made_in_python_are_checked_too():
    with pytest.raises(ConfigError, match="cannot have the trunk"):
        BackboneSpec(name="lite", trunk="hf-hub:x/y", preprocessing=Preprocessing())


# ---- bundles


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "small", SMALL)


@pytest.fixture
def bundle(small, tmp_path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    for file in small.iterdir():
        (folder / file.name).hardlink_to(file)
    return folder


def describe(folder: Path, section: str, **entries: object) -> None:
    described = configuration(SMALL)
    described["model_cfg"][section] |= entries
    (folder / "open_clip_config.json").unlink()
    (folder / "open_clip_config.json").write_text(json.dumps(described))


def tower(folder: Path, **entries: object) -> None:
    table = json.loads((folder / "config.json").read_text()) | entries
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(table))


@pytest.mark.parametrize(
    "trunk", ["hf-hub:someone/model", "local-dir:/tmp", "vit_huge_patch14_224"]
)
def test_a_bundle_names_known_trunks_only(bundle, trunk):
    describe(bundle, "vision_cfg", timm_model_name=trunk)
    with pytest.raises(ModelError, match=r"'open_clip_config\.json': .* cannot have the trunk"):
        biomedclip(bundle)


@pytest.mark.parametrize("key", ["hf_model_name", "hf_tokenizer_name"])
@pytest.mark.parametrize("kind", ["..", "absolute", "link"])
def test_a_bundle_names_no_folder_outside_of_it(bundle, small, tmp_path, key, kind):
    shutil.copytree(small, tmp_path / "outside")
    (bundle / "link").symlink_to(tmp_path / "outside")
    name = {"..": "../outside", "absolute": str(tmp_path / "outside"), "link": "link"}[kind]
    describe(bundle, "text_cfg", **{key: name})
    with pytest.raises(ModelError, match="leads to a place outside of it") as caught:
        open_bundle(bundle)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    "file",
    ["open_clip_config.json", "open_clip_model.safetensors", "tokenizer.json", "config.json"],
)
def test_a_file_of_a_bundle_is_no_link_to_elsewhere(bundle, small, file):
    (bundle / file).unlink()
    (bundle / file).symlink_to(small / file)
    with pytest.raises(ModelError, match=f"'{file}' of the bundle leads to a place outside"):
        open_bundle(bundle)


def test_the_links_of_the_hubs_cache_are_followed(small, tmp_path):
    """Snapshots are links to `blobs` beside them, by revision."""
    snapshot, blobs = tmp_path / "snapshots" / "0123", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(small.iterdir())):
        (blobs / str(number)).hardlink_to(file)
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert open_bundle(snapshot).weights.name == "open_clip_model.safetensors"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"hidden_size": 10**9}, "hidden_size = 1000000000, which is not a number from 1 to 1024"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"vocab_size": "many"}, "does not describe a BERT"),
        ({"intermediate_size": -1}, "intermediate_size = -1"),
        ({"num_attention_heads": 0.5}, "num_attention_heads"),
        ({"hidden_act": "eval"}, "names the activation 'eval'"),
        ({"model_type": "gpt2"}, "does not describe a BERT"),
    ],
)
def test_a_text_tower_has_bounds(bundle, entries, message):
    tower(bundle, **entries)
    with pytest.raises(ModelError, match=message):
        open_bundle(bundle)


def test_code_in_a_configuration_is_left_out(bundle):
    tower(bundle, auto_map={"AutoModel": "evil.Model"}, _name_or_path="/etc")
    assert set(open_bundle(bundle).text_tower) == {
        "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "hidden_act", "max_position_embeddings", "type_vocab_size",
        "layer_norm_eps", "pad_token_id",
    }  # fmt: skip


def test_code_that_a_tokenizer_brings_is_not_run(bundle, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = bundle / "tokenizer_config.json"
    table = json.loads(path.read_text())
    table |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    path.unlink()
    path.write_text(json.dumps(table))
    (bundle / "evil.py").write_text("open('sprung', 'w').close()\nclass Evil: pass\n")
    torch.testing.assert_close(biomedclip(bundle).text, biomedclip(small).text)
    assert not (tmp_path / "sprung").exists()

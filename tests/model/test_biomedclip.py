"""BiomedCLIP's loading code on bundles of its format, with the network off."""

import json
import pickle
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from enteron.errors import ConfigError, ModelError
from enteron.labels import LABELS, prompt
from enteron.model.biomedclip import REPOSITORY, biomedclip, fetch
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.model.bundles import (
    FULL,
    SMALL,
    configuration,
    for_open_clip,
    make_bundle,
    make_tokenizer,
)
from tests.model.making import smooth_images


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No name is looked up and no connection is made; attempts are counted, even caught ones."""
    attempts: list[object] = []

    def refuse(*arguments, **_):
        attempts.append(arguments)
        raise OSError("the network is off")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield attempts
    assert attempts == []


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles") / "small", SMALL)


def open_clips_own(folder: Path, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Image embeddings, and normalised text embeddings of the prompts, by open_clip alone."""
    import open_clip

    name = f"local-dir:{folder}"
    clip, _, _ = open_clip.create_model_and_transforms(name)
    tokens = open_clip.get_tokenizer(name)([prompt(label) for label in LABELS])
    clip.eval()
    with torch.inference_mode():
        return clip.encode_image(images), clip.encode_text(tokens, normalize=True)  # pyright: ignore[reportCallIssue]


def test_embeddings_are_open_clips_own(small):
    images = smooth_images(2)
    expected_images, expected_text = open_clips_own(for_open_clip(small, SMALL), images)
    loaded = biomedclip(small)
    with torch.inference_mode():
        embeddings = loaded.backbone(images)
    torch.testing.assert_close(embeddings, expected_images, rtol=0, atol=1e-6)
    torch.testing.assert_close(loaded.text, expected_text, rtol=0, atol=1e-6)
    assert loaded.backbone.spec.preprocessing.mean == pytest.approx(
        (0.48145466, 0.4578275, 0.40821073)
    )
    # Prompts differ, so must their embeddings: the tokenizer really read them.
    assert (loaded.text @ loaded.text.T).triu(1).max() < 0.99


@pytest.mark.slow
def test_full_size(tmp_path):
    """ViT-B/16, PubMedBERT with 30522 words and 256 tokens, as the hub stores it (.bin)."""
    folder = make_bundle(tmp_path / "full", FULL, pickled=True)
    assert not (folder / "config.json").exists()
    images = smooth_images(2)
    expected_images, expected_text = open_clips_own(for_open_clip(folder, FULL), images)
    network = start_network(ModelOptions(bundle=folder)).eval()
    assert sum(p.numel() for p in network.backbone.parameters()) == 86_191_872
    with torch.inference_mode():
        embeddings = network.backbone(images)
    torch.testing.assert_close(embeddings, expected_images, rtol=0, atol=1e-6)
    assert network.contrast is not None
    torch.testing.assert_close(network.contrast.features.data, expected_text, rtol=0, atol=1e-6)


def test_pickled_and_safe_weights_load_alike(small, tmp_path):
    pickled = make_bundle(tmp_path / "pickled", SMALL, pickled=True)
    assert biomedclip(pickled).backbone.hash() == biomedclip(small).backbone.hash()


def test_the_text_features_start_from_the_tower_and_the_tower_is_dropped(small):
    network = start_network(ModelOptions(bundle=small))
    assert network.contrast is not None
    torch.testing.assert_close(network.contrast.features.data, biomedclip(small).text)
    assert network.contrast.features.requires_grad
    assert {name.split(".")[0] for name in network.backbone.state_dict()} == {"trunk", "projection"}


def copied(small: Path, tmp_path: Path) -> Path:
    """A bundle to break: files linked, to be replaced one at a time."""
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in small.iterdir():
        (folder / file.name).hardlink_to(file)
    return folder


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("open_clip_config.json", "'open_clip_config.json' is missing from the bundle"),
        ("open_clip_model.safetensors", "no weights: none of open_clip_model.safetensors, "),
        ("tokenizer.json", "no tokenizer: neither tokenizer.json nor vocab.txt"),
        ("tokenizer_config.json", "'tokenizer_config.json' is missing"),
    ],
)
def test_a_missing_file_is_named(small, tmp_path, file, message):
    folder = copied(small, tmp_path)
    (folder / file).unlink()
    with pytest.raises(ModelError, match=message) as caught:
        biomedclip(folder)
    assert str(tmp_path) not in str(caught.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelError, match="bundle 'nowhere' is not a folder"):
        biomedclip(tmp_path / "nowhere")


def rewrite(folder: Path, section: str | None, key: str, value: object) -> None:
    described = configuration(SMALL)
    table = described["model_cfg"] if section is None else described["model_cfg"][section]
    if value is None:
        del table[key]
    else:
        table[key] = value
    (folder / "open_clip_config.json").unlink()
    (folder / "open_clip_config.json").write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        (None, "embed_dim", 256, "embed_dim = 256 where BiomedCLIP has 512"),
        (None, "vision_cfg", None, "no 'vision_cfg'"),
        ("vision_cfg", "timm_model_name", None, "no usable 'vision_cfg.timm_model_name'"),
        ("vision_cfg", "timm_proj", "mlp", "vision_cfg.timm_proj = 'mlp'"),
        ("text_cfg", "context_length", "many", "no usable 'text_cfg.context_length'"),
        ("text_cfg", "hf_pooler_type", "mean_pooler", "hf_pooler_type = 'mean_pooler'"),
        ("vision_cfg", "timm_proj_bias", True, "timm_proj_bias = True where BiomedCLIP has False"),
        ("vision_cfg", "image_size", 384, "not a ViT for pictures of 384 pixels"),
        ("vision_cfg", "timm_model_name", "vit_nothing", "cannot have the trunk 'vit_nothing'"),
        ("vision_cfg", "surprise", 1, "open_clip cannot build .*surprise"),
    ],
)
def test_a_wrong_key_of_the_configuration_is_named(small, tmp_path, section, key, value, message):
    folder = copied(small, tmp_path)
    rewrite(folder, section, key, value)
    with pytest.raises(ModelError, match=message):
        biomedclip(folder)


def test_a_wrong_preprocessing_is_named(small, tmp_path):
    folder = copied(small, tmp_path)
    described = configuration(SMALL)
    described["preprocess_cfg"]["resize_mode"] = "longest"
    (folder / "open_clip_config.json").unlink()
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    with pytest.raises(ConfigError, match=r"open_clip_config\.json: resize = 'longest'"):
        biomedclip(folder)


def test_a_tokenizer_of_another_tower_is_refused(small, tmp_path):
    folder = copied(small, tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    make_tokenizer(folder, 5000, fillers_first=True)
    with pytest.raises(ModelError, match=r"more words than the text tower \(200\)"):
        biomedclip(folder)


def test_an_unknown_text_tower_needs_its_configuration(small, tmp_path):
    folder = copied(small, tmp_path)
    (folder / "config.json").unlink()
    rewrite(folder, "text_cfg", "hf_model_name", "someone/other-bert")
    with pytest.raises(ModelError, match=r"'other-bert', .* copy that tower's config.json"):
        biomedclip(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("visual.head.proj.weight"), "has no tensor 'visual.head.proj.weight'"),
        (
            lambda w: w.update({"visual.head.proj.weight": torch.zeros(512, 768)}),
            r"'visual.head.proj.weight' .* has shape \(512, 768\) where \(512, 192\) is needed",
        ),
        (lambda w: w.update(extra=torch.zeros(1)), "tensor 'extra' that the network does not use"),
    ],
)
def test_a_wrong_tensor_is_named(small, tmp_path, change, message):
    folder = copied(small, tmp_path)
    weights = load_file(small / "open_clip_model.safetensors")
    change(weights)
    (folder / "open_clip_model.safetensors").unlink()
    save_file(weights, folder / "open_clip_model.safetensors")
    with pytest.raises(ModelError, match=message):
        biomedclip(folder)


def test_a_truncated_file_is_named(small, tmp_path):
    folder = copied(small, tmp_path)
    content = (small / "open_clip_model.safetensors").read_bytes()
    (folder / "open_clip_model.safetensors").unlink()
    (folder / "open_clip_model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"'open_clip_model\.safetensors' is not a complete"):
        biomedclip(folder)


class Trap:
    """An object that would run code while it is unpickled."""

    def __reduce__(self):
        return (Path("sprung").touch, ())


def test_objects_in_weights_are_never_unpickled(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = copied(small, tmp_path)
    (folder / "open_clip_model.safetensors").unlink()
    stored = folder / "open_clip_pytorch_model.bin"
    torch.save({"a": Trap()}, stored)
    with pytest.raises(ModelError, match="enteron never unpickles objects"):
        biomedclip(folder)
    stored.write_bytes(pickle.dumps(Trap(), protocol=2))
    with pytest.raises(ModelError, match="enteron never unpickles objects"):
        biomedclip(folder)
    assert not Path("sprung").exists()


def test_nothing_is_downloaded_without_being_told(tmp_path, monkeypatch):
    """The fixture counts attempts to reach the network: there are none."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"not on this machine; .* set `download`"):
        start_network(ModelOptions())


def test_the_hubs_cache_is_used_without_asking_the_hub(small, tmp_path, monkeypatch):
    """The layout that a download leaves behind: snapshots by revision, and which one is main."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / f"models--{REPOSITORY.replace('/', '--')}"
    revision = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / revision).symlink_to(small)
    network = start_network(ModelOptions())
    assert network.backbone.hash() == biomedclip(small).backbone.hash()


def test_a_failed_download_says_so(tmp_path, monkeypatch, offline):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="could not be fetched from the hub"):
        fetch(download=True)
    assert offline  # it did try
    offline.clear()

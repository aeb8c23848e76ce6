"""The model folder: what goes in comes out, and what does not fit is refused in one sentence."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from enteron.errors import ModelError
from enteron.folders.model import load_model, read_record, save_model
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.model.bundles import SMALL, make_bundle
from tests.model.making import smooth_images

OPTIONS = ModelOptions(backbone="lite")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    network = start_network(OPTIONS)
    save_model(
        folder,
        network,
        split_hash="ab" * 32,
        training={"studies": 12, "frames": {"train": 1000, "val": 200}},
        results={"macro AP": 0.24381},
    )
    return folder


@pytest.fixture
def model(saved, tmp_path) -> Path:
    """A copy to break."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        ModelOptions(backbone="vit-tiny", differential=True, frames=1, biases=True),
        ModelOptions(
            backbone="vit-tiny",
            local_differencing=False,
            anatomy_conditioning=False,
            prototypes=False,
            contrastive=False,
        ),
    ],
)
def test_a_network_comes_back_as_it_was(tmp_path, options):
    network = start_network(options, seed=3)
    network.train()(torch.randn(8, options.frames, 512))  # batch statistics are state too
    saved_record = save_model(tmp_path / "model", network)
    loaded, record = load_model(tmp_path / "model")
    assert record == saved_record
    assert record.labels == LABELS
    assert record.options == options
    assert not loaded.training
    state, back = network.state_dict(), loaded.state_dict()
    assert list(state) == list(back)
    assert all(torch.equal(state[name], back[name]) for name in state)
    clips = smooth_images(options.frames)[None]
    with torch.inference_mode():
        expected, outputs = network.eval()(clips), loaded(clips)
    assert torch.equal(expected.logits, outputs.logits)


def test_a_biomedclip_model_needs_its_bundle_no_more(tmp_path):
    bundle = make_bundle(tmp_path / "bundle", SMALL)
    network = start_network(ModelOptions(bundle=bundle)).eval()
    save_model(tmp_path / "model", network)
    for file in bundle.iterdir():
        file.unlink()
    loaded, record = load_model(tmp_path / "model")
    clips = smooth_images(3)[None]
    with torch.inference_mode():
        assert torch.equal(network(clips).logits, loaded(clips).logits)
    assert record.options.bundle is None
    assert str(tmp_path) not in (tmp_path / "model" / "model.json").read_text()


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    network, record = load_model(saved)
    save_model(
        tmp_path / "again",
        network,
        split_hash=record.split_hash,
        training=record.training,
        results=record.results,
    )
    names = ["card.md", "model.json", "model.safetensors"]
    assert sorted(file.name for file in (tmp_path / "again").iterdir()) == names
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()


def test_loading_draws_no_random_numbers(saved):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_model(saved)
    assert torch.equal(torch.rand(3), expected)


def test_the_card_tells_data_options_results_and_limits(saved):
    card = (saved / "card.md").read_text()
    for text in (
        "| studies | 12 |",
        "| frames | train 1000, val 200 |",
        "abab",
        "Backbone `lite`",
        "| dropout | 0.4 |",
        "| local_differencing | yes |",
        "| macro AP | 0.2438 |",
        "For research only",
        "not evidence of its absence",
    ):
        assert text in card, text


def change(folder: Path, edit) -> None:
    path = folder / "model.json"
    table = json.loads(path.read_text())
    edit(table)
    path.write_text(json.dumps(table))


def swap(labels: list[str]) -> None:
    labels[8], labels[9] = labels[9], labels[8]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: swap(t["labels"]), "label 8 .* is 'angiectasia' where enteron has 'active ble"),
        (lambda t: t["labels"].pop(), "has 16 labels, not 17"),
        (lambda t: t.pop("labels"), "has no labels"),
        (lambda t: t.update(format=2), "format 2 where 1 is read"),
        (lambda t: t.update(backbone_hash="0" * 64), "encoder .* is not the one that 'model.json'"),
        (lambda t: t.update(weights_hash="0" * 64), "not the file that 'model.json' describes"),
        (
            lambda t: t["backbone"]["preprocessing"].update(size=192),
            "preprocessing in 'model.json'",
        ),
        (lambda t: t["options"].update(dropout=2), "dropout = 2 is not valid"),
        (lambda t: t["options"].update(droput=0.1), "did you mean 'dropout'"),
        (lambda t: t.pop("backbone_hash"), "backbone_hash is missing"),
        (
            lambda t: t["options"].update(backbone="vit-tiny"),
            "backbone is both 'vit-tiny' and 'lite'",
        ),
        (
            lambda t: t["options"].update(prototypes=False),
            "tensor 'prototypes.directions' that the",
        ),
        (
            lambda t: t["options"].update(biases=True),
            "has no tensor 'head.excitation.squeeze.bias'",
        ),
        (
            lambda t: t["options"].update(anatomy_conditioning=False),
            r"'head.pathology.hidden.weight' .* \(256, 1032\) where \(256, 1024\) is needed",
        ),
    ],
)
def test_a_record_that_does_not_fit_is_refused(model, edit, message):
    change(model, edit)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert str(model.parent) not in str(caught.value)


def test_other_weights_of_the_same_shapes_are_refused(model):
    """One number changed in the head: nothing but the file's hash can tell."""
    path = model / "model.safetensors"
    tensors = load_file(path)
    tensors["head.anatomy.weight"][0, 0] += 1
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"'model\.safetensors' is not the file"):
        load_model(model)
    tensors["backbone.projection.weight"][0, 0] += 1
    save_file(tensors, path)
    with pytest.raises(ModelError, match="the encoder in"):
        load_model(model)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.json", None, "'model' has no 'model.json'"),
        ("model.json", "{", "'model.json' is not JSON"),
        ("model.json", "[]", "not a JSON object"),
        ("model.safetensors", None, "'model.safetensors' is missing"),
        ("model.safetensors", "x", "not a complete safetensors file"),
    ],
)
def test_missing_and_damaged_files_are_named(model, file, content, message):
    (model / file).unlink()
    if content is not None:
        (model / file).write_text(content)
    with pytest.raises(ModelError, match=re.escape(message)):
        load_model(model)


def test_the_record_is_readable_without_the_weights(model):
    (model / "model.safetensors").unlink()
    assert read_record(model).training["studies"] == 12


def test_saving_into_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(ModelError, match="'taken' cannot be created"):
        save_model(tmp_path / "taken", start_network(OPTIONS))

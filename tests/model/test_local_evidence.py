"""Local evidence in the backbone and the network, and that nothing changes without it."""

import numpy as np
import pytest
import torch

from enteron.errors import ConfigError, ModelError
from enteron.folders.model import load_model, read_record, save_model
from enteron.labels import ANATOMY, FINDINGS
from enteron.model.backbones import lite_backbone
from enteron.model.network import Network, start_network
from enteron.model.options import EVIDENCE, FEATURES, BackboneSpec, ModelOptions
from enteron.model.patches import patch_maps
from enteron.model.preprocessing import Preprocessing, window_rows
from enteron.options import make_options
from tests.model.making import smooth_images

OPTIONS = ModelOptions(backbone="lite", local_evidence=True)


@pytest.fixture(scope="module")
def network() -> Network:
    network = start_network(OPTIONS).eval()
    generator = torch.Generator().manual_seed(5)
    assert network.backbone.evidence is not None
    assert network.evidence is not None
    with torch.no_grad():
        network.backbone.evidence.linear.weight.normal_(std=0.1, generator=generator)
        network.evidence.scale.uniform_(0.5, 2, generator=generator)
        network.evidence.bias.normal_(generator=generator)
    return network


def test_an_embedding_is_features_and_evidence(network):
    images = smooth_images(3)
    plain = lite_backbone().eval()
    assert network.backbone.evidence is not None
    with torch.inference_mode():
        embeddings = network.backbone(images)
        maps, _ = patch_maps(plain.trunk, images)
        torch.testing.assert_close(embeddings[:, :FEATURES], plain(images), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            embeddings[:, FEATURES:], network.backbone.evidence(maps), atol=1e-5, rtol=1e-5
        )
    assert embeddings.shape == (3, FEATURES + EVIDENCE)
    assert network.backbone.spec.width == FEATURES + EVIDENCE
    assert network.backbone.hash() != plain.hash()


def test_evidence_moves_findings_only_and_as_stated(network):
    rng = np.random.default_rng(2)
    windows = torch.from_numpy(rng.normal(size=(4, 3, FEATURES + EVIDENCE)).astype(np.float32))
    other = windows.clone()
    other[:, -1, FEATURES:] += 1.5
    other[:, 0, FEATURES:] += 100.0  # only the classified frame's evidence counts
    with torch.inference_mode():
        before, after = network(windows).logits, network(other).logits
    moved = after - before
    assert not moved[:, : len(ANATOMY)].any()
    expected = 1.5 * network.evidence.scale.detach()
    torch.testing.assert_close(
        moved[:, len(ANATOMY) :], expected.expand(4, len(FINDINGS)), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("differencing", [True, False])
def test_windows_of_a_study_give_what_single_windows_give(differencing):
    options = OPTIONS.model_copy(update={"local_differencing": differencing})
    network = start_network(options).eval()
    rng = np.random.default_rng(3)
    features = torch.from_numpy(rng.normal(size=(7, FEATURES + EVIDENCE)).astype(np.float32))
    rows = torch.from_numpy(window_rows(7))
    with torch.inference_mode():
        together = network.classify_study(features, rows).logits
        alone = torch.cat([network.classify(features[row][None]).logits for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_embeddings_of_another_width_are_refused(network):
    with pytest.raises(ModelError, match=r"\(n, 3, 521\)"):
        network(torch.zeros(2, 3, FEATURES))
    with pytest.raises(ModelError, match=r"\(n, 3, 512\)"):
        start_network(ModelOptions(backbone="lite"))(torch.zeros(2, 3, FEATURES + EVIDENCE))


def test_a_model_folder_keeps_the_evidence(network, tmp_path):
    save_model(tmp_path, network)
    loaded, record = load_model(tmp_path)
    assert record.options.local_evidence
    assert record.backbone.local_evidence
    images = smooth_images(1)
    with torch.inference_mode():
        assert torch.equal(loaded.backbone(images), network.backbone(images))


def test_a_folder_that_contradicts_itself_is_refused(network, tmp_path):
    save_model(tmp_path, network)
    path = tmp_path / "model.json"
    text = path.read_text()
    path.write_text(text.replace('"local_evidence": true', '"local_evidence": false', 1))
    with pytest.raises(ModelError, match="contradicts itself: local_evidence"):
        read_record(tmp_path)


@pytest.mark.parametrize("backbone", ["vit-tiny", "biomedclip"])
def test_only_lite_has_local_evidence(backbone):
    with pytest.raises(ConfigError, match="must be lite"):
        make_options(ModelOptions, {"backbone": backbone, "local_evidence": True}, "test")
    if backbone == "vit-tiny":
        table = {"name": backbone, "trunk": "vit_tiny_patch16_224", "local_evidence": True}
        with pytest.raises(ConfigError, match="must be lite"):
            make_options(BackboneSpec, {**table, "preprocessing": {}}, "test")


def test_files_and_hashes_of_other_models_are_as_before(tmp_path):
    """Of the versions before local evidence and masked borders."""
    before = "98279924bfdfc68df046be66fa86bffcc2c67b09aa90deba49100f7df75bd499"
    assert Preprocessing().hash() == before
    assert Preprocessing(border="masked").hash() != before
    record = save_model(tmp_path, start_network(ModelOptions(backbone="vit-tiny")))
    assert (
        record.settings_hash == "d765c05b891494b12b0c977475688ed9f41b3ca54628e3acca0de75e471c99f1"
    )
    text = (tmp_path / "model.json").read_text()
    assert "local_evidence" not in text
    assert "border" not in text

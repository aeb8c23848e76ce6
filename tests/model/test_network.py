"""The network: clips and stored embeddings are the same thing; options; wrong shapes."""

import numpy as np
import pytest
import torch

from enteron.errors import ConfigError, EnteronError, ModelError
from enteron.labels import ANATOMY, FINDINGS, LABELS
from enteron.model.network import AnatomyHead, Network, start_network
from enteron.model.options import FEATURES, ModelOptions
from enteron.model.preprocessing import flipped, window_rows
from enteron.options import make_options
from tests.model.making import FakeBackbone, smooth_images


@pytest.fixture(scope="module", params=["vit-tiny", "lite"])
def network(request) -> Network:
    return start_network(ModelOptions(backbone=request.param)).eval()


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("mirrored", [False, True])
def test_clips_and_embedding_windows_give_the_same_logits(network, mirrored, step):
    """Six backbone passes a frame become two; at the first frames of a study too."""
    study = smooth_images(5)
    if mirrored:
        study = flipped(study)
    rows = window_rows(len(study), step)
    with torch.inference_mode():
        from_clips = network(study[rows])
        from_windows = network(network.backbone(study)[rows])
    assert from_clips.logits.shape == (5, len(LABELS))
    torch.testing.assert_close(from_clips.logits, from_windows.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(from_clips.contrastive, from_windows.contrastive, rtol=0, atol=1e-5)
    # The test can fail: neighbours matter, so another frame's window gives other logits.
    assert (from_clips.logits[4] - from_clips.logits[3]).abs().max() > 1e-2


def test_the_mirror_image_is_another_input(network):
    study = smooth_images(3)
    torch.testing.assert_close(flipped(flipped(study)), study, rtol=0, atol=0)
    with torch.inference_mode():
        plain, mirrored = network(study[None]).logits, network(flipped(study[None])).logits
    assert (plain - mirrored).abs().max() > 1e-3


def test_window_rows():
    # row:    0  1  2  3  4        the clip of row 3, two apart: rows -1 -> 0, 1, 3
    assert window_rows(3).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    assert window_rows(5, step=2).tolist()[3:] == [[0, 1, 3], [0, 2, 4]]
    assert window_rows(2, frames=1).tolist() == [[0], [1]]
    assert window_rows(0).shape == (0, 3)
    with pytest.raises(EnteronError, match="at least 1"):
        window_rows(3, step=0)


def test_window_rows_never_reach_forward_or_before_the_start():
    rows = window_rows(50, step=7)
    assert rows.min() == 0
    assert (np.diff(rows, axis=1) >= 0).all()
    assert rows[:, 2].tolist() == list(range(50))


def fake(**options) -> Network:
    torch.manual_seed(0)
    return Network(FakeBackbone(), ModelOptions(backbone="vit-tiny", **options)).eval()


def test_ablations_remove_exactly_their_part():
    windows = torch.randn(2, 3, 512)
    full = {name.split(".")[0] for name, _ in fake().named_parameters()}
    assert full == {"backbone", "differencing", "head", "prototypes", "contrast"}
    for option, part in (
        ("local_differencing", "differencing"),
        ("prototypes", "prototypes"),
        ("contrastive", "contrast"),
    ):
        network = fake(**{option: False})
        assert {n.split(".")[0] for n, _ in network.named_parameters()} == full - {part}
        assert network(windows).logits.shape == (2, 17)
    assert fake(contrastive=False)(windows).contrastive is None
    hidden = fake(anatomy_conditioning=False).state_dict()["head.pathology.hidden.weight"]
    assert hidden.shape == (256, 1024)
    assert fake(frames=1)(windows[:, -1:]).logits.shape == (2, 17)
    biased = {n for n, _ in fake(biases=True).head.named_parameters() if n.endswith(".bias")}
    assert biased == {
        "excitation.squeeze.bias",
        "excitation.excite.bias",
        "excitation.norm.bias",
        "anatomy.bias",
        "pathology.hidden.bias",
        "pathology.out.bias",
    }


def test_without_differencing_the_window_goes_through():
    network = fake(local_differencing=False, prototypes=False)
    windows = torch.randn(2, 3, 512)
    changed = windows.clone()
    changed[:, 0] += torch.randn(512)  # t-2 reaches the logits through the attention only
    torch.testing.assert_close(network(windows).logits, network(changed).logits, rtol=0, atol=0)
    with_attention = fake(prototypes=False)
    assert (with_attention(windows).logits - with_attention(changed).logits).abs().max() > 1e-4


def test_parameter_groups_share_the_network_out():
    network = fake()
    backbone, head = list(network.backbone_parameters()), list(network.head_parameters())
    assert len(backbone) == 1
    assert {id(p) for p in backbone} | {id(p) for p in head} == {
        id(p) for p in network.parameters()
    }
    assert len(backbone) + len(head) == len(list(network.parameters()))


def test_the_seed_decides_the_start_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = start_network(ModelOptions(backbone="lite"), seed=1).state_dict()
    assert torch.equal(torch.rand(3), expected)
    again = start_network(ModelOptions(backbone="lite"), seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    second = start_network(ModelOptions(backbone="lite"), seed=2)
    assert not torch.equal(second.state_dict()["head.anatomy.weight"], first["head.anatomy.weight"])
    # The encoder is the same for every seed: stored embeddings stay valid.
    assert torch.equal(second.backbone.projection.weight, first["backbone.projection.weight"])


@pytest.mark.parametrize(
    "shape", [(2, 512), (2, 2, 512), (2, 3, 511), (3, 3, 8, 8), (2, 1, 3, 8, 8)]
)
def test_other_shapes_are_refused(shape):
    with pytest.raises(ModelError, match=r"array of shape .*windows of embeddings \(n, 3, 512\)"):
        fake()(torch.zeros(shape))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"backbone": "lite", "differential": True}, "no attention"),
        ({"backbone": "lite", "download": True}, "belong to biomedclip"),
        ({"bundle": "x", "download": True}, "not needed"),
        ({"dropout": 1.0}, "dropout"),
        ({"frames": 2}, "frames"),
        ({"neighbor_step": 2}, "did you mean 'neighbour_step'"),
    ],
)
def test_contradictory_options_are_refused(table, message):
    with pytest.raises(ConfigError, match=message):
        make_options(ModelOptions, table, "model.toml")


def test_findings_by_evidence_alone_are_its_logits_and_leave_anatomy_to_the_head():
    """Rows of windows: anatomy must not change with evidence, findings with nothing else."""
    network = start_network(
        ModelOptions(
            backbone="lite", local_evidence=True, findings="evidence", anatomy_conditioning=False
        )
    ).eval()
    assert isinstance(network.head, AnatomyHead)
    assert network.orthogonal_weights is None
    assert network.evidence is not None
    with torch.no_grad():
        network.evidence.scale.copy_(torch.arange(1.0, 10.0))
        network.evidence.bias.fill_(-0.5)
    assert not any(p.requires_grad for p in network.evidence.parameters())
    windows = torch.randn(5, 3, FEATURES + len(FINDINGS))
    with torch.inference_mode():
        logits = network.classify(windows).logits
        changed = windows.clone()
        changed[:, :, FEATURES:] += 1
        moved = network.classify(changed).logits
        rows = torch.arange(15).view(5, 3)
        over_study = network.classify_study(windows.flatten(0, 1), rows).logits
    expected = torch.arange(1.0, 10.0) * windows[:, :, FEATURES:].mean(dim=1) - 0.5
    torch.testing.assert_close(logits[:, len(ANATOMY) :], expected)
    torch.testing.assert_close(moved[:, : len(ANATOMY)], logits[:, : len(ANATOMY)])
    torch.testing.assert_close(over_study, logits)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"findings": "evidence"}, "need local_evidence"),
        (
            {"findings": "evidence", "backbone": "lite", "local_evidence": True},
            "set head to anatomy-context and anatomy_conditioning to false",
        ),
    ],
)
def test_findings_by_evidence_need_evidence_and_no_conditioning(changes, said):
    with pytest.raises(ValueError, match=said):
        ModelOptions(**changes)

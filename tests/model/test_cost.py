"""What the network has and costs beyond its backbone, and that docs/model.md says so."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.model import BEGIN, DOCUMENT, END, network, parameter_table


def test_the_documented_parameter_counts_are_the_networks():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0].strip() == parameter_table()


def test_the_counts_are_those_of_the_papers_shapes():
    """By hand: LayerNorm, attention in and out, lambda; W1, W2, BatchNorm; W_anat; W_p1, W_p2."""
    with torch.device("meta"):
        vit = network("biomedclip")
    by_hand = (
        (2 * 512 + 3 * (512 * 512 + 512) + 512 * 512 + 512 + 1)
        + (32 * 512 + 512 * 32 + 2 * 512)
        + 8 * 512
        + (256 * 1032 + 9 * 256)
        + (17 * 512 + 1)
        + (17 * 512 + 1)
    )
    assert sum(p.numel() for p in vit.head_parameters()) == by_hand == 1_373_443
    assert sum(p.numel() for p in vit.backbone_parameters()) == 86_191_872


def test_beyond_the_backbone_it_costs_under_a_hundredth_of_a_vit_b16():
    with torch.device("meta"):
        vit = network("biomedclip").eval()
        images, windows = torch.empty(1, 3, 224, 224), torch.empty(1, 3, 512)
    with FlopCounterMode(display=False) as backbone:
        vit.backbone(images)
    with FlopCounterMode(display=False) as rest:
        vit.classify(windows)
    assert backbone.get_total_flops() > 30e9  # a ViT-B/16 was counted, not a part of it
    assert 6e6 < rest.get_total_flops() < 0.01 * backbone.get_total_flops()

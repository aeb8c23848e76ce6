"""New networks, pretrained where weights exist, and empty backbones for stored weights."""

import torch

from enteron.model import biomedclip
from enteron.model.backbone import Backbone, BackboneSpec
from enteron.model.lite import empty_lite, lite_backbone
from enteron.model.network import Network
from enteron.model.options import ModelOptions
from enteron.model.vit import empty_vit, tiny_backbone


def start_network(options: ModelOptions, seed: int = 42) -> Network:
    """A network as it is before training; the seed (the paper's) decides what starts at random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone, text = start_backbone(options)
        return Network(backbone, options, text)


def start_backbone(options: ModelOptions) -> tuple[Backbone, torch.Tensor | None]:
    """The encoder with its pretrained weights, and text features where a text tower exists."""
    if options.backbone == "biomedclip":
        folder = options.bundle
        if folder is None:
            folder = biomedclip.fetch(options.download)
        loaded = biomedclip.biomedclip(folder, options.differential)
        return loaded.backbone, loaded.text
    if options.backbone == "lite":
        return lite_backbone(), None
    return tiny_backbone(options.differential), None


def empty_backbone(spec: BackboneSpec) -> Backbone:
    """The layers of a backbone, to be filled from a model folder."""
    return empty_lite(spec) if spec.name == "lite" else empty_vit(spec)

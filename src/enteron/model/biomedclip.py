"""BiomedCLIP, from a folder in open_clip's format, without asking the network for anything.

The folder is a copy of the hub's repository: `open_clip_config.json`, the weights, the tokenizer.
open_clip builds the text tower by asking the hub for its configuration, even where every weight is
local (its issues 724 and 772), unless `hf_model_name` names a folder. So the configuration is
looked for in the bundle, or known from the tower's published name, and open_clip is given a folder
that holds it.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from enteron.config import make_options
from enteron.errors import ModelError
from enteron.labels import LABELS, prompt
from enteron.model import torchvision_operators
from enteron.model.backbone import Backbone, BackboneSpec
from enteron.model.bundle import CONFIG, Bundle, open_bundle
from enteron.model.differential import make_differential
from enteron.model.options import FEATURES
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import check_weights, read_weights

REPOSITORY = "microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"
_FILES = ["*.json", "vocab.txt", "open_clip_*.bin", "open_clip_*.safetensors"]
# Older transformers stored this counter of positions with the weights; newer ones make it anew.
_POSITIONS = "text.transformer.embeddings.position_ids"


@dataclass(frozen=True)
class BiomedClip:
    """What enteron keeps of a bundle: the image tower, and the labels' text embeddings."""

    backbone: Backbone
    text: torch.Tensor  # (17, 512), length 1, in the order of LABELS


def biomedclip(folder: Path, differential: bool = False) -> BiomedClip:
    """Both towers from a local bundle; the text tower embeds the prompts once and is dropped."""
    bundle = open_bundle(folder)
    clip = _load_towers(bundle)
    text = _embed_prompts(clip, bundle)
    spec = BackboneSpec(
        name="biomedclip",
        trunk=bundle.vision["timm_model_name"],
        differential=differential,
        preprocessing=_preprocessing(bundle),
    )
    trunk, projection = clip.visual.trunk, clip.visual.head.proj
    _check_trunk(trunk, spec.preprocessing.size)
    if differential:
        make_differential(trunk)
    return BiomedClip(Backbone(trunk, projection, spec).eval(), text)


def fetch(download: bool) -> Path:
    """The hub's copy: from the cache of this machine, or over the network when told so."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(REPOSITORY, allow_patterns=_FILES, local_files_only=not download)
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        if download:
            raise ModelError(
                f"BiomedCLIP could not be fetched from the hub ({type(error).__name__})",
                f"check the network, or give a copy of '{REPOSITORY}' as `bundle`",
            ) from error
        raise ModelError(
            "the weights of BiomedCLIP are not on this machine",
            f"give a copy of '{REPOSITORY}' as `bundle`, or set `download` to fetch it "
            "from the hub (about 800 MB)",
        ) from error
    return Path(folder)


def _load_towers(bundle: Bundle) -> Any:
    """open_clip's model with the bundle's weights, every key and shape checked first."""
    torchvision_operators.declare()
    import open_clip

    with tempfile.TemporaryDirectory(prefix="enteron-") as name:
        (Path(name) / "config.json").write_text(json.dumps(bundle.text_tower), encoding="utf-8")
        vision = bundle.vision | {"timm_model_pretrained": False}
        text = bundle.text | {"hf_model_name": name, "hf_model_pretrained": False}
        try:
            clip = open_clip.CustomTextCLIP(FEATURES, vision, text)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            raise ModelError(
                f"open_clip cannot build what '{CONFIG}' describes ({error})",
                f"copy the file again from '{REPOSITORY}'",
            ) from error
    found = read_weights(bundle.weights)
    found.pop(_POSITIONS, None)
    check_weights(
        found,
        clip.state_dict(),
        bundle.weights.name,
        f"it must be the weights of '{REPOSITORY}' that its '{CONFIG}' describes",
    )
    clip.load_state_dict(found)
    return clip.eval()


def _check_trunk(trunk: Any, size: int) -> None:
    """Only a ViT for the pictures that the configuration promises can be built again from it."""
    fits = getattr(getattr(trunk, "patch_embed", None), "img_size", None)
    if fits != (size, size):
        raise ModelError(
            f"'{CONFIG}' has a trunk that is not a ViT for pictures of {size} pixels",
            "vision_cfg.timm_model_name and vision_cfg.image_size must belong together",
        )


def _embed_prompts(clip: nn.Module, bundle: Bundle) -> torch.Tensor:
    """The text tower's embeddings of "a video capsule endoscopy image showing [label]"."""
    from open_clip.tokenizer import HFTokenizer

    length = bundle.text["context_length"]
    try:
        tokenizer = HFTokenizer(str(bundle.tokenizer), length, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "the bundle's tokenizer cannot be read",
            f"copy 'tokenizer.json' and 'tokenizer_config.json' again from '{REPOSITORY}'",
        ) from error
    tokens = tokenizer([prompt(label) for label in LABELS])
    if int(tokens.max()) >= bundle.text_tower["vocab_size"]:
        raise ModelError(
            f"the tokenizer knows more words than the text tower "
            f"({bundle.text_tower['vocab_size']})",
            "tokenizer and weights must come from the same bundle",
        )
    with torch.inference_mode():
        embedded = clip.encode_text(tokens, normalize=True)  # pyright: ignore[reportCallIssue]
    return embedded.clone()


def _preprocessing(bundle: Bundle) -> Preprocessing:
    """The bundle's own; what it leaves out is open_clip's default."""
    from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    given = bundle.preprocessing
    table = {
        "size": bundle.vision["image_size"],
        "mean": given.get("mean", OPENAI_DATASET_MEAN),
        "std": given.get("std", OPENAI_DATASET_STD),
        "interpolation": given.get("interpolation", "bicubic"),
        "resize": given.get("resize_mode", "shortest"),
    }
    return make_options(Preprocessing, table, CONFIG)

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

from enteron.errors import ModelError
from enteron.labels import LABELS, prompt
from enteron.model import torchvision_operators
from enteron.model.backbones import Backbone, make_differential
from enteron.model.options import FEATURES, BackboneSpec
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import check_weights, read_weights
from enteron.options import make_options

CONFIG = "open_clip_config.json"
WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
)
TOKENIZER = ("tokenizer.json", "vocab.txt")

_NEEDED = {
    "vision_cfg": {"timm_model_name": str, "image_size": int},
    "text_cfg": {"hf_model_name": str, "context_length": int},
}
# What makes a bundle BiomedCLIP's kind: a ViT's class token, projected without bias, and BERT's.
_FIXED = {
    "vision_cfg": {"timm_pool": "", "timm_proj": "linear"},
    "text_cfg": {"hf_proj_type": "mlp", "hf_pooler_type": "cls_last_hidden_state_pooler"},
}
# The hub's copy of BiomedCLIP does not hold its text tower's configuration. These towers are
# BERT-base, uncased: the values of BERT's paper, under transformers' names.
_BERT_BASE = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
_KNOWN_TOWERS = {
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": _BERT_BASE,
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract": _BERT_BASE,
}


@dataclass(frozen=True)
class Bundle:
    """The checked parts of a bundle; weights and tokenizer are still on disk."""

    vision: dict[str, Any]
    text: dict[str, Any]
    preprocessing: dict[str, Any]
    text_tower: dict[str, Any]  # configuration for transformers
    weights: Path
    tokenizer: Path  # folder


def open_bundle(folder: Path) -> Bundle:
    """Find and check everything but the tensors, naming the first thing that is wrong."""
    if not folder.is_dir():
        raise ModelError(
            f"the bundle '{folder.name}' is not a folder", f"give the folder that holds {CONFIG}"
        )
    whole = _read_json(folder / CONFIG)
    model = _table(whole, "model_cfg", CONFIG)
    vision, text = _table(model, "vision_cfg", CONFIG), _table(model, "text_cfg", CONFIG)
    _check_value("embed_dim", model.get("embed_dim"), FEATURES)
    for section, table in (("vision_cfg", vision), ("text_cfg", text)):
        for key, kind in _NEEDED[section].items():
            if not isinstance(table.get(key), kind):
                raise ModelError(
                    f"'{CONFIG}' has no usable '{section}.{key}'",
                    "copy the file again from where the weights came from",
                )
        for key, value in _FIXED[section].items():
            _check_value(f"{section}.{key}", table.get(key), value)
    _check_value("vision_cfg.timm_proj_bias", vision.get("timm_proj_bias", False), False)
    return Bundle(
        vision=vision,
        text=text,
        preprocessing=whole.get("preprocess_cfg") or {},
        text_tower=_text_tower(folder, text["hf_model_name"]),
        weights=_weights(folder),
        tokenizer=_tokenizer(folder, text.get("hf_tokenizer_name")),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"'{path.name}' is missing from the bundle",
            "copy it from where the weights came from",
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"'{path.name}' is not readable JSON", "copy it again") from error
    if not isinstance(content, dict):
        raise ModelError(f"'{path.name}' is not a JSON object", "copy it again")
    return content


def _table(parent: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    if not isinstance(parent.get(key), dict):
        raise ModelError(
            f"'{file}' has no '{key}'", "give open_clip's own configuration, as the hub has it"
        )
    return parent[key]


def _check_value(key: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise ModelError(
            f"'{CONFIG}' says {key} = {found!r} where BiomedCLIP has {wanted!r}",
            "give a bundle of BiomedCLIP's kind",
        )


def _weights(folder: Path) -> Path:
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise ModelError(
        f"the bundle has no weights: none of {', '.join(WEIGHTS)} is there",
        "copy one of them into it",
    )


def _inside(folder: Path, name: str | None) -> Path | None:
    """The folder that a name in the configuration means, when it means one in the bundle."""
    if name and (folder / name).is_dir():
        return folder / name
    return None


def _tokenizer(folder: Path, name: str | None) -> Path:
    place = _inside(folder, name) or folder
    if not any((place / file).is_file() for file in TOKENIZER):
        raise ModelError(
            f"the bundle has no tokenizer: neither {' nor '.join(TOKENIZER)} is there",
            "copy the tokenizer's files into it",
        )
    if not (place / "tokenizer_config.json").is_file():
        raise ModelError(
            "'tokenizer_config.json' is missing from the bundle",
            "copy it from where the tokenizer came from",
        )
    return place


def _text_tower(folder: Path, name: str) -> dict[str, Any]:
    """The text tower's configuration: the bundle's own, or that of a published tower."""
    for place in (_inside(folder, name), folder):
        if place is not None and (place / "config.json").is_file():
            found = _read_json(place / "config.json")
            if not isinstance(found.get("vocab_size"), int) or found.get("model_type") != "bert":
                raise ModelError(
                    "'config.json' in the bundle does not describe a BERT",
                    "give the text tower's own config.json, or remove the file",
                )
            return found
    if name in _KNOWN_TOWERS:
        return _KNOWN_TOWERS[name]
    raise ModelError(
        f"'{CONFIG}' names the text tower '{Path(name).name}', whose configuration is not here",
        "copy that tower's config.json into the bundle",
    )


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

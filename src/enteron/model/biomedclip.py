"""BiomedCLIP, from a local folder in open_clip's format (a "bundle"), without network access.

The bundle is a copy of the hub's repository: `open_clip_config.json`, the weights, the tokenizer.
open_clip asks the hub for the text tower's configuration even if every weight is local (its issues
724 and 772), unless `hf_model_name` names a folder. So enteron takes the configuration from the
bundle, or from the table of published towers below, and gives open_clip a folder that holds it.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from enteron.errors import ConfigError, ModelError, shorten, shown
from enteron.files import json_text, read_json_object
from enteron.labels import LABELS, prompt
from enteron.model import torchvision_operators
from enteron.model.backbones import Backbone, make_differential
from enteron.model.options import FEATURES, BackboneSpec, require_known_trunk
from enteron.model.preprocessing import Preprocessing
from enteron.model.weights import read_weights
from enteron.options import make_options

REPOSITORY = "microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"
_DOWNLOADED = ["*.json", "vocab.txt", "open_clip_*.bin", "open_clip_*.safetensors"]

CONFIG = "open_clip_config.json"
WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
)
TOKENIZER = ("tokenizer.json", "vocab.txt")
_TOKENIZER_FILES = (
    *TOKENIZER,
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)

_REQUIRED = {
    "vision_cfg": {"timm_model_name": str, "image_size": int},
    "text_cfg": {"hf_model_name": str, "context_length": int},
}
# BiomedCLIP's architecture: the class token of a ViT, projected without bias, and that of a BERT.
_FIXED = {
    "vision_cfg": {"timm_pool": "", "timm_proj": "linear"},
    "text_cfg": {"hf_proj_type": "mlp", "hf_pooler_type": "cls_last_hidden_state_pooler"},
}
# The hub's copy of BiomedCLIP does not include the configuration of its text tower. The published
# towers are BERT-base, uncased: the values of BERT's paper, under transformers' names.
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
# What a bundle's own tower may ask for; the largest BERT that was published is within.
_BERT_BOUNDS = {
    "vocab_size": (1, 300_000),
    "hidden_size": (1, 1024),
    "num_hidden_layers": (1, 24),
    "num_attention_heads": (1, 64),
    "intermediate_size": (1, 8192),
    "max_position_embeddings": (1, 4096),
    "type_vocab_size": (1, 16),
    "layer_norm_eps": (1e-15, 0.1),
    "pad_token_id": (0, 300_000),
}
_PUBLISHED_TOWERS = {
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": _BERT_BASE,
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract": _BERT_BASE,
}


@dataclass(frozen=True)
class Bundle:
    """The checked configuration of a bundle, and where its weights and tokenizer are.

    The tables are open_clip's and transformers' own, and are passed on to them.
    """

    vision: dict[str, Any]  # `vision_cfg` of open_clip
    text: dict[str, Any]  # `text_cfg` of open_clip
    preprocessing: dict[str, Any]  # `preprocess_cfg` of open_clip
    text_tower: dict[str, Any]  # BERT's configuration for transformers
    weights: Path  # file
    tokenizer: Path  # folder


def open_bundle(folder: Path) -> Bundle:
    """Find and check everything but the tensors; the first error names the file and the key."""
    if not folder.is_dir():
        raise ModelError(
            f"the bundle '{folder.name}' is not a folder", f"give the folder that holds {CONFIG}"
        )
    config = _read_json(folder, folder / CONFIG)
    model = _table(config, "model_cfg", CONFIG)
    vision, text = _table(model, "vision_cfg", CONFIG), _table(model, "text_cfg", CONFIG)
    _check_value("embed_dim", model.get("embed_dim"), FEATURES)
    for section, table in (("vision_cfg", vision), ("text_cfg", text)):
        for key, value_type in _REQUIRED[section].items():
            if type(table.get(key)) is not value_type:
                raise ModelError(
                    f"'{CONFIG}' has no usable '{section}.{key}'",
                    "copy the file again from the source of the weights",
                )
        for key, value in _FIXED[section].items():
            _check_value(f"{section}.{key}", table.get(key), value)
    _check_value("vision_cfg.timm_proj_bias", vision.get("timm_proj_bias", False), False)
    try:
        require_known_trunk("biomedclip", vision["timm_model_name"])
    except ConfigError as error:
        raise ModelError(f"'{CONFIG}': {error.problem}", error.remedy) from error
    _check_range("text_cfg.context_length", text["context_length"], CONFIG, 1, 4096)
    preprocessing = config.get("preprocess_cfg")
    return Bundle(
        vision=vision,
        text=text,
        preprocessing=preprocessing if isinstance(preprocessing, dict) else {},
        text_tower=_text_tower(folder, text["hf_model_name"]),
        weights=_weights_file(folder),
        tokenizer=_tokenizer_folder(folder, text.get("hf_tokenizer_name")),
    )


def _read_json(bundle: Path, path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ModelError(
            f"'{path.name}' is missing from the bundle",
            "copy it from the source of the weights",
        )
    return read_json_object(
        _inside(bundle, path), "copy it again", source=f"'{path.name}'", error=ModelError
    )


def _inside(bundle: Path, path: Path) -> Path:
    """The path, if it leads to a place inside the bundle; links that lead out of it are refused.

    In the hub's cache the files of a snapshot are links to the folder `blobs` of the repository.
    """
    root = bundle.resolve()
    roots = [root]
    if root.parent.name == "snapshots":
        roots.append(root.parent.parent / "blobs")
    if not any(path.resolve().is_relative_to(allowed) for allowed in roots):
        raise ModelError(
            f"{shown(path.name)} of the bundle leads to a place outside of it",
            "copy the file itself into the bundle, and name no other folders in its configuration",
        )
    return path


def _table(parent: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    if not isinstance(parent.get(key), dict):
        raise ModelError(
            f"'{file}' has no '{key}'", "give open_clip's configuration as it is on the hub"
        )
    return parent[key]


def _check_range(key: str, value: object, file: str, low: float, high: float) -> None:
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ModelError(
            f"'{file}' says {key} = {shown(value)}, which is not a number from {low:g} to {high:g}",
            "copy the file again from the source of the weights",
        )


def _check_value(key: str, value: object, expected: object) -> None:
    if value != expected:
        raise ModelError(
            f"'{CONFIG}' says {key} = {shown(value)} where BiomedCLIP has {expected!r}",
            "give a bundle with BiomedCLIP's architecture",
        )


def _weights_file(folder: Path) -> Path:
    for name in WEIGHTS:
        if (folder / name).is_file():
            return _inside(folder, folder / name)
    raise ModelError(
        f"the bundle has no weights: none of {', '.join(WEIGHTS)} is there",
        "copy one of them into the bundle",
    )


def _subfolder(folder: Path, name: object) -> Path | None:
    """The folder inside the bundle that a name in the configuration refers to, if there is one."""
    if not isinstance(name, str) or not name or "\0" in name or len(name) > 200:
        return None
    return _inside(folder, folder / name) if (folder / name).is_dir() else None


def _tokenizer_folder(folder: Path, name: object) -> Path:
    tokenizer = _subfolder(folder, name) or folder
    if not any((tokenizer / file).is_file() for file in TOKENIZER):
        raise ModelError(
            f"the bundle has no tokenizer: neither {' nor '.join(TOKENIZER)} is there",
            "copy the tokenizer's files into the bundle",
        )
    if not (tokenizer / "tokenizer_config.json").is_file():
        raise ModelError(
            "'tokenizer_config.json' is missing from the bundle",
            "copy it from the source of the tokenizer",
        )
    for file in _TOKENIZER_FILES:
        _inside(folder, tokenizer / file)
    return tokenizer


def _text_tower(folder: Path, name: str) -> dict[str, Any]:
    """The text tower's configuration: the bundle's own, or that of a published tower."""
    for candidate in (_subfolder(folder, name), folder):
        if candidate is not None and (candidate / "config.json").is_file():
            return _checked_bert(_read_json(folder, candidate / "config.json"))
    if name in _PUBLISHED_TOWERS:
        return _PUBLISHED_TOWERS[name]
    raise ModelError(
        f"'{CONFIG}' names the text tower {shown(Path(name).name)}, whose configuration is missing",
        "copy that tower's config.json into the bundle",
    )


def _checked_bert(config: dict[str, Any]) -> dict[str, Any]:
    """The entries of a BERT's configuration that decide its shape, each within its bounds.

    All others are left out: transformers would follow some of them to code of the bundle.
    """
    if config.get("model_type") != "bert" or not isinstance(config.get("vocab_size"), int):
        raise ModelError(
            "'config.json' in the bundle does not describe a BERT",
            "give the text tower's own config.json, or remove the file",
        )
    tower = {key: config.get(key, value) for key, value in _BERT_BASE.items()}
    for key, (low, high) in _BERT_BOUNDS.items():
        whole = type(_BERT_BASE[key]) is not int or type(tower[key]) is int
        _check_range(key, tower[key] if whole else None, "config.json", low, high)
    if tower["hidden_act"] not in ("gelu", "gelu_new", "relu", "silu"):
        raise ModelError(
            f"'config.json' names the activation {shown(tower['hidden_act'])}",
            "give the text tower's own config.json: BERT's activation is 'gelu'",
        )
    return tower


@dataclass(frozen=True)
class BiomedClip:
    """What enteron uses of a bundle: the image tower, and the text embeddings of the labels."""

    backbone: Backbone
    text: torch.Tensor  # (17, 512), length 1, in the order of LABELS


def biomedclip(folder: Path, differential: bool = False) -> BiomedClip:
    """Load a local bundle. Its text tower embeds the labels' prompts once and is then dropped."""
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
    """The folder of the hub's copy: from the local cache, or downloaded if `download` is set."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            REPOSITORY, allow_patterns=_DOWNLOADED, local_files_only=not download
        )
    except Exception as error:  # the hub's client raises many unrelated exceptions
        if download:
            raise ModelError(
                f"BiomedCLIP could not be fetched from the hub ({type(error).__name__})",
                f"check the network connection, or give a copy of '{REPOSITORY}' as `bundle`",
            ) from error
        raise ModelError(
            "the weights of BiomedCLIP are not on this machine",
            f"give a copy of '{REPOSITORY}' as `bundle`, or set `download` to fetch it "
            "from the hub (about 800 MB)",
        ) from error
    return Path(folder)


def _load_towers(bundle: Bundle) -> Any:
    """open_clip's model with the bundle's weights; every tensor's name and shape is checked."""
    torchvision_operators.declare()
    import open_clip

    with tempfile.TemporaryDirectory(prefix="enteron-") as name:
        (Path(name) / "config.json").write_text(json_text(bundle.text_tower), encoding="utf-8")
        vision = bundle.vision | {"timm_model_pretrained": False}
        text = bundle.text | {"hf_model_name": name, "hf_model_pretrained": False}
        try:
            clip = open_clip.CustomTextCLIP(FEATURES, vision, text)  # pyright: ignore[reportArgumentType]
        except Exception as error:  # open_clip, timm and transformers raise many kinds
            raise ModelError(
                f"open_clip cannot build what '{CONFIG}' describes ({shorten(str(error), 200)})",
                f"copy the file again from '{REPOSITORY}'",
            ) from error
    weights = read_weights(
        bundle.weights,
        clip.state_dict(),
        f"give the weights of '{REPOSITORY}' that belong to this '{CONFIG}'",
        # Older versions of transformers stored these positions with the weights.
        unused=("text.transformer.embeddings.position_ids",),
    )
    clip.load_state_dict(weights)
    return clip.eval()


def _check_trunk(trunk: Any, size: int) -> None:
    """Require a ViT for images of the configured size: a model folder can rebuild nothing else."""
    image_size = getattr(getattr(trunk, "patch_embed", None), "img_size", None)
    if image_size != (size, size):
        raise ModelError(
            f"'{CONFIG}' has a trunk that is not a ViT for pictures of {size} pixels",
            "vision_cfg.timm_model_name and vision_cfg.image_size must belong together",
        )


def _embed_prompts(clip: nn.Module, bundle: Bundle) -> torch.Tensor:
    """Text embeddings (17, 512) of "a video capsule endoscopy image showing [label]"."""
    from open_clip.tokenizer import HFTokenizer

    length = bundle.text["context_length"]
    try:
        tokenizer = HFTokenizer(
            str(bundle.tokenizer), length, local_files_only=True, trust_remote_code=False
        )
        tokens = tokenizer([prompt(label) for label in LABELS])
    except Exception as error:  # transformers raises many kinds, some of them from Rust
        raise ModelError(
            "the bundle's tokenizer cannot be read",
            f"copy 'tokenizer.json' and 'tokenizer_config.json' again from '{REPOSITORY}'",
        ) from error
    if int(tokens.max()) >= bundle.text_tower["vocab_size"]:
        raise ModelError(
            f"the tokenizer has more words than the text tower ({bundle.text_tower['vocab_size']})",
            "tokenizer and weights must come from the same bundle",
        )
    with torch.inference_mode():
        embeddings = clip.encode_text(tokens, normalize=True)  # pyright: ignore[reportCallIssue]
    return embeddings.clone()  # an ordinary tensor, which may require gradients


def _preprocessing(bundle: Bundle) -> Preprocessing:
    """The bundle's preprocessing; open_clip's defaults for what it leaves out."""
    from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    config = bundle.preprocessing
    table = {
        "size": bundle.vision["image_size"],
        "mean": config.get("mean", OPENAI_DATASET_MEAN),
        "std": config.get("std", OPENAI_DATASET_STD),
        "interpolation": config.get("interpolation", "bicubic"),
        "resize": config.get("resize_mode", "shortest"),
    }
    return make_options(Preprocessing, table, CONFIG)

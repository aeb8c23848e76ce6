"""A folder in open_clip's format: which files it must have, and what they must say."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enteron.errors import ModelError
from enteron.model.options import FEATURES

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

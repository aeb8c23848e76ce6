"""Bundles in open_clip's format with random weights: BiomedCLIP's exact shapes, or small ones."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from enteron.labels import LABELS, prompt
from enteron.model import torchvision_operators

TOWER = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Shape:
    """What differs between BiomedCLIP and a bundle small enough for every test run."""

    trunk: str
    words: int
    bert: dict[str, Any]
    context: int


FULL = Shape("vit_base_patch16_224", 30522, {}, 256)  # BERT-base is transformers' default
SMALL = Shape(
    "vit_tiny_patch16_224",
    200,
    {
        "vocab_size": 200,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
    },
    32,
)


def configuration(shape: Shape, tower: str = TOWER) -> dict[str, Any]:
    """`open_clip_config.json` as the hub has it for BiomedCLIP."""
    return {
        "model_cfg": {
            "embed_dim": 512,
            "vision_cfg": {
                "timm_model_name": shape.trunk,
                "timm_model_pretrained": False,
                "timm_pool": "",
                "timm_proj": "linear",
                "image_size": 224,
            },
            "text_cfg": {
                "hf_model_name": tower,
                "hf_tokenizer_name": tower,
                "hf_proj_type": "mlp",
                "hf_pooler_type": "cls_last_hidden_state_pooler",
                "context_length": shape.context,
            },
        },
        "preprocess_cfg": {
            "mean": [0.48145466, 0.4578275, 0.40821073],
            "std": [0.26862954, 0.26130258, 0.27577711],
        },
    }


def make_bundle(folder: Path, shape: Shape, *, pickled: bool = False) -> Path:
    """A bundle with random weights. The full one has no config.json, as the hub's has none."""
    torchvision_operators.declare()
    import open_clip
    from transformers import BertConfig

    folder.mkdir(parents=True)
    tower = folder.parent / f"{folder.name}-tower"  # for open_clip, which needs a folder
    # BERT's usual start embeds every sentence nearly alike; larger weights tell them apart.
    bert = BertConfig(**shape.bert, initializer_range=0.2)
    bert.save_pretrained(tower)
    if shape is not FULL:
        bert.save_pretrained(folder)
    described = configuration(shape)
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    make_tokenizer(folder, shape.words)

    model = described["model_cfg"]
    text = model["text_cfg"] | {"hf_model_name": str(tower), "hf_model_pretrained": False}
    torch.manual_seed(0)
    clip = open_clip.CustomTextCLIP(512, model["vision_cfg"], text)
    weights = clip.state_dict()
    # Published weights were stored by an older transformers, with this counter among them.
    positions = torch.arange(bert.max_position_embeddings)[None]
    weights["text.transformer.embeddings.position_ids"] = positions
    if pickled:
        torch.save(weights, folder / "open_clip_pytorch_model.bin")
    else:
        save_file(weights, folder / "open_clip_model.safetensors")
    return folder


def make_tokenizer(folder: Path, words: int, *, fillers_first: bool = False) -> None:
    """BERT's tokenizer with the words of the prompts and as many fillers as are needed."""
    from transformers import BertTokenizer

    prompt_words = sorted(
        {word for label in LABELS for word in prompt(label).replace("-", " ").split()}
    )
    letters = [*"abcdefghijklmnopqrstuvwxyz-", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    used = [*letters, *(w for w in prompt_words if len(w) > 1)]
    fillers = [f"filler{i}" for i in range(words - len(SPECIAL) - len(used))]
    vocabulary = [*SPECIAL, *fillers, *used] if fillers_first else [*SPECIAL, *used, *fillers]
    assert len(vocabulary) == words
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)})
    tokenizer.save_pretrained(folder)


def for_open_clip(folder: Path, shape: Shape) -> Path:
    """The same bundle as open_clip itself can read it offline: the tower named by its folder."""
    bundle = folder.parent / f"{folder.name}-open-clip"
    bundle.mkdir()
    tower = folder.parent / f"{folder.name}-tower"
    described = configuration(shape, str(tower))
    described["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = str(folder)
    (bundle / "open_clip_config.json").write_text(json.dumps(described))
    for file in folder.iterdir():
        if file.name not in ("open_clip_config.json", "config.json"):
            (bundle / file.name).symlink_to(file)
    return bundle

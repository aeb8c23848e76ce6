"""`card.md` of a model folder: what people should know of a model before they use it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

_LIMITS = """\
- For research only. Not a medical device: nothing it says is a diagnosis, and no study may go
  unread because of it.
- It sees {frames} stored frame(s) at a time, and says nothing of what lies between or beyond.
- Rare labels (a z-line, active bleeding, an ulcer) have few training frames; a high threshold or
  silence about one is not evidence of its absence.
- Other capsules, light or bowel preparation than in the training data may change what it finds.
- Probabilities are calibrated only where `calibration.json` lies beside this card."""


@dataclass(frozen=True)
class Card:
    """What a model card tells."""

    backbone: str
    backbone_hash: str
    options: dict[str, JsonValue]
    split_hash: str | None
    training: dict[str, Any]
    frames_by_label: dict[str, int]
    results: dict[str, float]
    versions: dict[str, str]


def card_text(card: Card) -> str:
    """The card in Markdown."""
    split = f"\nSplit: `{card.split_hash}`" if card.split_hash is not None else ""
    training = dict(card.training)
    if card.frames_by_label:
        training["frames by label"] = card.frames_by_label
    parts = [
        "# Model card",
        "Reads single frames of video capsule endoscopy, each with its neighbours, into the 17\n"
        "labels of RARE-VISION. Made by enteron. **For research only.**",
        "## Data",
        _table(training, "Not trained: the weights are those of a start.") + split,
        "## Network",
        f"Backbone `{card.backbone}`, weights `{card.backbone_hash[:16]}`.",
        _table(card.options, ""),
        "## Results",
        _table(card.results, "None measured yet."),
        "## Limits",
        _LIMITS.format(frames=card.options["frames"]),
        "## Made with",
        _table(card.versions, ""),
    ]
    return "\n\n".join(parts) + "\n"


def _table(values: Mapping[str, object], without: str) -> str:
    """A table of two columns, or the sentence `without` where there are no values."""
    if not values:
        return without
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items())
    # A bar or a line break inside a value would end the cell.
    return str(value).replace("|", "\\|").replace("\n", " ")

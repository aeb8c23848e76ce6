"""The model folder: the names, the schema, the reading and the writing of its files.

model.json          what the tensors mean and where they come from   ModelRecord
model.safetensors   the tensors
card.md             the same for people                              card_text
calibration.json    what scores mean, fitted on other studies        enteron.calibration
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue

from enteron.calibration import Calibration
from enteron.errors import ConfigError, ModelError
from enteron.files import write_bytes, write_text
from enteron.labels import LABELS
from enteron.model.options import BackboneSpec, ModelOptions
from enteron.options import Options, make_options, parse_json_options
from enteron.priors import Priors, load_priors

if TYPE_CHECKING:
    from enteron.model.network import Network

WEIGHTS = "model.safetensors"
RECORD = "model.json"
CARD = "card.md"
_PACKAGES = ("enteron", "torch", "timm", "safetensors")
_TRAIN_AGAIN = "copy the whole model folder again, or train the model again"
CALIBRATION = "calibration.json"

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


WEIGHTS = "model.safetensors"
RECORD = "model.json"
CARD = "card.md"
SPLIT = "split.json"
PRIORS = "priors.json"  # those of `enteron train --priors`; absent: the packaged ones apply
FEATURES = "features"  # folder: stored embeddings of the training data; may be deleted
CHECKPOINT = "checkpoint"  # folder: exists while a training has not finished
TRAINING = "training"  # folder: what a person reads about the training, the four names below
TRAINING_PAGE = "training.html"
TRAINING_OPTIONS = "options.json"  # also in CHECKPOINT, where it includes paths of this machine
HISTORY = "history.json"
TENSORBOARD = "board"  # folder of event files
_PACKAGES = ("enteron", "torch", "timm", "safetensors")
_TRAIN_AGAIN = "copy the whole model folder again, or train the model again"


class ModelRecord(Options):
    """`model.json`: what the tensors mean and where they come from."""

    format: Literal[1] = 1
    """Version of the folder's layout."""
    labels: tuple[str, ...]
    """Columns of the logits, in order."""
    options: ModelOptions
    """The network's options, without the path of the weights that training started from."""
    backbone: BackboneSpec
    """The encoder's architecture and preprocessing."""
    backbone_hash: str
    """Hash of the encoder's weights, which stored embeddings refer to."""
    preprocessing_hash: str
    """Hash of the preprocessing, which stored embeddings refer to."""
    weights_hash: str
    """SHA-256 of `model.safetensors`."""
    split_hash: str | None = None
    """Of the split into training, validation and test studies; none when nothing was split."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Summary of the training in a few short values: counts and devices, never names of studies."""
    frames_by_label: dict[str, int] = Field(default_factory=dict)
    """Training frames that show each label; empty where nothing was trained."""
    results: dict[str, float] = Field(default_factory=dict)
    """Figures on held-out data, by name."""
    versions: dict[str, str]
    """Versions of the packages that wrote it."""


def save_model(
    folder: Path,
    network: "Network",
    *,
    split_hash: str | None = None,
    training: dict[str, Any] | None = None,
    frames_by_label: dict[str, int] | None = None,
    results: dict[str, float] | None = None,
) -> ModelRecord:
    """Write the folder, each file atomically; the record comes last, with the weights' hash."""
    from safetensors.torch import save

    tensors = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
    content = save(tensors)
    spec = network.backbone.spec
    record = ModelRecord(
        labels=LABELS,
        options=network.options.model_copy(update={"bundle": None, "download": False}),
        backbone=spec,
        backbone_hash=network.backbone.hash(),
        preprocessing_hash=spec.preprocessing.hash(),
        weights_hash=hashlib.sha256(content).hexdigest(),
        split_hash=split_hash,
        training=training or {},
        frames_by_label=frames_by_label or {},
        results=results or {},
        versions={name: version(name) for name in _PACKAGES},
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"'{folder.name}' cannot be created ({error.strerror})",
            "give a path that you may write to",
        ) from error
    write_bytes(folder / WEIGHTS, content)
    write_text(folder / CARD, card_text(_card(record)))
    write_text(folder / RECORD, json.dumps(record.model_dump(mode="json"), indent=2) + "\n")
    return record


def load_model(folder: Path) -> "tuple[Network, ModelRecord]":
    """Load the network, in evaluation mode, and its record; mismatches are refused by name."""
    import torch

    from enteron.model.backbones import check_weights, read_weights
    from enteron.model.network import Network, empty_backbone

    record = read_record(folder)
    path = folder / WEIGHTS
    weights = read_weights(path)
    with torch.random.fork_rng(devices=[]):  # leave the global RNG untouched
        network = Network(empty_backbone(record.backbone), record.options)
    check_weights(weights, network.state_dict(), WEIGHTS, _TRAIN_AGAIN)
    network.load_state_dict(weights)
    if network.backbone.hash() != record.backbone_hash:
        raise ModelError(
            f"the encoder in '{WEIGHTS}' is not the one that '{RECORD}' names", _TRAIN_AGAIN
        )
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != record.weights_hash:
            raise ModelError(f"'{WEIGHTS}' is not the file that '{RECORD}' describes", _TRAIN_AGAIN)
    return network.eval(), record


def read_record(folder: Path) -> ModelRecord:
    """Read `model.json` and check what can be checked without the tensors."""
    try:
        table = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"'{folder.name}' has no '{RECORD}'", "give a folder that `enteron train` made"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"'{RECORD}' is not readable JSON", _TRAIN_AGAIN) from error
    if not isinstance(table, dict):
        raise ModelError(f"'{RECORD}' is not a JSON object", _TRAIN_AGAIN)
    _check_header(table)
    try:
        record = make_options(ModelRecord, table, RECORD)
    except ConfigError as error:
        raise ModelError(error.problem, error.remedy) from error
    if record.preprocessing_hash != record.backbone.preprocessing.hash():
        raise ModelError(
            f"the preprocessing in '{RECORD}' is not the one the model was trained with",
            "undo the change to its size, mean, std, interpolation or resize",
        )
    for field, one, other in (
        ("backbone", record.options.backbone, record.backbone.name),
        ("differential", record.options.differential, record.backbone.differential),
    ):
        if one != other:
            raise ModelError(
                f"'{RECORD}' contradicts itself: {field} is both {one!r} and {other!r}",
                _TRAIN_AGAIN,
            )
    return record


def _check_header(table: dict[str, Any]) -> None:
    """Check format and label order first: their messages matter more than a missing field."""
    if table.get("format") != 1:
        raise ModelError(
            f"'{RECORD}' has format {table.get('format')!r} where 1 is read",
            "use the version of enteron that made it",
        )
    labels = table.get("labels")
    if not isinstance(labels, list) or len(labels) != len(LABELS):
        count = len(labels) if isinstance(labels, list) else "no"
        raise ModelError(f"'{RECORD}' has {count} labels, not {len(LABELS)}", _TRAIN_AGAIN)
    for index, (name, expected) in enumerate(zip(labels, LABELS, strict=True)):
        if name != expected:
            raise ModelError(
                f"label {index} in '{RECORD}' is '{name}' where enteron has '{expected}'",
                "its columns have another meaning; train the model with this version",
            )


def _card(record: ModelRecord) -> Card:
    return Card(
        backbone=record.backbone.name,
        backbone_hash=record.backbone_hash,
        options=record.options.model_dump(mode="json", exclude={"bundle", "download"}),
        split_hash=record.split_hash,
        training=record.training,
        frames_by_label=record.frames_by_label,
        results=record.results,
        versions=record.versions,
    )


CALIBRATION = "calibration.json"


def load_calibration(path: Path) -> Calibration:
    """Read a calibration from its file, or from the model folder that holds it."""
    if path.is_dir():
        path = path / CALIBRATION
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ConfigError(
            f"{path.name} cannot be read ({reason})",
            "give a model folder that was calibrated, or make one with `enteron tune`",
        ) from error
    return parse_json_options(Calibration, text, path.name, "make it again with `enteron tune`")


def calibration_hash(path: Path) -> str:
    """SHA-256 of a calibration's file, or of that in a model folder."""
    file = path / CALIBRATION if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration; equal calibrations give equal bytes."""
    write_text(path, json.dumps(calibration.model_dump(), indent=1, sort_keys=True) + "\n")


def model_priors(path: Path) -> Priors:
    """The priors of a model folder (`priors.json`), or those of the package where it has none.

    `path` is the folder, or its `calibration.json`.
    """
    folder = path if path.is_dir() else path.parent
    stored = folder / PRIORS
    return load_priors(stored if stored.exists() else None)

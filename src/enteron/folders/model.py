"""The model folder: the names, the schema, the reading and the writing of its files.

model.json          what the tensors mean and where they come from   ModelRecord
model.safetensors   the tensors                                      enteron.model.weights
encoder.onnx        what they compute, in a packed folder: neither   enteron.inference.graph_model
head.onnx             graph has weights of its own
encoder-int8.onnx   the encoder in int8, where it was packed so      enteron.inference.static_int8
card.md             the same for people                              enteron.folders.model_card
split.json          which studies trained, validated, were put aside enteron.datasets.splits
calibration.json    what scores mean, fitted on other studies        enteron.calibration
appearance.json     what the studies look like that the model knows  enteron.appearance
coarse.json         what lies between two frames                     inference.coarse_to_fine
glance.safetensors  a network that guesses it from small pictures    enteron.inference.glance
priors.json         the priors that the calibration was fitted with  enteron.priors

The files name each other by hashes. `model.json` holds those of weights, graphs and split,
`calibration.json` those of the model, its split and the priors. A file from another folder is
refused wherever it would be used.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from enteron.appearance import Appearance
from enteron.calibration import Calibration, Count
from enteron.errors import ConfigError, ModelError, shown
from enteron.files import (
    RECORD_LIMIT,
    WEIGHTS_LIMIT,
    json_text,
    read_bytes,
    read_json_object,
    write_bytes,
    write_json,
    write_text,
)
from enteron.folders.model_card import Card, card_text
from enteron.inference.coarse_to_fine import CoarseEstimate
from enteron.inference.glance import Glance, read_glance
from enteron.inference.spacing import Spacing
from enteron.labels import LABELS
from enteron.model.options import VIT_SIZE, BackboneSpec, ModelOptions
from enteron.model.requirements import INSTALL_TORCH, require_torch, torch_installed
from enteron.model.tensor_table import read_table
from enteron.options import Options, Sha256, make_options
from enteron.priors import Priors, load_priors, priors_hash
from enteron.types import StudyFingerprint, TrainingSource

if TYPE_CHECKING:
    from enteron.datasets.splits import Split
    from enteron.inference.graph_model import GraphBackbone
    from enteron.inference.score import Head
    from enteron.model.backbones import Backbone
    from enteron.model.network import Network

WEIGHTS = "model.safetensors"
RECORD = "model.json"
CARD = "card.md"
SPLIT = "split.json"
CALIBRATION = "calibration.json"
APPEARANCE = "appearance.json"
COARSE = "coarse.json"
GLANCE = "glance.safetensors"
PRIORS = "priors.json"  # those of `--priors` in training or calibration; absent: the packaged ones
FEATURES = "features"  # folder: stored embeddings of the training data; may be deleted
CHECKPOINT = "checkpoint"  # folder: exists while a training has not finished
TRAINING = "training"  # folder: what a person reads about the training, the four names below
TRAINING_PAGE = "training.html"
TRAINING_OPTIONS = "options.json"  # also in CHECKPOINT, where it includes paths of this machine
HISTORY = "history.json"
TENSORBOARD = "board"  # folder of event files

_PACKAGES = ("enteron", "torch", "timm", "safetensors")
_TRAIN_AGAIN = "copy the whole model folder again, or train the model again"
_CALIBRATE_AGAIN = "run `enteron calibrate` again on this model"


# ---- model.json and the weights


GraphName = Literal["encoder.onnx", "head.onnx", "encoder-int8.onnx"]
_NEEDED_GRAPHS: frozenset[GraphName] = frozenset({"encoder.onnx", "head.onnx"})


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
    backbone_hash: Sha256
    """Hash of the encoder's weights, which stored embeddings refer to."""
    preprocessing_hash: Sha256
    """Hash of the preprocessing."""
    weights_hash: Sha256
    """SHA-256 of `model.safetensors`."""
    split_hash: str | None = Field(default=None, pattern="^[0-9a-f]{16,64}$")
    """Of the split into training, validation and test studies; none when nothing was split."""
    training_studies: tuple[StudyFingerprint, ...] | None = Field(default=None, max_length=100_000)
    """Fingerprints of the studies that trained it, sorted; None in folders of versions before."""
    name: str | None = Field(default=None, min_length=1, max_length=60)
    """What pages and terminals call the model; most have no name."""
    precision: Literal["single", "half"] = "single"
    """How tensors are stored; half: those of two and more dimensions in 16 bits."""
    graphs: dict[GraphName, Sha256] | None = None
    """SHA-256 of the graphs, with which a packed folder is read without torch."""
    sources: tuple[TrainingSource, ...] = Field(default=(), max_length=100)
    """The datasets that trained it, and whether they are drawings; empty in folders before."""
    spacings: tuple[Spacing, ...] = Field(default=(), max_length=100)
    """Distances between the frames of its training clips, the commonest first; empty for single
    frames and in folders of versions before."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Summary of the training in a few short values: counts and devices, never names of studies."""
    frames_by_label: dict[str, Count] = Field(default_factory=dict)
    """Training frames that show each label; empty where nothing was trained."""
    results: dict[str, float] = Field(default_factory=dict)
    """Figures on held-out data, by name."""
    versions: dict[str, str]
    """Versions of the packages that wrote it."""

    @property
    def settings_hash(self) -> str:
        """Identifies options and backbone, on which scores depend beside the weights."""
        settings = self.model_dump(mode="json", include={"options", "backbone"})
        return hashlib.sha256(json_text(settings, sort_keys=True).encode()).hexdigest()


def save_model(
    folder: Path,
    network: "Network",
    *,
    split_hash: str | None = None,
    training_studies: tuple[StudyFingerprint, ...] = (),
    sources: tuple[TrainingSource, ...] = (),
    spacings: tuple[Spacing, ...] = (),
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
        # Sorted: their order must not tell which hash is which study's.
        training_studies=tuple(sorted(training_studies, key=lambda study: study.id)),
        sources=sources,
        spacings=spacings,
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
    write_record(folder, record)
    return record


def write_record(folder: Path, record: ModelRecord) -> None:
    """Write `model.json`, after the card that says the same for people."""
    write_text(folder / CARD, card_text(_card(record)))
    write_json(folder / RECORD, record.model_dump(mode="json"), indent=2)


def load_model(folder: Path) -> "tuple[Network, ModelRecord]":
    """Load the network, in evaluation mode, and its record; mismatches are refused by name.

    It needs torch. `open_model` takes what a folder offers.
    """
    require_torch(f"the network in '{folder.name}'")
    import torch

    from enteron.model.network import Network, empty_backbone
    from enteron.model.weights import read_weights

    record = read_record(folder)
    with torch.random.fork_rng(devices=[]):  # leave the global RNG untouched
        network = Network(empty_backbone(record.backbone), record.options)
    path = folder / WEIGHTS
    network.load_state_dict(read_weights(path, network.state_dict(), _TRAIN_AGAIN))
    if network.backbone.hash() != record.backbone_hash:
        raise ModelError(
            f"the encoder in '{WEIGHTS}' is not the one that '{RECORD}' names", _TRAIN_AGAIN
        )
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != record.weights_hash:
            raise _other_file(WEIGHTS)
    return network.eval(), record


def _other_file(name: str) -> ModelError:
    return ModelError(f"'{name}' is not the file that '{RECORD}' describes", _TRAIN_AGAIN)


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to read studies: a network of torch's, or the graphs of a packed folder."""

    record: ModelRecord
    backbone: "Backbone | GraphBackbone"
    head: "Head"


def open_model(folder: Path) -> LoadedModel:
    """Open a model folder to read with: by its graphs if it is packed, else with torch.

    A packed folder is read by its graphs whether or not torch is installed, so that the result
    does not depend on it.
    """
    record = read_record(folder)
    if record.graphs is None:
        if not torch_installed():
            raise ModelError(
                f"'{folder.name}' is not packed: reading with it needs torch, which is not "
                "installed",
                f"{INSTALL_TORCH}, or pack it with `enteron pack` where torch is installed",
            )
        network, record = load_model(folder)
        return LoadedModel(record, network.backbone, network)
    from enteron.inference.graph_model import (
        ENCODER_GRAPH,
        HEAD_GRAPH,
        INT8_GRAPH,
        GraphBackbone,
        GraphHead,
        StoredGraph,
    )
    from enteron.inference.runtimes import usable_threads

    weights = _hashed_file(folder / WEIGHTS, WEIGHTS_LIMIT, record.weights_hash)
    table = read_table(folder / WEIGHTS)

    def graph(name: GraphName) -> StoredGraph:
        assert record.graphs is not None
        content = _hashed_file(folder / name, RECORD_LIMIT, record.graphs[name])
        return StoredGraph.of(name, content, weights, table)

    backbone = GraphBackbone(
        record.backbone,
        record.backbone_hash,
        graph(ENCODER_GRAPH),
        lambda: load_model(folder)[0].backbone,
        graph(INT8_GRAPH) if INT8_GRAPH in record.graphs else None,
    )
    width = record.backbone.width
    head = GraphHead(record.options, width, graph(HEAD_GRAPH), usable_threads(None))
    return LoadedModel(record, backbone, head)


def _hashed_file(path: Path, limit: int, expected: str) -> bytes:
    """The content of a file whose hash `model.json` holds; another content is refused."""
    if not path.is_file():
        raise ModelError(f"'{path.name}' is missing", "copy it into the folder")
    content = read_bytes(path, limit, _TRAIN_AGAIN, source=f"'{path.name}'", error=ModelError)
    if hashlib.sha256(content).hexdigest() != expected:
        raise _other_file(path.name)
    return content


DEFAULT_MODEL = "ENTERON_MODEL"
"""Environment variable: a model folder in the place of the one in the package."""


def default_model() -> Path:
    """The model folder that is used where none is given: the one in the package.

    The environment variable `ENTERON_MODEL` names another one for this machine.
    """
    chosen = os.environ.get(DEFAULT_MODEL)
    if chosen:
        return Path(chosen)
    folder = Path(str(files("enteron.model") / "box"))
    if not (folder / RECORD).is_file():
        raise ModelError(
            "this installation of enteron has no model of its own",
            "give a model folder with --model, in Python with model=",
        )
    return folder


def read_record(folder: Path) -> ModelRecord:
    """Read `model.json` and check what can be checked without the tensors."""
    if not (folder / RECORD).exists():
        raise ModelError(
            f"'{folder.name}' has no '{RECORD}'", "give a folder that `enteron train` made"
        )
    table = read_json_object(folder / RECORD, _TRAIN_AGAIN, source=f"'{RECORD}'", error=ModelError)
    _check_header(table)
    try:
        record = make_options(ModelRecord, table, RECORD)
    except ConfigError as error:
        raise ModelError(error.problem, error.remedy) from error
    if record.preprocessing_hash != record.backbone.preprocessing.hash():
        raise ModelError(
            f"the preprocessing in '{RECORD}' is not the one the model was trained with",
            "undo the change to its size, mean, std, interpolation, resize or border",
        )
    for field, one, other in (
        ("backbone", record.options.backbone, record.backbone.name),
        ("differential", record.options.differential, record.backbone.differential),
        ("local_evidence", record.options.local_evidence, record.backbone.local_evidence),
        ("border", record.options.border, record.backbone.preprocessing.border),
    ):
        if one != other:
            raise ModelError(
                f"'{RECORD}' contradicts itself: {field} is both {one!r} and {other!r}",
                _TRAIN_AGAIN,
            )
    if record.graphs is not None and not set(record.graphs) >= _NEEDED_GRAPHS:
        raise ModelError(f"'{RECORD}' names one graph of two", _TRAIN_AGAIN)
    size = record.backbone.preprocessing.size
    if record.backbone.name != "lite" and size != VIT_SIZE:
        raise ModelError(
            f"'{RECORD}' gives a ViT pictures of {size} pixels, where it takes {VIT_SIZE}",
            _TRAIN_AGAIN,
        )
    if record.options.bundle is not None or record.options.download:
        raise ModelError(
            f"'{RECORD}' refers to weights outside of its folder",
            "set bundle to null and download to false: a model folder is complete",
        )
    return record


def _check_header(table: dict[str, Any]) -> None:
    """Check format and label order first: their messages matter more than a missing field."""
    if table.get("format") != 1:
        raise ModelError(
            f"'{RECORD}' has format {shown(table.get('format'))} where 1 is read",
            "use the version of enteron that made it",
        )
    labels = table.get("labels")
    if not isinstance(labels, list) or len(labels) != len(LABELS):
        count = len(labels) if isinstance(labels, list) else "no"
        raise ModelError(f"'{RECORD}' has {count} labels, not {len(LABELS)}", _TRAIN_AGAIN)
    for index, (name, expected) in enumerate(zip(labels, LABELS, strict=True)):
        if name != expected:
            raise ModelError(
                f"label {index} in '{RECORD}' is {shown(name)} where enteron has '{expected}'",
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


# ---- split.json


def model_split(folder: Path, record: ModelRecord) -> "Split":
    """The split of a model folder; another one than the model was trained with is refused."""
    from enteron.datasets.splits import load_split  # it loads polars

    split = load_split(folder / SPLIT)
    if record.split_hash is None:
        raise ModelError(
            f"'{RECORD}' names no split, so the studies in '{SPLIT}' may have trained the model",
            "train the model again with this split, or calibrate with --split all on other studies",
        )
    if split.hash != record.split_hash:
        raise ModelError(
            f"'{SPLIT}' is not the split that the model was trained with",
            f"copy the model's own '{SPLIT}' again; a new split needs a new training",
        )
    return split


# ---- calibration.json and priors.json


def load_calibration(path: Path) -> Calibration:
    """Read a calibration from its file, or from the model folder that holds it.

    Beside a `model.json` it must have been fitted for that model.
    """
    folder, file = (path, path / CALIBRATION) if path.is_dir() else (path.parent, path)
    table = read_json_object(
        file,
        "give a model folder that was calibrated, or make one with `enteron tune`",
        error=ConfigError,
    )
    calibration = make_options(Calibration, table, file.name)
    if (folder / RECORD).exists():
        require_fitted_for(calibration, read_record(folder), file.name)
    return calibration


def require_fitted_for(
    calibration: Calibration, record: ModelRecord, file: str = CALIBRATION
) -> None:
    """Refuse a calibration that was not fitted for this model."""
    fitted_for = calibration.fitted_for
    if fitted_for is None:
        raise ModelError(
            f"'{file}' does not say which model it was fitted for: an earlier version made it",
            _CALIBRATE_AGAIN,
        )
    if fitted_for.origin == "scores":
        raise ModelError(
            f"'{file}' was fitted by `enteron tune` on scores that are not of this model",
            f"{_CALIBRATE_AGAIN}; a calibration of `enteron tune` belongs into a folder of its own",
        )
    if fitted_for.weights != record.weights_hash:
        raise ModelError(f"'{file}' was fitted for another model", _CALIBRATE_AGAIN)
    if fitted_for.settings != record.settings_hash:
        raise ModelError(
            f"options or backbone in '{RECORD}' were changed since '{file}' was fitted",
            f"undo the change, or {_CALIBRATE_AGAIN}",
        )
    if fitted_for.split != record.split_hash:
        raise ModelError(f"'{file}' was fitted with another split", _CALIBRATE_AGAIN)
    trained = {study.id for study in record.training_studies or ()}
    if len(trained.intersection(fitted_for.study_ids)) > fitted_for.training_studies:
        raise ModelError(
            f"'{file}' was fitted on studies that trained the model, and does not say so",
            _CALIBRATE_AGAIN,
        )


def save_appearance(appearance: Appearance, folder: Path) -> None:
    """Write what the known studies look like."""
    write_json(folder / APPEARANCE, appearance.model_dump(mode="json"))


def load_appearance(folder: Path) -> Appearance | None:
    """What the known studies look like; None in folders that were never calibrated."""
    if not (folder / APPEARANCE).exists():
        return None
    table = read_json_object(folder / APPEARANCE, _CALIBRATE_AGAIN, error=ModelError)
    try:
        return make_options(Appearance, table, APPEARANCE)
    except ConfigError as error:
        raise ModelError(error.problem, _CALIBRATE_AGAIN) from error


_FIT_COARSE = (
    "fit it with `enteron calibrate MODEL --readings FOLDER --studies FOLDER`, on full readings of "
    "other studies"
)


@dataclass(frozen=True)
class CoarseModel:
    """What `enteron read --coarse` needs beside the model: `coarse.json`, `glance.safetensors`."""

    estimate: CoarseEstimate
    glance: Glance


def load_coarse(folder: Path, record: ModelRecord) -> CoarseModel:
    """What lies between two frames; refuse an estimate of another model or calibration."""
    if not (folder / COARSE).exists():
        raise ModelError(
            "nobody has estimated for this model what lies between two frames, so none may be left "
            "out",
            f"read every frame, without --coarse and --minutes, or {_FIT_COARSE}",
        )
    table = read_json_object(folder / COARSE, _FIT_COARSE, error=ModelError)
    try:
        estimate = make_options(CoarseEstimate, table, COARSE)
    except ConfigError as error:
        raise ModelError(error.problem, _FIT_COARSE) from error
    calibrated = calibration_hash(folder) if (folder / CALIBRATION).exists() else None
    if (estimate.weights, estimate.calibration) != (record.weights_hash, calibrated):
        raise ModelError(
            f"'{COARSE}' was fitted for other weights or another calibration", _FIT_COARSE
        )
    if not (folder / GLANCE).exists():
        raise ModelError(f"the model folder has '{COARSE}' and no '{GLANCE}'", _FIT_COARSE)
    glance, found = read_glance(folder / GLANCE)
    if found != estimate.glance:
        raise ModelError(f"'{COARSE}' was fitted with another '{GLANCE}'", _FIT_COARSE)
    return CoarseModel(estimate, glance)


def save_coarse(estimate: CoarseEstimate, glance: bytes, folder: Path) -> None:
    """Write the estimate into a model folder, and the content of the glance that it names."""
    write_bytes(folder / GLANCE, glance)
    write_json(folder / COARSE, estimate.model_dump(mode="json"), indent=2)


def calibration_hash(path: Path) -> str:
    """SHA-256 of a calibration's file, or of that in a model folder."""
    file = path / CALIBRATION if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()


def require_scored_by(
    calibration: Calibration, scored_by: str | None, model: Path, scores: Path
) -> None:
    """Refuse to calibrate a file of scores of another model; those of unknown models pass.

    `scored_by` is the hash of the weights that made the scores, `model` what the caller named.
    """
    fitted_for = calibration.fitted_for
    if scored_by is None or fitted_for is None:
        return
    if fitted_for.origin == "scores":
        if fitted_for.scored_by in (None, scored_by):
            return
        raise ModelError(
            f"the calibration in '{model.name}' was fitted on scores of another model or "
            f"combination than {scores.name}",
            "fit one with `enteron tune` on scores that were made in the same way",
        )
    if fitted_for.weights == scored_by:
        return
    raise ModelError(
        f"'{model.name}' is not the model that made {scores.name}",
        "give the model that scored the study, or read the study with this one",
    )


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration; equal calibrations give equal bytes."""
    write_json(path, calibration.model_dump(mode="json"), sort_keys=True)


def model_priors(path: Path) -> Priors:
    """The priors of a model folder (`priors.json`), or those of the package where it has none.

    `path` is the folder, or its `calibration.json`.
    """
    folder = path if path.is_dir() else path.parent
    stored = folder / PRIORS
    return load_priors(stored if stored.exists() else None)


def decoding_priors(
    calibration: Calibration, model: Path | None, given: Priors | None = None
) -> Priors:
    """The priors to decode with: the given ones, else the model's, else the packaged ones.

    A calibration fits only together with the priors that it was fitted with; others are refused.
    `model` is a model folder, or its `calibration.json`.
    """
    if given is None:
        given_by = f"'{PRIORS}' of the folder, or of the package,"
        remedy = f"copy the '{PRIORS}' that lay beside '{CALIBRATION}', or calibrate again"
        priors = load_priors() if model is None else model_priors(model)
    else:
        given_by, priors = "the file of --priors", given
        remedy = "leave out --priors, or calibrate with these priors"
    fitted_for = calibration.fitted_for
    if fitted_for is not None and fitted_for.priors != priors_hash(priors):
        raise ConfigError(f"{given_by} is not what '{CALIBRATION}' was fitted with", remedy)
    return priors

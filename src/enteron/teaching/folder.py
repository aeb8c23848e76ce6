"""The model folder while it is being trained: what may be started there, and what goes on."""

import shutil
from pathlib import Path

from enteron.config import parse_json_options
from enteron.errors import TrainingError
from enteron.files import write_text
from enteron.galar.splits import Split, load_split, save_split
from enteron.training.options import TrainingOptions

RECORD = "model.json"  # as `enteron.model.folder`, which needs torch, names it
SPLIT = "split.json"
TRAINING = "training"
CHECKPOINT = "checkpoint"
FEATURES = "features"
OPTIONS = "options.json"


def is_finished(out: Path) -> bool:
    """Whether a training ended here."""
    return (out / RECORD).exists() and not (out / CHECKPOINT).exists()


def is_begun(out: Path) -> bool:
    """Whether a training began here and did not end."""
    return (out / CHECKPOINT / OPTIONS).exists()


def require_new(out: Path) -> None:
    """Refuse to write over a model, finished or not."""
    if is_begun(out):
        raise TrainingError(
            f"'{out.name}' holds a training that did not finish",
            "add --resume to go on with it, or give another folder",
        )
    if (out / RECORD).exists():
        raise TrainingError(f"'{out.name}' holds a model already", "give another folder")
    if out.exists() and not out.is_dir():
        raise TrainingError(f"'{out.name}' is a file", "give a folder")


def begin(out: Path, options: TrainingOptions, split: Split) -> None:
    """Note what is to be trained before the long work, so that a killed run can go on."""
    checkpoint = out / CHECKPOINT
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(
            f"'{out.name}' cannot be made a folder ({error.strerror})", "give another place"
        ) from error
    save_split(split, out / SPLIT)
    write_text(checkpoint / OPTIONS, options.model_dump_json(indent=1) + "\n")


def begun(out: Path) -> tuple[TrainingOptions, Split]:
    """What was to be trained."""
    remedy = "train again into another folder"
    try:
        text = (out / CHECKPOINT / OPTIONS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"'{OPTIONS}' cannot be read ({error})", remedy) from error
    return parse_json_options(TrainingOptions, text, OPTIONS, remedy), load_split(out / SPLIT)


def finish(out: Path, options: TrainingOptions) -> None:
    """Keep the options for the reader, without places on this machine, and drop checkpoints."""
    model = options.model.model_copy(update={"bundle": None})
    kept = options.model_copy(update={"model": model})
    write_text(out / TRAINING / OPTIONS, kept.model_dump_json(indent=1) + "\n")
    shutil.rmtree(out / CHECKPOINT)

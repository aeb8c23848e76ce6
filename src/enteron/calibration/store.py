"""`calibration.json`: checked when it is read, whole when it is written."""

import json
from pathlib import Path

from enteron.calibration.value import Calibration
from enteron.config import parse_json_options
from enteron.errors import ConfigError
from enteron.files import write_text

FILE = "calibration.json"


def load_calibration(path: Path) -> Calibration:
    """A calibration from its file, or from the model folder that holds it."""
    if path.is_dir():
        path = path / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ConfigError(
            f"{path.name} cannot be read ({why})",
            "give a model folder that was calibrated, or make one with `enteron tune`",
        ) from error
    return parse_json_options(Calibration, text, path.name, "make it again with `enteron tune`")


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write it so that the same calibration is the same bytes."""
    write_text(path, json.dumps(calibration.model_dump(), indent=1, sort_keys=True) + "\n")

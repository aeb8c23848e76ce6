"""`calibration.json`: checked when it is read, whole when it is written."""

import json
from pathlib import Path

from enteron.calibration.value import Calibration
from enteron.config import make_options
from enteron.errors import ConfigError
from enteron.files import write_text

FILE = "calibration.json"


def load_calibration(path: Path) -> Calibration:
    """A calibration from its file, or from the model folder that holds it."""
    if path.is_dir():
        path = path / FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise ConfigError(
            f"{path.name} cannot be read ({why})",
            "give a model folder that was calibrated, or make one with `enteron tune`",
        ) from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path.name} is not JSON: {error}", "make it again with `enteron tune`"
        ) from error
    if not isinstance(table, dict):
        raise ConfigError(
            f"{path.name} holds a {type(table).__name__}, not an object",
            "make it again with `enteron tune`",
        )
    return make_options(Calibration, table, path.name)


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write it so that the same calibration is the same bytes."""
    write_text(path, json.dumps(calibration.model_dump(), indent=1, sort_keys=True) + "\n")

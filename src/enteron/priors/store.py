"""Priors on disk: a small JSON inside the package, or one of the user's own."""

import json
import re
from importlib import resources
from pathlib import Path

from enteron.config import parse_json_options
from enteron.errors import ConfigError
from enteron.files import write_text
from enteron.priors.value import Priors

PACKAGED = "priors.json"


def load_priors(path: Path | None = None) -> Priors:
    """The priors in the file, or those that come with the package."""
    if path is None:
        name = PACKAGED
        text = resources.files("enteron").joinpath(PACKAGED).read_text(encoding="utf-8")
    else:
        name = path.name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"priors {name} cannot be read ({error})",
                "make them with `enteron priors fit`, or give no file to use the packaged ones",
            ) from error
    return parse_json_options(Priors, text, name, "make it again with `enteron priors fit`")


def save_priors(priors: Priors, path: Path) -> None:
    """Write them so that the same priors are the same bytes, and never half a file."""
    write_text(path, to_json(priors))


def to_json(priors: Priors) -> str:
    """Sorted and indented, with each list and each small object of numbers on one line."""
    text = json.dumps(priors.model_dump(exclude_none=True), indent=1, sort_keys=True)
    text = re.sub(r"\[[^\[\]{}]*\]", _one_line, text)
    return re.sub(r"\{[^\[\]{}]*\}", _one_line, text) + "\n"


def _one_line(match: re.Match[str]) -> str:
    whole = match.group()
    line = re.sub(r"\s*\n\s*", " ", whole)
    # Prose would only grow longer than the screen; keep its lines.
    return whole if '"source"' in whole else line

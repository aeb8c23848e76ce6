"""The packaged recipes, and options made of a recipe with changes on top."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from enteron.config import make_options, read_toml
from enteron.training.options import TrainingOptions

RecipeName = Literal["paper", "lite"]


def recipe(name: RecipeName, changes: Path | None = None, **more: Any) -> TrainingOptions:
    """A recipe; a TOML file overrides what it names, and `more` overrides single options."""
    text = (files("enteron") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    table, source = tomllib.loads(text), f"{name}.toml"
    if changes is not None:
        table, source = _merged(table, read_toml(changes)), changes.name
    return make_options(TrainingOptions, _merged(table, more), source)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One table over another; tables inside are merged in turn, everything else is replaced."""
    made = dict(below)
    for name, value in above.items():
        inner = made.get(name)
        if isinstance(value, dict) and isinstance(inner, dict):
            value = _merged(inner, value)
        made[name] = value
    return made

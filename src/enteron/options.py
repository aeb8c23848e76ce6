"""Options: frozen, validated values, read from TOML or JSON."""

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from enteron.errors import ConfigError, nearest, reason


class Options(BaseModel):
    """Base of every options value: frozen, unknown names and wrong types refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


OptionsT = TypeVar("OptionsT", bound=Options)


def load_options(kind: type[OptionsT], path: Path) -> OptionsT:
    """Read options from a TOML file; tables are nested options."""
    return make_options(kind, read_toml(path), path.name)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path.name} cannot be read ({reason(error)})", "give a TOML file in UTF-8"
        ) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path.name} is not TOML: {error}", "correct that line (strings need quotes)"
        ) from error


def parse_json_options(kind: type[OptionsT], text: str, source: str, remedy: str) -> OptionsT:
    """Parse a JSON file that enteron wrote; `remedy` says how to get a valid one."""
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not JSON: {error}", remedy) from error
    if not isinstance(table, dict):
        raise ConfigError(f"{source} holds a {type(table).__name__}, not an object", remedy)
    return make_options(kind, table, source)


def make_options(kind: type[OptionsT], table: dict[str, Any], source: str) -> OptionsT:
    """Validate a table; the error names the first invalid field with its section."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *section, name = [str(part) for part in first["loc"]] or ["(whole file)"]
        where = f"{source}: [{'.'.join(section)}] {name}" if section else f"{source}: {name}"
        if first["type"] == "extra_forbidden":
            names = sorted(_section(kind, section).model_fields)
            raise ConfigError(f"{where} is not an option", nearest(name, names)) from error
        if first["type"] == "missing":
            raise ConfigError(
                f"{where} is missing", "every option without a default must be set"
            ) from error
        message = first["msg"][0].lower() + first["msg"][1:]
        raise ConfigError(
            f"{where} = {first['input']!r} is not valid", f"the {message}".removeprefix("the the ")
        ) from error


def _section(kind: type[Options], path: list[str]) -> type[Options]:
    """The options class of a nested section."""
    for name in path:
        inner = kind.model_fields[name].annotation
        if not (isinstance(inner, type) and issubclass(inner, Options)):
            break
        kind = inner
    return kind

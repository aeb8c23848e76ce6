"""Options: frozen, validated values, read from TOML or JSON."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enteron.errors import ConfigError, nearest, shorten, shown
from enteron.files import INT64, MAX_DEPTH, TOML_LIMIT, parse_json, read_text


class Options(BaseModel):
    """Base of every options value: frozen, unknown names and wrong types refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


def without_defaults(table: dict[str, Any], options: Options, *names: str) -> dict[str, Any]:
    """A serialised value without those of the named options that have their default.

    For options that were added later: files and hashes stay as they were where nobody uses them.
    """
    defaults = {name: type(options).model_fields[name].default for name in names}
    return {
        name: value
        for name, value in table.items()
        if name not in defaults or getattr(options, name) != defaults[name]
    }


OptionsT = TypeVar("OptionsT", bound=Options)

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""


def load_options(kind: type[OptionsT], path: Path) -> OptionsT:
    """Read options from a TOML file; tables are nested options."""
    return make_options(kind, read_toml(path), path.name)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    text = read_text(path, TOML_LIMIT, "give a TOML file in UTF-8", error=ConfigError)
    return parse_toml(text, path.name)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of TOML text; whole numbers have at most 64 bits, as TOML demands."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{source} is not TOML: {shorten(str(error), 120)}",
            "correct that line (strings need quotes)",
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"{source} nests too deeply", "options have tables of a few levels"
        ) from error
    except ValueError as error:  # integers of thousands of digits, dates that do not exist
        raise ConfigError(
            f"{source} holds a value that cannot be read", "correct its numbers and dates"
        ) from error
    values: list[Any] = [tables]
    for _ in range(MAX_DEPTH):  # level by level
        if any(type(value) is int and value not in INT64 for value in values):
            raise ConfigError(
                f"{source} holds a whole number of more than 64 bits", "give a smaller one"
            )
        values = [
            item
            for value in values
            if isinstance(value, (dict, list))
            for item in (value.values() if isinstance(value, dict) else value)
        ]
    if values:
        raise ConfigError(f"{source} nests too deeply", "options have tables of a few levels")
    return tables


def parse_json_options(kind: type[OptionsT], text: str, source: str, remedy: str) -> OptionsT:
    """Parse a JSON file that enteron wrote; `remedy` says how to get a valid one."""
    table = parse_json(text, source, remedy, error=ConfigError)
    if not isinstance(table, dict):
        raise ConfigError(f"{source} holds a {type(table).__name__}, not an object", remedy)
    return make_options(kind, table, source)


def make_options(kind: type[OptionsT], table: dict[str, Any], source: str) -> OptionsT:
    """Validate a table; the error names the first invalid field with its section."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *section, name = [shorten(str(part)) for part in first["loc"]] or ["(whole file)"]
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
            f"{where} = {shorten(shown(first['input']), 100)} is not valid",
            f"the {message}".removeprefix("the the "),
        ) from error


def _section(kind: type[Options], path: list[str]) -> type[Options]:
    """The options class of a nested section."""
    for name in path:
        field = kind.model_fields.get(name)
        inner = None if field is None else field.annotation
        # A section that may be left out is declared as `SomeOptions | None`.
        inner = next((part for part in get_args(inner) if part is not type(None)), inner)
        if not (isinstance(inner, type) and issubclass(inner, Options)):
            break
        kind = inner
    return kind

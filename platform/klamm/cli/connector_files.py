"""Connector configurations in files: JSON as Kafka Connect takes it, YAML, TOML and .properties.

A file holds a configuration alone, or `name`, `config` and `initial_state` as POST /connectors takes them. Values are
texts as Connect has them: `true` and `5` become "true" and "5", and tables in YAML and TOML become keys with dots.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import KlammError

_NAMED: Final = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".properties": ".properties"}
_NESTED: Final = {".yaml", ".yml", ".toml"}
"""The formats in which a table of settings may be a key's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorFile:
    """A connector as a file describes it; `name` is None where the file holds none."""

    name: str | None
    config: dict[str, Any]
    initial_state: str | None = None


def read_connector(file: Path) -> ConnectorFile:
    """Read a file, or standard input for `-`. Raises KlammError that names the file."""
    data = read_data(file, exact=True)
    if not isinstance(data, dict):
        raise KlammError(f'{file}: a JSON object is needed: {{"name": …, "config": {{…}}}}')
    nested = file.suffix.lower() in _NESTED
    config = data.get("config")
    if not isinstance(config, dict):
        found = dict(_settings(data, nested=nested))
        return ConnectorFile(name=found.get("name"), config=found)
    return ConnectorFile(
        name=data.get("name"),
        config=dict(_settings(config, nested=nested)),
        initial_state=data.get("initial_state"),
    )


def read_data(file: Path, *, exact: bool = False) -> Any:
    """Read JSON, YAML, TOML or .properties, by the name's ending; standard input (`-`) and other names are JSON.

    With `exact`, a fraction in JSON or TOML stays the text that it is: 0.10.
    """
    fraction = str if exact else float
    try:
        match file.suffix.lower():
            case ".yaml" | ".yml":
                return _yaml(file)
            case ".toml":
                import tomllib

                return tomllib.loads(file.read_text(encoding="utf-8"), parse_float=fraction)
            case ".properties":
                from klamm_base.properties import load_properties

                return dict(load_properties(file))
            case _:
                text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
                return json.loads(text, parse_float=fraction)
    except OSError as e:
        raise KlammError(f"{file}: cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise KlammError(f"{file}: not {_NAMED.get(file.suffix.lower(), 'JSON')}: {e}") from None


def read_edit(file: Path) -> dict[str, str]:
    """Read the .properties that an editor left. Raises KlammError that names lines, as the file does not stay."""
    from klamm_base.properties import entries

    try:
        return {key: value for _, key, value in entries(file.read_text(encoding="utf-8"), "line ")}
    except UnicodeDecodeError:
        raise KlammError("what the editor left is not UTF-8") from None


def _yaml(file: Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as e:
        raise KlammError(f"{file}: not YAML: {' '.join(str(e).split())}") from None


def _settings(table: Mapping[str, Any], *, nested: bool, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and their values; a number or Boolean as its text. With `nested`, tables become keys with dots.

    Lists stay, and objects in JSON: the worker refuses them.
    """
    for key, value in table.items():
        match value:
            case dict() if nested:
                yield from _settings(value, nested=True, prefix=f"{prefix}{key}.")
            case None | str() | list() | dict():
                yield f"{prefix}{key}", value
            case bool():
                yield f"{prefix}{key}", str(value).lower()
            case _:
                yield f"{prefix}{key}", str(value)


def to_properties(config: Mapping[str, str]) -> str:
    """Return a configuration as .properties, one line a key, which `read_data` reads back the same."""
    return "".join(f"{_escaped(k, key=True)}={_escaped(v)}\n" for k, v in sorted(config.items()))


def _escaped(text: str, *, key: bool = False) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {c: f"\\{c}" for c in "=: #!"}
    result = "".join(special.get(c, c) for c in text)
    return f"\\{result}" if result.startswith(" ") else result

"""Checked values out of a TOML document. Every error is one sentence with the file, the line and the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import TomlLines, meant

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Values:
    """A reader of one document. `at` is the table's place, as in `inputs[0].parse`; "" is the top of the file."""

    def __init__(self, name: str, text: str, base: Path) -> None:
        self.name, self.base = name, base
        self._lines = TomlLines(text)

    def line(self, at: str, key: str) -> int | None:
        """Returns a key's line, or else the line of the innermost table around it that has one."""
        return self._lines.line(at, key)

    def table(self, document: dict[str, Any], name: str, at: str = "") -> dict[str, Any]:
        """Returns an inner table; empty when there is none."""
        found = document.get(name, {})
        if not isinstance(found, dict):
            raise self.error(at, name, f"must be a table: [{f'{at}.' if at else ''}{name}]")
        return found

    def tables(self, document: dict[str, Any], name: str, at: str = "") -> list[tuple[dict[str, Any], str]]:
        """Returns an array of tables, each with its place."""
        found = document.get(name, [])
        if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
            raise self.error(at, name, f"must be an array of tables: [[{f'{at}.' if at else ''}{name}]]")
        place = f"{at}.{name}" if at else name
        return [(t, f"{place}[{i}]") for i, t in enumerate(found)]

    def flag(self, table: dict[str, Any], at: str, key: str, *, default: bool) -> bool:
        value = table.get(key, default)
        if not isinstance(value, bool):
            raise self.error(at, key, f"= {value!r}: true or false is expected")
        return value

    def text(self, table: dict[str, Any], at: str, key: str, default: str | None = None) -> str:
        value = table.get(key, default)
        if value is None:
            raise self.error(at, key, "is missing")
        if not isinstance(value, str) or not value:
            raise self.error(at, key, f"= {value!r}: a text is expected")
        return value

    def texts(
        self, table: dict[str, Any], at: str, key: str, default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        value = table.get(key, default)
        if value is None:
            raise self.error(at, key, "is missing")
        if isinstance(value, str):
            raise self.error(at, key, f'= {value!r}: a list is expected: ["{value}"]')
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
            raise self.error(at, key, f"= {value!r}: a list of texts is expected")
        if not value and default is None:
            raise self.error(at, key, "is empty: at least one path or pattern is expected")
        return tuple(value)

    def number(
        self, table: dict[str, Any], at: str, key: str, default: int, *, least: int, most: int = 1 << 40
    ) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(at, key, f"= {value!r}: a whole number from {least} to {most} is expected")
        return value

    def duration(self, table: dict[str, Any], at: str, key: str, default: float | None) -> float | None:
        value = table.get(key)
        if value is None:
            return default
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise self.error(
                at, key, f'= {value!r}: a time such as "500ms", "30s", "5m", "24h" or "7d" is expected'
            )
        return float(match[1]) * _UNITS[match[2]]

    def choice(self, table: dict[str, Any], at: str, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = table.get(key, default)
        if value not in choices:
            raise self.error(at, key, f"= {value!r}: one of {', '.join(choices)} is expected")
        return str(value)

    def known(self, table: Mapping[str, Any], at: str, names: tuple[str, ...]) -> None:
        for key in table:
            if key not in names:
                raise self.error(at, key, f"is not a setting; {meant(key, names)}")

    def error(self, at: str, key: str, what: str) -> ConfigError:
        line = self.line(at, key)
        where = f"[{at}] {key}" if at else key
        return ConfigError(
            f"{where} {what}",
            key=f"{at}.{key}" if at else key,
            source=f"{self.name}:{line}" if line else self.name,
        )


def is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(is_json, value.values()))
    if isinstance(value, list):
        return all(map(is_json, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor not a number
    return isinstance(value, (str, int, bool))


def dotted(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Joins dotted names again: to TOML `linger.ms = 5` without quotes is a table in a table."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += dotted(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found

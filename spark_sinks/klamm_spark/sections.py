"""Reads TOML tables key by key: every value is checked, and a key that nobody asks for is refused. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import meant

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MASTER = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[[^]]+\]|yarn|[a-z][a-z0-9]*://.+"
)

Check = Callable[[str, str], None]
"""Gets place and value, raises ConfigError."""


def is_name(place: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise ConfigError(f"{place} = {value!r}: use letters, digits, _ and -", key=place)


def is_master(place: str, value: str) -> None:
    """Checks a master: Spark's own complaint about `local[x]` names neither place nor reason."""
    if not _MASTER.fullmatch(value.strip()):
        raise ConfigError(
            f"{place} = {value!r} is no master of Spark's: use local[*], local[4], spark://HOST:PORT, yarn or k8s://URL",
            key=place,
        )


def is_regex(place: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as e:
        raise ConfigError(f"{place} = {value!r} is no regular expression: {e}", key=place) from None


def one_of(allowed: tuple[str, ...]) -> Check:
    def check_it(place: str, value: str) -> None:
        if value not in allowed:
            near = difflib.get_close_matches(value.lower(), allowed, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{place} = {value!r}: use {' or '.join(allowed)}{hint}", key=place)

    return check_it


def matches(pattern: re.Pattern[str], example: str) -> Check:
    def check_it(place: str, value: str) -> None:
        if not pattern.fullmatch(value.strip()):
            raise ConfigError(f"{place} = {value!r}: write a time such as {example!r}", key=place)

    return check_it


def dotted(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Joins nested tables to dotted names again: TOML reads `spark.sql.x = 1` without quotes as nested tables."""
    answer: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            answer.update(dotted(value, f"{prefix}{name}."))
        else:
            answer[prefix + name] = value
    return answer


def as_text(place: str, value: Any, key: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
    raise ConfigError(f"{place} must be a text, a number or true/false", key=key)


class Section:
    """One TOML table. Each key is asked for once; `done` refuses keys that nobody asked for."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data
        self._asked: set[str] = set()

    def place(self, key: str) -> str:
        return f"[{self.name}] {key}" if self.name else key

    def at(self, key: str) -> str:
        """Returns the key's place in the document, as errors carry it."""
        return f"{self.name}.{key}" if self.name else key

    def error(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.place(key)}{what}", key=self.at(key))

    def _get(self, key: str, kind: type, what: str) -> Any:
        self._asked.add(key)
        value = self.data.get(key)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        raise self.error(key, f" must be {what}")

    def text_or_none(self, key: str, check: Check | None = None) -> str | None:
        value: str | None = self._get(key, str, "a text")
        if value is not None and check is not None:
            try:
                check(self.place(key), value)
            except ConfigError as e:
                raise ConfigError(str(e), key=self.error(key, "").key) from None
        return value

    def text(self, key: str, default: str = "", *, required: bool = False, check: Check | None = None) -> str:
        value = self.text_or_none(key, check)
        if required and not value:
            raise self.error(key, " is missing")
        return default if value is None else value

    def texts(self, key: str) -> list[str]:
        value: list[Any] = self._get(key, list, "a list of texts") or []
        if not all(isinstance(v, str) and v for v in value):
            raise self.error(key, " must be a list of texts")
        return value

    def number(self, key: str) -> int | None:
        value: int | None = self._get(key, int, "a whole number")
        if value is not None and value < 1:
            raise self.error(key, f" = {value}: at least 1")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value: bool | None = self._get(key, bool, "true or false")
        return default if value is None else value

    def asked(self, key: str) -> None:
        """Marks a key that somebody else reads."""
        self._asked.add(key)

    def table(self, key: str) -> dict[str, Any]:
        """Returns a table whose content somebody else checks."""
        found: dict[str, Any] = self._get(key, dict, "a table") or {}
        return found

    def strings(self, key: str) -> dict[str, str]:
        found = dotted(self._get(key, dict, "a table") or {})
        return {k: as_text(f"{self.place(key)}.{k}", v, f"{self.at(key)}.{k}") for k, v in found.items()}

    def section(self, key: str, *, required: bool = False) -> Section:
        value: dict[str, Any] | None = self._get(key, dict, "a table")
        if value is None and required:
            raise ConfigError(f"the section [{self.at(key)}] is missing", key=self.at(key))
        return Section(self.at(key), value or {})

    def sections(self, key: str) -> list[Section]:
        value: list[Any] = self._get(key, list, f"written as [[{self.at(key)}]]") or []
        if not all(isinstance(v, dict) for v in value):
            raise ConfigError(f"{self.at(key)} must be written as [[{self.at(key)}]]", key=self.at(key))
        return [Section(f"{self.at(key)}[{n}]", v) for n, v in enumerate(value)]

    def done(self) -> None:
        for key in self.data:
            if key not in self._asked:
                where = f"[{self.name}]" if self.name else "the top level"
                raise ConfigError(
                    f"{where} has an unknown key {key}; {meant(key, sorted(self._asked))}", key=self.at(key)
                )

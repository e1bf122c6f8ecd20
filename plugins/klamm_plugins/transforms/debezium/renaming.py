"""Names made of names: by Java's regular expressions, and adjusted to what Avro accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from klamm_base.configdef import invalid
from klamm_plugins.java_regex import compile_java, java_replacement

_NAMES_MAX: Final = 10_000  # remembered; a name costs a match

Adjust = Callable[[str], str]

NONE: Final = "none"
AVRO: Final = "avro"
AVRO_UNICODE: Final = "avro_unicode"
ADJUSTMENTS: Final = (NONE, AVRO, AVRO_UNICODE)


class Renaming:
    """Replaces names that a regular expression matches as a whole, and remembers them."""

    def __init__(self, pattern: str, replacement: str, *, key: str) -> None:
        """Compiles both. `key` is the setting of the replacement. Raises ConfigError for one that refers to no group."""
        self._pattern = compile_java(pattern)
        try:
            self._replacement = java_replacement(replacement, self._pattern)
        except re.error as e:
            raise invalid(key, replacement, str(e)) from e
        self._known: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """Returns the new name; None where the expression does not match."""
        if name not in self._known:
            if len(self._known) >= _NAMES_MAX:
                self._known.clear()
            # Java tests the whole name, and then replaces the first match that it finds, which may be less.
            matches = self._pattern.fullmatch(name) is not None
            self._known[name] = self._pattern.sub(self._replacement, name, count=1) if matches else None
        return self._known[name]


def schema_adjuster(mode: str) -> Adjust:
    """Returns the function for names of schemas, in which dots separate namespaces."""
    return _adjuster(mode, inner=".")


def field_adjuster(mode: str) -> Adjust:
    """Returns the function for names of fields."""
    return _adjuster(mode, inner="")


def _adjuster(mode: str, inner: str) -> Adjust:
    if mode == NONE:
        return lambda name: name
    if mode == AVRO:
        bad = re.compile(rf"[^A-Za-z0-9_{inner}]")
        # A digit at the beginning stays behind an underscore, so that names that differ by it do not become the same.
        return lambda name: ("_" if name[:1].isdigit() else "") + bad.sub("_", _first_letter(name, inner))
    first = re.compile(r"^[^A-Za-z]")
    later = re.compile(rf"(?<=.)[^A-Za-z0-9{inner}]", re.DOTALL)
    return lambda name: first.sub(_escape, later.sub(_escape, name))


def _first_letter(name: str, inner: str) -> str:
    """Returns the name with `_` for a separator at its beginning, where a letter must be."""
    return f"_{name[1:]}" if inner and name.startswith(inner) else name


def _escape(match: re.Match[str]) -> str:
    digits = f"{ord(match[0]):x}"
    return f"_u00{digits}" if len(digits) <= 2 else f"_u{digits}"

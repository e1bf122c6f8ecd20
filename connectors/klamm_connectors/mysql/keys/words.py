"""Keys with one word of several as their value. Case does not matter, as in Debezium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import Validator, invalid

_NONE: Final[Mapping[str, str]] = {}


def word(value: str) -> str:
    """Returns the word as it is compared."""
    return value.strip().lower()


def one_word_of(*allowed: str, refused: Mapping[str, str] = _NONE) -> Validator:
    """Returns a validator that accepts one of these words. `refused` has others of Debezium's, with what to write instead."""

    def check(name: str, value: Any) -> None:
        given = "" if value is None else word(value)
        if given in refused:
            raise invalid(name, value, refused[given])
        if given not in allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return check

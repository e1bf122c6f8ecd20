"""Checks of configuration values that transforms share, in Kafka's words, and the keys that many of them have."""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.java_regex import compile_java

REPLACE_NULL: Final = "replace.null.with.default"


def with_replace_null(config: ConfigDef) -> ConfigDef:
    """Returns `config` with the key that most transforms of structs end with (KIP-1040)."""
    return config.define(
        REPLACE_NULL,
        Type.BOOLEAN,
        default=True,
        documentation="Whether a field that is null takes its schema's default value, if there is one.",
        importance=Importance.MEDIUM,
    )


def distinct(name: str, value: Any) -> None:
    """Accepts as Kafka's ValidList.anyNonDuplicateValues(true, false) does."""
    if value is None:
        raise ConfigError(f"Configuration '{name}' values must not be null.", key=name)
    if len(set(value)) != len(value):
        raise ConfigError(f"Configuration '{name}' values must not be duplicated.", key=name)
    if "" in value:
        raise ConfigError(f"Configuration '{name}' values must not be empty.", key=name)


def some_distinct(name: str, value: Any) -> None:
    """Accepts as Kafka's ValidList.anyNonDuplicateValues(false, false) does."""
    if value is not None and not value:
        raise ConfigError(
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value", key=name
        )
    distinct(name, value)


def not_empty_list(name: str, value: Any) -> None:
    """Accepts as Kafka's NonEmptyListValidator does."""
    if not value:
        raise invalid(name, "[]" if value is not None else None, "Empty list")


def not_null(name: str, value: Any) -> None:
    if value is None:
        raise invalid(name, None, "entry must be non null")


def regex(name: str, value: Any) -> None:
    """Accepts a regular expression of Java's that has a form in Python."""
    try:
        compile_java(value or "")
    except re.error as e:
        raise invalid(name, value, f"Invalid regex: {e}") from e

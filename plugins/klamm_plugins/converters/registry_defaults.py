"""Defaults of fields in a registry's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, validate_value


def set_default(builder: SchemaBuilder, given: Any, convert: Callable[[Schema, Any], Any]) -> None:
    """Sets a default. A default that does not fit is left out, as in Confluent's converter."""
    schema = builder.build()
    try:
        value = convert(schema, given)
        validate_value(schema, value, "default")
    except (DataError, TypeError, ValueError, KeyError, AttributeError):
        return
    builder.default(value)

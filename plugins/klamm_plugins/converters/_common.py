"""The configuration key of all converters."""

from __future__ import annotations

from klamm_base.configdef import ConfigDef, Importance, Type, one_of


def converter_config() -> ConfigDef:
    """Returns a new definition with `converter.type`, the key of every converter."""
    return ConfigDef().define(
        "converter.type",
        Type.STRING,
        validator=one_of("key", "value", "header"),
        importance=Importance.LOW,
        documentation="Which part of a record this converter serves. The runtime sets it.",
        display_name="converter.type",
    )

"""The configuration key that all converters have."""

from __future__ import annotations

from klamm_base.configdef import ConfigDef, Importance, Type, one_of


def converter_config() -> ConfigDef:
    """A new definition that holds `converter.type`, the key that every converter has."""
    return ConfigDef().define(
        "converter.type",
        Type.STRING,
        validator=one_of("key", "value", "header"),
        importance=Importance.LOW,
        documentation="Which part of a record this converter serves. The runtime sets it.",
        display_name="converter.type",
    )

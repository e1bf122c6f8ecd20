"""Packages that a connector needs and Klamm alone does not bring: told when a configuration is validated, not when a task dies."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from klamm_base.configdef import ConfigValue
from klamm_plugins.errors import ConfigError

CONNECTOR_CLASS = "connector.class"


def need(who: str, modules: Sequence[str], extra: str) -> None:
    """ConfigError when one of the modules is not installed beside Klamm."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"{who} needs the Python package {module}, which is not installed: pip install 'klamm[{extra}]'",
                key=CONNECTOR_CLASS,
            )


def need_value(who: str, modules: Sequence[str], extra: str) -> list[ConfigValue]:
    """The same as what `validate` says of the connector's class; nothing when all is there."""
    try:
        need(who, modules, extra)
    except ConfigError as e:
        return [ConfigValue(name=CONNECTOR_CLASS, errors=[str(e)])]
    return []

"""Checks for packages that a connector needs and Klamm alone does not install.

Validation reports a missing package before a task can fail for it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from klamm_base.configdef import ConfigValue
from klamm_base.extras import how_to_install
from klamm_plugins.errors import ConfigError

CONNECTOR_CLASS = "connector.class"


def need(who: str, modules: Sequence[str], extra: str) -> None:
    """Raises ConfigError when one of the modules is not installed beside Klamm."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"{who} needs the Python package {module}, which is not installed: {how_to_install(extra)}",
                key=CONNECTOR_CLASS,
            )


def need_value(who: str, modules: Sequence[str], extra: str) -> list[ConfigValue]:
    """Returns the same error for `validate`, at the key connector.class; an empty list when nothing is missing."""
    try:
        need(who, modules, extra)
    except ConfigError as e:
        return [ConfigValue(name=CONNECTOR_CLASS, errors=[str(e)])]
    return []

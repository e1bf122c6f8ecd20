"""The class of a config provider by the name that a worker's properties have for it.

Built-in ones need no search. Others are found by their Python path, or, by Kafka's name, alias or class name, among
those that installed packages give for the hook `register_config_providers`.
"""

from __future__ import annotations

from klamm_plugins.config_provider import BUILT_IN, ConfigProvider
from klamm_plugins.operator_discovery import find_class


def find_config_provider(name: str) -> type[ConfigProvider]:
    """Raises ConfigError that says what there is."""
    # An abstract base is what is looked for here, which mypy's type[T] does not have.
    base: type[ConfigProvider] = ConfigProvider  # type: ignore[type-abstract]
    return find_class(name, base, "register_config_providers", BUILT_IN, "config providers")

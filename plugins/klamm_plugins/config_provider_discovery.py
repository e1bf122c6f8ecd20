"""Finds the class of a config provider by the name in a worker's properties.

Built-in providers need no search. Others are found by their Python path, or, by Kafka's name, alias or class
name, among the classes that installed packages give for the hook `register_config_providers`.
"""

from __future__ import annotations

from klamm_plugins.config_provider import BUILT_IN, ConfigProvider
from klamm_plugins.operator_discovery import find_class


def find_config_provider(name: str) -> type[ConfigProvider]:
    """Returns the provider's class. Raises ConfigError that names the available ones."""
    # The search is for an abstract base, which mypy's type[T] does not allow.
    base: type[ConfigProvider] = ConfigProvider  # type: ignore[type-abstract]
    return find_class(name, base, "register_config_providers", BUILT_IN, "config providers")

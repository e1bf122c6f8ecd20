"""The class of a config provider by the name that a worker's properties have for it.

Built-in ones need no search. Others are found by their Python path, or, by Kafka's name, alias or class name, among
those that installed packages give for the hook `register_config_providers`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final, cast

import pluggy

from klamm_base.errors import ConfigError
from klamm_plugins import hookspecs
from klamm_plugins.config_provider import BUILT_IN, ConfigProvider

_GROUP: Final = "klamm"


def find_config_provider(name: str) -> type[ConfigProvider]:
    """Raises ConfigError that says what there is."""
    for cls in BUILT_IN:
        if name in _names(cls):
            return cls
    named = _by_path(name)
    if named is not None:
        return named
    registered, broken = _registered()
    for cls in registered:
        if name in _names(cls):
            return cls
    known = ", ".join(cls.kafka_name or cls.__name__ for cls in (*BUILT_IN, *registered))
    trouble = f"; these packages could not be loaded: {', '.join(broken)}" if broken else ""
    raise ConfigError(f"Class {name} could not be found; config providers are: {known}{trouble}")


def _names(cls: type[ConfigProvider]) -> set[str]:
    path = {f"{cls.__module__}.{cls.__qualname__}", f"{cls.__module__}:{cls.__qualname__}"}
    return path | {cls.__name__, *(n for n in (cls.kafka_name, cls.alias) if n)}


def _by_path(name: str) -> type[ConfigProvider] | None:
    module, _, cls_name = name.replace(":", ".").rpartition(".")
    if not module:
        return None
    try:
        found = getattr(importlib.import_module(module), cls_name, None)
    except ImportError:
        return None
    if isinstance(found, type) and issubclass(found, ConfigProvider):
        return found
    return None


def _registered() -> tuple[list[type[ConfigProvider]], list[str]]:
    """(classes, packages that are broken): this imports every plugin package."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    classes: list[type[ConfigProvider]] = []
    broken: list[str] = []
    for entry_point in {(e.name, e.value): e for e in entry_points(group=_GROUP)}.values():
        try:
            manager.register(entry_point.load(), entry_point.name)
        except (Exception, SystemExit) as e:
            broken.append(f"{entry_point.name} ({type(e).__name__}: {e})")
    for impl in manager.hook.register_config_providers.get_hookimpls():
        try:
            classes += cast("Sequence[type[ConfigProvider]]", impl.function())
        except Exception as e:
            broken.append(f"{impl.plugin_name} ({type(e).__name__}: {e})")
    return classes, broken

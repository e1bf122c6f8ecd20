"""Finds classes that operators install beside a worker and name in its properties.

A name is a Python path, or Kafka's name, an alias or the class name of a class that an installed package gives
for a hook. A search by hook imports every plugin package; a path imports only its module.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar, cast

import pluggy

from klamm_base.errors import ConfigError
from klamm_plugins import hookspecs

GROUP: Final = "klamm"

T = TypeVar("T")


def find_class(name: str, base: type[T], hook: str, built_in: Sequence[type[T]], what: str) -> type[T]:
    """Returns the subclass of `base` with this name. Raises ConfigError that lists the available names."""
    for cls in built_in:
        if name in _names(cls):
            return cls
    named = _by_path(name, base)
    if named is not None:
        return named
    registered, broken = _registered(hook, base)
    for cls in registered:
        if name in _names(cls):
            return cls
    known = [getattr(cls, "kafka_name", None) or cls.__name__ for cls in (*built_in, *registered)]
    trouble = f"; these packages could not be loaded: {', '.join(broken)}" if broken else ""
    raise ConfigError(f"Class {name} could not be found; {what} are: {', '.join(known) or 'none'}{trouble}")


def _names(cls: type) -> set[str]:
    others = (getattr(cls, "kafka_name", None), getattr(cls, "alias", None))
    path = {f"{cls.__module__}.{cls.__qualname__}", f"{cls.__module__}:{cls.__qualname__}"}
    return path | {cls.__name__, *(n for n in others if n)}


def _by_path(name: str, base: type[T]) -> type[T] | None:
    module, _, cls_name = name.replace(":", ".").rpartition(".")
    if not module:
        return None
    try:
        found = getattr(importlib.import_module(module), cls_name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, base) else None


def _registered(hook: str, base: type[T]) -> tuple[list[type[T]], list[str]]:
    """Returns (classes, packages that are broken). It imports every plugin package."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    classes: list[type[T]] = []
    broken: list[str] = []
    for entry_point in {(e.name, e.value): e for e in entry_points(group=GROUP)}.values():
        try:
            manager.register(entry_point.load(), entry_point.name)
        except (Exception, SystemExit) as e:
            broken.append(f"{entry_point.name} ({type(e).__name__}: {e})")
    for impl in getattr(manager.hook, hook).get_hookimpls():
        try:
            given = cast("Sequence[Any]", impl.function())
            strangers = [cls for cls in given if not (isinstance(cls, type) and issubclass(cls, base))]
            classes += [cls for cls in given if cls not in strangers]
        except Exception as e:
            broken.append(f"{impl.plugin_name} ({type(e).__name__}: {e})")
        else:
            broken += [f"{impl.plugin_name} ({cls!r} is no {base.__name__})" for cls in strangers]
    return classes, broken

"""Klamm's own connectors, imported once in the fork server instead of in each of their children.

The first child of a connector's class makes the fork server import what all of its children need: the plugins of its
entry points and the task's module. Children share that memory, and start sooner. Only Klamm's own modules are imported
here: they start no thread when they are imported, and a fork must not copy a lock that another thread holds. Another
package's plugins are imported by the child, as before.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from typing import Final

from klamm.connect.children.needs import Needs
from klamm_plugins.discovery import PluginManager

log = logging.getLogger(__name__)

_OWN: Final = ("klamm_plugins.", "klamm_connectors.", "klamm_mirror.")

_plugins: Final[dict[tuple[tuple[str, str], ...], PluginManager]] = {}
_warmed: Final[set[Needs]] = set()


def plugins_of(entry_points: Sequence[Sequence[str]]) -> PluginManager:
    """Returns the plugins of these entry points (name, module): those that the fork server has imported, or new ones."""
    return _plugins.get(_key(entry_points)) or PluginManager.load(entry_points)


def warm(entry_points: Sequence[Sequence[str]], connector: str) -> bool:
    """Imports what children of this `connector.class` need, once. Returns False when there is nothing to do.

    An error is left to the child, which meets and reports it.
    """
    key = _key(entry_points)
    if (key, connector) in _warmed or not key or not all(module.startswith(_OWN) for _, module in key):
        return False
    _warmed.add((key, connector))
    try:
        plugins = plugins_of(key)
        found = plugins.find_connector(connector)
        found.original_keys  # noqa: B018 - read from a file, and kept
        found.task_class()
    except Exception as e:
        log.debug("children of %s import it themselves: %s", connector, e)
        return True
    if not plugins.broken:
        _plugins[key] = plugins
    gc.collect()
    gc.freeze()
    return True


def _key(entry_points: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, module) for name, module in entry_points)

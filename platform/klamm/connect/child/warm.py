"""Klamm's own connectors, imported once in the fork server instead of in each of their children.

The first child of a connector's class makes the fork server import what all of its children need: the plugins of its
entry points and the task's module. Children share that memory, and start sooner. Only Klamm's own modules are imported
here: they start no thread when they are imported, and a fork must not copy a lock that another thread holds. Another
package's plugins are imported by the child, as before.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Sequence
from typing import Final, get_args

from confluent_kafka.admin import AdminClient

from klamm.connect.child.plugins import DEFAULT_HEADER_CONVERTER
from klamm.connect.children.needs import Needs
from klamm_base.clientconfig import Kind, translate
from klamm_plugins.connector import Connector
from klamm_plugins.discovery import PluginManager, PluginType
from klamm_plugins.original_keys import refusals

log = logging.getLogger(__name__)

_OWN: Final = ("klamm_plugins.", "klamm_connectors.", "klamm_mirror.")

_plugins: Final[dict[tuple[tuple[str, str], ...], PluginManager]] = {}
_loading: Final = threading.Lock()
_warmed: Final[set[Needs]] = set()


def plugins_of(entry_points: Sequence[Sequence[str]]) -> PluginManager:
    """Returns the plugins of these entry points (name, module): those that the fork server has imported, or new ones."""
    found = _plugins.get(_key(entry_points))
    if found is not None:
        return found
    with _loading:  # threads of a shared process: Python's finders are not made for several
        return PluginManager.load(entry_points)


def warm(entry_points: Sequence[Sequence[str]], connector: str, converters: Sequence[str]) -> bool:
    """Imports what children of this `connector.class` need, and has ready what each of them would look up, once.

    Returns False when there is nothing to do. An error is left to the child, which meets and reports it.
    """
    key = _key(entry_points)
    needs = (key, connector, tuple(converters))
    if needs in _warmed or not key or not all(module.startswith(_OWN) for _, module in key):
        return False
    _warmed.add(needs)
    plugins = plugins_of(key)
    try:
        _rehearse(plugins, connector, converters)
    except Exception as e:
        log.debug("children of %s import it themselves: %s", connector, e)
        return True
    if not plugins.broken:
        _plugins[key] = plugins
    gc.collect()
    gc.freeze()
    return True


def _rehearse(plugins: PluginManager, connector: str, converters: Sequence[str]) -> None:
    """Does what children do with these classes, as far as it is the same for all of them. No other package is loaded."""
    for desc in plugins.called(connector, PluginType.SOURCE, PluginType.SINK):
        cls = desc.cls
        assert issubclass(cls, Connector)
        refusals(cls.original_keys, {"": ""})  # reads the table, compiles its patterns
        cls.config()
        cls.task_class()
    for name in (*converters, DEFAULT_HEADER_CONVERTER):
        for kind in (PluginType.CONVERTER, PluginType.HEADER_CONVERTER):
            for desc in plugins.called(name, kind):
                desc.cls.config()


def warm_clients() -> None:
    """Has librdkafka and its TLS library set themselves up, which they do with the first client of a process.

    The client has ended, with its threads, when this returns.
    """
    for kind in get_args(Kind):
        translate({}, kind)
    AdminClient({"log_level": 0})


def _key(entry_points: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, module) for name, module in entry_points)

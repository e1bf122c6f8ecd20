"""Finds connectors that no package lists: `connector.class` may be a Python path, which only a child can
look into.

The worker that validates a configuration finds such a class in doing so. The other workers of its group
read of the class in the config topic and look for themselves, at most once in a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from klamm.connect.model import PluginInfo
from klamm.connect.plugins.catalog import PluginRegistry
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0  # what was not there may have been installed since


class PluginSearch:
    """See the module. `registry` returns the plugins that are known now, `validate` asks a child. `run` runs a search
    beside everything else, and reconciles when it has ended; nothing is searched for while `active` returns False.
    """

    def __init__(
        self,
        registry: Callable[[], PluginRegistry],
        validate: Callable[[Mapping[str, str]], Awaitable[dict[str, Any]]],
        run: Callable[[Coroutine[Any, Any, None]], None],
        *,
        active: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._validate = validate
        self._run = run
        self._active = active
        self._sought: set[str] = set()
        self._asked: dict[str, float] = {}
        self._missing: dict[str, str] = {}

    def find(self, connector_class: str) -> PluginInfo | None:
        """Returns the plugin if it is known by now; otherwise starts a search, after which the runtime reconciles."""
        found = self._registry().connector(connector_class)
        if found is not None:
            self._missing.pop(connector_class, None)
        if found is None and self._is_due(connector_class):
            self._sought.add(connector_class)
            self._run(self._seek(connector_class))
        return found

    def misses(self, connector_class: str) -> bool:
        """Returns whether a class was looked for, and has not been found."""
        return connector_class in self._missing

    def why_missing(self, connector_class: str) -> str:
        """Returns the sentence of the child that looked for a class: that nobody knows it, or what is broken."""
        return self._missing.get(connector_class, f"no connector plugin is called {connector_class}")

    def seeks(self, connector_class: str) -> bool:
        """Returns whether a search for this class goes on."""
        return connector_class in self._sought

    async def learn_all(self, configs: Iterable[Mapping[str, str]]) -> None:
        """Look for the connector classes of all these configurations."""
        for config in configs:
            await self._learn(config.get(CONNECTOR_CLASS, ""))

    def _is_due(self, connector_class: str) -> bool:
        if not connector_class or connector_class in self._sought or not self._active():
            return False
        asked = self._asked.get(connector_class)
        return asked is None or time.monotonic() - asked > AGAIN_S

    async def _seek(self, connector_class: str) -> None:
        try:
            await self._learn(connector_class)
        finally:
            self._sought.discard(connector_class)

    async def _learn(self, connector_class: str) -> None:
        if self._registry().connector(connector_class) is not None:
            return
        try:
            answer = await self._validate({CONNECTOR_CLASS: connector_class})
        except KlammError as e:
            log.warning("connector.class %s: %s", connector_class, e)
            self._missing[connector_class] = self._registry().unknown_connector(connector_class, str(e))
        else:
            found = PluginInfo(answer["name"], answer["kind"], answer["version"])
            self._registry().learn(connector_class, found)
        self._asked[connector_class] = time.monotonic()

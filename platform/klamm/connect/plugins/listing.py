"""Keeps the list of plugins up to date: packages first, then the classes that only configurations name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm.connect.plugins.admin import PluginAdmin
from klamm.connect.plugins.search import PluginSearch
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
REFRESH_S: Final = 5.0  # GET /connector-plugins waits this long for a plugin package that hangs


class PluginListing:
    """See the module. `configs` returns the configurations of all connectors."""

    def __init__(
        self,
        admin: PluginAdmin,
        search: PluginSearch,
        configs: Callable[[], Iterable[tuple[str, Mapping[str, str]]]],
    ) -> None:
        self._admin = admin
        self._search = search
        self._configs = configs

    async def refresh(self, timeout_s: float = REFRESH_S) -> bool:
        """List the plugins again; returns False, and keeps the list, when that fails.

        It fails when a package beside the worker hangs or crashes while a child imports it.
        """
        try:
            await self._admin.refresh(timeout_s)
        except KlammError as e:
            log.error("the plugins cannot be listed: %s", e)  # noqa: TRY400
            return False
        await self._search.learn_all(config for _, config in self._configs())
        return True

    async def retry(self, on_listed: Callable[[], None]) -> None:
        """Try again until the plugins are listed, then call `on_listed`."""
        while True:
            await asyncio.sleep(RETRY_S)
            if await self.refresh(30):
                on_listed()
                return

"""The process of a console: `klamm console start`. Prints `ready console=http://HOST:PORT` once it serves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from klamm.console.app import make_app
from klamm.console.settings import ConsoleSettings
from klamm.console.state import Console
from klamm.web.authentication import UsersFile
from klamm.web.listeners import Listener, is_loopback
from klamm.web.process import serve
from klamm.web.reload import Reloadable
from klamm.web.roles import Realm
from klamm.web.server import HttpServer
from klamm_base.errors import ConfigError
from klamm_base.service_manager import say_ready

log = logging.getLogger(__name__)

REALM: Final = Realm(title="Klamm console", server="console", thing="connector")


class ConsoleProcess:
    """A console's server."""

    def __init__(self, settings: ConsoleSettings) -> None:
        if settings.auth_file is None:
            _stay_at_home(settings.listeners)
        self._settings = settings
        self._server = HttpServer(settings.listeners, tls=settings.tls)
        self._asks = UsersFile(Path(settings.auth_file), REALM) if settings.auth_file else None
        if self._asks is not None:
            self._server.reloadable["users"] = self._asks

    async def start(self) -> None:
        """Takes the ports, and serves."""
        if self._asks is not None:
            self._server.warn_of_clear_text()
        self._server.bind()
        await self._server.serve(make_app(Console(self._settings, self._asks)))

    @property
    def address(self) -> str:
        """The address of the ready line."""
        return str(self._server.printed)

    @property
    def reloadable(self) -> dict[str, Reloadable]:
        """The files that SIGHUP reads again."""
        return self._server.reloadable

    async def wait(self) -> None:
        """Serves for ever."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Ends the server."""
        await self._server.stop()


async def run(settings: ConsoleSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises ConfigError and KlammError."""
    process = ConsoleProcess(settings)
    await serve(process, lambda: say_ready(f"ready console={process.address}"), process.reloadable)


def _stay_at_home(listeners: tuple[Listener, ...]) -> None:
    for each in listeners:
        if not is_loopback(each.host):
            raise ConfigError(
                f"listeners={each}: others reach this address, and the console would let them do everything. Set "
                "rest.auth.file (users and their roles: klamm connect password), or an address of loopback",
                key="listeners",
            )

"""The fork servers of a worker: one for its own packages, one for each plugin environment that is in use.

The first starts with the worker. An environment's fork server starts when a child first needs it, and
ends when it has had no child for a while, because each holds some 40 MB. Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from klamm.connect.children.channel import Message
from klamm.connect.children.launcher import Child, Launcher, LaunchError
from klamm.connect.children.needs import Needs
from klamm.connect.children.server_process import ServerProcess

log = logging.getLogger(__name__)

# Long enough that a connector's restart, or the POST that follows a validation, finds the server warm.
IDLE_S: Final = 60.0
_LOOK_S: Final = 10.0


class ForkServers:
    """See the module. `idle_s`: how long an environment's fork server stays without children. `preload`: modules that
    the first fork server imports for all of its children. `first`: that one, if its process waits already.
    """

    def __init__(
        self, *, idle_s: float = IDLE_S, preload: Sequence[str] = (), first: ServerProcess | None = None
    ) -> None:
        self._idle_s = idle_s
        self._base = Launcher(preload=preload, first=first)
        self._of_sites: dict[str, Launcher] = {}
        self._used: dict[str, float] = {}  # when a child was last seen, by the loop's clock
        self._sweeping: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The pid of the first fork server, which has the worker's own packages."""
        return self._base.pid

    @property
    def sites(self) -> dict[str, int | None]:
        """The environments that have a fork server now, each with its pid."""
        return {site: launcher.pid for site, launcher in self._of_sites.items()}

    async def start(self) -> None:
        """Start the first fork server. Raises LaunchError."""
        await self._base.start()
        self._sweeping = asyncio.create_task(self._sweep(), name="fork servers")

    async def stop(self) -> None:
        """End all fork servers, with their children."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        every = [self._base, *self._of_sites.values()]
        await asyncio.gather(*(launcher.stop() for launcher in every), *self._ending)

    async def spawn(
        self,
        site: str | None,
        label: str,
        on_message: Callable[[Message], None],
        needs: Needs | None = None,
        share: str | None = None,
    ) -> Child:
        """Fork a child in an environment (None: the worker's packages); `needs` and `share` as of Launcher. Raises
        LaunchError.
        """
        return await self._launcher(site).spawn(label, on_message, needs, share)

    def _launcher(self, site: str | None) -> Launcher:
        if site is None:
            return self._base
        if self._stopped:
            raise LaunchError("The worker is stopping")
        if not Path(site).is_dir():
            raise LaunchError(f"The environment {site} was removed; restart the connector to use another")
        launcher = self._of_sites.get(site)
        if launcher is None:
            launcher = self._of_sites[site] = Launcher(site)
        self._used[site] = asyncio.get_running_loop().time()
        return launcher

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_S, self._idle_s / 2))
            self._end_idle(asyncio.get_running_loop().time())

    def _end_idle(self, now: float) -> None:
        for site, launcher in list(self._of_sites.items()):
            if launcher.busy:
                self._used[site] = now
            elif now - self._used[site] > self._idle_s:
                log.info("the fork server of the environment %s is not needed any more", site)
                del self._of_sites[site], self._used[site]
                task = asyncio.create_task(launcher.stop())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

"""A console while it runs: its settings, clusters, sessions and searches."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from klamm.console.attempts import Attempts
from klamm.console.cluster import Cluster
from klamm.console.errors import Busy, NotThere
from klamm.console.sessions import Sessions
from klamm.console.settings import ConsoleSettings
from klamm.console.view import counted
from klamm.web.authentication import Authenticator
from klamm.web.request_counts import RequestCounts
from klamm.web.roles import Caller

SWEEP_S: Final = 30.0


class Console:
    """The parts of a console. `asks` finds users; None: everybody on this machine may do everything."""

    def __init__(self, settings: ConsoleSettings, asks: Authenticator | None) -> None:
        self.settings = settings
        self.asks = asks
        self.sessions = Sessions(settings.session_minutes * 60.0, settings.session_max_minutes * 60.0)
        self.attempts = Attempts(settings.login_failures_max)
        self.requests = RequestCounts()
        self.logins: Counter[str] = Counter()
        self.clusters: Mapping[str, Cluster] = {n: Cluster(s) for n, s in settings.clusters.items()}
        self.searches = 0
        self._sweeper: asyncio.Task[None] | None = None

    def cluster(self, name: str) -> Cluster:
        """Returns a cluster. Raises NotThere."""
        found = self.clusters.get(name)
        if found is None:
            raise NotThere(
                f"there is no cluster {name}; the console's settings have {', '.join(self.clusters)}"
            )
        return found

    async def check_login(self, address: str | None, authorization: str) -> Caller | None:
        """Returns the user of a login that somebody sends; None for a wrong one. Raises Busy for an address that has failed too often."""
        assert self.asks is not None
        if wait_s := self.attempts.wait_s(address, time.monotonic()):
            self.logins["not checked"] += 1
            minutes = counted(math.ceil(wait_s / 60), "minute")
            raise Busy(f"Too many logins from your address have failed. Try again in {minutes}")
        caller = await self.asks.authenticate(authorization)
        if caller is not None:
            self.attempts.succeeded(address)
        self.logins["good" if caller else "wrong"] += 1
        return caller

    @contextmanager
    def searching(self) -> Iterator[None]:
        """Counts a search or a tail while it runs. Raises Busy where there are too many."""
        if self.searches >= self.settings.searches_max:
            raise Busy(
                f"{self.searches} searches and tails are running (console.searches.max); stop one of them, then try again"
            )
        self.searches += 1
        try:
            yield
        finally:
            self.searches -= 1

    async def start(self, _app: web.Application) -> None:
        """Begins to free what nobody uses."""
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for cluster in self.clusters.values():
                cluster.drop_old(time.monotonic())
            gc.collect()

    async def close(self, _app: web.Application) -> None:
        """Closes all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for cluster in self.clusters.values():
            await cluster.close()


CONSOLE: Final = web.AppKey("console", Console)

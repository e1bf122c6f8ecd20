"""A cluster while the console runs: its clients, made when a page needs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from klamm.admin.client import Admin
from klamm.console.errors import NotThere
from klamm.console.lag import LagHistory
from klamm.console.services import Service
from klamm.console.settings import ClusterSettings
from klamm_base.security import ClientSecurity

TIMEOUT_S: Final = 15.0
"""For requests to a broker: a person waits for the page."""
KEPT_S: Final = 2.0
"""Lists of a cluster are asked for once in this time, so that a search while somebody types costs one request."""
T = TypeVar("T")


class Cluster:
    """A cluster's clients. One request opens an `admin` for itself; services keep their connections."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.lag = LagHistory()
        self.connect = Service(settings.connect, "Connect") if settings.connect else None
        self.registry = Service(settings.registry, "The schema registry") if settings.registry else None
        self.mirror = Service(settings.mirror, "The mirror") if settings.mirror else None
        self._security: ClientSecurity | None = None
        self._kept: dict[str, tuple[float, Any]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def admin(self, timeout_s: float = TIMEOUT_S) -> AbstractAsyncContextManager[Admin]:
        """Returns a client of the cluster for one request. Raises ConfigError for settings of TLS or SASL."""
        if self._security is None:
            self._security = ClientSecurity.from_properties(dict(self.settings.client))
        return Admin(
            self.settings.bootstrap, timeout_s=timeout_s, client_id="klamm-console", security=self._security
        )

    def client(self, kind: str) -> dict[str, Any]:
        """Returns librdkafka's settings for a client of this kind. Raises ConfigError."""
        from klamm_base.clientconfig import translate

        translated = translate(dict(self.settings.client), kind, lenient=True)  # type: ignore[arg-type]
        own = {"client.id": "klamm-console", "log_level": 2, "socket.timeout.ms": 10_000}
        return own | translated.config | {"bootstrap.servers": self.settings.bootstrap}

    def needs(self, what: str) -> Service:
        """Returns a service: connect, registry or mirror. Raises NotThere where it is not configured."""
        found: Service | None = getattr(self, what)
        if found is None:
            raise NotThere(
                f"cluster.{self.name}.{what}.url is not set, so the console does not know where it is"
            )
        return found

    async def kept(self, name: str, ask: Callable[[], Awaitable[T]], *, for_s: float = KEPT_S) -> T:
        """Returns an answer that is at most `for_s` old. Those who ask at the same time wait for one request."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            found = self._kept.get(name)
            if found is not None and time.monotonic() - found[0] < for_s:
                kept: T = found[1]
                return kept
            answer = await ask()
            self._kept[name] = (time.monotonic(), answer)
            return answer

    def forget(self, *names: str) -> None:
        """Asks again next time, because something was changed."""
        for name in names or tuple(self._kept):
            self._kept.pop(name, None)

    def drop_old(self, now_s: float, than_s: float = 60.0) -> None:
        """Frees lists that nobody has asked for lately."""
        for name in [n for n, (at, _) in self._kept.items() if now_s - at > than_s]:
            del self._kept[name]

    async def close(self) -> None:
        """Closes its connections."""
        await self.lag.close()
        for service in (self.connect, self.registry, self.mirror):
            if service is not None:
                await service.close()

"""A cluster while the console runs: its clients, made when a page needs them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from klamm.admin.client import Admin
from klamm.console.errors import NotThere
from klamm.console.jobs import Page
from klamm.console.lag import LagHistory
from klamm.console.services import Service
from klamm.console.settings import ClusterSettings
from klamm_base.errors import KlammError
from klamm_base.security import ClientSecurity

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 15.0
"""For requests to a broker: a person waits for the page."""
KEPT_S: Final = 2.0
"""Lists of a cluster are asked for once in this time, so that a search while somebody types costs one request."""
STALE_S: Final = 3600.0
"""A list that takes long is shown so old at most, with its age, while the next one is on its way."""
SLOW_S: Final = 0.1
AGE_SHOWN_S: Final = 5.0
T = TypeVar("T")
Key = tuple[str, str | None]
"""The name of a list, and the Authorization header of the user whose it is: no text may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An answer, the time when it came, and how long it took."""

    answer: Any
    at_s: float
    took_s: float


class Cluster:
    """A cluster's clients. One request opens an `admin` for itself; services keep their connections."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.lag = LagHistory()
        self.seen: dict[str, Page] = {}
        """The last look at each metrics page, for rates."""
        self.connect = Service(settings.connect, "Connect") if settings.connect else None
        self.registry = Service(settings.registry, "The schema registry") if settings.registry else None
        self.mirror = Service(settings.mirror, "The mirror") if settings.mirror else None
        self.judge = Service(settings.lag, "The lag server") if settings.lag else None
        self.looking: asyncio.Task[dict[str, Any]] | None = None
        """A look at whether the cluster answers."""
        self.away: str | None = None
        """Why it did not at the last look."""
        self._security: ClientSecurity | None = None
        self._kept: dict[Key, Kept] = {}
        self._changes = 0
        """How often something was changed: an answer that was asked for before is not kept."""
        self._asking: dict[Key, asyncio.Task[None]] = {}
        self._locks: dict[Key, asyncio.Lock] = {}

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

    async def kept(
        self, name: str, ask: Callable[[], Awaitable[T]], *, login: str | None = None, for_s: float = KEPT_S
    ) -> T:
        """Returns an answer that is at most `for_s` old. Those who ask at the same time wait for one request. With `login`, the
        answer is this user's.

        An answer that took long (10,000 topics) is shown up to `STALE_S` old, while the next one is on its way: see `age_s`.
        """
        key = (name, login)
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._kept.get(key)
            if found is not None:
                age_s = time.monotonic() - found.at_s
                if age_s < for_s:
                    return found.answer  # type: ignore[no-any-return]
                if found.took_s > SLOW_S and age_s < STALE_S:
                    if key not in self._asking:
                        again = self._again(key, ask)
                        self._asking[key] = asyncio.create_task(again, name=f"refresh {name}")
                    return found.answer  # type: ignore[no-any-return]
            return await self._ask(key, ask)

    def age_s(self, name: str, login: str | None = None) -> float | None:
        """Returns the age of a kept answer that a page must tell; None for one that is fresh."""
        found = self._kept.get((name, login))
        age_s = 0.0 if found is None else time.monotonic() - found.at_s
        return age_s if age_s > AGE_SHOWN_S else None

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[T]]) -> T:
        began, changes = time.monotonic(), self._changes
        answer = await ask()
        now = time.monotonic()
        if changes == self._changes:
            self._kept[key] = Kept(answer=answer, at_s=now, took_s=now - began)
        return answer

    async def _again(self, key: Key, ask: Callable[[], Awaitable[T]]) -> None:
        try:
            await self._ask(key, ask)
        except (KlammError, OSError) as e:
            self._kept.pop(key, None)  # the next page asks, and says why it cannot
            log.info("%s of cluster %s: %s", key[0], self.name, e)
        finally:
            self._asking.pop(key, None)

    def forget(self, *names: str) -> None:
        """Asks again next time, because something was changed."""
        self._changes += 1
        self._kept = {key: kept for key, kept in self._kept.items() if names and key[0] not in names}

    def drop_old(self, now_s: float, than_s: float = 60.0) -> None:
        """Frees lists that nobody has asked for lately; those that took long are kept until they are too old to be shown."""
        for key in [
            n for n, k in self._kept.items() if now_s - k.at_s > (STALE_S if k.took_s > SLOW_S else than_s)
        ]:
            del self._kept[key]

    async def close(self) -> None:
        """Closes its connections."""
        await self.lag.close()
        for task in (*self._asking.values(), self.looking):
            if task is not None:
                task.cancel()
        for service in (self.connect, self.registry, self.mirror, self.judge):
            if service is not None:
                await service.close()

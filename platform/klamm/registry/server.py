"""The process of a registry: HTTP from the first moment, then the topic. Ready once the topic has been read, and somebody leads."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from klamm.registry import contexts, handlers
from klamm.registry.config import BODY_BYTES_MAX, READ_TIMEOUT_MS, RegistryConfig
from klamm.registry.endpoints import ENDPOINTS, TITLE
from klamm.registry.errors import RegistryError
from klamm.registry.forwarding import Forwarding
from klamm.registry.node import Node
from klamm.web import process
from klamm.web.application import make_app, metrics_response
from klamm.web.endpoint import Access, Endpoint, Handler
from klamm.web.process_metrics import process_families
from klamm.web.request_counts import RequestCounts
from klamm.web.server import HttpServer
from klamm_base.addresses import EVERY_HOST
from klamm_base.metrics_text import Family, Sample
from klamm_base.service_manager import say_ready
from klamm_base.tls import TlsSettings

log = logging.getLogger(__name__)

LEADER_S: Final = 15.0
"""The time to wait for a leader before `ready`: that of a session, after which a member that is gone has lost its place."""
_EARLY: Final = frozenset({"/health", "/openapi.json", "/metrics", "/"})


class Registry:
    """A registry. `start`, `wait` and `stop` are for `klamm.web.process`."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        values = config.values
        self.http = HttpServer(config.web.listeners, tls=config.tls)
        https = any(each.scheme == "https" for each in config.web.listeners)
        self._forwarding = Forwarding(
            TlsSettings.from_properties(config.tls).client_context() if https else None,
            values[READ_TIMEOUT_MS] / 1000,
        )
        self._counts = RequestCounts()
        self._ready = False
        self._began_s = time.time()
        self.node = Node(
            topic=values["kafkastore.topic"],
            client=config.client,
            group=values["schema.registry.group.id"],
            replicas=values["kafkastore.topic.replication.factor"],
            timeout_s=values["kafkastore.timeout.ms"] / 1000,
            level=values["schema.compatibility.level"].upper(),
            leader_eligible=values["leader.eligibility"],
        )
        self.url = ""

    async def start(self) -> None:
        """Binds, serves, reads the topic, and waits until writes are possible."""
        self.http.bind()
        if self._config.web.auth is not None:
            self.http.warn_of_clear_text()
        elif (address := self.http.open_address) is not None:
            log.warning(
                "the registry listens on %s, which others on the network may reach, and asks nobody for credentials: set "
                "rest.auth.file, or listeners to an address of loopback",
                address,
            )
        bound = self.http.printed
        name = self._config.values["host.name"]
        self.url = str(replace(bound, host=name or bound.host))
        address = str(replace(bound, host=reached_host(name, self._config.web.listeners[0].host)))
        await self.http.serve(self._app())
        await self.node.start(address)
        self._ready = True
        if not await self.node.led(LEADER_S):
            log.warning("no registry of the group leads yet: writes wait for that")

    async def wait(self) -> None:
        await self.node.wait()

    async def stop(self) -> None:
        await self.http.stop()
        await self.node.stop()
        await self._forwarding.close()

    def _app(self) -> web.Application:
        endpoints = (
            *ENDPOINTS,
            Endpoint(
                method="GET", path="/metrics", handler=self._get_metrics, access=Access.VIEW, answers={200: str},
                produces="text/plain",
            ),
        )  # fmt: skip
        size_max = self._config.values[BODY_BYTES_MAX]
        app = make_app(
            self._config.web,
            endpoints,
            title=TITLE,
            counts=self._counts,
            outer=[contexts.REWRITE],
            inner=[self._readiness(), _size_check(size_max), self._forwarding.middleware()],
            body_bytes_max=size_max,
        )
        app.router.add_route("*", contexts.PATH, contexts.pass_on)
        app[handlers.NODE], app[handlers.MUTABLE] = self.node, self._config.values["mode.mutability"]
        return app

    def _readiness(self) -> Middleware:
        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self._ready and request.path not in _EARLY:
                raise RegistryError(50301, "The registry is still reading its topic; try again")
            return await handler(request)

        return check

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        """Show the metrics as Prometheus' text."""
        return metrics_response(self._families())

    def _families(self) -> Iterator[Family]:
        yield from process_families(self._began_s)
        store, name = self.node.store, "klamm_registry"
        versions = [v for subject in store.subjects.values() for v in subject.values()]
        for word, text, value in (
            ("leads", "1 while this registry writes the topic.", int(self.node.leads)),
            ("subjects", "Subjects with versions, softly deleted ones included.", len(store.subjects)),
            ("versions", "Versions of all subjects.", sum(not v.deleted for v in versions)),
            ("deleted_versions", "Softly deleted versions.", sum(v.deleted for v in versions)),
            ("schemas", "Ids that mean a schema.", sum(len(c.schemas) for c in store.contexts.values())),
            ("unreadable_records", "Records of the topic that were left out.", self.node.unreadable),
        ):
            yield Family(f"{name}_{word}", "gauge", text, [Sample({}, value)])
        writes = [Sample({}, self.node.written)]
        yield Family(f"{name}_records_written_total", "counter", "Records written to the topic.", writes)
        yield from self._counts.families(name)


def reached_host(name: str | None, listener: str) -> str:
    """Returns the host under which other registries reach this one: `host.name`, the listener's, or, where that one stands for
    all addresses, the machine's name.
    """
    return name or (socket.getfqdn() if listener in EVERY_HOST else listener)


def _size_check(size_max: int) -> Middleware:
    """Says of a body that is too large how large it may be."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            raise RegistryError(
                41301, f"The body is larger than {size_max} bytes, the registry's {BODY_BYTES_MAX}"
            ) from None

    return check


async def run(config: RegistryConfig) -> None:
    """Runs a registry until SIGTERM or SIGINT. Raises what made it stop by itself."""
    registry = Registry(config)
    await process.serve(
        registry, lambda: say_ready(f"ready registry={registry.url}"), registry.http.reloadable
    )


def main(config: RegistryConfig) -> int:
    """Runs a registry; returns its exit code."""
    return process.main(run(config))

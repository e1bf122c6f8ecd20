"""The process of a REST proxy. It is ready once it has reached the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from aiohttp import web
from aiohttp.typedefs import Middleware
from confluent_kafka import KafkaException

from klamm.admin.nodes import describe_cluster
from klamm.restproxy.config import ProxyConfig
from klamm.restproxy.context import PROXY, Proxy
from klamm.restproxy.endpoints import ENDPOINTS, TITLE
from klamm.restproxy.instances import Instances
from klamm.restproxy.producing import Producing
from klamm.restproxy.rate_limits import RateLimits
from klamm.restproxy.schemas import Schemas
from klamm.web import process
from klamm.web.application import make_app, metrics_response
from klamm.web.endpoint import Access, Endpoint, Handler
from klamm.web.process_metrics import process_families
from klamm.web.request_counts import RequestCounts
from klamm.web.server import HttpServer
from klamm_base.errors import ConfigError
from klamm_base.metrics_text import Family, Sample
from klamm_base.service_manager import say_ready
from klamm_plugins.converters.registry import URL, RegistryClient

log = logging.getLogger(__name__)

_LIMITED: Final = ("/v3", "/topics", "/consumers")
SAY_AFTER_S: Final = 3.0
"""The time without an answer of brokers after which the log tells of it."""
_OF_CLUSTER: Final = "/v3/clusters/"


class RestProxy:
    """A REST proxy. `start`, `wait` and `stop` are for `klamm.web.process`."""

    def __init__(self, config: ProxyConfig) -> None:
        values = config.values
        self._config = config
        self.http = HttpServer(config.web.listeners, tls=config.web.tls)
        self._counts = RequestCounts()
        self._began_s = time.time()
        self._started = False
        self._proxy = Proxy(
            config=config,
            schemas=Schemas(RegistryClient.of(values) if values[URL] else None),
            producing=Producing(config.producer, values["producer.buffer.memory"]),
            instances=Instances(
                config.consumer,
                threads=values["consumer.threads"],
                instances_max=values["consumer.instances.max"],
                timeout_s=values["consumer.instance.timeout.ms"] / 1000,
                id=values["id"],
            ),
            limits=RateLimits(values),
        )
        self.url = ""

    async def start(self) -> None:
        """Binds, reaches the cluster, and serves. Raises KlammError and ConfigError."""
        self.http.bind()
        if self._config.web.auth is not None:
            self.http.warn_of_clear_text()
        elif (address := self.http.open_address) is not None:
            log.warning(
                "the REST proxy listens on %s, which others on the network may reach, and asks nobody for credentials: set "
                "rest.auth.file, or listeners to an address of loopback",
                address,
            )
        try:
            self._proxy.producing.start()
        except KafkaException as e:
            raise ConfigError(f"the producer's settings cannot be used: {e.args[0].str()}") from None
        self._proxy.instances.start()
        self._started = True
        await self._reach()
        bound = self.http.printed
        self.url = str(replace(bound, host=self._config.values["host.name"] or bound.host))
        await self.http.serve(self._app())

    async def _reach(self) -> None:
        """Learns the cluster's id. Says that it waits when no broker answers soon. Raises KlammError."""
        loop, brokers = asyncio.get_running_loop(), self._config.bootstrap
        note = loop.call_later(SAY_AFTER_S, log.warning, "waiting for the brokers at %s", brokers)
        try:
            async with self._proxy.admin() as admin:
                self._proxy.cluster_id = (await describe_cluster(admin)).id
        finally:
            note.cancel()

    async def wait(self) -> None:
        """Never returns: clusters come and go, and librdkafka connects again."""
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        self._proxy.instances.end_waits()
        await self.http.stop()
        if self._started:
            await self._proxy.instances.stop()
            await self._proxy.producing.stop()
        self._proxy.schemas.close()

    def _app(self) -> web.Application:
        metrics = Endpoint(
            method="GET", path="/metrics", handler=self._get_metrics, access=Access.VIEW, answers={200: str},
            produces="text/plain",
        )  # fmt: skip
        app = make_app(
            self._config.web,
            (*ENDPOINTS, metrics),
            title=TITLE,
            counts=self._counts,
            inner=[self._rate_limit()],
            body_bytes_max=self._config.values["request.max.bytes"],
        )
        app[PROXY] = self._proxy
        return app

    def _rate_limit(self) -> Middleware:
        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path.startswith(_LIMITED):
                limits = self._proxy.limits
                wait_s = limits.request(
                    time.monotonic(),
                    of_cluster=request.path.startswith(_OF_CLUSTER),
                    cost=limits.cost(request.match_info.handler.__name__, request.headers),
                )
                if wait_s:
                    await asyncio.sleep(wait_s)
            return await handler(request)

        return check

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        """Show the metrics as Prometheus' text."""
        return metrics_response(self._families())

    def _families(self) -> Iterator[Family]:
        yield from process_families(self._began_s)
        producing, instances, name = self._proxy.producing, self._proxy.instances, "klamm_rest_proxy"
        rows: tuple[tuple[str, Literal["counter", "gauge"], str, int], ...] = (
            ("records_produced_total", "counter", "Records that brokers or librdkafka answered.", producing.records),
            ("produce_errors_total", "counter", "Records among them that were answered with an error.", producing.errors),
            ("produce_refused_total", "counter", "Requests that were answered 429 for want of room.", producing.refused),
            ("rate_limited_total", "counter", "Requests, and records of v3, that a rate limit refused.", self._proxy.limits.refused),
            ("waiting_bytes", "gauge", "Bytes of records that wait for the brokers.", producing.room.used),
            ("consumer_instances", "gauge", "Consumer instances.", len(instances)),
            ("consumer_instances_expired_total", "counter", "Consumer instances that were idle and went.", instances.expired),
            ("records_consumed_total", "counter", "Records in answers.", instances.records),
        )  # fmt: skip
        for word, kind, text, value in rows:
            yield Family(f"{name}_{word}", kind, text, [Sample({}, value)])
        yield from self._counts.families(name)


async def run(config: ProxyConfig) -> None:
    """Runs a proxy until SIGTERM or SIGINT. Raises what made it stop by itself."""
    proxy = RestProxy(config)
    await process.serve(proxy, lambda: say_ready(f"ready rest-proxy={proxy.url}"), proxy.http.reloadable)


def main(config: ProxyConfig) -> int:
    """Runs a proxy; returns its exit code."""
    return process.main(run(config))

"""The shell around client telemetry (KIP-714): stored subscriptions in, pushed metrics out to /metrics.

All calls come from the loop's thread. A push of the usual size takes about 2 ms; a large one is read in steps. What no
subscription asks for is not kept, and a push by a client that was asked for nothing is not even decoded.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from klamm_base.metrics_text import Family, Sample
from klamm_broker.log.steps import Steps
from klamm_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klamm_broker.server.cluster_config import ClusterConfig, ResourceType
from klamm_broker.server.group_config import METRICS_CONFIGS
from klamm_broker.telemetry import otlp
from klamm_broker.telemetry.series import SERIES_PER_CLIENT, PushedSeries
from klamm_broker.telemetry.subscriptions import (
    ALL,
    Instance,
    Subscription,
    Subscriptions,
    attributes_of,
    text_of,
)
from klamm_kafka.wire.compression import Compression, decompress
from klamm_kafka.wire.errors import CorruptRecord, ErrorCode

if TYPE_CHECKING:
    from klamm_kafka.wire.messages.push_telemetry import PushTelemetryRequest

log = logging.getLogger(__name__)

COMPRESSIONS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The codecs that clients may use, in Kafka's order of preference."""

STEP: Final = 100
"""Points that are taken in at once."""


class Sender(Protocol):
    """The sender of a request, as its context has it."""

    client_id: str | None
    host: str
    port: int
    principal: KafkaPrincipal
    software: tuple[str, str]
    connection: Hashable


class ClientTelemetry:
    """Answers what clients ask and push, and keeps the latest values for a scrape."""

    def __init__(self, cluster_config: ClusterConfig, *, max_bytes: int) -> None:
        self.subscriptions = Subscriptions(max_bytes)
        self.series = PushedSeries()
        self.pushes = self.failed_pushes = 0
        self._cluster_config = cluster_config
        for name in cluster_config.names(ResourceType.CLIENT_METRICS):
            self._load(name)
        cluster_config.subscribe(
            lambda kind, name: self._load(name) if kind is ResourceType.CLIENT_METRICS else None
        )

    def _load(self, name: str) -> None:
        own = self._cluster_config.get(ResourceType.CLIENT_METRICS, name)
        if not own:
            self.subscriptions.update(name, None)
            return
        values = METRICS_CONFIGS.parse(own)
        self.subscriptions.update(
            name, Subscription.parse(values["metrics"], values["interval.ms"], values["match"])
        )

    def get(self, ctx: Sender, instance_id: bytes, now_ms: int) -> tuple[ErrorCode, bytes, Instance]:
        """Answer which metrics this client should push. A client without an instance id gets one."""
        if not any(instance_id):
            instance_id = uuid.uuid4().bytes
        error, instance = self.subscriptions.get(
            instance_id, _attributes(ctx, instance_id), ctx.connection, now_ms
        )
        return error, instance_id, instance

    def push(self, ctx: Sender, request: PushTelemetryRequest, now_ms: int) -> Steps[ErrorCode]:
        """Take in the metrics of a client, in steps."""
        instance_id = request.client_instance_id
        error, instance = self.subscriptions.push(
            instance_id,
            _attributes(ctx, instance_id),
            ctx.connection,
            now_ms,
            subscription_id=request.subscription_id,
            terminating=request.terminating,
            compression=request.compression_type,
            size=len(request.metrics),
        )
        if error is not ErrorCode.NONE or instance is None or not request.metrics or not instance.metrics:
            return error
        try:
            data = decompress(
                Compression(request.compression_type), request.metrics, limit=self.subscriptions.max_bytes
            )
            yield None
            prefixes = otlp.EVERYTHING if ALL in instance.metrics else instance.metrics
            pushed = yield from otlp.steps(data, SERIES_PER_CLIENT, prefixes)
        except (CorruptRecord, otlp.MalformedMetrics) as e:
            log.warning("metrics that client %s (%s) pushed cannot be read: %s", ctx.client_id, ctx.host, e)
            self.failed_pushes += 1
            instance.last_error = ErrorCode.INVALID_RECORD
            return ErrorCode.INVALID_RECORD
        self.pushes += 1
        self.series.left_out += pushed.left_out
        for start in range(0, len(pushed.points), STEP):
            self.series.take(
                text_of(instance_id),
                ctx.client_id or "",
                pushed.points[start : start + STEP],
                owner=ctx.host if ctx.principal == ANONYMOUS else str(ctx.principal),
                now_ms=now_ms,
                keep_ms=instance.keep_ms,
            )
            yield None
        return ErrorCode.NONE

    def families(self, now_ms: int) -> Iterator[Family]:
        """Yields what clients have pushed, and numbers on it."""
        self.series.expire(now_ms)
        subscriptions, series, group = self.subscriptions, self.series, "kafka_server_client_metrics"
        yield Family(
            f"{group}_instance_count", "gauge", "Clients that asked for telemetry.",
            [Sample({}, len(subscriptions))],
        )  # fmt: skip
        yield Family(
            "klamm_client_telemetry_series", "gauge", "Series that clients have pushed.",
            [Sample({}, len(series))],
        )  # fmt: skip
        for name, about, value in (
            (f"{group}_unknown_subscription_request_count", "Pushes by an old subscription.", subscriptions.unknown),
            (f"{group}_throttle_count", "Requests that came before the interval was over.", subscriptions.throttled),
            (f"{group}_plugin_export_count", "Pushes that were taken in.", self.pushes),
            (f"{group}_plugin_error_count", "Pushes that could not be read.", self.failed_pushes),
            ("klamm_client_telemetry_dropped_total", "Values for which there was no room.", series.dropped),
            ("klamm_client_telemetry_left_out_total", "Values of other kinds, or that nobody asked for.", series.left_out),
        ):  # fmt: skip
            yield Family(name, "counter", about, [Sample({}, value)])
        yield from series.families()


def _attributes(ctx: Sender, instance_id: bytes) -> dict[str, str]:
    return attributes_of(
        instance_id, client_id=ctx.client_id, software=ctx.software, host=ctx.host, port=ctx.port
    )

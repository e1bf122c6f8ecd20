"""Client telemetry with real clients: librdkafka pushes, /metrics shows."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from support.broker import wait_until
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.push_telemetry import PushTelemetryRequest


@pytest.fixture
def broker(processes, tmp_path):
    with EmbeddedBroker(tmp_path / "data", config={"klamm.metrics.port": "0"}) as running:
        yield running


def subscribe(broker, name, **configs):
    entries = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=16, resource_name=name, configs=entries)
    with RawClient(broker.port) as client:
        (answer,) = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, answer.error_message


def metrics(broker):
    url = urlsplit(broker.metrics_url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def test_librdkafka_pushes_and_its_metrics_are_scraped(broker):
    subscribe(
        broker,
        "all",
        metrics="*",
        interval_ms="200",
        match="client_software_name=.*(?:confluent|librdkafka).*,client_id=me",
    )
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True, "client.id": "me"}
    )
    for name in ("deaf", "other"):
        Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True, "client.id": name}
        ).list_topics()

    def pushed():
        producer.produce("orders", b"x" * 100)
        producer.flush()
        return [line for line in metrics(broker).splitlines() if line.startswith("klamm_client_producer_")]

    rows = wait_until(pushed, "metrics of the producer")
    assert all('client_id="me"' in row for row in rows)
    assert any("connection_creation" in row for row in rows), rows


def test_what_cannot_be_read_is_an_error_and_the_next_push_counts(broker):
    subscribe(broker, "all", metrics="*", interval_ms="100")
    with RawClient(broker.port) as client:
        told = client.request(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)

        def push(data, compression=Compression.NONE):
            request = PushTelemetryRequest(
                client_instance_id=told.client_instance_id, subscription_id=told.subscription_id,
                terminating=False, compression_type=compression, metrics=data,
            )  # fmt: skip
            return ErrorCode(client.request(request, 0).error_code)

        assert push(b"no metrics") is ErrorCode.INVALID_RECORD
        assert push(b"") is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        for kind, data in ((Compression.ZSTD, b"no zstd"), (Compression.NONE, b"")):
            wanted = ErrorCode.INVALID_RECORD if data else ErrorCode.NONE
            assert wait_until(
                lambda kind=kind, data=data, wanted=wanted: push(data, kind) is wanted, "the interval"
            )
        assert push(bytes(1024 * 1024 + 1)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "kafka_server_client_metrics_plugin_error_count 2" in metrics(broker)

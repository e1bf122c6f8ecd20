"""Apache's console producer pushes its metrics (KIP-714), as any Java client does, and /metrics shows them."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.kafka_tools import KafkaTools
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

pytestmark = pytest.mark.usefixtures("apache_kafka")


def test_javas_producer_pushes_when_it_ends(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", config={"klamm.metrics.port": "0"}) as broker:
        asked = {"metrics": "org.apache.kafka.producer.", "interval.ms": "100", "match": "client_id=told.*"}
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in asked.items()]
        resource = AlterConfigsResource(resource_type=16, resource_name="all", configs=configs)
        with RawClient(broker.port) as client:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            assert client.request(request, 1).responses[0].error_code == 0
        run_producer(kafka_tools, broker, "other")
        for _ in range(5):  # Java's client pushes nothing if it ends before it was told what to push
            run_producer(kafka_tools, broker, "told-1")
            text = metrics(broker)
            rows = [line for line in text.splitlines() if line.startswith("klamm_client_")]
            if pushed := [row for row in rows if "telemetry" not in row]:
                break
    assert pushed, text[-3000:]
    assert all('client_id="told-1"' in row for row in pushed)
    assert any(row.startswith("klamm_client_producer_") for row in pushed)


def run_producer(kafka_tools: KafkaTools, broker: EmbeddedBroker, client_id: str) -> None:
    """Writes two records as a client of this name."""
    words = (
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "t",
        "--command-property",
        f"client.id={client_id}",
    )
    kafka_tools.run("kafka-console-producer", *words, stdin="one\ntwo\n", timeout_s=60).ok()


def metrics(broker: EmbeddedBroker) -> str:
    """Returns the broker's page of metrics."""
    assert broker.metrics_url is not None
    url = urlsplit(broker.metrics_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()

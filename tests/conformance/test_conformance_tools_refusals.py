"""What our broker does not serve, Apache's tools say at once and by name: nothing hangs, nothing passes in silence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker import new_name, new_topic
from support.kafka_tools import ToolResult

from klamm.testing import EmbeddedBroker
from klamm_broker.api import registry
from klamm_broker.wire.api_keys import ApiKey

Tool = Callable[..., ToolResult]
pytestmark = [pytest.mark.kafka, pytest.mark.slow]
AT_ONCE_S = 10


def refused(tool: Tool, name: str, *args: str) -> str:
    """What the tool says, where it must fail, and soon."""
    started = time.monotonic()
    result = tool(name, *args)
    assert time.monotonic() - started < AT_ONCE_S
    assert result.code != 0 or "] ERROR " in result.err, result
    return result.out + result.err


@pytest.mark.parametrize(
    ("api", "name", "args"),
    [
        (ApiKey.DESCRIBE_ACLS, "kafka-acls", ("--list",)),
        (ApiKey.DESCRIBE_QUORUM, "kafka-metadata-quorum", ("describe", "--status")),
        (
            ApiKey.ELECT_LEADERS,
            "kafka-leader-election",
            ("--election-type", "preferred", "--all-topic-partitions"),
        ),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, "kafka-reassign-partitions", ("--list",)),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, "kafka-configs", ("--describe", "--entity-type", "users")),
        (ApiKey.LIST_CONFIG_RESOURCES, "kafka-configs", ("--describe", "--entity-type", "client-metrics")),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_an_api_that_is_not_served_is_named(
    tool: Tool, api: ApiKey, name: str, args: tuple[str, ...]
) -> None:
    assert api not in registry.load(), f"{api.name} is served now: test what {name} does with it"
    assert f"The node does not support {api.name}" in refused(tool, name, *args)


def test_reassignments_are_refused(tool: Tool, broker: EmbeddedBroker, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    partition = {"topic": new_topic(broker), "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    said = refused(tool, "kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert "UnsupportedVersionException" in said


def test_the_consumer_protocol_is_refused_with_the_way_out(tool: Tool, broker: EmbeddedBroker) -> None:
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in registry.load()
    said = refused(
        tool,
        "kafka-console-consumer",
        *("--topic", new_topic(broker), "--group", new_name("group"), "--timeout-ms", "20000"),
        *("--command-property", "group.protocol=consumer"),
    )
    assert "Set group.protocol=classic on the consumer configs" in said


def test_broker_properties_are_not_changed_while_it_runs(tool: Tool) -> None:
    change = (
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--add-config",
        "log.cleaner.threads=2",
    )
    assert "change server.properties and restart" in refused(tool, "kafka-configs", *change)

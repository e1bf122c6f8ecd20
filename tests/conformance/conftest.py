"""One broker of ours, and one JVM for Apache's tools, for all conformance tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support import kafka_oracle
from support.kafka_tools import KafkaTools, ToolResult

from klamm.testing import EmbeddedBroker

Tool = Callable[..., ToolResult]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Tests share it: each takes topics and groups of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("conformance") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def kafka_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """The JVM that runs Apache's tools; skips where there is no Kafka or no Java."""
    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("kafka-tools"))
    try:
        yield tools
    finally:
        tools.close()


@pytest.fixture(scope="session")
def tool(broker: EmbeddedBroker, kafka_tools: KafkaTools) -> Tool:
    """Run one of Apache's tools against our broker: `tool("kafka-topics", "--list")`."""

    def run(name: str, *args: str, stdin: str = "", timeout_s: float = 40) -> ToolResult:
        return kafka_tools.run(
            name, *args, "--bootstrap-server", broker.bootstrap, stdin=stdin, timeout_s=timeout_s
        )

    return run

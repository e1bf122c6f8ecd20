"""Apache's tools say at once and by name what our broker does not do: nothing hangs, nothing passes in silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.kafka_tools import ToolResult

Tool = Callable[..., ToolResult]
pytestmark = pytest.mark.usefixtures("apache_kafka")


def refused(tool: Tool, name: str, *args: str) -> str:
    """Returns what the tool says, where it must fail, and before the minute that it asks for otherwise is over."""
    result = tool(name, *args)
    assert result.code != 0 or "] ERROR " in result.err or "Error while executing" in result.out, result
    return result.out + result.err


def test_access_control_is_named_as_disabled(tool: Tool) -> None:
    assert "No Authorizer is configured" in refused(tool, "kafka-acls", "--list")


def test_a_property_that_needs_a_restart_is_named(tool: Tool) -> None:
    said = refused(
        tool,
        "kafka-configs",
        *("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.dirs=/nowhere"),
    )
    assert "log.dirs" in said

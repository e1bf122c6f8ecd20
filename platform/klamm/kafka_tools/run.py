"""Starts one of Kafka's commands by its name. `main` returns the exit code and prints; it never raises."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from klamm.admin.client import Admin
from klamm.admin.settings import client_settings
from klamm.kafka_tools.options import (
    Option,
    Options,
    UsageError,
    described,
    help_text,
    left_column,
    parse,
    say,
    version_line,
)
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupted

TOOLS: Final = {
    "kafka-topics": "topics",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-share-groups": "share_groups",
    "kafka-streams-groups": "streams_groups",
    "kafka-configs": "configs",
    "kafka-get-offsets": "get_offsets",
    "kafka-transactions": "transactions",
    "kafka-dump-log": "dump_log",
    "kafka-delete-records": "delete_records",
    "kafka-acls": "acls",
    "kafka-delegation-tokens": "delegation_tokens",
    "kafka-log-dirs": "log_dirs",
    "kafka-storage": "storage",
    "kafka-cluster": "cluster",
    "kafka-broker-api-versions": "broker_api_versions",
    "kafka-leader-election": "leader_election",
    "kafka-reassign-partitions": "reassign_partitions",
    "kafka-replica-verification": "replica_verification",
    "kafka-features": "features",
    "kafka-e2e-latency": "e2e_latency",
    "kafka-verifiable-producer": "verifiable_producer",
    "kafka-verifiable-consumer": "verifiable_consumer",
    "kafka-producer-perf-test": "producer_perf_test",
    "kafka-consumer-perf-test": "consumer_perf_test",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
}
"""Commands, and the module of each."""
T = TypeVar("T")


class Tool(Protocol):
    """The interface of a command's module."""

    SUMMARY: str
    OPTIONS: Sequence[Option]

    def run(self, options: Options) -> int:
        """Carry it out; the exit code. Raises UsageError and KlammError."""


def main(name: str, args: Sequence[str]) -> int:
    """Runs a command as its script would; returns the exit code."""
    tool: Tool = importlib.import_module(f"klamm.kafka_tools.{TOOLS[name]}")
    try:
        own_parser = getattr(tool, "main", None)
        if own_parser is not None:  # kafka-transactions has sub-commands
            return int(own_parser(list(args)))
        if not args:
            say(help_text(name, tool.SUMMARY, tool.OPTIONS))
            return 1
        options = parse(name, tool.OPTIONS, args)
        if options.has("help"):
            say(help_text(name, tool.SUMMARY, tool.OPTIONS))
            return 1
        if options.has("version"):
            sys.stdout.write(version_line() + "\n")
            return 0
        return tool.run(options)
    except UsageError as e:
        say(str(e))
        if len(str(e).splitlines()) == 1:
            say(f"(klamm {name} --help lists the options)")
        return 1
    except Interrupted as e:
        return e.code
    except KlammError as e:
        say(str(e))
        return 1


def options_of(name: str) -> list[tuple[str, str]]:
    """Return the rows of a command's reference: each option with its argument, and its meaning."""
    tool: Tool = importlib.import_module(f"klamm.kafka_tools.{TOOLS[name]}")
    rows = [(left_column(o), described(o)) for o in tool.OPTIONS]
    return rows or list(getattr(tool, "COMMANDS", {}).items())


def with_admin(
    options: Options, ask: Callable[[Admin], Awaitable[T]], *, timeout_s: float | None = None
) -> T:
    """Run one piece of asynchronous work against `--bootstrap-server`."""
    return connected(
        options.text("bootstrap-server"), options.get("command-config"), ask, timeout_s=timeout_s
    )


def connected(
    bootstrap: str,
    command_config: str | None,
    ask: Callable[[Admin], Awaitable[T]],
    *,
    timeout_s: float | None = None,
) -> T:
    """Run one piece of work as `with_admin` does, with the options' values."""
    path = Path(command_config) if command_config else None
    settings = client_settings(bootstrap, path, timeout_s=timeout_s)
    for key in settings.unused:
        say(f"{command_config}: {key} has no effect here")

    async def work() -> T:
        async with settings.open() as admin:
            return await ask(admin)

    return asyncio.run(work())

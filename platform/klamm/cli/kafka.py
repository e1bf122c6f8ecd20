"""Apache Kafka's command lines under their own names: `klamm kafka-topics --bootstrap-server … --list`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

from klamm.cli import connect_scripts
from klamm.cli.common import drop_output, output_failure, reported
from klamm.cli.context import Command

_ALL = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
COMMANDS = {
    "kafka-topics": "Kafka's command for topics.",
    "kafka-consumer-groups": "Kafka's command for consumer groups.",
    "kafka-share-groups": "Kafka's command for share groups.",
    "kafka-configs": "Kafka's command for settings.",
    "kafka-streams-groups": "Kafka's command for Streams groups.",
    "kafka-get-offsets": "Kafka's GetOffsetShell: offsets at a time.",
    "kafka-transactions": "Kafka's command for transactions.",
    "kafka-dump-log": "Kafka's DumpLogSegments: files of partitions.",
    "kafka-delete-records": "Kafka's command to delete first records.",
    "kafka-acls": "Kafka's command for ACLs.",
    "kafka-delegation-tokens": "Kafka's command for delegation tokens.",
    "kafka-log-dirs": "Kafka's command to describe log directories.",
    "kafka-cluster": "Kafka's command for a cluster's id and nodes.",
    "kafka-broker-api-versions": "Kafka's command for versions of APIs.",
    "kafka-leader-election": "Kafka's command to elect leaders.",
    "kafka-reassign-partitions": "Kafka's command to move partitions.",
    "kafka-replica-verification": "Kafka's command to compare replicas.",
    "kafka-producer-perf-test": "Kafka's command to measure writing.",
    "kafka-consumer-perf-test": "Kafka's command to measure reading.",
    "kafka-e2e-latency": "Kafka's command to measure end to end.",
    "kafka-verifiable-producer": "Kafka's command to write numbers, with events.",
    "kafka-verifiable-consumer": "Kafka's command to read, with events.",
    "kafka-features": "Kafka's command for levels of features.",
    "kafka-storage": "Kafka's command to prepare log directories.",
    "kafka-console-producer": "Kafka's command to write lines to a topic.",
    "kafka-console-consumer": "Kafka's command to print records of a topic.",
}
"""Each takes its own --help, and `.sh` behind its name."""

Words = Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="As Kafka's; --help lists them.")]


def register(app: typer.Typer) -> None:
    """Add the commands, and hidden ones with `.sh` behind the name."""
    for name, what in (COMMANDS | connect_scripts.COMMANDS).items():
        cls = TyperCommand if name == "kafka-dump-log" else Command  # its words are paths, of any bytes
        for alias in (name, f"{name}.sh"):
            app.command(alias, cls=cls, help=what, hidden=alias != name, context_settings=_ALL)(
                _command(name)
            )


def _command(name: str) -> Callable[..., None]:
    def command(ctx: typer.Context, words: Words = None) -> None:
        from klamm.cli.kafka_context import with_context

        with reported():
            whole, said = with_context(ctx, name, words or [])
        if said is not None:
            typer.echo(said, err=True)
        raise typer.Exit(run(name, whole))

    return command


def run(name: str, words: list[str]) -> int:
    """Run one command and return its exit code."""
    if name in connect_scripts.COMMANDS:
        return connect_scripts.main(name, words)
    from klamm.kafka_tools.run import main

    try:
        return main(name, words)
    except BrokenPipeError:
        drop_output()  # the reader went away (`kafka-topics --list | head`)
        return 0
    except OSError as e:
        said = output_failure(e)
        if said is None or os.environ.get("KLAMM_DEBUG"):
            raise
        typer.echo(said, err=True)
        return 1

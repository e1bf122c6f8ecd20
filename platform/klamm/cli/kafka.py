"""Apache Kafka's command lines under their own names: `klamm kafka-topics --bootstrap-server … --list`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from klamm.cli.common import drop_output, output_failure

_ALL = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
COMMANDS = {
    "kafka-topics": "Kafka's command to list, create, describe, alter and delete topics.",
    "kafka-consumer-groups": "Kafka's command to list, describe, reset and delete consumer groups.",
    "kafka-configs": "Kafka's command to describe and alter settings of topics, brokers, users and more.",
    "kafka-get-offsets": "Kafka's command for offsets of partitions at a time (GetOffsetShell).",
    "kafka-transactions": "Kafka's command to list, find and abort transactions.",
    "kafka-dump-log": "Kafka's command to print log segments, indexes and snapshots (DumpLogSegments).",
    "kafka-delete-records": "Kafka's command to delete the records before an offset.",
    "kafka-log-dirs": "Kafka's command to describe log directories.",
    "kafka-console-producer": "Kafka's command to write lines to a topic.",
    "kafka-console-consumer": "Kafka's command to print the records of a topic.",
}
"""Each takes its own --help, and `.sh` behind its name."""

Words = Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="As Kafka's; --help lists them.")]


def register(app: typer.Typer) -> None:
    """Add the commands, and hidden ones with `.sh` behind the name."""
    for name, what in COMMANDS.items():
        for alias in (name, f"{name}.sh"):
            app.command(alias, help=what, hidden=alias != name, context_settings=_ALL)(_command(name))


def _command(name: str) -> Callable[..., None]:
    def command(words: Words = None) -> None:
        raise typer.Exit(run(name, words or []))

    return command


def run(name: str, words: list[str]) -> int:
    """One command; its exit code."""
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

"""`kafka-verifiable-consumer`: read as a member of a group, and tell as JSON what was read and committed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from klamm.kafka_tools.console_clients import librdkafka
from klamm.kafka_tools.events import event
from klamm.kafka_tools.options import Option, Options, UsageError
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts
from klamm_base.properties import load_properties

SUMMARY = "read as a member of a group and tell what is read and committed."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> --topic <t> --group-id <g>": "Read records.",
    "--max-messages <n>, --verbose": "How many; an event for each record.",
    "--group-protocol, --group-remote-assignor, --group-instance-id, --session-timeout": "Membership.",
    "--enable-autocommit, --reset-policy, --assignment-strategy": "Commits, the first offset, the assignor's class or name.",
    "--command-config <file>": "A .properties file with client settings.",
}
"""For the reference page."""
_ASSIGNORS: Final = {"RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "CooperativeStickyAssignor": "cooperative-sticky"}  # fmt: skip


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-verifiable-consumer has a parser of its own")


def main(args: Sequence[str]) -> int:
    """Parse, read and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    from confluent_kafka import Consumer, KafkaException

    try:
        with Interrupts() as interrupts:
            _Reading(Consumer(_config(given)), given).run(interrupts)
    except KafkaException as e:
        raise KlammError(e.args[0].str()) from None
    return interrupts.code


def _parser() -> Parser:
    parser = Parser(
        prog="kafka-verifiable-consumer", allow_abbrev=False, description="Reads records and tells events."
    )
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="the brokers to connect to")
    add("--topic", required=True, help="the topic to read")
    add("--group-id", required=True, help="the group")
    add("--group-protocol", type=str.lower, choices=("classic", "consumer"), default="classic")
    add("--group-remote-assignor", help="the broker's assignor, with the protocol consumer")
    add("--group-instance-id", help="the id of a static member")
    add("--max-messages", type=int, default=-1, help="how many; -1: until it is stopped")
    add("--session-timeout", type=int, metavar="MS", help="with the protocol classic")
    add("--verbose", action="store_true", help="an event for each record")
    add("--enable-autocommit", action="store_true", help="commit in the background")
    add("--reset-policy", choices=("earliest", "latest", "none"), default="earliest")
    add("--assignment-strategy", default="RangeAssignor", help="the assignor's class or its name")
    add("--command-config", metavar="FILE", help="a .properties file with client settings")
    add("--consumer.config", dest="consumer_config", metavar="FILE", help="the older name of it")
    return parser


def _config(given: argparse.Namespace) -> dict[str, Any]:
    path = given.command_config or given.consumer_config
    java = {
        **(load_properties(Path(path)) if path else {}),
        "bootstrap.servers": given.bootstrap_server,
        "group.id": given.group_id,
        "enable.auto.commit": str(given.enable_autocommit).lower(),
        "auto.offset.reset": given.reset_policy,
    }
    config = librdkafka(java, "consumer")
    config |= {
        "group.protocol": given.group_protocol,
        "auto.offset.reset": given.reset_policy.replace("none", "error"),
    }
    if given.group_instance_id is not None:
        config["group.instance.id"] = given.group_instance_id
    if given.group_protocol == "classic":
        name = given.assignment_strategy.rpartition(".")[2]
        config["partition.assignment.strategy"] = _ASSIGNORS.get(name, name)
        config |= {} if given.session_timeout is None else {"session.timeout.ms": given.session_timeout}
    elif given.group_remote_assignor is not None:
        config["group.remote.assignor"] = given.group_remote_assignor
    return config


class _Reading:
    """Reads as a member, and prints an event for each batch, commit and change of partitions."""

    def __init__(self, consumer: Any, given: argparse.Namespace) -> None:
        self._consumer = consumer
        self._given = given

    def run(self, interrupts: Interrupts) -> None:
        """Read until it has enough or is stopped."""
        given, read = self._given, 0
        event("startup_complete")
        self._consumer.subscribe([given.topic], on_assign=self._assigned, on_revoke=self._revoked)
        try:
            while (given.max_messages < 0 or read < given.max_messages) and not interrupts.count:
                room = 500 if given.max_messages < 0 else min(500, given.max_messages - read)
                read += self._take(self._consumer.consume(room, 0.2))
        finally:
            if interrupts.count:
                event("shutdown_requested")
            self._consumer.close()
        event("shutdown_complete")
        if not interrupts.count:
            event("shutdown_requested")

    def _take(self, messages: list[Any]) -> int:
        """Tell of records, and commit them. Returns their number."""
        found: dict[tuple[str, int], list[int]] = {}
        for m in messages:
            if m.error() is not None:
                raise KlammError(f"cannot read {m.topic()}: {m.error().str()}")
            found.setdefault((m.topic(), m.partition()), []).append(m.offset())
            if self._given.verbose:
                event(
                    "record_data", key=_text(m.key()), value=_text(m.value()), topic=m.topic(),
                    partition=m.partition(), offset=m.offset(),
                )  # fmt: skip
        if not found:
            return 0
        event("records_consumed", count=len(messages), partitions=[
            {"topic": t, "partition": p, "count": len(o), "minOffset": min(o), "maxOffset": max(o)}
            for (t, p), o in sorted(found.items())
        ])  # fmt: skip
        if not self._given.enable_autocommit:
            self._commit({place: offsets[-1] + 1 for place, offsets in found.items()})
        return len(messages)

    def _commit(self, offsets: dict[tuple[str, int], int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        said = {
            "offsets": [{"topic": t, "partition": p, "offset": o} for (t, p), o in sorted(offsets.items())]
        }
        try:
            self._consumer.commit(
                offsets=[TopicPartition(t, p, o) for (t, p), o in offsets.items()], asynchronous=False
            )
        except KafkaException as e:
            event("offsets_committed", **said, success=False, error=e.args[0].str())
        else:
            event("offsets_committed", **said, success=True)

    def _assigned(self, consumer: Any, partitions: Any) -> None:
        event("partitions_assigned", partitions=_rows(partitions))

    def _revoked(self, consumer: Any, partitions: Any) -> None:
        event("partitions_revoked", partitions=_rows(partitions))


def _rows(partitions: Any) -> list[dict[str, Any]]:
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")

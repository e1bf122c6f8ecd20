"""`kafka-verifiable-producer`: write increasing numbers, and tell as JSON which of them were acknowledged."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from klamm.kafka_tools.console_clients import librdkafka
from klamm.kafka_tools.events import event
from klamm.kafka_tools.options import Option, Options, UsageError
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm.load.latencies import Pace
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts
from klamm_base.properties import load_properties

SUMMARY = "write increasing numbers and tell which are acknowledged."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> --topic <t>": "Write numbers: 0, 1, 2 …",
    "--max-messages <n>, --throughput <n>, --acks <-1|0|1>": "How many, how many a second, and who acknowledges.",
    "--value-prefix <n>, --repeating-keys <n>, --message-create-time <ms>": "A prefix of values, keys from 0 to n-1, timestamps.",
    "--command-config <file>": "A .properties file with client settings.",
}
"""For the reference page."""
FLUSH_S: Final = 60.0


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-verifiable-producer has a parser of its own")


def main(args: Sequence[str]) -> int:
    """Parse, write and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    from confluent_kafka import KafkaException, Producer

    path = given.command_config or given.producer_config
    java = {
        **(load_properties(Path(path)) if path else {}),
        "bootstrap.servers": given.bootstrap_server,
        "acks": str(given.acks),
        "retries": "0",
    }
    try:
        writing = _Writing(Producer(librdkafka(java, "producer")), given)
    except KafkaException as e:
        raise KlammError(e.args[0].str()) from None
    with Interrupts() as interrupts:
        writing.run(interrupts)
    return interrupts.code


def _parser() -> Parser:
    parser = Parser(
        prog="kafka-verifiable-producer", allow_abbrev=False, description="Writes increasing numbers."
    )
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="the brokers to connect to")
    add("--topic", required=True, help="the topic to write to")
    add("--max-messages", type=int, default=-1, help="how many; -1: until it is stopped")
    add("--throughput", type=int, default=-1, help="how many a second; -1: no limit")
    add("--acks", type=int, default=-1, choices=(0, 1, -1), help="who acknowledges")
    add("--message-create-time", type=int, default=-1, metavar="MS", help="the first timestamp")
    add("--value-prefix", type=int, help="a number and a dot before each value")
    add("--repeating-keys", type=int, help="keys from 0 to this number, exclusive, again and again")
    add("--command-config", metavar="FILE", help="a .properties file with client settings")
    add("--producer.config", dest="producer_config", metavar="FILE", help="the older name of it")
    return parser


class _Writing:
    """Writes records, and prints an event for each acknowledgement."""

    def __init__(self, producer: Any, given: argparse.Namespace) -> None:
        self._producer = producer
        self._given = given
        self._acked = 0

    def run(self, interrupts: Interrupts) -> None:
        """Write until all are written or it is stopped; then wait for the acknowledgements."""
        given, began = self._given, time.monotonic()
        pace = Pace(given.throughput, began)
        event("startup_complete")
        sent = 0
        while (given.max_messages < 0 or sent < given.max_messages) and not interrupts.count:
            wait = pace.wait_s(sent, time.monotonic())
            if wait > 0:
                self._producer.poll(min(wait, 0.05))
                continue
            self._send(sent)
            sent += 1
        self._producer.flush(FLUSH_S)
        event("shutdown_complete")
        per_s = self._acked / max(time.monotonic() - began, 0.001)
        event(
            "tool_data",
            sent=sent,
            acked=self._acked,
            target_throughput=given.throughput,
            avg_throughput=per_s,
        )

    def _send(self, number: int) -> None:
        given = self._given
        value = str(number) if given.value_prefix is None else f"{given.value_prefix}.{number}"
        key = None if given.repeating_keys is None else str(number % given.repeating_keys)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._acked += 1
                event(
                    "producer_send_success", key=key, value=value, offset=message.offset(),
                    topic=given.topic, partition=message.partition(),
                )  # fmt: skip
            else:
                event(
                    "producer_send_error", key=key, value=value, topic=given.topic,
                    exception=error.name(), message=error.str(),
                )  # fmt: skip

        more = {} if given.message_create_time < 0 else {"timestamp": given.message_create_time + number}
        while True:
            try:
                self._producer.produce(given.topic, value, key, on_delivery=delivered, **more)
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

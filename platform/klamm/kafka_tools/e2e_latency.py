"""`kafka-e2e-latency`: the time from a record's send to its arrival at a consumer, one record after the other."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from klamm.kafka_tools.console_clients import librdkafka
from klamm.kafka_tools.options import Option, Options, UsageError, say
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm_base.errors import KlammError
from klamm_base.properties import load_properties

SUMMARY = "measure the time from a producer to a consumer."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> --topic <t> --num-records <n> --producer-acks <1|all> --record-size <bytes>": (
        "Send records one after the other (--command-config)."
    ),
    "<host:port> <topic> <n> <acks> <bytes> [<file>]": "The same, as before Kafka 4.",
}
"""For the reference page."""
POLL_S: Final = 60.0
_POSITIONAL: Final = (
    "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named arguments"
    " instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config"
)
_NAMES: Final = (
    "--bootstrap-server",
    "--topic",
    "--num-records",
    "--producer-acks",
    "--record-size",
    "--command-config",
)


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-e2e-latency has a parser of its own")


def main(args: Sequence[str]) -> int:
    """Parse, measure and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), named(args))
    if isinstance(given, int):
        return given
    if given.num_records < 1 or given.record_size < 1:
        raise UsageError("--num-records and --record-size must be at least 1")
    from confluent_kafka import KafkaException

    try:
        _measure(given)
    except KafkaException as e:
        raise KlammError(e.args[0].str()) from None
    return 0


def named(args: Sequence[str]) -> list[str]:
    """Return a command line with names before its values."""
    if len(args) in {5, 6} and not any(a.startswith("--") for a in args):
        say(_POSITIONAL)
        return [word for pair in zip(_NAMES, args, strict=False) for word in pair]
    return list(args)


def _parser() -> Parser:
    parser = Parser(
        prog="kafka-e2e-latency",
        allow_abbrev=False,
        description="Measures the time from producer to consumer.",
    )
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="the brokers to connect to")
    add("--topic", required=True, help="the topic; made where it is not there")
    add("--num-records", type=int, required=True, help="how many records")
    add("--producer-acks", choices=("1", "all"), required=True, help="who acknowledges")
    add("--record-size", type=int, required=True, help="bytes of each record")
    add("--command-config", metavar="FILE", help="a .properties file with client settings")
    return parser


def _measure(given: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, Producer

    path = given.command_config
    java = {
        **(load_properties(Path(path)) if path else {}),
        "bootstrap.servers": given.bootstrap_server,
    }
    producer = Producer(librdkafka({**java, "acks": given.producer_acks, "linger.ms": "0"}, "producer"))
    consumer = Consumer(
        librdkafka(
            {**java, "group.id": f"test-group-{int(time.time() * 1000)}", "fetch.max.wait.ms": "0"},
            "consumer",
        )
    )
    try:
        _make_topic(producer, java, given.topic)
        _at_the_end(consumer, given.topic)
        whole_ms: list[float] = []
        for number in range(given.num_records):
            ms = _once(producer, consumer, given.topic, os.urandom(given.record_size))
            if number % 1000 == 0:
                sys.stdout.write(f"{number}\t{ms}\n")
                sys.stdout.flush()
            whole_ms.append(ms)
    finally:
        consumer.close()
    sys.stdout.write(result(whole_ms))


def result(latencies_ms: list[float]) -> str:
    """Return the last lines, as Kafka's tool prints them."""
    ordered = sorted(latencies_ms)
    at = [int(ordered[int(len(ordered) * share)]) for share in (0.5, 0.99, 0.999)]
    return (
        f"Avg latency: {sum(ordered) / len(ordered):.4f} ms\n"
        f"Percentiles: 50th = {at[0]}, 99th = {at[1]}, 99.9th = {at[2]}\n"
    )


def _make_topic(client: Any, java: dict[str, str], topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    if topic in client.list_topics(timeout=POLL_S).topics:
        return
    sys.stdout.write(
        f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n'
    )
    admin = AdminClient(librdkafka({**java}, "producer"))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(POLL_S)


def _at_the_end(consumer: Any, topic: str) -> None:
    from confluent_kafka import TopicPartition

    found = consumer.list_topics(topic, timeout=POLL_S).topics[topic].partitions
    places = []
    for number in sorted(found):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), POLL_S)
        places.append(TopicPartition(topic, number, end))
    consumer.assign(places)


def _once(producer: Any, consumer: Any, topic: str, value: bytes) -> float:
    """Send a record and wait for it. Returns the milliseconds; raises KlammError."""
    failed: list[str] = []
    began = time.perf_counter()
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error.str()) if error else None)
    producer.flush(POLL_S)
    message = consumer.poll(POLL_S)
    elapsed_ms = (time.perf_counter() - began) * 1000
    if failed:
        raise KlammError(failed[0])
    if message is None:
        raise KlammError(f"poll() timed out before finding a result (timeout:[{POLL_S * 1000:.0f}])")
    if message.error() is not None:
        raise KlammError(message.error().str())
    if message.value() != value:
        raise KlammError(
            "The message read did not match the message sent; does somebody else write to the topic?"
        )
    return elapsed_ms

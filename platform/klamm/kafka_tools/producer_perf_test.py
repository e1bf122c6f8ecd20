"""`kafka-producer-perf-test`: send records as fast as the cluster takes them, and tell rate and latency."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from klamm.kafka_tools.console_clients import key_values, librdkafka
from klamm.kafka_tools.options import Option, Options, UsageError, say
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm.load.latencies import Latencies
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts
from klamm_base.properties import load_properties

SUMMARY = "measure how fast a cluster takes records."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> --topic <t> --num-records <n> --throughput <n|-1>": "Send records.",
    "--record-size <bytes>, --payload-file <file>, --payload-monotonic": "One of them: random bytes, lines of a file (--payload-delimiter), or numbers.",
    "--command-config <file>, --command-property <k=v> …": "Client settings.",
    "--transactional-id <id>, --transaction-duration-ms <ms>": "Send in transactions.",
    "--warmup-records <n>, --reporting-interval <ms>": "Records that do not count; time between reports.",
}
"""For the reference page."""
_DURATION_MS: Final = 3000


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-producer-perf-test has a parser of its own")


def main(args: Sequence[str]) -> int:
    """Parse, send and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    values = payloads(given)
    settings = _settings(given)
    duration_ms = given.transaction_duration_ms
    if duration_ms is not None and duration_ms <= 0:
        raise UsageError("--transaction-duration-ms should be > 0")
    if duration_ms is not None or "transactional.id" in settings:
        settings.setdefault("transactional.id", f"performance-producer-{uuid.uuid4()}")
        duration_ms = duration_ms or _DURATION_MS
    _send(given, settings, values, duration_ms)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="kafka-producer-perf-test",
        allow_abbrev=False,
        description="Measures how fast a cluster takes records.",
    )
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT,...", help="the brokers to connect to")
    add("--topic", required=True, help="the topic to write to")
    add("--num-records", type=int, required=True, help="how many records")
    add("--throughput", type=float, required=True, help="records a second at most; -1: no limit")
    add("--payload-delimiter", default="\\n", help="what ends a record of --payload-file")
    add("--command-property", nargs="+", default=[], metavar="K=V", help="client settings")
    add("--producer-props", nargs="+", default=[], metavar="K=V", help="the older name of --command-property")
    add("--command-config", metavar="FILE", help="a .properties file with client settings")
    add("--producer.config", dest="producer_config", metavar="FILE", help="the older name of it")
    add("--print-metrics", action="store_true", help="not here")
    add("--transactional-id", help="send in transactions of this id")
    add("--transaction-duration-ms", type=int, metavar="MS", help="commit after this time")
    add("--warmup-records", type=int, default=0, metavar="N", help="first records that do not count")
    add("--reporting-interval", type=int, default=5000, metavar="MS", help="time between reports")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, metavar="BYTES", help="bytes of each record")
    payload.add_argument("--payload-file", metavar="FILE", help="records to choose from at random")
    payload.add_argument("--payload-monotonic", action="store_true", help="records are numbers: 0, 1, 2 …")
    return parser


def payloads(given: argparse.Namespace) -> Iterator[bytes]:
    """Return the records' values. Raises UsageError, KlammError."""
    if given.num_records <= 0:
        raise UsageError("--num-records should be greater than zero.")
    if given.warmup_records >= given.num_records:
        raise UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records."
        )
    if given.payload_monotonic:
        return (str(n).encode() for n in range(given.num_records))
    if given.payload_file is not None:
        return itertools.islice(_chosen(read_payloads(given)), given.num_records)
    if given.record_size <= 0:
        raise UsageError("--record-size should be greater than zero.")
    value = bytes(random.choices(range(65, 91), k=given.record_size))
    return itertools.repeat(value, given.num_records)


def read_payloads(given: argparse.Namespace) -> list[bytes]:
    """Return the records of --payload-file. Raises KlammError."""
    path = Path(given.payload_file)
    delimiter = given.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    try:
        found = [part for part in path.read_bytes().split(delimiter) if part]
    except OSError as e:
        raise KlammError(f"File does not exist or cannot be read: {path}: {e.strerror}") from None
    if not found:
        raise KlammError(f"File does not exist or empty file provided: {path}")
    return found


def _chosen(found: list[bytes]) -> Iterator[bytes]:
    while True:
        yield random.choice(found)


def _settings(given: argparse.Namespace) -> dict[str, str]:
    """Return client settings in Java's names: the file, the properties, the options."""
    for old, new in (("producer_props", "command-property"), ("producer_config", "command-config")):
        if getattr(given, old):
            name = old.replace("producer_config", "producer.config").replace("_", "-")
            say(
                f"Option --{name} has been deprecated and will be removed in a future version. Use --{new} instead."
            )
    path = given.command_config or given.producer_config
    settings = {
        **(load_properties(Path(path)) if path else {}),
        **key_values([*given.producer_props, *given.command_property]),
    }
    if given.bootstrap_server is not None:
        settings["bootstrap.servers"] = given.bootstrap_server
    if "bootstrap.servers" not in settings:
        raise UsageError(
            "At least one of --bootstrap-server, --command-property with bootstrap.servers is needed"
        )
    if given.transactional_id is not None:
        settings["transactional.id"] = given.transactional_id
    if given.print_metrics:
        say("--print-metrics has no effect: librdkafka has other metrics than Java's client")
    return settings


def _send(
    given: argparse.Namespace, java: dict[str, str], values: Iterator[bytes], duration_ms: int | None
) -> None:
    from confluent_kafka import KafkaException, Producer

    from klamm.load.running import Sending

    config: dict[str, Any] = {"client.id": "perf-producer-client", **librdkafka(java, "producer")}
    try:
        with Interrupts() as interrupts:
            producer = Producer(config)
            if duration_ms is not None:
                producer.init_transactions(60)
            sending = Sending(
                producer, given.topic, _report, given.reporting_interval / 1000, warmup=given.warmup_records,
                interrupts=interrupts,
            )  # fmt: skip
            sending.run(
                values, given.throughput, transaction_s=None if duration_ms is None else duration_ms / 1000
            )
    except KafkaException as e:
        raise KlammError(e.args[0].str()) from None
    sys.stdout.write(total(sending.whole, sending.elapsed_s))


def _report(window: Latencies, elapsed_s: float) -> None:
    records, megabytes = window.rate(elapsed_s)
    sys.stdout.write(
        f"{window.count} records sent, {records:.1f} records/sec ({megabytes:.2f} MB/sec),"
        f" {window.mean_ms:.1f} ms avg latency, {window.max_ms:.1f} ms max latency.\n"
    )
    sys.stdout.flush()


def total(whole: Latencies, elapsed_s: float) -> str:
    """Return the last line, as Kafka's tool prints it."""
    records, megabytes = whole.rate(elapsed_s)
    at = [whole.percentile(share) for share in (0.5, 0.95, 0.99, 0.999)]
    return (
        f"{whole.count} records sent, {records:f} records/sec ({megabytes:.2f} MB/sec), {whole.mean_ms:.2f} ms avg latency,"
        f" {whole.max_ms:.2f} ms max latency, {at[0]} ms 50th, {at[1]} ms 95th, {at[2]} ms 99th, {at[3]} ms 99.9th.\n"
    )

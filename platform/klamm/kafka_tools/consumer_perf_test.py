"""`kafka-consumer-perf-test`: read records as fast as the cluster gives them, and tell the rate."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm.kafka_tools.console_clients import key_values, librdkafka
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.load.running import Reading
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts
from klamm_base.properties import load_properties

SUMMARY = "measure how fast a cluster gives records."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("consumer.config", "The older name of --command-config.", "FILE"),
    Option("command-property", "A client setting.", "K=V"),
    Option("topic", "The topic to read.", "TOPIC"),
    Option("include", "Or all topics that match this regular expression.", "REGEX"),
    Option("group", "The group; by default perf-consumer-N.", "GROUP"),
    Option("num-records", "REQUIRED: How many records to read.", "N"),
    Option("messages", "The older name of --num-records.", "N"),
    Option("from-latest", "Begin at the end, where the group has no offsets."),
    Option("fetch-size", "Bytes of a fetch of a partition.", "BYTES", default="1048576"),
    Option("socket-buffer-size", "Bytes of the socket's receive buffer.", "BYTES", default="2097152"),
    Option("timeout", "End when nothing came for so long.", "MS", default="10000"),
    Option("show-detailed-stats", "A line for each --reporting-interval."),
    Option("reporting-interval", "Time between lines.", "MS", default="5000"),
    Option("hide-header", "Without the line of heads."),
    Option("print-metrics", "Not here: librdkafka has other metrics than Java's client."),
    Option("date-format", "Of times; only the default.", "FORMAT", default="yyyy-MM-dd HH:mm:ss:SSS"),
)
_COMMON: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec,"
    " fetch.nMsg.sec"
)


def run(options: Options) -> int:
    options.require("bootstrap-server")
    if options.has("messages"):
        say("Warning: --messages is deprecated. Use --num-records instead.")
    if options.has("topic") is options.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if options.has("messages") is options.has("num-records"):
        raise UsageError("Exactly one of the following arguments is required: [messages], [num-records]")
    wanted = options.number("num-records" if options.has("num-records") else "messages") or 0
    topic = options.text("topic" if options.has("topic") else "include")
    detailed = options.has("show-detailed-stats")
    if not options.has("hide-header"):
        head = "time, threadId" if detailed else "start.time, end.time"
        sys.stdout.write(f"{head}, {_COMMON}\n")
    _read(options, topic, wanted, detailed=detailed)
    return 0


def _read(options: Options, topic: str, wanted: int, *, detailed: bool) -> None:
    from confluent_kafka import Consumer, KafkaException

    began = datetime.now(UTC).astimezone()
    last = (0, 0, 0.0)

    def report(reading: Reading, elapsed_s: float) -> None:
        nonlocal last
        if detailed:
            records, size, at_s = last
            new = (reading.records - records, reading.bytes - size, elapsed_s - at_s)
            last = (reading.records, reading.bytes, elapsed_s)
            sys.stdout.write(
                f"{stamp(datetime.now(UTC).astimezone())}, 0, {figures(reading.records, reading.bytes, new, 0)}\n"
            )
            sys.stdout.flush()

    try:
        with Interrupts() as interrupts:
            consumer = Consumer(_config(options))
            pace_s = (options.number("reporting-interval") or 5000) / 1000
            reading = Reading(consumer, report, pace_s, interrupts=interrupts)
            idle_s = (options.number("timeout") or 0) / 1000
            try:
                complete = reading.run([topic], wanted, idle_s, pattern=options.has("include"))
            finally:
                consumer.close()
    except KafkaException as e:
        raise KlammError(e.args[0].str()) from None
    if not complete:
        sys.stdout.write(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({options.get('timeout')} ms)"
            " exceeded. You can use the --timeout option to increase the timeout.\n"
        )
    if not detailed:
        total = (reading.records, reading.bytes, reading.elapsed_s)
        said = figures(reading.records, reading.bytes, total, round(reading.joining_s * 1000))
        sys.stdout.write(f"{stamp(began)}, {stamp(datetime.now(UTC).astimezone())}, {said}\n")


def stamp(at: datetime) -> str:
    """Return a time in the tool's default format."""
    return at.strftime("%Y-%m-%d %H:%M:%S:") + f"{at.microsecond // 1000:03d}"


def figures(records: int, size: int, new: tuple[int, int, float], joining_ms: int) -> str:
    """Return what was read in all, and the rates of what is new, with and without the time of joining."""
    new_records, new_bytes, elapsed_s = new
    elapsed_ms = max(round(elapsed_s * 1000), 1)
    fetch_ms = max(elapsed_ms - joining_ms, 1)
    megabytes, new_megabytes = size / 1024 / 1024, new_bytes / 1024 / 1024
    return (
        f"{megabytes:.4f}, {1000 * new_megabytes / elapsed_ms:.4f}, {records}, {1000 * new_records / elapsed_ms:.4f},"
        f" {joining_ms}, {fetch_ms}, {1000 * new_megabytes / fetch_ms:.4f}, {1000 * new_records / fetch_ms:.4f}"
    )


def _config(options: Options) -> dict[str, Any]:
    path = options.get("command-config") or options.get("consumer.config")
    java = {
        "group.id": options.get("group") or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if options.has("from-latest") else "earliest",
        "max.partition.fetch.bytes": options.text("fetch-size"),
        "receive.buffer.bytes": options.text("socket-buffer-size"),
        "client.id": "perf-consumer-client",
        **(load_properties(Path(path)) if path else {}),
        **key_values(options.all("command-property")),
        "bootstrap.servers": options.text("bootstrap-server"),
    }
    return librdkafka(java, "consumer")

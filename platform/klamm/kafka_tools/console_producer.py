"""`kafka-console-producer`: lines of standard input become records."""

from __future__ import annotations

import sys
from typing import Any, Final

from klamm.kafka_tools.console_clients import file_and_properties, librdkafka, properties
from klamm.kafka_tools.console_records import LineReader
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm_base.addresses import parse_addresses
from klamm_base.interrupts import Interrupts

SUMMARY = "write the lines of standard input to a topic."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    Option("topic", "REQUIRED: The topic to write to.", "TOPIC"),
    Option("sync", "Wait for each record before the next one is sent."),
    Option("compression-codec", "none, gzip, snappy, lz4 or zstd; alone: gzip.", "CODEC", optional=True),
    Option("request-required-acks", "0, 1, or all.", "ACKS", default="-1"),
    Option("batch-size", "Bytes of a batch.", "BYTES", default="16384"),
    Option("timeout", "How long records wait for a batch to fill, in ms.", "MS", default="1000"),
    Option("message-send-max-retries", "How often a record is sent again.", "N", default="3"),
    Option("retry-backoff-ms", "How long to wait before that.", "MS", default="100"),
    Option("request-timeout-ms", "How long to wait for an answer.", "MS", default="1500"),
    Option("reader-property", "parse.key, key.separator, parse.headers, headers.delimiter, headers.separator,"
           " headers.key.separator, ignore.error, null.marker.", "KEY=VALUE"),
    Option("property", "The older name of --reader-property.", "KEY=VALUE"),
    Option("command-property", "A setting of the producer.", "KEY=VALUE"),
    Option("producer-property", "The older name of --command-property.", "KEY=VALUE"),
    COMMAND_CONFIG,
    Option("producer.config", "The older name of --command-config.", "FILE"),
    Option("line-reader", "Not here: a Java class.", "CLASS"),
)  # fmt: skip
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_SETTINGS: Final = {
    "request-required-acks": "acks",
    "batch-size": "batch.size",
    "timeout": "linger.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "request-timeout-ms": "request.timeout.ms",
}
_QUEUE_FULL_S: Final = 1.0
_FLUSH_S: Final = 3600.0
"""Longer than records are tried."""


def run(options: Options) -> int:
    """Send until standard input ends. What could not be delivered is said; Kafka's ends with 0 then, so this does."""
    options.require("bootstrap-server", "topic")
    parse_addresses(options.text("bootstrap-server"))
    if options.has("line-reader"):
        raise UsageError("--line-reader: a Java class cannot be loaded here")
    reader = LineReader(properties(options, ("reader-property", "property")))
    producer = _producer(options)
    topic = options.text("topic")
    with Interrupts() as interrupts:
        try:
            for number, line in enumerate(_lines(interrupts), 1):
                record = reader.parse(line, number)
                interrupts.check()
                _send(producer, topic, record.key, record.value, record.headers)
                if options.has("sync"):
                    interrupts.flush(producer, _FLUSH_S)
        finally:
            interrupts.flush(producer, _FLUSH_S)
    return 0


def _producer(options: Options) -> Any:
    from confluent_kafka import Producer

    given = file_and_properties(options, "producer")
    java = {"bootstrap.servers": options.text("bootstrap-server"), "client.id": "console-producer"}
    if options.has("compression-codec"):
        codec = options.get("compression-codec") or "gzip"
        if codec not in _CODECS:
            raise UsageError(f"Unknown compression name: {codec}")
        java["compression.type"] = codec
    # an option that was given wins over the settings, a default does not
    for option, name in _SETTINGS.items():
        if options.has(option) or name not in given:
            java[name] = options.text(option)
    return Producer(librdkafka({**given, **java}, "producer") | {"partitioner": "murmur2_random"})


def _lines(interrupts: Interrupts) -> Any:
    """Return the lines of standard input as text; bytes that are not UTF-8 survive. Shows a prompt on a terminal."""
    prompt = sys.stdin.isatty()
    while True:
        if prompt:
            sys.stdout.write(">")
            sys.stdout.flush()
        with interrupts.raising():
            raw = sys.stdin.buffer.readline()
        if not raw:
            return
        yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _send(producer: Any, topic: str, key: bytes | None, value: bytes | None, headers: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, key, headers=headers or None, on_delivery=_delivered)
        except BufferError:  # the queue is full
            producer.poll(_QUEUE_FULL_S)
            continue
        producer.poll(0)
        return


def _delivered(error: Any, message: Any) -> None:
    if error is not None:
        say(f"Error when sending message to topic {message.topic()}: {error.str()}")

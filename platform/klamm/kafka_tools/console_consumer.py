"""`kafka-console-consumer`: records become lines of standard output."""

from __future__ import annotations

import re
import secrets
import sys
import time
from typing import Any, Final

from klamm.kafka_tools.console_clients import file_and_properties, librdkafka, properties
from klamm.kafka_tools.console_records import ConsoleError, Formatter, Shown
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm_base.addresses import parse_addresses
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts

SUMMARY = "print the records of a topic."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    Option("topic", "The topic to read.", "TOPIC"),
    Option("include", "Instead: topics that match this regular expression.", "REGEX"),
    Option("partition", "Only this partition; from the end unless --offset says otherwise.", "N"),
    Option("offset", "Where to start in --partition: a number, earliest or latest.", "OFFSET", default="latest"),
    Option("from-beginning", "Start at the first record, where the group has no offset."),
    Option("max-messages", "End after so many records.", "N"),
    Option("timeout-ms", "End when nothing came for so long.", "MS"),
    Option("group", "Read as a member of this group, and commit.", "GROUP"),
    Option("isolation-level", "read_committed or read_uncommitted.", "LEVEL", default="read_uncommitted"),
    Option("skip-message-on-error", "Go on after a record that cannot be printed."),
    Option("formatter-property", "print.timestamp, print.partition, print.offset, print.headers, print.key, print.value,"
           " key.separator, line.separator, headers.separator, null.literal, key.deserializer, ...", "KEY=VALUE"),
    Option("property", "The older name of --formatter-property.", "KEY=VALUE"),
    Option("key-deserializer", "Kafka's String-, Short-, Integer- or LongDeserializer.", "CLASS"),
    Option("value-deserializer", "The same for values.", "CLASS"),
    Option("formatter", "DefaultMessageFormatter only: other Java classes cannot be loaded.", "CLASS"),
    Option("command-property", "A setting of the consumer.", "KEY=VALUE"),
    Option("consumer-property", "The older name of --command-property.", "KEY=VALUE"),
    COMMAND_CONFIG,
    Option("consumer.config", "The older name of --command-config.", "FILE"),
)  # fmt: skip
_FORMATTERS: Final = ("DefaultMessageFormatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter")
_PIECE_S: Final = 0.2


def run(options: Options) -> int:
    """Print until enough came, nothing came for long enough, or Ctrl-C."""
    _check(options)
    props = properties(options, ("formatter-property", "property"))
    for part in ("key", "value"):
        if options.has(f"{part}-deserializer"):
            props[f"{part}.deserializer"] = options.text(f"{part}-deserializer")
    formatter = Formatter(props)
    limit, timeout_ms = options.number("max-messages"), options.number("timeout-ms")
    consumer = _consumer(options)
    count = 0
    with Interrupts() as interrupts:
        try:
            _choose(consumer, options)
            for message in _messages(consumer, limit, timeout_ms, interrupts):
                count += 1
                _print(message, formatter, skip=options.has("skip-message-on-error"))
        finally:
            consumer.close()
            sys.stdout.buffer.flush()
            say(f"Processed a total of {count} messages")
    return 0


def _check(options: Options) -> None:
    if options.has("topic") == options.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [include], [topic]")
    if options.has("partition"):
        if not options.has("topic"):
            raise UsageError("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
        if options.has("group"):
            raise UsageError("Options group and partition cannot be specified together.")
    elif options.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    options.require("bootstrap-server")
    parse_addresses(options.text("bootstrap-server"))  # librdkafka would look for it for ever
    if options.has("formatter") and options.get("formatter") not in _FORMATTERS:
        raise UsageError(f"--formatter {options.get('formatter')}: a Java class cannot be loaded here")
    text = options.text("offset")
    if text not in ("earliest", "latest") and not text.isdecimal():
        raise UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative"
            " long."
        )


def _consumer(options: Options) -> Any:
    from confluent_kafka import Consumer

    given = file_and_properties(options, "consumer")
    group = options.get("group") or given.get("group.id")
    if options.has("group") and given.get("group.id", group) != group:
        raise UsageError(
            f"The group ids provided in different places do not match: '{group}', '{given['group.id']}'"
        )
    reset = given.get("auto.offset.reset", "earliest" if options.has("from-beginning") else "latest")
    if options.has("from-beginning") and reset != "earliest":
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    java = {
        "client.id": "console-consumer",
        "isolation.level": options.text("isolation-level"),
        **given,
        "bootstrap.servers": options.text("bootstrap-server"),
        "auto.offset.reset": reset,
        "group.id": group or f"console-consumer-{secrets.randbelow(100_000)}",
    }
    if group is None:
        java.setdefault("enable.auto.commit", "false")
    if options.has("isolation-level"):
        java["isolation.level"] = options.text("isolation-level")
    return Consumer(librdkafka(java, "consumer"))


def _choose(consumer: Any, options: Options) -> None:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    number = options.number("partition")
    if number is not None:
        text = "earliest" if options.has("from-beginning") else options.text("offset")
        offset = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(text)
        offset = int(text) if offset is None else offset
        consumer.assign([TopicPartition(options.text("topic"), number, offset)])
    elif options.has("topic"):
        consumer.subscribe([options.text("topic")])
    else:
        pattern = options.text("include")
        try:
            re.compile(pattern)
        except re.error as e:
            raise UsageError(f"{pattern} is an invalid regex: {e}") from None
        consumer.subscribe([f"^({pattern})$"])


def _messages(consumer: Any, limit: int | None, timeout_ms: int | None, interrupts: Interrupts) -> Any:
    from confluent_kafka import KafkaError

    count, last = 0, time.monotonic()
    while limit is None or limit < 0 or count < limit:
        room = 500 if limit is None or limit < 0 else min(500, limit - count)
        for message in consumer.consume(room, _PIECE_S):
            if (error := message.error()) is not None:
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # it may be made yet; Java's waits, too
                    say(f"WARN {error.str()}; waiting for it")
                    continue
                raise KlammError(f"Error processing message, terminating consumer process: {error.str()}")
            count, last = count + 1, time.monotonic()
            yield message
        sys.stdout.buffer.flush()
        interrupts.check()
        if timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
            say(f"Error processing message, terminating consumer process: nothing came for {timeout_ms} ms")
            return


def _print(message: Any, formatter: Formatter, *, skip: bool) -> None:
    record = Shown(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp(),
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )
    try:
        sys.stdout.buffer.write(formatter.format(record))
    except ConsoleError as e:
        if not skip:
            raise
        say(f"Error processing message, skipping this message: {e}")

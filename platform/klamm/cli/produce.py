"""`klamm produce`: lines of standard input, or one value, as records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from klamm.cli.common import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    client_config,
    kafka_error,
    pairs,
    reported,
)
from klamm_base.errors import ConfigError, KlammError

FLUSH_S: Final = 60.0
PROPERTIES: Final = ("parse.key", "key.separator", "null.marker")


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]", help="Values; default: the lines of standard input."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="Header of every record.")
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", help="-1: chosen by the key as Java does.")
    ] = -1,
    compression: Annotated[
        str, typer.Option("--compression-codec", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="0, 1 or all.")] = "all",
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="Write one record without value; needs --key.")
    ] = False,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="parse.key=true, key.separator=TEXT (a tab), null.marker=TEXT.",
        ),
    ] = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Write records; ends when all of them are acknowledged, with exit code 1 if one was not."""
    if tombstone and (key is None or values):
        raise typer.BadParameter("a tombstone has a --key and no value", param_hint="--tombstone")
    properties = pairs(property_, "--property")
    unknown = [p for p in properties if p not in PROPERTIES]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(PROPERTIES)}", param_hint="--property"
        )
    records = iter([(key, None)]) if tombstone else _records(values, key, properties)
    headers: list[tuple[str, str | bytes | None]] = list(pairs(header, "--header").items())
    with reported():
        config = client_config(bootstrap, command_config, "producer")
        config |= {
            "acks": acks,
            "compression.type": compression,
            "linger.ms": 5,
            "message.timeout.ms": 30_000,
        }
        sent = _send(config, topic, records, headers, partition)
        typer.echo(f"{sent} record{'s' if sent != 1 else ''} acknowledged", err=True)


def _records(
    values: list[str] | None, key: str | None, properties: Mapping[str, str]
) -> Iterator[tuple[str | None, str | None]]:
    lines = iter(values) if values else (line.rstrip("\n") for line in sys.stdin)
    parse_key = properties.get("parse.key", "false").lower() == "true"
    separator = properties.get("key.separator", "\t").encode().decode("unicode_escape")
    null = properties.get("null.marker")
    for number, line in enumerate(lines, 1):
        found, value = key, line
        if parse_key:
            found, mark, value = line.partition(separator)
            if not mark:
                raise KlammError(f"line {number}: no key separator {separator!r} in {line[:40]!r}")
        yield found, None if null is not None and value == null else value


def _send(
    config: Mapping[str, Any],
    topic: str,
    records: Iterator[tuple[str | None, str | None]],
    headers: list[tuple[str, str | bytes | None]],
    partition: int,
) -> int:
    from confluent_kafka import KafkaException, Producer

    failed: list[Any] = []
    acknowledged = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failed.append(error)

    try:
        producer = Producer(dict(config))
    except KafkaException as e:
        raise ConfigError(str(kafka_error(e, "client settings"))) from None
    for key, value in records:
        if failed:
            break
        while True:
            try:
                producer.produce(topic, value, key, partition, delivered, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(FLUSH_S)
    if failed or left:
        why = kafka_error(failed[0], "the first error") if failed else f"no answer within {FLUSH_S:g} s"
        raise KlammError(f"{acknowledged} records acknowledged, {len(failed) + left} not: {why}")
    return acknowledged

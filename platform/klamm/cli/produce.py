"""`klamm produce`: lines of standard input, or one value, as records of a topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from klamm.cli.cluster import Cluster, kafka_error
from klamm.cli.common import EXIT_FAILED, counted, fail, pairs, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import raw
from klamm.cli.produce_options import Encoding, Record, template_records
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupted, Interrupts

Pair = tuple[bytes | None, bytes | None]

FLUSH_S: Final = 60.0
PROPERTIES: Final = ("parse.key", "key.separator", "null.marker")


def produce(
    cluster: Cluster,
    encoding: Encoding,
    topic: Annotated[str, typer.Argument(autocompletion=topic_names, help="Topic to write to.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]", parser=raw, help="Values; default: the lines of standard input."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", parser=raw, help="Key of every record.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="Header of every record.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", help="Default: the line's, or -1: by the key as Java does."),
    ] = None,
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
            parser=raw,
            help="parse.key=true, key.separator=TEXT (a tab), null.marker=TEXT.",
        ),
    ] = None,
) -> None:
    """Write records.

    Ends when all of them are acknowledged; with exit code 1 if a record was not.
    """
    if tombstone and (key is None or values):
        raise typer.BadParameter("a tombstone has a --key and no value", param_hint="--tombstone")
    properties = pairs(property_, "--property")
    unknown = [p for p in properties if p not in PROPERTIES]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(PROPERTIES)}", param_hint="--property"
        )
    separator = _separator(properties.get("key.separator", "\t"))
    fixed = None if key is None else os.fsencode(key)
    template = encoding.template()
    interrupts = Interrupts()
    lines = _lines(values, interrupts)
    if tombstone:
        records: Iterator[Record] = iter([Record(fixed, None)])
    elif template is not None:
        records = template_records(template, lines, fixed)
    else:
        records = (Record(k, v) for k, v in _records(lines, fixed, separator, properties))
    headers = _headers(header)
    with reported(), interrupts:
        config = cluster.config("producer") | {
            "acks": acks, "compression.type": compression, "linger.ms": 5, "message.timeout.ms": 30_000,
        }  # fmt: skip
        records = encoding.encoded(records, topic)
        producer = _open(cluster, config)
        cluster.metadata(producer)  # before anything is read: nobody waits for a time-out without a reason
        sent = _send(producer, topic, records, headers, partition, interrupts)
        typer.echo(f"{counted(sent, 'record')} acknowledged", err=True)


def _headers(words: list[str] | None) -> list[tuple[str, str | bytes | None]]:
    """Return headers, of which several may have the same name. Raises BadParameter."""
    return [pair for word in words or () for pair in pairs([word], "--header").items()]


def _lines(values: list[str] | None, interrupts: Interrupts) -> Iterator[bytes]:
    """Yield what is to be written. Bytes stay as they are: a line need not be UTF-8."""
    if values:
        yield from map(os.fsencode, values)
        return
    while True:
        with interrupts.raising():
            raw = sys.stdin.buffer.readline()
        if not raw:
            return
        yield _line(raw)


def _records(
    lines: Iterator[bytes], key: bytes | None, separator: bytes, properties: Mapping[str, str]
) -> Iterator[Pair]:
    """Yield key and value of each record."""
    parse_key = properties.get("parse.key", "false").lower() == "true"
    null = os.fsencode(properties["null.marker"]) if "null.marker" in properties else None
    for number, line in enumerate(lines, 1):
        found, value = key, line
        if parse_key:
            found, mark, value = line.partition(separator)
            if not mark:
                text = line[:40].decode(errors="backslashreplace")
                raise KlammError(f"line {number}: no key separator {os.fsdecode(separator)!r} in {text!r}")
        yield found, None if null is not None and value == null else value


def _line(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def _separator(text: str) -> bytes:
    """Return the separator's bytes. Backslash t stands for a tab, because shells pass it on unchanged."""
    if not text:
        raise typer.BadParameter("key.separator is empty", param_hint="--property")
    return os.fsencode(text.replace("\\t", "\t"))


def _open(cluster: Cluster, config: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return cluster.open(Producer, config)


def _send(
    producer: Any,
    topic: str,
    records: Iterator[Record],
    headers: list[tuple[str, str | bytes | None]],
    partition: int | None,
    interrupts: Interrupts,
) -> int:
    """Send all; the number acknowledged. Whatever ends it, what was taken in is waited for and counted."""
    from confluent_kafka import KafkaException

    problems: list[str] = []
    acknowledged, code = 0, EXIT_FAILED

    def delivered(error: Any, _message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            problems.append(_problem(error, "a record failed"))

    try:
        for record in records:
            if problems:
                break
            interrupts.check()
            mine = [*headers, *record.headers]
            at = record.partition if partition is None else partition
            when = record.timestamp
            _enqueue(producer, topic, record.value, record.key, at, delivered, timestamp=when, headers=mine)
    except KafkaException as e:
        problems.append(_problem(e.args[0], "a record was refused"))
    except KlammError as e:
        problems.append(str(e))
        code = e.code if isinstance(e, Interrupted) else EXIT_FAILED
    left = interrupts.flush(producer, FLUSH_S)
    if left:
        problems.append(f"no answer after {FLUSH_S:g} s about {counted(left, 'record')}")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        fail(f"{counted(acknowledged, 'record')} acknowledged, then {problems[0]}{more}", code)
    return acknowledged


def _problem(error: Any, doing: str) -> str:
    from confluent_kafka import KafkaError

    ways_out = {
        KafkaError._UNKNOWN_PARTITION: "; -p -1 chooses partitions by the key",  # noqa: SLF001 - its public name
        KafkaError.INVALID_TIMESTAMP: "; --now gives the present time",
    }
    return f"{kafka_error(error, doing)}{ways_out.get(error.code(), '')}"


def _enqueue(producer: Any, *args: Any, **rest: Any) -> None:
    """Hand a record over, waiting while the queue is full."""
    while True:
        try:
            producer.produce(*args, **rest)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return

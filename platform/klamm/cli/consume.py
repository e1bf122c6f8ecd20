"""`klamm consume`: print a topic's records."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from klamm.cli.cluster import Cluster
from klamm.cli.common import Output, reported
from klamm.cli.completion import group_names, topic_names
from klamm_base.errors import KlammError

DEFAULT_FORMAT: Final = "%v\\n"
Piece = Callable[[Any], bytes]
_PLACES: Final[dict[str, Piece]] = {
    "t": lambda m: m.topic().encode(),
    "p": lambda m: b"%d" % m.partition(),
    "o": lambda m: b"%d" % m.offset(),
    "k": lambda m: _or_null(m.key()),
    "v": lambda m: _or_null(m.value()),
    "d": lambda m: b"%d" % m.timestamp()[1],
    "h": lambda m: b",".join(name.encode() + b"=" + _or_null(value) for name, value in m.headers() or []),
    "H": lambda m: b"%d" % len(m.headers() or []),
    "K": lambda m: b"%d" % (-1 if m.key() is None else len(m.key())),
    "V": lambda m: b"%d" % (-1 if m.value() is None else len(m.value())),
    "T": lambda m: b"%d" % len(m.topic()),
    "e": lambda m: b"%d" % m.leader_epoch(),
    "%": lambda m: b"%",
}

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="%t topic, %p partition, %o offset, %k key, %v value, %d timestamp in ms, %h headers, %H their"
        " number, %T %K %V bytes of topic, key, value (-1: null), %e leader epoch, %% a percent sign;"
        " \\n \\t \\r \\0.",
    ),
]


def consume(
    cluster: Cluster,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="Topics to read.")
    ],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option("--offset", help="start, end, an offset, -N (the last N), or @MS (a timestamp)."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", help="End after so many records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", autocompletion=group_names, help="Read as a member of this group and commit."
        ),
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="End when nothing came for so long.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End at the end of the partitions.")
    ] = False,
    isolation_level: Annotated[
        str, typer.Option("--isolation-level", help="read_committed or read_uncommitted.")
    ] = "read_uncommitted",
    format_: FormatOption = DEFAULT_FORMAT,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="json: a JSON object a line.")
    ] = None,
) -> None:
    """Print records.

    Ends with Ctrl-C, or when -n, -e or --timeout-ms says so.
    """
    if from_beginning and offset:
        raise typer.BadParameter("give --from-beginning or --offset, not both", param_hint="--offset")
    if group and (offset or partition is not None):
        raise typer.BadParameter("a group chooses its offsets and partitions itself", param_hint="--group")
    show = _as_json if output is Output.JSON else formatter(format_)
    start = "start" if from_beginning else offset or "end"
    with reported():
        config = cluster.config("consumer") | {
            "isolation.level": isolation_level,
            "group.id": group or "klamm-consume",
            "enable.auto.commit": group is not None,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
        }
        consumer = _open(cluster, config)
        try:
            _choose(cluster, consumer, topics, group, start, partition)
            _print_all(consumer, show, max_messages, timeout_ms, exit_at_end=exit_at_end)
        except KeyboardInterrupt:
            pass  # the usual way to end it
        finally:
            consumer.close()


def _or_null(data: bytes | None) -> bytes:
    """Return the bytes unchanged, so that a pipe gets what the topic holds; `null` for a tombstone."""
    return b"null" if data is None else data


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Return text; bytes that are not UTF-8 as `{"base64": ...}`, because JSON has no bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode()}


def formatter(pattern: str) -> Piece:
    """Return a function that formats a message by a pattern (kcat's and rpk's letters).

    Raises BadParameter for a bad pattern.
    """
    pieces: list[Piece] = []
    for literal, letter in re.findall(r"([^%]+)|%(.?)", pattern):
        if literal:
            pieces.append(lambda _m, s=_backslashes(literal).encode(): s)  # type: ignore[misc]
        elif letter in _PLACES:
            pieces.append(_PLACES[letter])
        else:
            raise typer.BadParameter(f"%{letter} is not one of %{' %'.join(_PLACES)}", param_hint="--format")
    return lambda message: b"".join([piece(message) for piece in pieces])


def _backslashes(literal: str) -> str:
    return literal.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r").replace("\\0", "\0")


def _as_json(m: Any) -> bytes:
    record = {
        "topic": m.topic(),
        "partition": m.partition(),
        "offset": m.offset(),
        "timestamp": m.timestamp()[1],
        "key": json_value(m.key()),
        "value": json_value(m.value()),
        "headers": [[name, json_value(value)] for name, value in m.headers() or []],
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _open(cluster: Cluster, config: dict[str, Any]) -> Any:
    from confluent_kafka import Consumer

    return cluster.open(Consumer, config)


def _choose(
    cluster: Cluster, consumer: Any, topics: list[str], group: str | None, start: str, partition: int | None
) -> None:
    """Join the group, or take the partitions that were asked for."""
    from confluent_kafka import KafkaException

    found = cluster.metadata(consumer).topics
    if group is not None:
        consumer.subscribe(topics)
        return
    absent = [t for t in topics if t not in found]
    if absent:
        raise KlammError(f"no topic {', '.join(absent)} at {cluster.bootstrap}")
    ids = [(t, p) for t in topics for p in sorted(found[t].partitions) if partition in (None, p)]
    if not ids:
        raise KlammError(f"no partition {partition} in {', '.join(topics)}")
    try:
        consumer.assign([_position(consumer, t, p, start) for t, p in ids])
    except KafkaException as e:
        raise cluster.no_answer(e) from None


def _position(consumer: Any, topic: str, partition: int, start: str) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    if start in ("start", "end"):
        return TopicPartition(topic, partition, OFFSET_BEGINNING if start == "start" else OFFSET_END)
    try:
        number = int(start.removeprefix("@"))
    except ValueError:
        raise typer.BadParameter(
            f"{start!r} is not start, end, N, -N or @MS", param_hint="--offset"
        ) from None
    if start.startswith("@"):
        return consumer.offsets_for_times([TopicPartition(topic, partition, number)], 10)[0]
    if number < 0:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
        number = max(low, high + number)
    return TopicPartition(topic, partition, number)


def _print_all(
    consumer: Any, show: Piece, limit: int | None, timeout_ms: int | None, *, exit_at_end: bool
) -> None:
    from confluent_kafka import KafkaError

    printed, ended = 0, set()
    last = time.monotonic()
    while limit is None or printed < limit:
        messages = consumer.consume(500 if limit is None else min(500, limit - printed), 0.25)
        for message in messages:
            error = message.error()
            if error is None:
                sys.stdout.buffer.write(show(message))
                printed += 1
                last = time.monotonic()
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                ended.add((message.topic(), message.partition()))
            else:
                raise KlammError(f"cannot read {message.topic()}: {error.str()}")
        sys.stdout.buffer.flush()
        if exit_at_end and ended and ended >= {(a.topic, a.partition) for a in consumer.assignment()}:
            return
        if timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
            return

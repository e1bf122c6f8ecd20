"""`klamm consume`: print a topic's records."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from klamm.cli.cluster import Cluster
from klamm.cli.common import reported
from klamm.cli.completion import group_names, topic_names
from klamm.cli.consume_options import Chosen, Decoding, Record, told_bad
from klamm_base.errors import KlammError


class Lines(StrEnum):
    """The form of records: by a pattern, or a JSON object a line."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


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
    chosen: Chosen,
    decoding: Decoding,
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
        Lines | None, typer.Option("--output", "-o", help="json, jsonl: a JSON object a line.")
    ] = None,
) -> None:
    """Print records.

    Ends with Ctrl-C, or when -n, -e or --timeout-ms says so.
    """
    if from_beginning and offset:
        raise typer.BadParameter("give --from-beginning or --offset, not both", param_hint="--offset")
    if group and (offset or partition is not None):
        raise typer.BadParameter("a group chooses its offsets and partitions itself", param_hint="--group")
    if chosen.from_ and (from_beginning or offset or group):
        raise typer.BadParameter("give --from, or the other options for where to begin", param_hint="--from")
    show = _as_json if output in (Lines.JSON, Lines.JSONL) else formatter(format_)
    with reported():
        wanted = prepared(chosen, decoding)
        place, end = chosen.place(chosen.from_), chosen.place(chosen.to)
        start = _begin(place, offset, from_beginning=from_beginning or (end is not None and not offset))
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
            out = _Printed(show, wanted, end, max_messages)
            at_end = exit_at_end or end is not None
            _print_all(consumer, out, timeout_ms, exit_at_end=at_end, in_group=group is not None)
        except KeyboardInterrupt:
            pass  # the usual way to end it
        finally:
            consumer.close()


def _begin(place: tuple[str, int] | None, offset: str | None, *, from_beginning: bool) -> str:
    """Return where to begin, in the words of --offset."""
    if place is not None:
        return f"@{place[1]}" if place[0] == "time" else str(place[1])
    return "start" if from_beginning else offset or "end"


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


def _json_of(m: Any, part: str) -> Any:
    """Return a key or value for JSON: a decoded one as it is."""
    value = getattr(m, f"{part}_value") if isinstance(m, Record) else getattr(m, part)()
    return json_value(value) if isinstance(value, bytes) else value


def _as_json(m: Any) -> bytes:
    record = {
        "topic": m.topic(),
        "partition": m.partition(),
        "offset": m.offset(),
        "timestamp": m.timestamp()[1],
        "key": _json_of(m, "key"),
        "value": _json_of(m, "value"),
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


Prepare = Callable[[Any], Any]
"""Returns the record to print, None for one that is left out."""


def prepared(chosen: Chosen, decoding: Decoding) -> Prepare | None:
    """Return a function that decodes and filters messages; None where all are printed as they are."""
    keep = chosen.filter()
    if decoding.plain and keep is None:
        return None
    keys, values = decoding.decoders()

    def prepare(message: Any) -> Any:
        from klamm.records.formats import BadRecord

        try:
            record = Record(message, keys, values)
        except BadRecord as e:
            if not decoding.skip_bad:
                raise
            told_bad(e)
            return None
        return record if keep is None or keep(record) else None

    return prepare


class _Printed:
    """The records that were printed so far, and the partitions that came to the end that was asked for."""

    def __init__(
        self, show: Piece, prepare: Prepare | None, end: tuple[str, int] | None, limit: int | None
    ) -> None:
        self._show = show
        self._prepare = prepare
        self._end = end
        self._limit = limit
        self._count = 0
        self.ended: set[tuple[str, int]] = set()

    @property
    def room(self) -> int:
        """The number of records that may still be printed."""
        return 500 if self._limit is None else min(500, self._limit - self._count)

    def take(self, message: Any) -> None:
        """Print a message, if it is wanted."""
        if self._end is not None and self._beyond(message):
            self.ended.add((message.topic(), message.partition()))
            return
        record = message if self._prepare is None else self._prepare(message)
        if record is not None and self.room:
            sys.stdout.buffer.write(self._show(record))
            self._count += 1

    def _beyond(self, message: Any) -> bool:
        assert self._end is not None
        kind, number = self._end
        return bool(message.offset() >= number if kind == "offset" else message.timestamp()[1] >= number)


def _print_all(
    consumer: Any, out: _Printed, timeout_ms: int | None, *, exit_at_end: bool, in_group: bool
) -> None:
    from confluent_kafka import KafkaError

    last = time.monotonic()
    while out.room:
        for message in consumer.consume(out.room, 0.25):
            error = message.error()
            if error is None:
                out.take(message)
                last = time.monotonic()
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                out.ended.add((message.topic(), message.partition()))
            elif message.topic() is not None:
                raise KlammError(f"cannot read {message.topic()}: {error.str()}")
            elif in_group or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KlammError(f"cannot read: {error.str()}")
            # without --group none is used, although librdkafka looks for its coordinator
        sys.stdout.buffer.flush()
        if exit_at_end and out.ended and out.ended >= {(a.topic, a.partition) for a in consumer.assignment()}:
            return
        if timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
            return

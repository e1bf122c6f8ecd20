"""`klamm consume`: print a topic's records."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from klamm.cli.cluster import Cluster
from klamm.cli.common import reported
from klamm.cli.completion import group_names, topic_names
from klamm.cli.consume_options import Chosen, Decoding, Places, Record, told_bad
from klamm.cli.output import Format
from klamm.cli.record_lines import DEFAULT_FORMAT, Piece, lines
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupts

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
    places: Places,
    chosen: Chosen,
    decoding: Decoding,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="Topics to read.")
    ],
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, help="End after so many records.")
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
        Format | None,
        typer.Option(
            "--output",
            "-o",
            help="json, jsonl: a JSON object a line; yaml, csv; wide: place, time, key, value and headers.",
        ),
    ] = None,
) -> None:
    """Print records.

    Ends when -n, -e or --timeout-ms says so, or with Ctrl-C and exit code 130. A group's offsets are committed
    for what was printed.
    """
    places.check(group, chosen.from_)
    head, show = lines(output, format_)
    with reported(), Interrupts() as interrupts:
        wanted = prepared(chosen, decoding)
        end = chosen.place(chosen.to)
        start = places.begin(chosen.place(chosen.from_), to_end=end is not None)
        config = cluster.config("consumer") | {
            "isolation.level": isolation_level,
            "group.id": group or "klamm-consume",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            # without a group it begins where it is told; first records may be deleted meanwhile
            "auto.offset.reset": "earliest" if places.from_beginning or group is None else "latest",
        }
        consumer = _open(cluster, config)
        try:
            _choose(cluster, consumer, topics, group, start, places, interrupts)
            sys.stdout.buffer.write(head)
            out = _Printed(show, wanted, end, max_messages)
            at_end = exit_at_end or end is not None
            _print_all(consumer, out, timeout_ms, interrupts, exit_at_end=at_end, in_group=group is not None)
        finally:
            consumer.close()


def _open(cluster: Cluster, config: dict[str, Any]) -> Any:
    from confluent_kafka import Consumer

    return cluster.open(Consumer, config)


def _choose(
    cluster: Cluster,
    consumer: Any,
    topics: list[str],
    group: str | None,
    start: str,
    places: Places,
    interrupts: Interrupts,
) -> None:
    """Join the group, or take the partitions that were asked for."""
    from confluent_kafka import KafkaException

    patterns = _patterns(topics) if places.regex else []
    found = cluster.metadata(consumer).topics
    if group is not None:
        consumer.subscribe([f"^({t})$" for t in topics] if places.regex else topics)
        return
    if places.regex:
        topics = sorted(n for n in found if any(p.fullmatch(n) for p in patterns))
    absent = [t for t in topics if t not in found]
    if absent or not topics:
        raise KlammError(f"no topic {', '.join(absent) or 'matches'} at {cluster.bootstrap}")
    partitions = places.partition or []
    for strange in sorted({p for p in partitions if not any(p in found[t].partitions for t in topics)}):
        raise KlammError(f"no partition {strange} in {', '.join(topics)}")
    ids = [(t, p) for t in topics for p in sorted(found[t].partitions) if not partitions or p in partitions]
    found_places = []
    try:
        for t, p in ids:
            interrupts.check()
            found_places.append(_position(consumer, t, p, start))
        consumer.assign(found_places)
    except KafkaException as e:
        raise cluster.no_answer(e) from None


def _patterns(texts: list[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(t) for t in texts]
    except re.error as e:
        raise typer.BadParameter(f"{e.pattern!r} is no regular expression: {e}", param_hint="TOPIC") from None


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
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, max(number, 0))], 10)
        if found.error is not None:
            raise KlammError(f"cannot read {topic}-{partition}: {found.error.str()}")
        return found
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
    wanted = high + number if start.startswith("-") else number
    return TopicPartition(topic, partition, min(max(low, wanted), high))


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
        self._over: set[tuple[str, int]] = set()
        self.ended: set[tuple[str, int]] = set()

    @property
    def room(self) -> int:
        """The number of records that may still be printed."""
        return 500 if self._limit is None else min(500, self._limit - self._count)

    def take(self, message: Any) -> bool:
        """Print a message, if it is wanted. Returns False for one at or behind the end that was asked for."""
        if self._end is not None and self._behind_end(message):
            return False
        record = message if self._prepare is None else self._prepare(message)
        if record is not None and self.room:
            sys.stdout.buffer.write(self._show(record))
            self._count += 1
        return True

    def _behind_end(self, message: Any) -> bool:
        """Return whether the partition's first record beyond the end is here or was before: times may go back."""
        place = (message.topic(), message.partition())
        if place not in self._over and self._beyond(message):
            self._over.add(place)
            self.ended.add(place)
        return place in self._over

    def _beyond(self, message: Any) -> bool:
        assert self._end is not None
        kind, number = self._end
        return bool(message.offset() >= number if kind == "offset" else message.timestamp()[1] >= number)


def _print_all(
    consumer: Any,
    out: _Printed,
    timeout_ms: int | None,
    interrupts: Interrupts,
    *,
    exit_at_end: bool,
    in_group: bool,
) -> None:
    last = time.monotonic()
    while out.room:
        interrupts.check()
        printed: dict[tuple[str, int], Any] = {}
        try:
            for message in consumer.consume(out.room, 0.25):
                place = (message.topic(), message.partition())
                if message.error() is not None:
                    if _is_end(message, in_group=in_group):
                        out.ended.add(place)
                    continue
                if out.take(message):
                    printed[place] = message
                last = time.monotonic()
        except KlammError:
            _done(consumer, printed, in_group=in_group)
            raise
        _done(consumer, printed, in_group=in_group)
        if exit_at_end and out.ended and out.ended >= {(a.topic, a.partition) for a in consumer.assignment()}:
            return
        if timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
            return


def _is_end(message: Any, *, in_group: bool) -> bool:
    """Tell whether a partition came to its end. Raises KlammError for what is an error."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        return True
    if message.topic() is not None:
        raise KlammError(f"cannot read {message.topic()}: {error.str()}")
    if in_group or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
        raise KlammError(f"cannot read: {error.str()}")
    return False  # without --group none is used, although librdkafka looks for its coordinator


def _done(consumer: Any, printed: dict[tuple[str, int], Any], *, in_group: bool) -> None:
    """Write out what was printed; only then the group counts it as read."""
    from confluent_kafka import KafkaError, KafkaException

    sys.stdout.buffer.flush()
    for message in printed.values() if in_group else ():
        try:
            consumer.store_offsets(message=message)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - its public name
                raise
            # the partition went to another member, which reads these records again

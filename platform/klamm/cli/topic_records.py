"""`klamm topic analyse` and `copy`: commands that read all records of a topic."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster, kafka_error
from klamm.cli.common import counted, reported
from klamm.cli.completion import topic_names
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.target import Target
from klamm.cli.topic_changes import parse_time
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.topics.analysis import Analysis

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="The topic's name.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Begin at this time: ISO 8601, or ms since 1970. Default: the start."),
]
Last = Annotated[int | None, typer.Option("--last", min=1, help="Only the last N records of each partition.")]
FLUSH_S: Final = 60.0
IDLE_S: Final = 30.0


def analyse(
    cluster: AdminCluster,
    topic: Name,
    from_: From = None,
    last: Last = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Read a topic and tell its sizes, keys and rates.

    Reads what is there when the command begins. Memory stays small: after 100,000 different keys, further ones are not
    told apart.
    """
    with reported():
        from klamm.topics.analysis import Analysis

        found = Analysis()
        progress = _Progress()
        for m in records_of(cluster, topic, from_, last):
            found.add(
                m.partition(),
                m.offset(),
                m.timestamp()[1],
                key=m.key(),
                value=m.value(),
                headers=m.headers() or (),
            )
            progress.step(found.records)
        progress.clear()
        stored = None if from_ or last else _stored(cluster, topic)
        _print(found, stored, output)


def _stored(cluster: AdminCluster, topic: str) -> int:
    """Return the bytes of one copy of a topic on disk."""
    from klamm.admin.client import Admin
    from klamm.admin.records import describe_log_dirs

    async def ask(admin: Admin) -> int:
        sizes: dict[Any, int] = {}
        for each in await describe_log_dirs(admin, list(await admin.brokers())):
            for r in each.replicas:
                if r.partition.topic == topic and not r.future:
                    sizes[r.partition] = max(sizes.get(r.partition, 0), r.size)
        return sum(sizes.values())

    return cluster.ask(ask)


def _print(found: Analysis, stored: int | None, output: Format) -> None:
    facts = found.facts()
    if stored is not None:
        facts["stored_bytes"] = stored
        facts["stored_to_record_bytes"] = round(stored / found.bytes, 3) if found.bytes else None
    parts = {
        "partitions": found.by_partition(),
        "top_keys": found.top_keys(),
        "largest_records": found.largest_records(),
        "by_time": found.by_time(),
    }
    match output:
        case Format.JSON | Format.JSONL:
            sys.stdout.write(
                json.dumps(facts | parts, indent=2 if output is Format.JSON else None, ensure_ascii=False)
                + "\n"
            )
        case Format.YAML:
            from klamm.cli.output import yaml

            sys.stdout.write(yaml(facts | parts))
        case _:
            print_rows([{"figure": k, "value": v} for k, v in facts.items()], ["figure", "value"], output)
            for rows in (part for part in parts.values() if part and output is not Format.CSV):
                sys.stdout.write("\n")
                print_rows(rows, list(rows[0]), output)


def copy(
    cluster: AdminCluster,
    target: Target,
    topic: Name,
    to: Annotated[str, typer.Argument(metavar="TO", help="The topic to write to, which exists.")],
    from_: From = None,
    last: Last = None,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions/--by-key", help="To partitions of the same numbers, or as the keys say."
        ),
    ] = True,
    compression: Annotated[
        str, typer.Option("--compression-codec", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
) -> None:
    """Copy a topic's records to another topic.

    It may be on another cluster. Keys, values, headers and timestamps stay; offsets do not. Copies what is there when it begins, committed
    transactions only.
    """
    with reported():
        from confluent_kafka import KafkaException, Producer

        place = target.cluster(cluster)
        if place == cluster and to == topic:
            raise KlammError("a topic is not copied to itself")
        settings = place.config("producer") | {
            "acks": "all", "enable.idempotence": True, "compression.type": compression, "linger.ms": 20,
        }  # fmt: skip
        producer = place.open(Producer, settings)
        there = place.metadata(producer).topics
        if to not in there:
            raise KlammError(
                f"no topic {to} at {place.bootstrap}; `klamm topic clone {topic} {to}` makes one like it"
            )
        sender = _Sender(producer, to, len(there[to].partitions) if keep_partitions else None)
        progress = _Progress()
        try:
            for m in records_of(cluster, topic, from_, last, committed=True):
                sender.send(m)
                progress.step(sender.sent)
        except KafkaException as e:
            raise kafka_error(e, f"cannot copy to {to}") from None
        finally:
            progress.clear()
        sender.finish()
        typer.echo(f"{counted(sender.acknowledged, 'record')} copied from {topic} to {to}")


class _Sender:
    """Sends copies, and counts those that the target has acknowledged."""

    def __init__(self, producer: Any, topic: str, partitions: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self.sent = 0
        self.acknowledged = 0
        self._problem: str | None = None

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        elif self._problem is None:
            self._problem = str(kafka_error(error, "a record failed"))

    def send(self, m: Any) -> None:
        """Send a copy of a record. Raises KlammError where an earlier one failed, or its partition is not there."""
        if self._problem is not None:
            self._fail()
        partition = -1
        if self._partitions is not None:
            partition = m.partition()
            if partition >= self._partitions:
                raise KlammError(
                    f"{self._topic} has {self._partitions} partitions and none of number {partition}: give --by-key"
                )
        while True:
            try:
                self._producer.produce(
                    self._topic, m.value(), m.key(), partition, on_delivery=self._delivered,
                    timestamp=max(m.timestamp()[1], 0), headers=m.headers() or [],
                )  # fmt: skip
                break
            except BufferError:
                self._producer.poll(0.1)
        self.sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait for all acknowledgements. Raises KlammError."""
        left = self._producer.flush(FLUSH_S)
        if left and self._problem is None:
            self._problem = f"no answer after {FLUSH_S:g} s about {counted(left, 'record')}"
        if self._problem is not None:
            self._fail()

    def _fail(self) -> None:
        raise KlammError(f"{counted(self.acknowledged, 'record')} copied, then {self._problem}")


def records_of(
    cluster: AdminCluster, topic: str, from_: str | None, last: int | None, *, committed: bool = False
) -> Iterator[Any]:
    """Yield a topic's records of now, up to its ends of now. Raises KlammError."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    if from_ is not None and last is not None:
        raise KlammError("--from and --last: give one of them")
    at_ms = None if from_ is None else parse_time(from_)
    consumer = cluster.open(
        Consumer,
        cluster.config("consumer")
        | {
            "group.id": "klamm-topic",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        },
    )
    try:
        found = cluster.metadata(consumer).topics
        if topic not in found:
            raise KlammError(f"no topic {topic} at {cluster.bootstrap}")
        ends: dict[int, int] = {}
        places = []
        for p in sorted(found[topic].partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 10)
            start = low if last is None else max(low, high - last)
            if at_ms is not None:
                (there,) = consumer.offsets_for_times([TopicPartition(topic, p, at_ms)], 10)
                start = there.offset if there.offset >= 0 else high
            if start < high:
                ends[p] = high
                places.append(TopicPartition(topic, p, start))
        consumer.assign(places)
        yield from _until(consumer, topic, ends)
    except KafkaException as e:
        raise kafka_error(e, f"cannot read {topic}") from None
    finally:
        consumer.close()


def _until(consumer: Any, topic: str, ends: dict[int, int]) -> Iterator[Any]:
    """Yield records before these ends; ends when each partition has reached its own."""
    from confluent_kafka import KafkaError

    open_ = dict(ends)
    heard = time.monotonic()
    while open_:
        for m in consumer.consume(1000, 0.5):
            heard = time.monotonic()
            error = m.error()
            if error is None:
                if m.partition() in open_ and m.offset() < open_[m.partition()]:
                    yield m
                if m.offset() + 1 >= ends[m.partition()]:
                    open_.pop(m.partition(), None)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                open_.pop(m.partition(), None)
            else:
                raise KlammError(f"cannot read {topic}: {error.str()}")
        if time.monotonic() - heard > IDLE_S:
            raise KlammError(f"cannot read {topic}: nothing came for {IDLE_S:g} s")


class _Progress:
    """A count of records on a terminal, now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown = clock()
        self._on = sys.stderr.isatty()

    def step(self, records: int) -> None:
        """Show the count, at most five times a second."""
        if self._on and self._clock() - self._shown > 0.2:
            self._shown = self._clock()
            sys.stderr.write(f"\r{records:,} records")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the count away."""
        if self._on:
            sys.stderr.write("\r\x1b[K")


def register(app: typer.Typer) -> None:
    """Add the commands to `klamm topic`."""
    app.command()(analyse)
    app.command()(copy)

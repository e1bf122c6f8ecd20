"""`klamm topic analyse` and `copy`: commands that read all records of a topic."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster, Cluster, kafka_error
from klamm.cli.common import EXIT_FAILED, counted, fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.output import Format, FormatOption, print_rows
from klamm.cli.target import Target
from klamm.cli.topic_reading import Records, records_of
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupted, Interrupts

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.topics.analysis import Analysis

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="The topic's name.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Begin at this time: ISO 8601, ms since 1970, or 90m: 90 minutes ago. Default: the start.",
    ),
]
Last = Annotated[int | None, typer.Option("--last", min=1, help="Only the last N records of each partition.")]
FLUSH_S: Final = 60.0
_LARGEST: Final = 100 * 1024 * 1024
"""Bytes of a record that is tried: the target decides, not the client."""
_QUEUE_KB: Final = 256 * 1024
"""Memory for records that the target has not taken yet; room for the largest."""


def analyse(
    cluster: AdminCluster,
    topic: Name,
    from_: From = None,
    last: Last = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Read a topic and tell its sizes, keys and rates.

    Reads what is there when the command begins. Memory stays small: after 100,000 different keys, or 64 MB of them, further ones are not
    told apart. Ctrl-C ends it with the figures up to then.
    """
    with reported(), Interrupts() as interrupts:
        from klamm.topics.analysis import Analysis

        found, whole = Analysis(), True
        progress = _Progress()
        with records_of(cluster, topic, from_, last) as records:
            records.check = interrupts.check
            try:
                for m in records:
                    found.add(
                        m.partition(),
                        m.offset(),
                        m.timestamp()[1],
                        key=m.key(),
                        value=m.value(),
                        headers=m.headers() or (),
                    )
                    progress.step(found.records)
            except Interrupted:
                whole = False
            finally:
                progress.clear()
        stored = _stored(cluster, topic) if whole and not (from_ or last) else None
        _print(found, stored, output)
        if not whole:
            fail("ended before all records were read", interrupts.code)


def _stored(cluster: AdminCluster, topic: str) -> int | None:
    """Return the bytes of one copy of a topic on disk; None, and why, where brokers do not tell them."""
    from klamm.admin.records import describe_log_dirs

    async def ask(admin: Admin) -> int:
        sizes: dict[Any, int] = {}
        for each in await describe_log_dirs(admin, list(await admin.brokers())):
            for r in each.replicas:
                if r.partition.topic == topic and not r.future:
                    sizes[r.partition] = max(sizes.get(r.partition, 0), r.size)
        return sum(sizes.values())

    try:
        return cluster.ask(ask)
    except KlammError as e:
        typer.echo(f"klamm: the bytes on disk are not known: {e}", err=True)
        return None


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
    transactions only: of a partition with an open transaction what is before it, and says so.
    """
    with reported(), Interrupts() as interrupts:
        with records_of(cluster, topic, from_, last, committed=True) as records:
            sender = _opened(target.cluster(cluster), to, records, keep_partitions, compression)
            problem, code = _copied(records, sender, interrupts)
        if problem is not None:
            fail(f"{counted(sender.acknowledged, 'record')} copied, then {problem}", code)
        for p, at in records.unread.items():
            typer.echo(
                f"klamm: {topic}-{p} was copied up to offset {at}: a transaction is open there", err=True
            )
        typer.echo(f"{counted(sender.acknowledged, 'record')} copied from {topic} to {to}")


def _opened(place: Cluster, to: str, records: Records, keep_partitions: bool, compression: str) -> _Sender:
    """Return what sends to a topic. Raises KlammError for one that is not there, or is the one that is read."""
    from confluent_kafka import Producer

    settings = place.config("producer") | {
        "acks": "all", "enable.idempotence": True, "compression.type": compression, "linger.ms": 20,
        "message.max.bytes": _LARGEST, "queue.buffering.max.kbytes": _QUEUE_KB,
    }  # fmt: skip
    producer = place.open(Producer, settings)
    there = place.metadata(producer)
    if to == records.topic and there.cluster_id == records.cluster_id:
        raise KlammError("a topic is not copied to itself")
    if to not in there.topics:
        raise KlammError(
            f"no topic {to} at {place.bootstrap}; `klamm topic clone {records.topic} {to}` makes one like it"
        )
    return _Sender(producer, to, len(there.topics[to].partitions) if keep_partitions else None)


def _copied(records: Records, sender: _Sender, interrupts: Interrupts) -> tuple[str | None, int]:
    """Send all records, and wait for those that were sent. Returns what went wrong, and the exit code for it."""
    from confluent_kafka import KafkaException

    progress = _Progress()
    records.check = interrupts.check
    problem, code = None, EXIT_FAILED
    try:
        for m in records:
            interrupts.check()
            sender.send(m)
            progress.step(sender.sent)
    except KafkaException as e:
        problem = str(kafka_error(e, f"cannot write to {sender.topic}"))
    except KlammError as e:
        problem = str(e)
        code = e.code if isinstance(e, Interrupted) else EXIT_FAILED
    finally:
        progress.clear()
    late = sender.finish(interrupts)
    return problem or late, code


class _Sender:
    """Sends copies, and counts those that the target has acknowledged."""

    def __init__(self, producer: Any, topic: str, partitions: int | None) -> None:
        self._producer = producer
        self.topic = topic
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
            raise KlammError(self._problem)
        partition = -1
        if self._partitions is not None:
            partition = m.partition()
            if partition >= self._partitions:
                raise KlammError(
                    f"{self.topic} has {self._partitions} partitions and none of number {partition}: give --by-key"
                )
        while True:
            try:
                self._producer.produce(
                    self.topic, m.value(), m.key(), partition, on_delivery=self._delivered,
                    timestamp=max(m.timestamp()[1], 0), headers=m.headers() or [],
                )  # fmt: skip
                break
            except BufferError:
                self._producer.poll(0.1)
        self.sent += 1
        self._producer.poll(0)

    def finish(self, interrupts: Interrupts) -> str | None:
        """Wait for all acknowledgements. Returns what went wrong."""
        left = interrupts.flush(self._producer, FLUSH_S)
        if left and self._problem is None:
            self._problem = f"no answer about {counted(left, 'record')}"
        return self._problem


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

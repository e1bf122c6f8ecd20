"""`klamm bench`: how fast a cluster takes and gives records."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.cluster import Cluster, kafka_error
from klamm.cli.common import fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError
from klamm_base.interrupts import Interrupted, Interrupts

if TYPE_CHECKING:
    from klamm.load.latencies import Latencies
    from klamm.load.running import Reading

app = Commands(help="Measure how fast a cluster is.", no_args_is_help=True)
Name = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="A topic that exists.")
]
Records = Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")]


@app.command()
def produce(
    cluster: Cluster,
    topic: Name,
    records: Records = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", min=0, help="Bytes of each value.")] = 100,
    keys: Annotated[int, typer.Option("--keys", min=0, help="Different keys; 0: records without keys.")] = 0,
    rate: Annotated[float, typer.Option("--rate", help="Records a second at most; 0: no limit.")] = 0,
    acks: Annotated[str, typer.Option("--acks", help="0, 1 or all.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression-codec", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    compressible: Annotated[
        bool, typer.Option("--compressible", help="Values that compress well, instead of random bytes.")
    ] = False,
    linger_ms: Annotated[float, typer.Option("--linger-ms", min=0, help="Time to gather a batch.")] = 5,
    output: FormatOption = Format.TABLE,
) -> None:
    """Write records, and tell rate and latency.

    A line of progress goes to standard error. The latency of a record is the time until it is acknowledged. Ctrl-C
    ends it with the figures up to then.
    """
    with reported(), Interrupts() as interrupts:
        from confluent_kafka import KafkaException, Producer

        from klamm.load.running import Sending

        settings = {"acks": acks, "compression.type": compression, "linger.ms": linger_ms}
        producer = cluster.open(Producer, cluster.config("producer") | settings)
        _require(cluster, producer, topic)
        sending = Sending(producer, topic, _told, report_s=1.0, interrupts=interrupts)
        key = (lambda n: b"key-%d" % (n % keys)) if keys else None
        try:
            sending.run(_values(records, size, compressible=compressible), rate, key=key)
        except KafkaException as e:
            raise kafka_error(e, f"cannot write to {topic}") from None
        except Interrupted:
            producer.purge()  # what was not sent yet
        whole = sending.whole
        per_s, megabytes = whole.rate(sending.elapsed_s)
        row = {
            "records": whole.count,
            "seconds": round(sending.elapsed_s, 3),
            "records_per_s": round(per_s, 1),
            "mb_per_s": round(megabytes, 3),
            "mean_ms": round(whole.mean_ms, 2),
            **{f"p{n}_ms": whole.percentile(float(f"0.{n}")) for n in ("50", "95", "99", "999")},
            "max_ms": round(whole.max_ms, 2),
        }
        print_rows([row], list(row), output)
        if interrupts.count:
            fail(f"ended after {whole.count} of {records} records", interrupts.code)


def _values(count: int, size: int, *, compressible: bool) -> Iterator[bytes]:
    if compressible:
        text = b"the quick brown fox jumps over the lazy dog " * (size // 44 + 1)
        return (text[:size] for _ in range(count))
    pool = os.urandom(size + 65_536)
    return (pool[at : at + size] for at in (n * 7919 % 65_536 for n in range(count)))


def _require(cluster: Cluster, client: Any, topic: str) -> None:
    if topic not in cluster.metadata(client).topics:
        raise KlammError(f"no topic {topic} at {cluster.bootstrap}")


def _told(window: Latencies, elapsed_s: float) -> None:
    per_s, megabytes = window.rate(elapsed_s)
    sys.stderr.write(f"{per_s:,.0f} records/s  {megabytes:.1f} MB/s  {window.mean_ms:.1f} ms\n")


@app.command()
def consume(
    cluster: Cluster,
    topic: Name,
    records: Records = 1_000_000,
    timeout_ms: Annotated[
        int, typer.Option("--timeout-ms", min=1, help="End when nothing came for so long.")
    ] = 10_000,
    output: FormatOption = Format.TABLE,
) -> None:
    """Read records from the start, and tell the rate.

    Joins a new group, whose time to join is told apart. Ends with exit code 1 when there are fewer records;
    the wait for them is not in the rate. Ctrl-C ends it with the figures up to then.
    """
    with reported(), Interrupts() as interrupts:
        import uuid

        from confluent_kafka import Consumer

        from klamm.load.running import Reading

        settings = {
            "group.id": f"klamm-bench-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = cluster.open(Consumer, cluster.config("consumer") | settings)
        reading = Reading(consumer, _read, report_s=1.0, interrupts=interrupts)
        try:
            _require(cluster, consumer, topic)
            complete = reading.run([topic], records, timeout_ms / 1000)
        except Interrupted:
            complete = False
        finally:
            consumer.close()
        reading_s = max(reading.read_s - reading.joining_s, 0.001)
        row = {
            "records": reading.records,
            "seconds": round(reading.read_s, 3),
            "joining_s": round(reading.joining_s, 3),
            "records_per_s": round(reading.records / reading_s, 1),
            "mb_per_s": round(reading.bytes / reading_s / 1024 / 1024, 3),
        }
        print_rows([row], list(row), output)
        if interrupts.count:
            fail(f"ended after {reading.records} of {records} records", interrupts.code)
        if not complete:
            raise KlammError(f"{reading.records} of {records} records came, then nothing for {timeout_ms} ms")


def _read(reading: Reading, elapsed_s: float) -> None:
    sys.stderr.write(f"{reading.records:,} records after {elapsed_s:.0f} s\n")

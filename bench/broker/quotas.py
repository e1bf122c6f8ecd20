"""Rates of clients that take all that they can, as shares of their quota: `PYTHONPATH=tests python -m bench.broker.quotas [seconds]`.

Ours and Apache's broker in turn, each with four clients at a time, all at 2 MB/s: librdkafka's and Java's producer and
consumer. Each counts what its broker has acknowledged or given it, once a second. Printed are the least and the most of
any 30 s, from the first record on and without the first 15 s, and the mean of all.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.servers import KAFKA_HOME, Kafka, Klamm, Server
from confluent_kafka import Consumer, Message, Producer
from support.quotas import put
from support.raw import RawClient

QUOTA: Final = 2_000_000
RECORD: Final = 10_000
SPAN_S: Final = 30
SETTLED_S: Final = 15
MB: Final = 1 << 20
Points = list[tuple[float, float]]
"""Time and bytes so far."""


def rd_produce(server: Server, points: Points, until: float) -> None:
    """Send with librdkafka, as much as goes."""
    done = 0

    def delivered(error: object, message: Message) -> None:
        nonlocal done
        assert error is None, error
        done += RECORD
        points.append((time.monotonic(), done))

    config = {
        "bootstrap.servers": server.bootstrap,
        "client.id": "rd-produce",
        "queue.buffering.max.kbytes": 4096,
    }
    producer, value = Producer(config), bytes(RECORD)
    while time.monotonic() < until:
        try:
            producer.produce("rd", value, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()


def rd_consume(server: Server, points: Points, until: float) -> None:
    """Read with librdkafka, as much as goes."""
    config = {
        "bootstrap.servers": server.bootstrap, "client.id": "rd-consume", "group.id": "rd", "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer, done = Consumer(config), 0
    consumer.subscribe(["full"])
    while time.monotonic() < until:
        got = consumer.consume(500, 0.1)
        done += sum(len(message.value() or b"") for message in got)
        if got:
            points.append((time.monotonic(), done))
    consumer.close()


def java(points: Points, until: float, bytes_of: Callable[[str], float], *args: str) -> None:
    """Run a tool of Kafka's, which tells its progress once a second."""
    process = subprocess.Popen(
        ["java", "-Xmx256m", "-cp", f"{KAFKA_HOME}/libs/*", *args],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    timer = threading.Timer(until - time.monotonic(), process.kill)
    timer.start()
    assert process.stdout is not None
    for line in process.stdout:
        if line[:1].isdigit():
            points.append((time.monotonic(), bytes_of(line)))
    process.wait()
    timer.cancel()


def java_produce(server: Server, points: Points, until: float) -> None:
    done = 0

    def sent(line: str) -> float:
        nonlocal done
        done += int(line.split(maxsplit=1)[0]) * RECORD
        return done

    java(
        points, until, sent, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", server.bootstrap, "--topic", "java",
        "--num-records", "1000000", "--record-size", str(RECORD), "--throughput", "-1", "--reporting-interval", "1000",
        "--command-property", "client.id=java-produce", "buffer.memory=4194304",
    )  # fmt: skip


def java_consume(server: Server, points: Points, until: float) -> None:
    java(
        points, until, lambda line: float(line.split(",")[2]) * MB, "org.apache.kafka.tools.ConsumerPerformance",
        "--bootstrap-server", server.bootstrap, "--topic", "full", "--num-records", "1000000", "--reporting-interval", "1000",
        "--show-detailed-stats", "--hide-header", "--timeout", "60000", "--command-property", "client.id=java-consume",
    )  # fmt: skip


CLIENTS: Final = {
    "librdkafka, produce": rd_produce, "Java, produce": java_produce,
    "librdkafka, consume": rd_consume, "Java, consume": java_consume,
}  # fmt: skip


def fill(server: Server, size: int) -> None:
    """Write so many bytes for the consumers."""
    producer, value = Producer({"bootstrap.servers": server.bootstrap, "client.id": "fill"}), bytes(RECORD)
    for n in range(size // RECORD):
        producer.produce("full", value)
        if n % 1000 == 999:
            producer.flush()
    producer.flush()


def shares(points: Points, *, after_s: float) -> tuple[float, float]:
    """Returns the least and the most of any `SPAN_S`, as shares of the quota."""
    begun = points[0][0] + after_s
    found, first = [], 0
    for now, done in points:
        while points[first + 1][0] <= now - SPAN_S:
            first += 1
        at, before = points[first]
        if at >= begun and now - at >= SPAN_S:
            found.append((done - before) / (now - at) / QUOTA)
    return min(found), max(found)


def measure(server: Server, seconds: float) -> dict[str, str]:
    """Returns a cell of the table by client."""
    fill(server, int((seconds + 15) * QUOTA))
    with RawClient(server.port) as client:
        for name in ("rd", "java"):
            for kind, key in (("produce", "producer_byte_rate"), ("consume", "consumer_byte_rate")):
                assert put(client, {"client-id": f"{name}-{kind}"}, {key: QUOTA}) == (0, None)
    until = time.monotonic() + seconds
    points: dict[str, Points] = {name: [] for name in CLIENTS}
    threads = [
        threading.Thread(target=run, args=(server, points[name], until)) for name, run in CLIENTS.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: cell(at) for name, at in points.items()}


def cell(points: Points) -> str:
    """Returns the shares of one client as text: settled, from the first record on, and over all."""
    thinned = [points[0], *(b for a, b in pairwise(points) if int(b[0] * 4) > int(a[0] * 4))]
    (least, most), (first, burst) = shares(thinned, after_s=SETTLED_S), shares(thinned, after_s=0)
    over_all = points[-1][1] / (points[-1][0] - points[0][0]) / QUOTA
    return f"{least:.2f}-{most:.2f} | {first:.2f}-{burst:.2f} | {over_all:.2f}"


def main(seconds: float) -> None:
    """Prints a table."""
    if (missing := Kafka.missing()) is not None:
        sys.exit(missing)
    found = {}
    for kind in (Klamm, Kafka):
        with tempfile.TemporaryDirectory() as root:
            server = kind(Path(root) / kind.name)
            server.start()
            try:
                found[kind.name] = measure(server, seconds)
            finally:
                server.stop()
        print(kind.name, found[kind.name], flush=True)
    print(
        "| client | klamm | with the begin | all | kafka | with the begin | all |\n|---|---|---|---|---|---|---|"
    )
    for name in CLIENTS:
        print(f"| {name} | {found['klamm'][name]} | {found['kafka'][name]} |")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 100)
